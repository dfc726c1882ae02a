"""What crawls have left: ``scrapy robots --cache [HOST|URL|SHA256 …]`` lists, shows and drops what the
project's storage keeps (REP.md section 5); ``--held JOBDIR`` lists what a crawl holds, running or stopped,
and changes nothing there; ``--report FILE…`` prints the report of crawls, from their records."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from contextlib import closing
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.exceptions import UsageError

from scrapy_rep.commands.output import DIM, GREEN, RED, YELLOW, CommandError, Status, complain
from scrapy_rep.commands.task import request_for
from scrapy_rep.engine.text import clean, counted, duration, iso, text_of
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import held_fields
from scrapy_rep.origins.choices import Choices
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome, is_html
from scrapy_rep.protocol.freshness import Standing, standing
from scrapy_rep.storages.base import Entry, UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """List, show or drop entries."""
    if task.options.drop and not task.arguments:
        raise UsageError("--drop needs hosts or URLs; '*' drops everything")
    with task.storage() as storage:
        if storage is None:
            raise CommandError("REP_CACHE_STORAGE is in memory, so nothing is left after a crawl")
        _Cache(storage, task).answer(task.arguments)


class _Cache:
    """Answers for one storage."""

    def __init__(self, storage: Storage, task: Task) -> None:
        self._storage = storage
        self._limit = task.rep.unreachable_limit
        self._choices = Choices.of(task.rep)
        self._json: bool = task.options.json
        self._drop: bool = task.options.drop
        self._task = task
        self._output = task.output
        self._now = time.time()

    def answer(self, arguments: Sequence[str]) -> None:
        """Do what the options say for each argument, or for all entries."""
        hashes = [one for one in arguments if _SHA256.fullmatch(one)]
        urls = [one for one in arguments if "://" in one]
        hosts = [one for one in arguments if one not in hashes and one not in urls]
        if hashes and self._drop:
            raise UsageError("--drop takes hosts and URLs, not hashes")
        found = [self._body(one) for one in hashes]
        found += [self._one(str(request_for(one)[1])) for one in urls]
        if hosts or not arguments:
            found.append(self._many(hosts))
        if not all(found):
            self._task.statuses.add(Status.FOUND)

    def _body(self, sha256: str) -> bool:
        try:
            if (body := self._storage.body(sha256)) is not None:
                self._output.bytes(body)
                return True
            problem = "not in the cache"
        except UnreadableEntry as error:
            problem = str(error)
        complain(f"robots.txt with hash {sha256}: {problem}")
        return False

    def _one(self, origin: str) -> bool:
        try:
            entry = self._storage.load(origin)
            entry = None if entry is None else entry.check(origin)
        except UnreadableEntry as error:
            complain(f"{origin}: {error}")
            return self._drop and self._dropped(origin)
        if entry is None:
            complain(f"nothing cached for {origin}")
        elif self._drop:
            return self._dropped(origin)
        elif self._json:
            body = entry.body.decode("utf-8", "replace") if entry.has_copy else None
            self._output.json({**self._fields(entry), "body": body})
        else:
            self._show(entry)
        return entry is not None

    def _many(self, hosts: Sequence[str]) -> bool:
        # The list first: a storage need not allow changes while its entries are read.
        entries: Iterable[Entry] = self._matching([host.lower() for host in hosts])
        entries = list(entries) if self._drop else entries
        found = [self._dropped(one.origin) if self._drop else self._list(one) for one in entries]
        if not found and not self._drop:
            complain(f"nothing cached for {', '.join(hosts)}" if hosts else "the cache is empty")
        return any(found)

    def _matching(self, hosts: Sequence[str]) -> Iterator[Entry]:
        unreadable: list[object] = []
        for entry in self._storage.entries():
            if isinstance(entry, UnreadableEntry):
                unreadable.append(entry)
                continue
            try:
                host = Origin.from_url(entry.origin).host
            except ValueError as error:
                unreadable.append(f"{entry.origin[:80]}: {error}")
                continue
            if not hosts or any(fnmatchcase(host, one) for one in hosts):
                yield entry
        if unreadable:
            entries = counted(len(unreadable), "unreadable entry", "unreadable entries")
            complain(f"skipped {entries}; the first: {unreadable[0]}")

    def _dropped(self, origin: str) -> bool:
        if dropped := self._storage.drop(origin):
            self._output.line(f"dropped {clean(origin)}")
        return dropped

    def _standing(self, entry: Entry) -> Standing:
        state = OriginState(entry, Origin.from_url(entry.origin))
        state.standing, _ = standing(
            self._now,
            fresh_until=entry.fresh_until,
            has_copy=entry.has_copy,
            unreachable_since=entry.unreachable_since,
            unreachable_for=entry.unreachable_for,
            next_attempt_at=entry.next_attempt_at,
            limit=self._limit,
        )
        if self._choices is not None:
            self._choices.mark(state, self._now)
        return state.standing

    def _fields(self, entry: Entry) -> dict[str, Any]:
        return {
            "origin": entry.origin,
            "state": self._standing(entry).value,
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

    def _state(self, entry: Entry, columns: int = 0) -> str:
        state = self._standing(entry)
        return self._output.paint(state.value.ljust(columns), _COLOURS[state])

    def _list(self, entry: Entry) -> bool:
        if self._json:
            self._output.json(self._fields(entry))
            return True
        details = f"fetched {iso(entry.fetched_at)}, fresh until {iso(entry.fresh_until)}"
        if entry.unreachable_since is not None:
            details = f"since {iso(entry.unreachable_since)}: {entry.error}"
        cells = [self._state(entry, _WIDEST), clean(entry.origin), _answer(entry)]
        self._output.line("  ".join([*cells, self._output.paint(details, DIM)]))
        return True

    def _show(self, entry: Entry) -> None:
        output = self._output
        rows = [("answer", _answer(entry))]
        if entry.hops:
            rows.append(("redirects", f"{entry.hops}, to {entry.url}"))
        if entry.fetched_at is not None:
            rows.append(("fetched", str(iso(entry.fetched_at))))
            rows.append(("fresh until", str(iso(entry.fresh_until))))
        if entry.unreachable_since is not None:
            rows += [
                ("unreachable since", str(iso(entry.unreachable_since))),
                ("failed attempts", str(entry.attempts)),
                ("next attempt", f"not before {iso(entry.next_attempt_at)}"),
                ("last error", str(entry.error)),
            ]
        if entry.sha256 is not None:
            rows.append(("SHA-256", entry.sha256))
        output.block(f"{self._state(entry)}  {clean(entry.origin)}", rows)
        if entry.has_copy:
            output.line()
            for line in entry.body.decode("utf-8", "replace").splitlines():
                output.line(clean(line))


def _answer(entry: Entry) -> str:
    if entry.outcome is Outcome.UNREACHABLE:
        return "none yet"
    status = "" if entry.status is None else f"{entry.status}: "
    if entry.outcome is Outcome.RULES:
        try:
            return status + ("an HTML page" if is_html(entry.body) else "rules")
        except UnreadableEntry:
            return status + "rules"
    not_found = entry.status is not None and entry.status >= 500
    return status + ('"not found", ' if not_found else "") + "no restrictions"


# -- held ------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """What a crawl holds of one origin."""

    origin: str
    requests: int
    seconds: float
    """Since the first of them was held, as long as crawls with this JOBDIR ran."""


# What a newer or damaged file has in place of numbers is left out.
_HELD = """
SELECT origin, count(*), max(max(since), (SELECT coalesce(max(ran), 0) FROM clock)) - min(since)
FROM held WHERE typeof(origin) = 'text' AND typeof(since) = 'real' GROUP BY origin ORDER BY 2 DESC
"""


def _held_in(path: Path) -> list[_Held]:
    """Return what the hold at *path* has, most requests first. Raises ``sqlite3.Error``."""
    # A file that a crawl has open, or that it was killed with, has a WAL beside it. Without one,
    # nothing may be created: the next run would take it for the trace of a kill.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as db:
        return [_Held(*row) for row in db.execute(_HELD)]


def held(task: Task) -> None:
    """List the origins."""
    if task.arguments:
        raise UsageError("--held takes a JOBDIR and nothing else")
    path = Path(task.options.held, FILE_NAME)
    if not path.parent.is_dir():
        raise CommandError(f"{clean(task.options.held)!r} is not a directory")
    try:
        found = _held_in(path) if path.exists() else []
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path} can't be read: {text_of(error)}", Status.UNREACHABLE) from None
    with task.storage() as storage:
        known = storage.load_many([one.origin for one in found]) if storage and found else {}
    output = task.output
    for one in found:
        entry = known.get(one.origin)
        entry = None if isinstance(entry, Exception) else entry
        if task.options.json:
            output.json(held_fields(*one, entry))
        else:
            count = counted(one.requests, "request")
            why = output.paint(_why(entry), DIM)
            output.line(f"{count}  {clean(one.origin)}  held for {duration(one.seconds)}  {why}")
    if not task.options.json:
        requests = counted(sum(one.requests for one in found), "request")
        output.note(f"{requests} of {counted(len(found), 'origin')} held")


def _why(entry: Entry | None) -> str:
    if entry is None:
        return "reason unknown: REP_CACHE_STORAGE has no entry for it"
    if entry.unreachable_since is None:
        return "robots.txt is reachable again: released when the crawl goes on"
    since = iso(entry.unreachable_since)
    when = f"not before {iso(entry.next_attempt_at)}"
    return f"robots.txt unreachable since {since} ({clean(str(entry.error))}), next attempt {when}"


# -- report ----------------------------------------------------------------------------------


def report(task: Task) -> None:
    """Print the page."""
    from scrapy_rep.reporting.report import LIBRARIES, ReportData, render

    if not task.arguments:
        raise UsageError("--report needs a file that REP_DECISIONS has written")
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise CommandError(f'--report needs {name}: pip install "scrapy-rep[report]"')
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
