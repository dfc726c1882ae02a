"""Which rules of a CrawlSpider can be applied to a URL that no page has linked to."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from scrapy_rep.engine.crawl_rules import CrawlRules

SHOP = "http://shop.example/tea"


class OneRuleSpider(CrawlSpider):
    name = "one"

    def __init__(self, extractor: Any) -> None:
        self.rules = (Rule(extractor),)
        super().__init__()


@pytest.mark.parametrize(
    ("extractor", "index"),
    [
        (LinkExtractor(), 0),
        (LinkExtractor(allow="/tea"), 0),
        (LinkExtractor(allow="/coffee"), None),
        (LinkExtractor(allow_domains="shop.example", restrict_css=".next"), 0),
        (LinkExtractor(restrict_css=".next"), None),
        (LinkExtractor(restrict_xpaths="//nav"), None),
    ],
)
def test_a_rule_that_looks_at_places_of_a_page_only_has_no_say(
    extractor: Any, index: int | None
) -> None:
    rules = CrawlRules(OneRuleSpider(extractor))
    assert rules.index_for(SHOP) == index
