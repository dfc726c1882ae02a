"""Product tokens with digits count up to the first of them, in the crawler's name as in the file: that is
what Google's matcher makes of ``User-agent: MJ12bot`` (REP.md section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.page import PageRules
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

FILE = (
    "User-agent: MJ12bot\nDisallow: /mj\n\nUser-agent: img2dataset\nDisallow: /img\n\n"
    "User-agent: 008\nDisallow: /008\n\nUser-agent: *\nDisallow: /all\n"
)
# A name, and the only one of the four paths that it may not fetch, and by which group.
NAMES = [
    ("MJ12bot", "/mj", "MJ"),
    ("MJ", "/mj", "MJ"),
    ("mj99", "/mj", "mj"),
    ("img2dataset", "/img", "img"),
    ("008", "/all", "*"),
    ("360Spider", "/all", "*"),
    (["008", "MJ12bot"], "/mj", "MJ"),
    ("MJ-12bot", "/all", "*"),
]


def test_names_are_cut_as_in_the_file() -> None:
    robots = RobotsTxt.parse(FILE.encode())
    with every_row() as checking:
        for name, forbidden, group in NAMES:
            with checking(name):
                paths = ["/mj", "/img", "/008", "/all"]
                assert [path for path in paths if not robots.allowed(path, name)] == [forbidden]
                assert robots.decide(forbidden, name).agent == group


def test_what_is_no_name_raises_as_before() -> None:
    for name in ("MJ12bot/1.4", "Mozilla/5.0 (compatible; MJ12bot)", "MJ 12", "M\u00fc12"):
        with pytest.raises(ValueError, match="is not a product token"):
            RobotsTxt.parse(b"").allowed("/", name)


def test_no_restriction_of_a_page_is_lost() -> None:
    header = PageRules.from_headers([b"MJ12bot: noindex"], "MJ12bot")
    meta = PageRules.from_html(b'<meta name="mj12bot" content="nofollow">', "utf-8", "MJ12bot")
    assert (header | meta).noindex
    assert (header | meta).nofollow


WAYS: list[dict[str, Any]] = [
    {"REP_USER_AGENT": "MJ12bot"},
    {"USER_AGENT": "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://example.com/)"},
]


@pytest.mark.parametrize("settings", WAYS, ids=str)
async def test_a_crawl_goes_by_such_a_name_with_one_warning(
    sites: Sites, settings: dict[str, Any]
) -> None:
    some = [sites.add(robots=FILE) for _ in range(2)]
    urls = [site.url(path) for site in some for path in ("/mj", "/all")]
    result = await crawl(urls, settings)
    result.assert_clean()
    assert [url for url in urls if url in result.failures] == [site.url("/mj") for site in some]
    [warning] = [one.getMessage() for one in result.records if "has digits" in one.getMessage()]
    assert warning.startswith("The product token MJ12bot has digits.")
    assert (
        "it is read as MJ, and so obeys every group for MJ, whatever digits follow that name"
        in warning
    )


async def test_a_spider_may_go_by_a_number(sites: Sites) -> None:
    class NumberSpider(ListSpider):
        robotstxt_user_agent = "008"

    site = sites.add(robots=FILE)
    result = await crawl(NumberSpider, requests=[site.url("/008"), site.url("/all")])
    result.assert_clean()
    assert list(result.failures) == [site.url("/all")]
    assert result.log.count("no group can name it, and the rules for all agents (*) apply") == 1
