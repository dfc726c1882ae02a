"""The report (``REP_REPORT``): one self-contained page of HTML, written when the crawl ends.

`data.py` gathers its contents, `charts.py` draws, `page.html`, `page.css` and `page.js` are the page.
The libraries are an extra, imported only when a report is written.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import clean, counted, date, text_of
from scrapy_rep.reporting.output import Feed
from scrapy_rep.reporting.report.data import ReportData, Timeline
from scrapy_rep.reporting.summary import OUTCOMES

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.reporting.ledger import Ledger
    from scrapy_rep.reporting.summary import Figures

logger = get_logger(__name__)

LIBRARIES = ("jinja2", "pygal")

_FOLDER = Path(__file__).parent


class Report:
    """Writes the page when the crawl has ended."""

    def __init__(self, context: CrawlContext, uri: str) -> None:
        """:raises SettingsError: if *uri* can't be written to"""
        self._feed = Feed(context.crawler, "REP_REPORT", uri, overwrite=True)
        self._context = context
        self._timeline = Timeline()
        self._held: int | None = None

    @classmethod
    def of(cls, context: CrawlContext) -> Report | None:
        """Return the report that the user wants, None if that is none, or if a library is missing, which
        is no reason not to crawl.

        :raises SettingsError: if it can't be written to
        """
        uri = context.settings.report
        if not uri:
            return None
        report = cls(context, uri)
        missing = [name for name in LIBRARIES if find_spec(name) is None]
        if missing:
            logger.warning(
                "REP_REPORT needs %(missing)s, so there will be no report: pip install "
                '"scrapy-rep[report]"',
                {"missing": " and ".join(missing)},
                extra=context.extra,
            )
        return None if missing else report

    def count_held(self, change: int) -> None:
        """*change* requests more are held. The stat does not go down with each."""
        if self._held is None:  # an earlier run may have left some
            self._held = self._context.stats.get_value("rep/held", 0) - change
        self._held += change
        self._timeline.add(self._context.clock(), self._held)

    async def write(self, ledger: Ledger, figures: Figures, finish_reason: str) -> None:
        """Write the page. Failures are logged."""
        context = self._context
        values = {"uri": self._feed}
        try:
            self._timeline.add(figures.ended, context.stats.get_value("rep/held", 0))
            points = self._timeline.points
            data = ReportData(context, ledger, figures, points, finish_reason)
            # For 10,000 origins this takes a second.
            page = await run_in_thread(render, data)
            file = self._feed.open()
            file.write(page)
            await self._feed.store(file)
        except Exception as error:  # noqa: BLE001 (storages raise anything)
            message = "REP_REPORT: can't write the report to %(uri)s: %(error)s"
            logger.error(message, {**values, "error": text_of(error)}, extra=context.extra)
        else:
            logger.info("The robots.txt report is in %(uri)s", values, extra=context.extra)


def render(data: ReportData) -> bytes:
    """Return the page: self-contained HTML in UTF-8."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from scrapy_rep.reporting.report import charts

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
        "moment": lambda seconds: date(seconds, "%Y-%m-%d %H:%M:%S"),
        "duration": duration,
    }
    environment.globals |= {"counted": counted}
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    text: str = environment.get_template("page.html").render(
        data=data,
        charts=charts,
        words=OUTCOMES,
        style=Markup(style),  # noqa: S704 (a file of ours)
        script=Markup(script),  # noqa: S704 (a file of ours)
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return text.encode()


def duration(seconds: float) -> str:
    """Return *seconds* for people: ``4.2 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _hash(text: str) -> str:
    """Return what the page's Content-Security-Policy knows its own style and script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
