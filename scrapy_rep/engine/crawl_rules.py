"""What the rules of a ``CrawlSpider`` give a page that nobody has linked to: one from a sitemap."""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.link import Link
from scrapy.spiders import CrawlSpider


class CrawlRules:
    """The rules of a spider. Scrapy applies them to links only: a page without a rule goes to
    ``parse_start_url``. Uses ``CrawlSpider._rules``, which has the spider's methods for their names, and
    ``_build_request``, which makes what a rule makes of a link."""

    def __init__(self, spider: Spider | None) -> None:
        self._spider: Any = spider if isinstance(spider, CrawlSpider) else None
        rules = self._spider._rules if self._spider is not None else ()
        self._rules = [
            (index, rule) for index, rule in enumerate(rules) if _looks_at_urls(rule)
        ]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def index_for(self, url: str) -> int | None:
        """Return the index of the first rule that would follow a link to *url*; None if there is none."""
        for index, rule in self._rules:
            if rule.link_extractor.matches(url):
                return index
        return None

    def request(self, index: int, url: str, found_in: str) -> Request | None:
        """Return the request that the rule makes of a link to *url*; None if it makes none. Its
        ``process_request`` gets a response of *found_in* without a body."""
        request = self._spider._build_request(index, Link(url))
        response = Response(found_in, request=Request(found_in))
        made: Request | None = self._spider._rules[index].process_request(
            request, response
        )
        return made


def _looks_at_urls(rule: Any) -> bool:
    """Whether a rule's extractor can tell by a URL alone if it takes a link. One that looks at certain
    places of a page only, such as the link to the next one, can't."""
    extractor = rule.link_extractor
    if not hasattr(extractor, "matches"):
        return False
    is_about_places = bool(getattr(extractor, "restrict_xpaths", ()))
    is_about_urls = any(
        getattr(extractor, name, ()) for name in ("allow_res", "allow_domains")
    )
    return is_about_urls or not is_about_places
