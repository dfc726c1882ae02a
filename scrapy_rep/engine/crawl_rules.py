"""What the rules of a ``CrawlSpider`` make of a page that nobody has linked to, such as
one from a sitemap."""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.link import Link
from scrapy.spiders import CrawlSpider


class CrawlRules:
    """The rules of a spider. Scrapy applies them to links in pages only; a page that no
    link led to goes to ``parse_start_url``.

    Two undocumented names are used: ``CrawlSpider._rules``, in which the spider's
    methods stand in place of their names, and ``_build_request``, which returns the
    request that a rule makes of a link."""

    def __init__(self, spider: Spider | None) -> None:
        self._spider: Any = None
        self._rules: dict[int, Any] = {}
        """Rules that can be applied to a URL alone, by their index among all rules of
        the spider."""
        if isinstance(spider, CrawlSpider):
            self._spider = spider
            for index, rule in enumerate(self._spider._rules):
                if _looks_at_urls(rule):
                    self._rules[index] = rule

    def __bool__(self) -> bool:
        """Whether any rules can be applied to a URL alone."""
        return bool(self._rules)

    def index_for(self, url: str) -> int | None:
        """Return the index of the first rule that would follow a link to *url*; None if
        there is none."""
        for index, rule in self._rules.items():
            if rule.link_extractor.matches(url):
                return index
        return None

    def request(self, index: int, url: str, found_in: str) -> Request | None:
        """Return the request that the rule with this *index* makes of a link to *url*;
        None if it makes none. Its ``process_request`` gets a response without a body,
        as if the page at *found_in*, a URL, had the link."""
        rule = self._spider._rules[index]
        request = self._spider._build_request(index, Link(url))
        page = Response(found_in, request=Request(found_in))
        processed: Request | None = rule.process_request(request, page)
        return processed


def _looks_at_urls(rule: Any) -> bool:
    """Whether the link extractor of *rule* can tell by a URL alone if it takes a link.
    An extractor that only looks at certain places of a page, such as the link to the
    next one, can't."""
    extractor = rule.link_extractor
    if not hasattr(extractor, "matches"):
        return False
    is_about_urls = bool(
        getattr(extractor, "allow_res", ()) or getattr(extractor, "allow_domains", ())
    )
    is_about_places = bool(getattr(extractor, "restrict_xpaths", ()))
    return is_about_urls or not is_about_places
