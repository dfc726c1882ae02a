"""The report at the end: one page of HTML that needs nothing but a browser (``REP_REPORT``).

`data.py` gathers what it shows, `charts.py` draws, `page.html`, `page.css` and `page.js` are the
page. Its libraries are an extra: a crawl without a report needs none of them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.reporting.output import Feed

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.reporting.ledger import Ledger
    from scrapy_rep.reporting.summary import Figures
    from scrapy_rep.reporting.timeline import Timeline

logger = get_logger(__name__)

LIBRARIES = ("jinja2", "pygal")


class Report:
    """Writes the page when the crawl has ended."""

    def __init__(self, context: CrawlContext, uri: str) -> None:
        """:raises SettingsError: if *uri* can't be written to, or a library is missing"""
        self._feed = Feed(context.crawler, "REP_REPORT", uri, overwrite=True)
        missing = [name for name in LIBRARIES if find_spec(name) is None]
        if missing:
            raise SettingsError(
                f"REP_REPORT needs {' and '.join(missing)}: pip install 'scrapy-rep[report]'."
            )
        self._context = context

    async def write(
        self, ledger: Ledger, figures: Figures, held: Timeline, finish_reason: str
    ) -> None:
        """Write the page. What goes wrong is an error in the log."""
        from scrapy_rep.reporting.report.data import gather
        from scrapy_rep.reporting.report.page import render

        try:
            data = gather(self._context.crawler, ledger, figures, held, finish_reason)
            # With 10,000 origins this takes a second, which other crawls of the process may need.
            page = await run_in_thread(render, data)
            file = self._feed.open()
            file.write(page)
            await self._feed.store(file)
        except Exception as error:  # noqa: BLE001
            # Whatever a storage raises: a crawl of days does not end with a traceback for that.
            logger.error(
                "REP_REPORT: the report can't be written to %(uri)s: %(error)s",
                {"uri": self._feed, "error": f"{type(error).__name__}: {error}"},
                extra=self._context.extra,
            )
        else:
            logger.info(
                "The report about robots.txt is in %(uri)s",
                {"uri": self._feed},
                extra=self._context.extra,
            )
