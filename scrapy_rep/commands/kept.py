"""What crawls have left: ``scrapy robots --cache [HOST|URL|SHA256 …]`` lists, shows and drops what
the project's storage keeps (REP.md section 5); ``--held JOBDIR`` lists what a crawl holds, running
or stopped, and changes nothing there; ``--report FILE…`` prints the report of crawls, from their
records."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.crawl import request_for
from scrapy_rep.commands.output import CommandError, Status, WrongUsage, complain
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.cache import state_of
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import held_fields
from scrapy_rep.storages.base import BATCH, Entry, UnreadableEntry
from scrapy_rep.text import clean, counted, duration, iso, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_rep.commands.crawl import CrawlTask
    from scrapy_rep.settings import RepSettings
    from scrapy_rep.storages.base import Storage

# -- cache -----------------------------------------------------------------------------------

_SHA256 = re.compile(r"[0-9a-f]{64}")

_WIDEST = len("unrestricted")


def cache(task: CrawlTask) -> None:
    hashes = [one for one in task.arguments if _SHA256.fullmatch(one)]
    urls = [one for one in task.arguments if "://" in one]
    hosts = [one for one in task.arguments if one not in hashes and one not in urls]
    if task.options.drop and (hashes or not task.arguments):
        raise WrongUsage("--drop needs hosts or URLs; '*' drops everything")
    with task.storage() as storage:
        if storage is None:
            raise CommandError(
                "REP_CACHE_STORAGE is in memory, so nothing is left after a crawl"
            )
        origins = []
        for one in urls:
            with task.going_on():
                origins.append(str(origin_of(request_for(one))))
        entries = _of_hosts(storage, hosts) if hosts or not task.arguments else ()
        if (
            task.options.drop
        ):  # once all is read: a storage need not allow changes meanwhile
            found = [*origins, *(entry.origin for entry in entries)]
            _drop(task, storage, dict.fromkeys(found))
            return
        for one in hashes:
            _body(task, storage, one)
        for one in origins:
            _show(task, storage, one)
        if hosts or not task.arguments:
            _list(task, entries, hosts)


def _not_found(task: CrawlTask, what: str) -> None:
    complain(what)
    task.statuses.add(Status.FOUND)


def _body(task: CrawlTask, storage: Storage, sha256: str) -> None:
    try:
        if (body := storage.body(sha256)) is None:
            raise UnreadableEntry("not in the cache")
        task.output.bytes(body)
    except UnreadableEntry as error:
        _not_found(task, f"robots.txt with hash {sha256}: {error}")


def _show(task: CrawlTask, storage: Storage, origin: str) -> None:
    try:
        if (entry := storage.load(origin)) is None:
            raise UnreadableEntry("nothing cached")
        entry.check(origin)
    except UnreadableEntry as error:
        _not_found(task, f"{origin}: {error}")
        return
    body = entry.body.decode("utf-8", "replace") if entry.has_copy else None
    task.output.put_all(
        {**_as_json(task.rep, entry), "body": body}, "state", "origin", body=[]
    )
    for line in (body or "").splitlines():
        task.output.line(line)


def _of_hosts(storage: Storage, hosts: Sequence[str]) -> Iterator[Entry]:
    """Yield the entries of *hosts*, which may have wildcards; of all if there are none. Complains
    about unreadable ones."""
    names, unreadable = [host.lower() for host in hosts] or ["*"], list[object]()
    for entry in storage.entries():
        try:
            if isinstance(entry, UnreadableEntry):
                raise entry
            host = Origin.from_url(entry.origin).host
        except (UnreadableEntry, ValueError) as error:
            unreadable.append(error)
        else:
            if any(fnmatchcase(host, one) for one in names):
                yield entry
    if unreadable:
        entries = counted(len(unreadable), "unreadable entry", "unreadable entries")
        complain(f"skipped {entries}; the first: {unreadable[0]}")


def _list(task: CrawlTask, entries: Iterable[Entry], hosts: Sequence[str]) -> None:
    entry = None
    for entry in entries:
        data, body = _as_json(task.rep, entry), b""
        with suppress(UnreadableEntry):
            body = entry.body
        facts = Facts(status=entry.status, hops=entry.hops)
        robots = RobotsFile(entry.outcome, body, facts, note=entry.note)
        answer = robots.answer if entry.status else "no answer"
        times = f"fetched {data['fetched_at']}, fresh until {data['fresh_until']}"
        if entry.unreachable_since is not None:
            times = f"since {data['unreachable_since']}: {entry.error}"
        task.output.put(data, data["state"].ljust(_WIDEST), entry.origin, answer, times)
    if entry is None:
        _not_found(
            task,
            f"nothing cached for {', '.join(hosts)}" if hosts else "the cache is empty",
        )


def _drop(task: CrawlTask, storage: Storage, origins: Iterable[str]) -> None:
    dropped = {origin: storage.drop(origin) for origin in origins}
    for origin, was_there in dropped.items():
        if was_there:
            task.output.put({"origin": origin}, f"dropped {origin}")
        else:
            _not_found(task, f"{origin}: nothing cached")
    if not dropped:
        _not_found(task, "nothing to drop")


def _as_json(rep: RepSettings, entry: Entry) -> dict[str, Any]:
    return {
        "origin": entry.origin,
        "state": state_of(entry, time.time(), rep),
        "outcome": entry.outcome.value,
        "status": entry.status,
        "url": entry.url or None,
        "hops": entry.hops,
        "sha256": entry.sha256,
        "fetched_at": iso(entry.fetched_at),
        "fresh_until": iso(entry.fresh_until or None),
        "updated_at": iso(entry.updated_at),
        "unreachable_since": iso(entry.unreachable_since),
        "attempts": entry.attempts,
        "next_attempt_at": iso(entry.next_attempt_at or None),
        "error": entry.error,
    }


# -- held ------------------------------------------------------------------------------------

# Seconds since the first was held, counting only the time that crawls with this JOBDIR ran. What a
# newer or damaged file has in place of numbers is left out.
_HELD = """
SELECT origin, count(*), max(max(since), (SELECT coalesce(max(ran), 0) FROM clock)) - min(since)
FROM held WHERE typeof(origin) = 'text' AND typeof(since) = 'real' GROUP BY origin ORDER BY 2 DESC
"""


def held(task: CrawlTask) -> None:
    if task.arguments:
        raise WrongUsage("--held takes a JOBDIR and nothing else")
    path = Path(task.options.held, FILE_NAME)
    if not path.parent.is_dir():
        raise CommandError(f"{task.options.held!r} is not a directory")
    found = _held_in(path)
    known: dict[str, Entry | UnreadableEntry] = {}
    with task.storage() as storage:
        unknown = "reason unknown: REP_CACHE_STORAGE doesn't know it as unreachable"
        if storage is None:
            unknown = "reason unknown: REP_CACHE_STORAGE is in memory, so only the crawl knows it"
        for start in range(0, len(found), BATCH):
            some = [origin for origin, *_ in found[start : start + BATCH]]
            known |= storage.load_many(some) if storage is not None else {}
    for origin, requests, seconds in found:
        entry = one if isinstance(one := known.get(origin), Entry) else None
        why = unknown
        if entry is not None and entry.unreachable_since is not None:
            why = f"robots.txt unreachable since {iso(entry.unreachable_since)} ({entry.error}), "
            why += f"next attempt not before {iso(entry.next_attempt_at)}"
        count, since = counted(requests, "request"), f"held for {duration(seconds)}"
        task.output.put(
            held_fields(origin, requests, seconds, entry), count, origin, since, why
        )
    total = counted(sum(requests for _, requests, _ in found), "request")
    task.output.line(f"# {total} of {counted(len(found), 'origin')} held")


def _held_in(path: Path) -> list[tuple[str, int, float]]:
    try:
        if not path.exists():
            return []
        # While a crawl runs, and after it was killed, there is a WAL beside its file. If there is
        # none, reading must not create one: the next run would conclude that the crawl was killed.
        mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)
        ) as db:
            return db.execute(_HELD).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(
            f"{path} can't be read: {text_of(error)}", Status.UNREACHABLE
        ) from None


# -- report ----------------------------------------------------------------------------------


def report(task: CrawlTask) -> None:
    from scrapy_rep.reporting.report import LIBRARY, ReportData, render

    if not task.arguments:
        raise WrongUsage("--report needs a file that REP_DECISIONS has written")
    if find_spec(LIBRARY) is None:
        raise CommandError(
            f'--report needs {LIBRARY}: pip install "scrapy-rep[report]"'
        )
    try:
        data = ReportData.read(task.arguments)
    except OSError as error:
        raise CommandError(f"{clean(str(error.filename))}: {error.strerror}") from None
    try:
        with task.storage() as storage:
            if storage is not None:
                data.fill(lambda _, sha256: storage.body(sha256) if sha256 else None)
    except CommandError as error:
        complain(error)
    for note in data.notes:
        complain(note)
    task.output.bytes(render(data))
