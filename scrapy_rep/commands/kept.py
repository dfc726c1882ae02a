"""What crawls have left: ``scrapy robots --cache [HOST|URL|SHA256 …]`` lists, shows and drops what
the project's storage keeps (REP.md section 5); ``--held JOBDIR`` lists what a crawl holds, running
or stopped, and changes nothing there; ``--report FILE…`` prints the report of crawls, from their
records."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_rep.commands.output import DIM, GREEN, RED, YELLOW, CommandError, Status, complain
from scrapy_rep.commands.task import request_for
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import held_fields
from scrapy_rep.origins.cache import standing_of
from scrapy_rep.origins.choices import Choices
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome, is_html
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.storages.base import Entry, UnreadableEntry
from scrapy_rep.text import clean, counted, duration, iso, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.task import Task
    from scrapy_rep.storages.base import Storage

# -- cache -----------------------------------------------------------------------------------

_SHA256 = re.compile(r"[0-9a-f]{64}")

_COLOURS = {
    Standing.FRESH: GREEN,
    Standing.ASK: DIM,
    Standing.STALE: YELLOW,
    Standing.UNREACHABLE: RED,
    Standing.UNRESTRICTED: YELLOW,
}
_WIDEST = max(len(state.value) for state in _COLOURS)


def cache(task: Task) -> None:
    if task.options.drop and not task.arguments:
        raise UsageError("--drop needs hosts or URLs; '*' drops everything")
    with task.storage() as storage:
        if storage is None:
            raise CommandError("REP_CACHE_STORAGE is in memory, so nothing is left after a crawl")
        hashes = [one for one in task.arguments if _SHA256.fullmatch(one)]
        urls = [one for one in task.arguments if "://" in one]
        hosts = [one for one in task.arguments if one not in hashes and one not in urls]
        if hashes and task.options.drop:
            raise UsageError("--drop takes hosts and URLs, not hashes")
        kept = _Cache(storage, task)
        found = [kept.body(one) for one in hashes]
        found += [kept.one(str(request_for(one)[1])) for one in urls]
        if hosts or not task.arguments:
            found.append(kept.many(hosts))
        if not all(found):
            task.statuses.add(Status.FOUND)


class _Cache:
    """Answers for one storage. Methods return whether there is such a thing, and complain if not."""

    def __init__(self, storage: Storage, task: Task) -> None:
        self._storage = storage
        self._rep = task.rep
        self._choices = Choices.of(task.rep)
        self._options = task.options
        self._output = task.output
        self._now = time.time()

    def body(self, sha256: str) -> bool:
        try:
            if (body := self._storage.body(sha256)) is not None:
                self._output.bytes(body)
                return True
            problem = "not in the cache"
        except UnreadableEntry as error:
            problem = str(error)
        complain(f"robots.txt with hash {sha256}: {problem}")
        return False

    def one(self, origin: str) -> bool:
        try:
            entry = self._storage.load(origin)
            entry = None if entry is None else entry.check(origin)
        except UnreadableEntry as error:
            complain(f"{origin}: {error}")
            return self._options.drop and self._dropped(origin)
        if entry is None:
            complain(f"nothing cached for {origin}")
        elif self._options.drop:
            return self._dropped(origin)
        else:
            self._print(entry, whole=True)
        return entry is not None

    def many(self, hosts: Sequence[str]) -> bool:
        names = [host.lower() for host in hosts]
        unreadable: list[object] = []
        listed, to_drop = 0, []
        for entry in self._storage.entries():
            if isinstance(entry, UnreadableEntry):
                unreadable.append(entry)
                continue
            try:
                host = Origin.from_url(entry.origin).host
            except ValueError as error:
                unreadable.append(f"{entry.origin[:80]}: {error}")
                continue
            if hosts and not any(fnmatchcase(host, one) for one in names):
                continue
            if self._options.drop:  # later: a storage need not allow changes while it is read
                to_drop.append(entry.origin)
            else:
                self._print(entry)
                listed += 1
        if unreadable:
            entries = counted(len(unreadable), "unreadable entry", "unreadable entries")
            complain(f"skipped {entries}; the first: {unreadable[0]}")
        if self._options.drop:
            return sum([self._dropped(origin) for origin in to_drop]) > 0
        if not listed:
            complain(f"nothing cached for {', '.join(hosts)}" if hosts else "the cache is empty")
        return listed > 0

    def _dropped(self, origin: str) -> bool:
        if dropped := self._storage.drop(origin):
            self._output.row(f"dropped {origin}")
        return dropped

    def _print(self, entry: Entry, *, whole: bool = False) -> None:
        """Print a line about *entry*, or the *whole* of it."""
        state = OriginState(entry, Origin.from_url(entry.origin))
        state.standing, _ = standing_of(entry, self._now, self._rep)
        if self._choices is not None:
            self._choices.mark(state, self._now)
        output, name, colour = self._output, state.standing.value, _COLOURS[state.standing]
        body = entry.body.decode("utf-8", "replace") if whole and entry.has_copy else None
        output.json({**_as_json(entry, name), **({"body": body} if whole else {})})
        if self._options.json:
            return  # the rest unpacks the body
        if whole:
            output.block([(name, colour), entry.origin], _rows(entry))
            for line in [] if body is None else ["", *body.splitlines()]:
                output.line(clean(line))
            return
        details = f"fetched {iso(entry.fetched_at)}, fresh until {iso(entry.fresh_until)}"
        if entry.unreachable_since is not None:
            details = f"since {iso(entry.unreachable_since)}: {entry.error}"
        output.row((name.ljust(_WIDEST), colour), entry.origin, _answer(entry), (details, DIM))


def _as_json(entry: Entry, state: str) -> dict[str, Any]:
    return {
        "origin": entry.origin,
        "state": state,
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


def _rows(entry: Entry) -> list[tuple[str, str]]:
    """Return all about *entry* but its body, for people."""
    rows = [("answer", _answer(entry))]
    if entry.hops:
        rows.append(("redirects", f"{entry.hops}, to {entry.url}"))
    if entry.fetched_at is not None:
        fetched, fresh_until = iso(entry.fetched_at), iso(entry.fresh_until)
        rows += [("fetched", f"{fetched}"), ("fresh until", f"{fresh_until}")]
    if entry.unreachable_since is not None:
        rows += [
            ("unreachable since", f"{iso(entry.unreachable_since)}"),
            ("failed attempts", f"{entry.attempts}"),
            ("next attempt", f"not before {iso(entry.next_attempt_at)}"),
            ("last error", f"{entry.error}"),
        ]
    if entry.sha256 is not None:
        rows.append(("SHA-256", entry.sha256))
    return rows


def _answer(entry: Entry) -> str:
    status = "" if entry.status is None else f"{entry.status}: "
    if entry.outcome is Outcome.RULES:
        with suppress(UnreadableEntry):
            return status + ("an HTML page" if is_html(entry.body) else "rules")
        return status + "rules"
    if entry.outcome is Outcome.UNREACHABLE:
        return "none yet"
    not_found = entry.status is not None and entry.status >= 500
    return status + ('"not found", ' if not_found else "") + "no restrictions"


# -- held ------------------------------------------------------------------------------------

# Seconds since the first was held, counting only the time that crawls with this JOBDIR ran. What a
# newer or damaged file has in place of numbers is left out.
_HELD = """
SELECT origin, count(*), max(max(since), (SELECT coalesce(max(ran), 0) FROM clock)) - min(since)
FROM held WHERE typeof(origin) = 'text' AND typeof(since) = 'real' GROUP BY origin ORDER BY 2 DESC
"""


def held(task: Task) -> None:
    if task.arguments:
        raise UsageError("--held takes a JOBDIR and nothing else")
    path = Path(task.options.held, FILE_NAME)
    if not path.parent.is_dir():
        raise CommandError(f"{clean(task.options.held)!r} is not a directory")
    found = _held_in(path)
    with task.storage() as storage:
        known = storage.load_many([origin for origin, *_ in found]) if storage and found else {}
    output = task.output
    for origin, requests, seconds in found:
        entry = known.get(origin)
        entry = None if isinstance(entry, Exception) else entry
        output.json(held_fields(origin, requests, seconds, entry))
        if entry is None:
            why = "reason unknown: REP_CACHE_STORAGE has no entry for it"
        elif entry.unreachable_since is None:
            why = "robots.txt is reachable again: released when the crawl goes on"
        else:
            why = f"robots.txt unreachable since {iso(entry.unreachable_since)} ({entry.error}), "
            why += f"next attempt not before {iso(entry.next_attempt_at)}"
        count, since = counted(requests, "request"), f"held for {duration(seconds)}"
        output.row(count, origin, since, (why, DIM))
    total = counted(sum(requests for _, requests, _ in found), "request")
    output.note(f"{total} of {counted(len(found), 'origin')} held")


def _held_in(path: Path) -> list[tuple[str, int, float]]:
    try:
        if not path.exists():
            return []
        # A file that a crawl has open, or was killed with, has a WAL beside it. Without one,
        # nothing may be created: the next run would take it for the trace of a kill.
        mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as db:
            return db.execute(_HELD).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path} can't be read: {text_of(error)}", Status.UNREACHABLE) from None


# -- report ----------------------------------------------------------------------------------


def report(task: Task) -> None:
    from scrapy_rep.reporting.report import LIBRARY, ReportData, render

    if not task.arguments:
        raise UsageError("--report needs a file that REP_DECISIONS has written")
    if find_spec(LIBRARY) is None:
        raise CommandError(f'--report needs {LIBRARY}: pip install "scrapy-rep[report]"')
    if sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("--report prints HTML: add > report.html")
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
