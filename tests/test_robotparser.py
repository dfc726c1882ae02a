"""The second door: `ROBOTSTXT_PARSER = "scrapy_rep.RobotParser"` (DESIGN.md, "Enabling")."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.robotstxt import RobotParser as ScrapyRobotParser

from scrapy_rep import RobotParser
from tests.helpers.crawling import crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

SETTINGS: dict[str, Any] = {
    "ADDONS": {},
    "ROBOTSTXT_OBEY": True,
    "ROBOTSTXT_PARSER": "scrapy_rep.RobotParser",
    # Of requests that wait for one robots.txt the built-in asks about two, and lets others pass.
    "CONCURRENT_REQUESTS": 1,
}

RULES = b"""\
User-agent: foobot
Disallow: /private
Crawl-delay: 2.5
Crawl-delay: 1

User-agent: *
Disallow: /all
Crawl-delay: 7
"""

FULL = "Mozilla/5.0 (compatible; FooBot/1.2; +https://example.com/bot)"


def parse(body: bytes) -> RobotParser:
    # Scrapy's parsers take the crawler for their log only; ours writes none.
    return RobotParser.from_crawler(None, body)  # type: ignore[arg-type]


NAMED = "foobot", b"FooBot", "FooBot/1.2", FULL, FULL.encode(), " FooBot "
OTHERS = (
    "foobot-images",
    "Scrapy/2.19",
    "*",
    "",
    b"",
    "Mozilla/5.0",
    b"\xff\xfe/1.0",
    "\ud800",
)
AGENTS = [*((agent, "foobot") for agent in NAMED), *((agent, "*") for agent in OTHERS)]


def test_the_agent_gets_the_rules_and_delay_of_its_group() -> None:
    parser = parse(RULES)
    assert isinstance(parser, ScrapyRobotParser)
    with every_row() as row:
        for agent, group in AGENTS:
            with row(agent):
                kept_out = {"foobot": "/private", "*": "/all"}[group]
                for path in ("/private", "/all", "/x"):
                    for url in (f"http://h{path}", f"http://h{path}".encode()):
                        assert parser.allowed(url, agent) == (path != kept_out)
                # Of several the largest: what the owner of the site would mind least.
                assert parser.crawl_delay(agent) == {"foobot": 2.5, "*": 7.0}[group]
    assert parse(bytes(range(256))).crawl_delay("foobot") is None


# What rules mean is tested in tests/protocol; here, whatever may be handed over for a URL.
URLS: list[tuple[str, str | bytes, bool]] = [
    # Rule of the file, URL, whether it is allowed.
    # Raw non-ASCII, in the rule, the URL, or both, is the same as its escapes.
    ("/\u00e4", "http://h/\u00e4", False),
    ("/%C3%A4", "http://h/\u00e4x".encode(), False),
    # Bytes that are no UTF-8: of Latin-1 for one. Nothing raises.
    ("/\u00e4", b"http://h/\xe4", True),
    ("/", b"http://h/\xff\xfe", False),
    ("/", "http://h/\ud800", False),
    # No path at all.
    ("/$", "http://h", False),
    # What is no URL is never a reason to raise.
    *[
        ("/", url, False)
        for url in ("", "http://", "http://[", b"\x00", "//h/a", "data:,x")
    ],
    ("/" + "a" * 2000, "http://h/" + "a" * 100_000, False),
]


def test_a_rule_applies_to_urls_however_they_are_written() -> None:
    with every_row() as row:
        for rule, url, allowed in URLS:
            with row(f"{rule!r:.40} {url!r:.40}"):
                parser = parse(f"User-agent: *\nDisallow: {rule}".encode())
                assert parser.allowed(url, "foobot") is allowed


@pytest.mark.scrapy_api
async def test_behind_the_built_in_middleware(sites: Sites) -> None:
    rules = (
        "User-agent: *\nDisallow: /\nUser-agent: foobot\nuser-agent: other\n"
        "Disallow: /private*.html$\nAllow: /private-not.html\ndissalow: /typo\nDisallow: /%c3%a4\n"
    )
    site = sites.add(robots=rules)
    allowed = ["/", "/private-1.html?x", "/private-not.html", "/b%C3%A4"]
    kept_out = ["/private-1.html", "/private/x.html", "/typo", "/\u00e4"]
    settings = {**SETTINGS, "ROBOTSTXT_USER_AGENT": FULL}
    result = await crawl([site.url(path) for path in allowed + kept_out], settings)
    assert result.responses == {Request(site.url(path)).url: 200 for path in allowed}
    errors = [repr(result.failure(site.url(path))) for path in kept_out]
    assert errors == ["IgnoreRequest('Forbidden by robots.txt')"] * len(kept_out)
    assert result.stat("robotstxt/forbidden") == len(kept_out)
    assert not [name for name in result.stats if name.startswith("rep/")]
    result.assert_clean()
