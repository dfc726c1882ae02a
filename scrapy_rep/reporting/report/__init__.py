"""The report (``REP_REPORT``, ``scrapy robots --report``): one self-contained page of HTML.

It is made from the record alone, by a crawl as it goes, or from files later: `reading.py` sums up
each crawl; `findings.py` says what needs a look; here is what differs between crawls; `page.html`,
with `page.css` and `page.js`, is the page. Jinja is an extra, imported only when a report is written.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
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
from scrapy_rep.reporting.record import ANSWERS, changed_lines
from scrapy_rep.reporting.record_file import Feed
from scrapy_rep.reporting.report.findings import findings_of, in_words
from scrapy_rep.reporting.report.reading import (
    MAX_CHANGES,
    CrawlSum,
    Line,
    OriginRow,
    lines_of,
)
from scrapy_rep.text import clean, counted, date, duration

if TYPE_CHECKING:
    from jinja2 import Template

logger = get_logger(__name__)

LIBRARY = "jinja2"

MANUAL = "https://github.com/scrapy-rep/scrapy-rep/blob/main/docs/observing.md#report"

_FOLDER = Path(__file__).parent


def check_library(context: CrawlContext) -> bool:
    """Whether Jinja is installed. If it isn't, the crawl goes on without a report."""
    is_there = find_spec(LIBRARY) is not None
    if not is_there:
        logger.warning(
            f"REP_REPORT needs {LIBRARY}, so there will be no report: "
            'pip install "scrapy-rep[report]"',
            extra=context.extra,
        )
    return is_there


class Report:
    """Sums up the record of a crawl, and writes the page when it has ended."""

    part = "report"

    def __init__(self, context: CrawlContext, uri: str, table: OriginTable) -> None:
        """Raises ``SettingsError`` if *uri* can't be written to."""
        self._feed = Feed(context, "REP_REPORT", uri, overwrite=True)
        self._table = table
        self._crawl = CrawlSum()

    def add(self, fields: dict[str, Any]) -> None:
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
        quoted = await run_in_thread(
            lambda: list(self._crawl.quoted())
        )  # sorts many rows
        states = (self._table.get(Origin.from_url(row.origin)) for row in quoted)
        entries = {
            (one.name, one.entry.sha256): one.entry for one in states if one is not None
        }

        def make() -> bytes:
            data = ReportData([self._crawl])
            data.fill(lambda *which: entries[which].body if which in entries else None)
            return render(data)

        return await run_in_thread(make)


_CRAWLS = 50
# Of robots.txt files: lines before and after the one that decided, and characters of each.
_AROUND, _LENGTH = 4, 200


@dataclass(slots=True)
class Change:
    """What differs between an origin's robots.txt in two crawls."""

    origin: str
    before: OriginRow
    after: OriginRow
    began: tuple[float, float]
    """When these crawls did."""
    diff: dict[str, Any] | None = None
    """As :func:`changed_lines` returns it; None if it isn't known."""


class ReportData:
    def __init__(self, crawls: list[CrawlSum], notes: Sequence[str] = ()) -> None:
        """*crawls*, each with its last line, the oldest first: the page shows the last one, and
        compares all. *notes*: sentences about the record itself."""
        self.crawls, self.crawl, self.notes = crawls, crawls[-1], notes
        for crawl in crawls:
            crawl.end()
        self.changes = [one for pair in pairwise(crawls) for one in _changes(*pair)]
        """What differs between each crawl and the next."""

    @classmethod
    def read(cls, record: Sequence[str | PathLike[str] | IO[bytes]]) -> ReportData:
        """Read files of JSON lines; ``OSError`` if a file can't be read."""
        by_name: defaultdict[str, CrawlSum] = defaultdict(CrawlSum)
        unreadable = left_out = 0
        for one in record:
            with (
                open(one, "rb")
                if isinstance(one, (str, PathLike))
                else nullcontext(one) as file
            ):
                for line in lines_of(file):
                    if line is None:
                        unreadable += 1
                    elif (name := line.text("crawl", 40)) in by_name or len(
                        by_name
                    ) < _CRAWLS:
                        by_name[name].add(line)
                    else:
                        left_out += 1
        notes = {
            f"Lines of the record that could not be read: {unreadable:,}.": unreadable,
            f"Only the first {_CRAWLS} crawls on record are shown.": left_out,
            "The record is empty.": not by_name,
        }
        crawls = sorted(by_name.values(), key=lambda one: one.began) or [CrawlSum()]
        return cls(crawls, [note for note, count in notes.items() if count])

    def fill(self, body_of: Callable[[str, str], bytes | None]) -> None:
        """Add what the robots.txt files say. *body_of* finds an origin's by its SHA-256."""
        for one in self.crawl.quoted():
            body = body_of(one.origin, one.sha256)
            if body is not None:
                one.excerpt = _excerpt(body, one.line)
        for change in self.changes[:MAX_CHANGES]:
            files = change.before.sha256, change.after.sha256
            old, new = (body_of(change.origin, one) if one else b"" for one in files)
            if old is not None and new is not None:
                change.diff = changed_lines(old, new)


def _changes(old: CrawlSum, new: CrawlSum) -> Iterator[Change]:
    """Yield whose robots.txt differs between two crawls, as far as both have an answer."""
    for name, after in new.origins.items():
        before = old.origins.get(name)
        if before is None or {before.outcome, after.outcome} & {"none", "unreachable"}:
            continue
        if (before.outcome, before.sha256) != (after.outcome, after.sha256):
            yield Change(name, before, after, (old.began, new.began))


def _excerpt(body: bytes, line: int) -> list[tuple[int, str, bool]]:
    """Return what stands around *line*, counted from 1."""
    lines = normalise(body).split("\n")
    if not 1 <= line <= len(lines):
        return []
    first = max(0, line - 1 - _AROUND)
    return [
        (
            number,
            text.encode("latin-1").decode(errors="replace").rstrip()[:_LENGTH],
            number == line,
        )
        for number, text in enumerate(lines[first : line + _AROUND], first + 1)
    ]


def render(data: ReportData) -> bytes:
    """Return the page: self-contained HTML in UTF-8."""
    from markupsafe import Markup

    style, script = (
        (_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    text: str = _template().render(
        data=data,
        findings=findings_of(data.crawl),
        answers=ANSWERS,
        in_words=in_words,
        manual=MANUAL,
        counted=counted,
        most_changes=MAX_CHANGES,
        version=scrapy_rep.__version__,
        style=Markup(style),  # noqa: S704 (a file of ours)
        script=Markup(script),  # noqa: S704 (a file of ours)
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return text.lstrip().encode()


def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("scrapy_rep.reporting.report", ""),
        autoescape=True,  # all text comes from outside
        # Not our own markup.
        finalize=lambda value: clean(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "moment": lambda value: date(value, "%Y-%m-%d %H:%M:%S"),
        "clock": lambda value: date(value, "%H:%M:%S"),
        "duration": lambda value: f"{value:.1f} s" if value < 60 else duration(value),
    }
    return environment.get_template("page.html")


def _hash(text: str) -> str:
    """Return the hash by which the page's Content-Security-Policy allows its own style and script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
