"""What the log and the stats say about choices beyond the protocol (REP.md section 13)."""

from __future__ import annotations

import re

from scrapy import Request, signals
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices, chosen
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Resolution, ResolutionListener
from scrapy_rep.protocol.availability import Outcome

logger = get_logger(__name__)

_SETTING = re.compile(r"REP_([A-Z_]+)")


class ChoiceListener(ResolutionListener):
    """Logs and counts the project's choices; notes which origins still answer for pages."""

    part = "log of choices beyond the protocol"

    def __init__(self, context: CrawlContext, cache: RobotsCache, choices: Choices) -> None:
        self._context = context
        self._cache = cache
        self._choices = choices
        self._counted = BoundedSet()
        self._log = Limiter(logger, "origins about which a setting decides")
        connect = context.crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        if choices.ladder:
            connect(self._answered, signals.response_received)

    async def _opened(self) -> None:
        from scrapy_rep.inspection.lint import lint  # most crawls don't need it

        extra = self._context.extra
        values = {"settings": ", ".join(chosen(self._context.settings))}
        logger.info("Beyond the protocol: %(settings)s", values, extra=extra)
        for host, override in self._choices.overrides.items():
            has_file = override.outcome is Outcome.RULES
            if has_file and (found := await run_in_thread(lint, override.body)):
                logger.warning(
                    "REP_OVERRIDES, the file for %(host)s, line %(line)d: %(what)s. All findings, "
                    "%(count)d: scrapy robots --lint",
                    {"host": host, "line": found[0].line or 0, "what": found[0].message}
                    | {"count": len(found)},
                    extra=extra,
                )

    async def resolved(self, resolution: Resolution) -> None:
        """Count and log an origin about which a setting decides."""
        state, answer = resolution.state, resolution.answer
        by = (answer.by if answer is not None else "") or state.by
        if by and self._counted.add((state.name, by)):
            for name in _SETTING.findall(by):
                self._context.stats.inc_value(f"rep/beyond/{name.lower()}")
            message = "robots.txt of %(origin)s: %(by)s"
            self._log.log(message, {"origin": state.name, "by": by}, self._context.spider)

    def _answered(self, response: Response, request: Request) -> None:
        working = response.status < 500 and response.status != 429
        if working and "cached" not in response.flags:
            try:
                origin = origin_of(request)
            except ValueError:
                return  # the protocol doesn't cover it
            if request.url != origin.robots_url:
                self._cache.page_answered(origin)
