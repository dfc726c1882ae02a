"""``ROBOTSTXT_PARSER = "scrapy_rep.RobotParser"``: our parser in Scrapy's
RobotsTxtMiddleware."""

from __future__ import annotations

from scrapy.crawler import Crawler
from scrapy.robotstxt import RobotParser as ScrapyRobotParser
from scrapy.utils.python import to_unicode

from scrapy_rep.protocol import RobotsTxt, comparable, product_token


class RobotParser(ScrapyRobotParser):
    """A robots.txt, with the methods that Scrapy's middleware expects of a parser."""

    def __init__(self, robots: RobotsTxt) -> None:
        self.robots = robots

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> RobotParser:
        """Parse *robotstxt_body*, which may be any bytes; never raises."""
        return cls(RobotsTxt.parse(robotstxt_body))

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Return whether *user_agent* (a token, or a full User-Agent header) may fetch
        *url*."""
        url_text = to_unicode(url, errors="replace")
        return self.robots.allowed(comparable(url_text), _token(user_agent))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Return the ``crawl-delay`` for *user_agent* in seconds; None without one."""
        return self.robots.crawl_delay(_token(user_agent))


def _token(user_agent: str | bytes) -> str:
    """Return a header's product token; empty if it has none (then ``*`` applies)."""
    return product_token(to_unicode(user_agent, encoding="latin-1")) or ""
