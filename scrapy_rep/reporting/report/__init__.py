"""The report (``REP_REPORT``, ``scrapy robots --report``): one self-contained page of
HTML.

It is made from the record alone, by a crawl as it goes, or from files later.
`reading.py` sums up each crawl; `findings.py` decides what needs attention; this module
finds what differs between crawls, and fills in the page: `page.html`, with `page.css`
and `page.js`. Jinja is an extra, imported only when a report is written.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scrapy.utils.asyncio import run_in_thread

import scrapy_rep
from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.syntax import normalise
from scrapy_rep.reporting.record import ANSWERS, QuotedLine, changed_lines
from scrapy_rep.reporting.record_file import Feed
from scrapy_rep.reporting.report.findings import findings_of, in_words
from scrapy_rep.reporting.report.reading import (
    SHOWN_CHANGES,
    CrawlSum,
    Line,
    OriginRow,
    lines_of,
)
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import clean, counted, date, duration

if TYPE_CHECKING:
    from jinja2 import Template

logger = get_logger(__name__)

LIBRARY = "jinja2"

MANUAL = "https://github.com/scrapy-rep/scrapy-rep/blob/main/docs/observing.md#report"

_PAGE_FOLDER = Path(__file__).parent


def check_library(context: CrawlContext) -> bool:
    """Return whether Jinja is installed. If it isn't, warn that there will be no
    report. The crawl goes on."""
    if find_spec(LIBRARY) is not None:
        return True
    logger.warning(
        f"REP_REPORT needs {LIBRARY}, so there will be no report: "
        'pip install "scrapy-rep[report]"',
        extra=context.extra,
    )
    return False


class Report:
    """Sums up the record of a crawl, and writes the page when the crawl has ended."""

    part = "report"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

    def __init__(
        self,
        context: CrawlContext,
        uri: str,
        table: OriginTable,
    ) -> None:
        """Raises ``SettingsError`` if *uri* can't be written to."""
        self._feed = Feed(context, "REP_REPORT", uri, overwrite=True)
        self._table = table
        self._crawl = CrawlSum()

    def add(self, fields: dict[str, Any]) -> None:
        """Count a line of the record."""
        self._crawl.add(Line(fields))

    async def end(self) -> None:
        """Write the page. Failures are logged."""
        try:
            page = await self._page()
            file = self._feed.open()
            file.write(page)
            await self._feed.store(file, "The robots.txt report is in %(uri)s")
        except Exception as error:  # noqa: BLE001 (storages raise anything)
            self._feed.log_error("can't write the report to %(uri)s: %(error)s", error)

    async def _page(self) -> bytes:
        """Return the page. What takes long happens in threads: sorting many rows,
        unpacking bodies and filling in the template. The table of origins is used in
        the event loop, to which it belongs."""
        quoted = await run_in_thread(lambda: list(self._crawl.quoted()))
        # The entries of the quoted origins, by the origin and the body's hash.
        entries: dict[tuple[str, str], Entry] = {}
        for row in quoted:
            state = self._table.get(Origin.from_url(row.origin))
            if state is not None and state.entry.sha256 is not None:
                entries[state.name, state.entry.sha256] = state.entry

        def body_of(origin: str, sha256: str) -> bytes | None:
            entry = entries.get((origin, sha256))
            return entry.body if entry is not None else None

        def make() -> bytes:
            data = ReportData([self._crawl])
            data.add_texts(body_of)
            return render(data)

        return await run_in_thread(make)


# At most this many crawls of one record are shown, each in a column of the page. A note
# mentions that there are more.
_MAX_CRAWLS = 50
# This many lines of a robots.txt are quoted before the line that decided, and as many
# after it.
_LINES_AROUND = 4
# Each quoted line is cut to this many characters.
_QUOTED_LINE_LENGTH = 200


@dataclass(slots=True)
class Change:
    """What differs between an origin's robots.txt in two crawls."""

    origin: str
    before: OriginRow
    after: OriginRow
    began: tuple[float, float]
    """When each of the two crawls began."""
    diff: dict[str, Any] | None = None
    """What ``changed_lines()`` in `record.py` returns; None if a file's text isn't
    known."""


class ReportData:
    """What the page shows: one crawl, and how it differs from earlier ones."""

    def __init__(self, crawls: list[CrawlSum], notes: Sequence[str] = ()) -> None:
        """*crawls* have been given all their lines; the oldest crawl comes first. The
        page shows the last one, and compares all. *notes*: sentences about the record
        itself."""
        self.crawls = crawls
        self.crawl = crawls[-1]
        self.notes = notes
        for crawl in crawls:
            crawl.end()
        self.changes: list[Change] = []
        """What differs between each crawl and the next."""
        for before, after in pairwise(crawls):
            self.changes += _changes(before, after)

    @classmethod
    def read(cls, record: Sequence[str | PathLike[str] | IO[bytes]]) -> ReportData:
        """Read files of JSON lines; ``OSError`` if a file can't be read."""
        by_name: defaultdict[str, CrawlSum] = defaultdict(CrawlSum)
        unreadable = 0
        has_more_crawls = False
        for line in _lines_of_files(record):
            if line is None:
                unreadable += 1
                continue
            # The lines of a crawl have the same name in them.
            name = line.text("crawl", 40)
            if name in by_name or len(by_name) < _MAX_CRAWLS:
                by_name[name].add(line)
            else:
                has_more_crawls = True
        notes = []
        if unreadable:
            notes.append(f"Lines of the record that could not be read: {unreadable:,}.")
        if has_more_crawls:
            notes.append(f"Only the first {_MAX_CRAWLS} crawls on record are shown.")
        if not by_name:
            notes.append("The record is empty.")
        crawls = sorted(by_name.values(), key=lambda crawl: crawl.began)
        return cls(crawls or [CrawlSum()], notes)

    def add_texts(self, body_of: Callable[[str, str], bytes | None]) -> None:
        """Add what the robots.txt files say: lines around rules that refused, and what
        changed. *body_of* returns a body, given the origin and the body's SHA-256; None
        if the body isn't known."""
        for row in self.crawl.quoted():
            body = body_of(row.origin, row.sha256)
            if body is not None:
                row.excerpt = _excerpt(body, row.line)
        for change in self.changes[:SHOWN_CHANGES]:
            bodies = []
            for row_then in (change.before, change.after):
                # Without a hash, there was no file, which is as good as an empty one.
                sha256 = row_then.sha256
                bodies.append(body_of(change.origin, sha256) if sha256 else b"")
            before, after = bodies  # of the two crawls
            if before is not None and after is not None:
                change.diff = changed_lines(before, after)


def _lines_of_files(
    record: Sequence[str | PathLike[str] | IO[bytes]],
) -> Iterator[Line | None]:
    """Yield the lines of all files, which are open or named; None for what isn't a line
    of a record (:func:`.reading.lines_of`)."""
    for file in record:
        if isinstance(file, (str, PathLike)):
            with open(file, "rb") as opened:
                yield from lines_of(opened)
        else:
            yield from lines_of(file)


def _changes(old: CrawlSum, new: CrawlSum) -> Iterator[Change]:
    """Yield a change for each origin whose robots.txt differs between two crawls. The
    origin must have answered in both."""
    for name, after in new.origins.items():
        before = old.origins.get(name)
        if before is None or _has_no_answer(before) or _has_no_answer(after):
            continue
        if (before.outcome, before.sha256) != (after.outcome, after.sha256):
            yield Change(name, before, after, (old.began, new.began))


def _has_no_answer(row: OriginRow) -> bool:
    return row.outcome in ("none", "unreachable")


def _excerpt(body: bytes, line: int) -> list[QuotedLine]:
    """Return the lines of a robots.txt around *line*, counted from 1; none if there is
    no such line."""
    lines = normalise(body).split("\n")
    if not 1 <= line <= len(lines):
        return []
    first = max(1, line - _LINES_AROUND)
    quoted = lines[first - 1 : line + _LINES_AROUND]  # indexes count from 0
    excerpt = []
    for number, latin in enumerate(quoted, first):
        # normalise() (protocol/syntax.py) returns each byte as a character of Latin-1.
        # Here the bytes are read as UTF-8.
        text = latin.encode("latin-1").decode(errors="replace")
        text = text.rstrip()[:_QUOTED_LINE_LENGTH]
        excerpt.append(QuotedLine(number, text, decided=number == line))
    return excerpt


def render(data: ReportData) -> bytes:
    """Return the page: self-contained HTML in UTF-8."""
    from markupsafe import Markup

    style = (_PAGE_FOLDER / "page.css").read_text("utf-8")
    script = (_PAGE_FOLDER / "page.js").read_text("utf-8")
    text: str = _template().render(
        data=data,
        findings=findings_of(data.crawl),
        answers=ANSWERS,
        in_words=in_words,
        manual=MANUAL,
        counted=counted,
        most_changes=SHOWN_CHANGES,
        version=scrapy_rep.__version__,
        style=Markup(style),  # noqa: S704 (a file of ours)
        script=Markup(script),  # noqa: S704 (a file of ours)
        style_hash=_policy_hash(style),
        script_hash=_policy_hash(script),
    )
    return text.lstrip().encode()


def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("scrapy_rep.reporting.report", ""),
        autoescape=True,  # all text comes from outside
        finalize=_clean_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    environment.filters["moment"] = _moment
    environment.filters["clock"] = _clock
    environment.filters["duration"] = _duration
    return environment.get_template("page.html")


def _clean_text(value: Any) -> Any:
    """Escape what can't be printed in any text that the page shows. Our own markup is
    ``Markup``, a subclass of ``str``, and stays as it is."""
    return clean(value) if type(value) is str else value


def _number(value: float) -> str:
    return f"{value:,}"


def _moment(seconds: float) -> str:
    return date(seconds, "%Y-%m-%d %H:%M:%S")


def _clock(seconds: float) -> str:
    return date(seconds, "%H:%M:%S")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _policy_hash(text: str) -> str:
    """Return the hash by which the page's Content-Security-Policy allows its own style
    and script."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()
