"""What the parts of seeding share: made by `seeding.py`, passed to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.spider_options import SpiderOptions
    from scrapy_rep.seeding.spool import Spool


@dataclass(frozen=True, slots=True)
class SeedingContext:
    """The crawl that is seeded."""

    crawl: CrawlContext
    options: SpiderOptions
    spool: Spool
