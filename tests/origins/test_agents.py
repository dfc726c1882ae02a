"""docs/decisions.md: which group of a robots.txt a request goes by."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_rep.origins.agents import Agents
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.settings import RepSettings
from tests.helpers.crawling import ListSpider, captured_log, crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

pytestmark = pytest.mark.filterwarnings("ignore:The 'user_agent' spider attribute")
# Each agent is kept from a path of its own, so that what is dropped tells who one went by.
# fmt: off
AGENTS = [
    "MetaBot", "AttributeBot", "SettingBot", "ScrapysBot", "HeaderBot", "ProjectBot", "SpiderBot",
    "scrapy-bot", "Acme",
]
# fmt: on
RULES = "".join(f"User-agent: {name}\nDisallow: /{name}\n\n" for name in AGENTS)
RULES += "User-agent: *\nDisallow: /all\n"
PATHS = [*(f"/{name}" for name in AGENTS), "/all"]


class AttributeSpider(ListSpider):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.robotstxt_user_agent = ["Unknown", "AttributeBot"]


class OldStyleSpider(ListSpider):
    user_agent = "SpiderBot/1.0 (+https://example.com)"  # deprecated, and still there


def agents_of(values: dict[str, Any], spider: type[Spider] = ListSpider) -> Agents:
    crawler = get_crawler(spider, values)
    crawler.spider = spider.from_crawler(crawler)
    agents = Agents(crawler, RepSettings.from_settings(crawler.settings))
    agents.check_spider()
    return agents


FULL = "Mozilla/5.0 (compatible; {}/1.2; +https://example.com/bot)"
EVERYTHING = {
    "REP_USER_AGENT": "SettingBot",
    "ROBOTSTXT_USER_AGENT": "ScrapysBot",
    "USER_AGENT": "ProjectBot/1.0",
}
USER_AGENT_ONLY = {"USER_AGENT": "ProjectBot/1.0"}
HEADER = {"User-Agent": FULL.format("HeaderBot")}
OTHERS: dict[str, Any] = {"headers": {"Accept": "*/*"}, "meta": {"x": 1}}
# Settings, how a request is made, the spider, and the agent that it goes by: a name of AGENTS, or "all".
# Of each step down the ladder the one above is taken away.
GOOGLE_2026: list[tuple[dict[str, Any], dict[str, Any], type[Spider], str]] = [
    (EVERYTHING, {"headers": HEADER, "meta": {"rep_user_agent": "MetaBot"}}, AttributeSpider, "MetaBot"),
    (EVERYTHING, {"headers": HEADER}, AttributeSpider, "AttributeBot"),
    (EVERYTHING, {"headers": HEADER}, ListSpider, "SettingBot"),
    ({**EVERYTHING, "REP_USER_AGENT": None}, {"headers": HEADER}, ListSpider, "ScrapysBot"),
    (USER_AGENT_ONLY, {"headers": HEADER}, ListSpider, "HeaderBot"),
    (USER_AGENT_ONLY, {"headers": HEADER}, OldStyleSpider, "HeaderBot"),
    (USER_AGENT_ONLY, {}, OldStyleSpider, "SpiderBot"),
    (USER_AGENT_ONLY, OTHERS, ListSpider, "ProjectBot"),
]  # fmt: skip
# Where Scrapy takes a full header, or a list, so do we; and a list as on a command line.
VALUES: list[tuple[dict[str, Any], str]] = [
    ({"ROBOTSTXT_USER_AGENT": FULL.format("ScrapysBot")}, "ScrapysBot"),
    ({"ROBOTSTXT_USER_AGENT": ["Unknown", "ScrapysBot"]}, "ScrapysBot"),
    ({"REP_USER_AGENT": "sEtTiNgBoT"}, "SettingBot"),
    ({"REP_USER_AGENT": "Scrapy-Bot"}, "scrapy-bot"),
    ({"REP_USER_AGENT": ["SettingBot", "MetaBot"]}, "SettingBot"),
    ({"REP_USER_AGENT": ["Unknown", "MetaBot", "SettingBot"]}, "MetaBot"),
    ({"REP_USER_AGENT": "Unknown, MetaBot"}, "MetaBot"),
    ({"REP_USER_AGENT": ["Unknown", "Stranger"]}, "all"),
    *(({"REP_USER_AGENT": one}, "all") for one in ("Set", "SettingBot-Images")),
    # A name that doesn't sound like a crawler's, among browsers' names.
    ({"USER_AGENT": FULL.format("Acme")}, "Acme"),
    ({"USER_AGENT": "Scrapy/2.19 (+https://scrapy.org)"}, "all"),
]
META_VALUES: list[tuple[Any, str]] = [
    *(
        (one, "MetaBot")
        for one in ("MetaBot", ["Unknown", "MetaBot"], ("MetaBot", "SettingBot"))
    ),
    *((one, "MetaBot") for one in ("Unknown,MetaBot", FULL.format("MetaBot"))),
    (None, "SettingBot"),  # the next in the row applies, as with Scrapy's own meta keys
]


@pytest.mark.scrapy_api
def test_the_first_that_is_there_takes_precedence() -> None:
    """Without a warning. That a crawl goes by it is below."""
    rows = [
        *GOOGLE_2026,
        *((values, {}, ListSpider, name) for values, name in VALUES),
        *((EVERYTHING, {"meta": {"rep_user_agent": v}}, ListSpider, name) for v, name in META_VALUES),
    ]  # fmt: skip
    robots = RobotsTxt.parse(RULES.encode())
    with every_row() as row, captured_log() as records:
        for values, how, spider, name in rows:
            with row((values, how, name)):
                chain = agents_of(values, spider).chain_of(
                    Request("http://a.example/", **how)
                )
                assert [path for path in PATHS if not robots.allowed(path, chain)] == [
                    f"/{name}"
                ]
    assert [one.getMessage() for one in records if one.levelname == "WARNING"] == []


@pytest.mark.parametrize("spider", [ListSpider, AttributeSpider])
async def test_each_request_goes_by_its_own(
    sites: Sites, spider: type[ListSpider]
) -> None:
    """To one site, one robots.txt: the cached entry serves all agents. A spider's attribute comes first."""
    site, header = sites.add(robots=RULES), {"User-Agent": "HeaderBot/1.0"}
    requests = [
        Request(site.url("/MetaBot#1"), meta={"rep_user_agent": "MetaBot"}),
        Request(site.url("/MetaBot#2"), headers=header),
        Request(site.url("/MetaBot#3")),
        Request(site.url("/HeaderBot"), headers=header),
        Request(site.url("/AttributeBot")),
    ]
    result = await crawl(spider, USER_AGENT_ONLY, requests=requests)
    agents = {url: error.decision.agent for url, error in result.failures.items()}  # type: ignore[attr-defined]
    other = "AttributeBot" if spider is AttributeSpider else "HeaderBot"
    assert agents == {requests[0].url: "MetaBot", site.url(f"/{other}"): other}
    assert site.count("/robots.txt") == 1
    result.assert_clean()


# A browser's: nothing in it is a crawler's own name. False is not the token of its string.
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101"
NO_NAMES = ("*", "", [], 12345, False, ["*", ""], ["Bot", None], b"Bot", "\ud800")
NO_TOKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({"USER_AGENT": value}, {}) for value in ("", FIREFOX)),
    ({"ROBOTSTXT_USER_AGENT": "*"}, {}),
    *(
        ({}, {"headers": {"User-Agent": value}})
        for value in ("Mozilla/5.0", b"\xff\xfe\x00")
    ),
    *(({}, {"meta": {"rep_user_agent": value}}) for value in NO_NAMES),
]


def test_no_token_can_be_told() -> None:
    """`*` applies, with one warning (DESIGN.md), however many requests are sent so."""
    with every_row() as row:
        for settings, how in NO_TOKEN:
            with row((settings, how)), captured_log() as records:
                agents = agents_of({"USER_AGENT": "SomeBot", **settings})
                for _ in range(3):
                    assert agents.chain_of(Request("http://a.example/", **how)) in (
                        (),
                        ("*",),
                    )
                [message] = [
                    one.getMessage() for one in records if one.levelname == "WARNING"
                ]
                assert message.startswith("There is no product token in ")
                assert message.endswith("Set REP_USER_AGENT to yours.")


def test_warning_after_very_many_headers() -> None:
    """What is remembered of headers is bounded; one without a token is still warned of, once."""
    agents, some = (
        agents_of({"USER_AGENT": "SomeBot"}),
        [f"HeaderBot/{one}" for one in range(1500)],
    )
    with captured_log() as records:
        for header in [*some, "Mozilla/5.0", "Mozilla/4.0", *some, "Mozilla/3.0"]:
            agents.chain_of(
                Request("http://a.example/", headers={"User-Agent": header})
            )
    assert [one.levelname for one in records] == ["WARNING"]


HEADER_NAMES = (
    "User-Agent: ",
    "user-agent:",
    "UserAgent: ",
    "User Agent = ",
    '"User-Agent": "',
)


def test_the_name_of_the_header_is_no_token() -> None:
    """Google's matcher would take it for one. The crawler's own name is told, and a warning says why."""
    with every_row() as row:
        for prefix in HEADER_NAMES:
            for setting in ("USER_AGENT", "ROBOTSTXT_USER_AGENT"):
                with row((prefix, setting)), captured_log() as records:
                    agents = agents_of({setting: prefix + FULL.format("ProjectBot")})
                    for _ in range(3):
                        assert agents.chain_of(Request("http://a.example/")) == (
                            "ProjectBot",
                        )
                    [message] = [
                        one.getMessage()
                        for one in records
                        if one.levelname == "WARNING"
                    ]
                    assert "begins with the name of its header" in message
                    assert message.endswith("out. Rules for ProjectBot apply.")
    with captured_log() as records:
        assert (
            agents_of({"USER_AGENT": "User-Agent: " * 2}).chain_of(
                Request("http://a.example/")
            )
            == ()
        )
    assert len([one for one in records if one.levelname == "WARNING"]) == 1


async def test_crawler_that_ignores_the_global_group(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    requests = [
        Request(site.url(f"{path}#{agents[-1]}"), meta={"rep_user_agent": agents})
        for agents in (["Unknown"], ["Unknown", "MetaBot"])
        for path in PATHS
    ]
    result = await crawl(requests, {"REP_OBEY_GLOBAL_GROUP": False})
    assert list(result.failures) == [site.url("/MetaBot#MetaBot")]
    result.assert_clean()


# Product tokens with digits count up to the first of them, in the crawler's name as in the file: that is what
# Google's matcher makes of ``User-agent: MJ12bot`` (REP.md section 7; tests/protocol).


async def test_a_crawl_goes_by_such_a_name_with_one_warning(sites: Sites) -> None:
    rules = "User-agent: MJ12bot\nDisallow: /mj\n\nUser-agent: *\nDisallow: /all\n"
    some = [sites.add(robots=rules) for _ in range(2)]
    urls = [site.url(path) for site in some for path in ("/mj", "/all")]
    agent = "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://example.com/)"
    result = await crawl(urls, {"USER_AGENT": agent})
    result.assert_clean()
    assert [url for url in urls if url in result.failures] == [
        site.url("/mj") for site in some
    ]
    [warning] = [
        one.getMessage() for one in result.records if "has digits" in one.getMessage()
    ]
    assert warning.startswith("The product token MJ12bot has digits.")
    assert (
        "it is read as MJ, and so obeys every group for MJ, whatever digits follow"
        in warning
    )


def test_a_number_is_no_name() -> None:
    with captured_log() as records:
        agents_of({"REP_USER_AGENT": "008"})
    [told] = [one.getMessage() for one in records if "has digits" in one.getMessage()]
    assert "no group can name it, and the rules for all agents (*) apply" in told


def test_no_restriction_of_a_page_is_lost() -> None:
    header = PageRules.from_headers([b"MJ12bot: noindex"], "MJ12bot")
    meta = PageRules.from_html(
        b'<meta name="mj12bot" content="nofollow">', "utf-8", "MJ12bot"
    )
    assert (header | meta).noindex
    assert (header | meta).nofollow
