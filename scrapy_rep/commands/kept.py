"""What crawls have left. ``scrapy robots --cache [HOST|URL|SHA256 …]`` lists, shows and
drops what the project's storage keeps (REP.md section 5). ``--held JOBDIR`` lists the
requests that a crawl, running or stopped, holds back; it changes nothing there.
``--report FILE…`` prints the report on crawls, from their records."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.commands.crawl import request_for
from scrapy_rep.commands.output import CommandError, ExitStatus, WrongUsage, complain
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
    from scrapy_rep.reporting.report import ReportData
    from scrapy_rep.settings import RepSettings
    from scrapy_rep.storages.base import Storage

# -- cache -----------------------------------------------------------------------------------

# How `--cache` prints the hash of a robots.txt: what SHA-256 gives, in hexadecimal.
_SHA256 = re.compile(r"[0-9a-f]{64}")

# Columns of the first cell of each line: "unrestricted" is the longest state.
_STATE_WIDTH = len("unrestricted")


def cache(task: CrawlTask) -> None:
    """Carry out ``--cache``: list the entries of hosts, show those of URLs, and print
    the robots.txt files with the given hashes. With ``--drop``, remove the entries of
    hosts and URLs instead."""
    hashes, urls, hosts = _sorted_out(task.arguments)
    if task.options.drop and (hashes or not task.arguments):
        raise WrongUsage("--drop needs hosts or URLs; '*' drops everything")
    with task.storage() as storage:
        if storage is None:
            raise CommandError(
                "REP_CACHE_STORAGE is in memory, so nothing is left after a crawl"
            )
        # The origins of the given URLs.
        origins = []
        for url in urls:
            with task.reporting_errors():
                origins.append(str(origin_of(request_for(url))))
        is_listing = bool(hosts) or not task.arguments
        no_entries: Iterator[Entry] = iter(())
        entries = _entries_of(storage, hosts) if is_listing else no_entries
        if task.options.drop:
            # All entries are read before the first is dropped, since a storage need not
            # allow changes while its entries() runs.
            origins += [entry.origin for entry in entries]
            _drop(task, storage, dict.fromkeys(origins))
            return
        # Files come first, since what is printed as bytes must not follow lines.
        for sha256 in hashes:
            _print_body(task, storage, sha256)
        for origin in origins:
            _print_entry(task, storage, origin)
        if is_listing:
            _list_entries(task, entries, hosts)


class _Arguments(NamedTuple):
    """The arguments of ``--cache``, by what they are; each list in the order given."""

    hashes: list[str]
    urls: list[str]
    hosts: list[str]


def _sorted_out(arguments: Sequence[str]) -> _Arguments:
    """Return *arguments*, told apart by their form."""
    sorted_out = _Arguments([], [], [])
    for argument in arguments:
        if _SHA256.fullmatch(argument):
            sorted_out.hashes.append(argument)
        elif "://" in argument:
            sorted_out.urls.append(argument)
        else:
            sorted_out.hosts.append(argument)
    return sorted_out


def _complain_of_missing(task: CrawlTask, message: str) -> None:
    """Complain that something isn't in the cache: in words and by exit status."""
    complain(message)
    task.statuses.add(ExitStatus.FOUND)


def _print_body(task: CrawlTask, storage: Storage, sha256: str) -> None:
    """Print the robots.txt whose hash is *sha256*, byte by byte."""
    try:
        body = storage.body(sha256)
        if body is None:
            raise UnreadableEntry("not in the cache")
        task.output.bytes(body)
    except UnreadableEntry as error:
        _complain_of_missing(task, f"robots.txt with hash {sha256}: {error}")


def _print_entry(task: CrawlTask, storage: Storage, origin: str) -> None:
    """Print all that the cache has of an origin, with the robots.txt itself."""
    try:
        entry = storage.load(origin)
        if entry is None:
            raise UnreadableEntry("nothing cached")
        entry.check(origin)  # raises UnreadableEntry if the entry is damaged
    except UnreadableEntry as error:
        _complain_of_missing(task, f"{origin}: {error}")
        return
    body = entry.body.decode("utf-8", "replace") if entry.has_copy else None
    data = {**_as_data(task.rep, entry), "body": body}
    # For people, the body stands below the other fields, not among them.
    lines_of_fields: dict[str, list[str]] = {"body": []}
    task.output.put_all(data, first_line=("state", "origin"), lines=lines_of_fields)
    if body is not None:
        for line in body.splitlines():
            task.output.line(line)


def _entries_of(storage: Storage, hosts: Sequence[str]) -> Iterator[Entry]:
    """Yield the entries of *hosts*, which may have wildcards; all entries if *hosts* is
    empty. Complains about unreadable entries."""
    patterns = [host.lower() for host in hosts] or ["*"]
    unreadable_count = 0
    first_error: Exception | None = None
    for entry in storage.entries():
        try:
            if isinstance(entry, UnreadableEntry):
                raise entry
            host = Origin.from_url(entry.origin).host
        except (UnreadableEntry, ValueError) as error:
            unreadable_count += 1
            first_error = first_error or error
            continue
        if any(fnmatchcase(host, pattern) for pattern in patterns):
            yield entry
    if unreadable_count:
        unreadable = counted(unreadable_count, "unreadable entry", "unreadable entries")
        complain(f"skipped {unreadable}; the first: {first_error}")


def _list_entries(
    task: CrawlTask,
    entries: Iterable[Entry],
    hosts: Sequence[str],
) -> None:
    """Print a line for each of *entries*.

    :param hosts: the hosts that were asked for, which the complaint names if there are
        no entries
    """
    is_empty = True
    for entry in entries:
        is_empty = False
        data = _as_data(task.rep, entry)
        state = data["state"].ljust(_STATE_WIDTH)
        answer = _answer_in(entry)
        if entry.unreachable_since is None:
            times = f"fetched {data['fetched_at']}, fresh until {data['fresh_until']}"
        else:
            times = f"since {data['unreachable_since']}: {entry.error}"
        task.output.put(data, state, entry.origin, answer, times)
    if not is_empty:
        return
    if hosts:
        _complain_of_missing(task, f"nothing cached for {', '.join(hosts)}")
    else:
        _complain_of_missing(task, "the cache is empty")


def _answer_in(entry: Entry) -> str:
    """Return in words what the origin of *entry* answered."""
    if not entry.status:
        return "no answer"
    body = b""
    with suppress(UnreadableEntry):
        body = entry.body
    facts = Facts(status=entry.status, hops=entry.hops)
    return RobotsFile(entry.outcome, body, facts, note=entry.note).answer


def _drop(task: CrawlTask, storage: Storage, origins: Iterable[str]) -> None:
    """Remove the entries of *origins* from the cache, then say which of them it had."""
    dropped = {origin: storage.drop(origin) for origin in origins}
    if not dropped:
        _complain_of_missing(task, "nothing to drop")
    for origin, was_dropped in dropped.items():
        if was_dropped:
            task.output.put({"origin": origin}, f"dropped {origin}")
        else:
            _complain_of_missing(task, f"{origin}: nothing cached")


def _as_data(rep: RepSettings, entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON has it (docs/command.md explains the fields). *rep*: the
    project's settings, on which the state depends."""
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

# Reads the database that holding/disk.py writes: for each origin, how many requests are
# held, and for how many seconds the first of them has been. Only the time counts during
# which crawls with this JOBDIR ran: `since` (when a request was held) and `ran` (when
# the clock was last saved) are seconds of that time, and the latest of them is taken
# for now. Rows that have something else than a text or a number there, as a newer or
# damaged file may, are left out.
_HELD_BY_ORIGIN = """
SELECT origin, count(*), max(max(since), (SELECT coalesce(max(ran), 0) FROM clock)) - min(since)
FROM held WHERE typeof(origin) = 'text' AND typeof(since) = 'real' GROUP BY origin ORDER BY 2 DESC
"""


class _HeldRequests(NamedTuple):
    """How much is held for one origin."""

    origin: str
    requests: int
    """How many requests are held."""
    seconds: float
    """How long the first of the requests has been held."""


def held(task: CrawlTask) -> None:
    """Carry out ``--held``: print how many requests a JOBDIR holds for each origin,
    and why it holds them."""
    if task.arguments:
        raise WrongUsage("--held takes a JOBDIR and nothing else")
    path = Path(task.options.held, FILE_NAME)
    if not path.parent.is_dir():
        raise CommandError(f"{task.options.held!r} is not a directory")
    held_by_origin = _held_in(path)
    # The cache may know why the robots.txt of these origins are unreachable.
    entries: dict[str, Entry] = {}
    with task.storage() as storage:
        if storage is None:
            why_unknown = "reason unknown: REP_CACHE_STORAGE is in memory, so only the crawl knows it"
        else:
            why_unknown = (
                "reason unknown: REP_CACHE_STORAGE doesn't know it as unreachable"
            )
            entries = _load_entries(storage, [item.origin for item in held_by_origin])
    # Print a line for each origin, then the totals.
    for item in held_by_origin:
        entry = entries.get(item.origin)
        why = why_unknown
        if entry is not None and entry.unreachable_since is not None:
            since = iso(entry.unreachable_since)
            next_attempt = iso(entry.next_attempt_at)
            why = f"robots.txt unreachable since {since} ({entry.error}), "
            why += f"next attempt not before {next_attempt}"
        data = held_fields(item.origin, item.requests, item.seconds, entry)
        requests = counted(item.requests, "request")
        time_held = f"held for {duration(item.seconds)}"
        task.output.put(data, requests, item.origin, time_held, why)
    total = sum(item.requests for item in held_by_origin)
    all_requests = counted(total, "request")
    all_origins = counted(len(held_by_origin), "origin")
    task.output.line(f"# {all_requests} of {all_origins} held")


def _load_entries(storage: Storage, origins: Sequence[str]) -> dict[str, Entry]:
    """Return the entries of *origins* that the storage has and can read. The storage is
    asked for batches of entries, of the size that suits storages."""
    entries = {}
    for start in range(0, len(origins), BATCH):
        batch = storage.load_many(origins[start : start + BATCH])
        for origin, entry in batch.items():
            if isinstance(entry, Entry):
                entries[origin] = entry
    return entries


def _held_in(path: Path) -> list[_HeldRequests]:
    """Return what the database at *path* holds for each origin, beginning with the most
    requests; ``CommandError`` if it can't be read."""
    try:
        if not path.exists():
            return []
        # While a crawl runs, and after it was killed, there is a write-ahead log beside
        # the database. If there is no such log, reading must not create one, since the
        # next crawl would conclude from the log that the crawl before was killed.
        has_log = Path(f"{path}-wal").exists()
        # SQLite creates nothing beside a database that is said to be immutable.
        mode = "mode=ro" if has_log else "immutable=1"
        address = f"{path.resolve().as_uri()}?{mode}"
        with closing(sqlite3.connect(address, uri=True)) as database:
            rows = database.execute(_HELD_BY_ORIGIN).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(
            f"{path} can't be read: {text_of(error)}", ExitStatus.UNREACHABLE
        ) from None
    # The columns of _HELD_BY_ORIGIN are the fields of _HeldRequests, in order.
    return [_HeldRequests(*row) for row in rows]


# -- report ----------------------------------------------------------------------------------


def report(task: CrawlTask) -> None:
    """Carry out ``--report``: print the HTML report on the crawls that wrote the given
    files."""
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
        name = clean(str(error.filename))
        raise CommandError(f"{name}: {error.strerror}") from None
    # The record has only the hashes of robots.txt files. The cache may have the files
    # themselves. If the cache can't be used, the report does without them.
    try:
        with task.storage() as storage:
            if storage is not None:
                _fill_in_bodies(data, storage)
    except CommandError as error:
        complain(error)
    for note in data.notes:
        complain(note)
    task.output.bytes(render(data))


def _fill_in_bodies(data: ReportData, storage: Storage) -> None:
    """Look up in *storage* the robots.txt files that *data* names by their hashes."""

    # ReportData.fill() passes the origin, too, but bodies are stored by their hashes.
    def body_of(_origin: str, sha256: str | None) -> bytes | None:
        return storage.body(sha256) if sha256 else None

    data.add_texts(body_of)
