"""The report (``REP_REPORT``, ``scrapy robots --report``): one self-contained page of HTML.

It is made from the record alone, by a crawl as it goes, or from files later: `reading.py` sums up each
crawl, in rows that `data.py` describes; `contents.py` says what needs a look, and what differs between
crawls; `page.html`, `page.css` and `page.js` are the page. Jinja is an extra, imported only when a report
is written.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import clean, counted, date, duration, text_of
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.audit_trail import Feed
from scrapy_rep.reporting.record import OUTCOMES
from scrapy_rep.reporting.report.contents import ReportData
from scrapy_rep.reporting.report.reading import CrawlSum, Line

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.state import OriginTable

logger = get_logger(__name__)

LIBRARIES = ("jinja2",)

_FOLDER = Path(__file__).parent


def is_possible(context: CrawlContext) -> bool:
    """Whether its library is there. To miss it is no reason not to crawl."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        logger.warning(
            'REP_REPORT needs %(missing)s, so there will be no report: pip install "scrapy-rep[report]"',
            {"missing": " and ".join(missing)},
            extra=context.extra,
        )
    return not missing


class Report:
    """Sums up the record of a crawl, and writes the page when it has ended."""

    part = "report"

    def __init__(self, context: CrawlContext, uri: str, table: OriginTable) -> None:
        """:raises SettingsError: if *uri* can't be written to"""
        self._feed = Feed(context.crawler, "REP_REPORT", uri, overwrite=True)
        self._context = context
        self._table = table
        self._crawl = CrawlSum()

    def add(self, fields: dict[str, Any]) -> None:
        """Count a line of the record."""
        self._crawl.add(Line(fields))

    async def end(self) -> None:
        """Write the page. Failures are logged."""
        values: dict[str, object] = {"uri": self._feed}
        try:
            page = await self._page()
            file = self._feed.open()
            file.write(page)
            await self._feed.store(file)
        except Exception as error:  # noqa: BLE001 (storages raise anything)
            message = "REP_REPORT: can't write the report to %(uri)s: %(error)s"
            values |= {"error": text_of(error)}
            logger.error(message, values, extra=self._context.extra)
        else:
            logger.info("The robots.txt report is in %(uri)s", values, extra=self._context.extra)

    async def _page(self) -> bytes:
        data = await run_in_thread(ReportData.of, [self._crawl])
        states = {one.origin: self._table.get(Origin.from_url(one.origin)) for one in data.quoted()}
        entries = {
            (name, state.entry.sha256): state.entry for name, state in states.items() if state
        }

        def finish() -> bytes:
            data.fill(lambda *which: entries[which].body if which in entries else None)
            return render(data)

        return await run_in_thread(finish)


def render(data: ReportData) -> bytes:
    """Return the page: self-contained HTML in UTF-8."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

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
        "moment": lambda value: "?" if value is None else date(value, "%Y-%m-%d %H:%M:%S"),
        "clock": lambda value: "?" if value is None else date(value, "%H:%M:%S"),
        "duration": lambda value: f"{value:.1f} s" if value < 60 else duration(value),
        "share": share,
    }
    environment.globals |= {"counted": counted, "outcomes": OUTCOMES}
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    text: str = environment.get_template("page.html").render(
        data=data,
        style=Markup(style),  # noqa: S704 (a file of ours)
        script=Markup(script),  # noqa: S704 (a file of ours)
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return text.lstrip().encode()


def share(value: float) -> str:
    """Return a part of one as percent, with a decimal if it is small."""
    percent = 100 * value
    return "< 0.1 %" if 0 < percent < 0.05 else f"{percent:.{int(0 < percent < 0.95)}f} %"


def _hash(text: str) -> str:
    """Return what the page's Content-Security-Policy knows its own style and script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
