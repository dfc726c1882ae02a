"""Items and the use of the page they come from: dropped, or told (``REP_USAGE``,
``REP_USAGE_FIELD``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from scrapy_rep.engine.log import Isolation, get_logger
from scrapy_rep.engine.words import text_of
from scrapy_rep.pages.usage_middleware import UsageMiddleware
from scrapy_rep.pages.usage_settings import settings_for

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.protocol.usage import Usage
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)


class UsageItemMiddleware(BaseSpiderMiddleware):
    """Drops items that must not be used, and writes into the others how they may be.

    A spider middleware. Without a setting that asks for it there is none.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        super().__init__(crawler)
        self._field = settings.usage_field
        self._isolated = Isolation(crawler)
        self._told: set[type] = set()
        self._usage: UsageMiddleware | None = None
        crawler.signals.connect(self._opened, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageItemMiddleware:
        """:raises NotConfigured: if nothing is to be done with items"""
        settings = settings_for(crawler)
        if not settings.usage and not settings.usage_field:
            raise NotConfigured
        return cls(crawler, settings)

    def _opened(self) -> None:
        self._usage = self.crawler.get_downloader_middleware(UsageMiddleware)

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        """Return *item* if it may be used."""
        unwanted = False
        if response is not None and response.request is not None and self._usage is not None:
            with self._isolated("check of items (REP_USAGE)"):
                from scrapy_rep.pages.usage import usage

                found = usage(response)
                if not response.request.meta.get("dont_obey_robotstxt"):
                    unwanted = self._usage.unwanted(response.request, found)
                if self._field is not None and not unwanted:
                    self._tell(item, self._field, found)
        return None if unwanted else item

    def _tell(self, item: Any, field: str, usage: Usage) -> None:
        try:
            ItemAdapter(item)[field] = usage.as_dict()
        except Exception as error:  # noqa: BLE001 (of any class of items)
            if type(item) not in self._told and len(self._told) < 100:
                self._told.add(type(item))
                logger.warning(
                    "REP_USAGE_FIELD: items of the class %(kind)s can't take %(field)r (%(error)s). "
                    "Add the field to the class.",
                    {"kind": type(item).__name__, "field": field, "error": text_of(error)},
                    extra={"spider": self.crawler.spider},
                )
