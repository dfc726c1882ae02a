"""The crawl delay that a group may hold: no part of the protocol, but read for those who ask
for it. Groups are those of REP.md section 7."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import rows

SLOW = "User-agent: FooBot\nCrawl-delay: 3"
SLOWER = "User-agent: foobot\nCrawl-delay: 7"
DELAYS = [
    ("User-agent: *\nCrawl-delay: 5", 5.0, "of the group for all"),
    ("User-agent: FooBot\nCrawl-delay: 5", 5.0, "of the named group"),
    ("User-agent: BarBot\nCrawl-delay: 5", None, "not of another's"),
    ("User-agent: FooBot\nDisallow: /\nUser-agent: *\nCrawl-delay: 5", None, "never mixed"),
    ("User-agent: FooBot\nCrawl-delay: 0.5", 0.5, "parts of a second"),
    ("User-agent: FooBot\nCrawl-delay: 0", 0.0, "none"),
    ("User-agent: FooBot\nDisallow: /\nCrawl-delay: 5", 5.0, "after a rule"),
    ("User-agent: FooBot\nCRAWL-DELAY : 5 # slow", 5.0, "in capitals, with a comment"),
    ("User-agent: FooBot\nCrawl-delay: 3\nCrawl-delay: 9\nCrawl-delay: 5", 9.0, "the largest"),
    ("User-agent: FooBot\nCrawl-delay: 3\nAllow: /\n" * 2, 3.0, "of merged groups"),
    (f"{SLOW}\nDisallow: /a\n{SLOWER}", 7.0, "the largest of merged groups"),
    (f"{SLOWER}\nDisallow: /a\n{SLOW}", 7.0, "whichever comes first"),
    ("User-agent: FooBot\nCrawl-delay: 5\nUser-agent: b\nAllow: /", 5.0, "it ends no names"),
    ("User-agent: b\nCrawl-delay: 5\nUser-agent: FooBot\nAllow: /", 5.0, "so it is for both"),
    ("Crawl-delay: 5\nUser-agent: FooBot\nDisallow: /", None, "before the first group"),
    ("User-agent: FooBot\nCrawl-delay: 5\nCrawl-delay: soon", 5.0, "beside nonsense"),
    *(
        (f"User-agent: FooBot\nCrawl-delay: {value}", None, f"nonsense: {value!r}")
        for value in ("", "soon", "-1", "nan", "inf", "-inf", "1e999", "5s", "1,5", "1 2")
    ),
    ("", None, "an empty file"),
]


@pytest.mark.parametrize(("body", "seconds"), rows("7", DELAYS))
def test_the_crawl_delay_of_the_agents_group_is_read(body: str, seconds: float | None) -> None:
    robots = RobotsTxt.parse(body.encode())
    delay = robots.crawl_delay("FooBot")
    assert delay == seconds
    assert delay is None or isinstance(delay, float)
    assert robots.crawl_delay(["nobody", "foobot"]) == seconds


def test_delay_of_a_crawler_that_ignores_the_global_group() -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nCrawl-delay: 5")
    assert robots.crawl_delay("FooBot", obey_global=False) is None
