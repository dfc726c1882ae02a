"""DESIGN.md, "Agents, by precedence": which group of a robots.txt a request goes by."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Sites

pytestmark = [
    pytest.mark.scrapy_api,
    pytest.mark.filterwarnings("ignore:The 'user_agent' spider attribute"),
]

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


async def went_by(
    sites: Sites,
    settings: dict[str, Any] | None = None,
    spider: type[ListSpider] = ListSpider,
    headers: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
) -> tuple[str | None, CrawlResult]:
    """The agent that a request with these goes by: a name of AGENTS, "all", or None."""
    site = sites.add(robots=RULES)
    requests = [Request(site.url(path), headers=headers, meta=meta) for path in PATHS]
    result = await crawl(spider, settings, requests=requests)
    result.assert_clean()
    dropped = [
        path for path in PATHS if isinstance(result.failure(site.url(path)), RobotsDisallowed)
    ]
    assert len(dropped) <= 1
    assert site.count("/robots.txt") == 1
    return (dropped[0][1:] if dropped else None), result


def token_warnings(result: CrawlResult) -> list[str]:
    records = [record for record in result.records if record.name == "scrapy_rep.agents"]
    return [record.getMessage() for record in records if record.levelname == "WARNING"]


class AttributeSpider(ListSpider):
    robotstxt_user_agent: Any = "AttributeBot"


class OldStyleSpider(ListSpider):
    user_agent = "SpiderBot/1.0 (+https://example.com)"  # deprecated, and still there


FULL = "Mozilla/5.0 (compatible; {}/1.2; +https://example.com/bot)"

# Of each step down the ladder the one above is taken away.
EVERYTHING = {
    "REP_USER_AGENT": "SettingBot",
    "ROBOTSTXT_USER_AGENT": "ScrapysBot",
    "USER_AGENT": "ProjectBot/1.0",
}
WITHOUT_REP = {**EVERYTHING, "REP_USER_AGENT": None}
USER_AGENT_ONLY = {"USER_AGENT": "ProjectBot/1.0"}
HEADER = {"User-Agent": FULL.format("HeaderBot")}
META = {"rep_user_agent": "MetaBot"}

PRECEDENCE: list[tuple[str, dict[str, Any], type[ListSpider], Any, Any]] = [
    ("MetaBot", EVERYTHING, AttributeSpider, HEADER, META),
    ("AttributeBot", EVERYTHING, AttributeSpider, HEADER, None),
    ("SettingBot", EVERYTHING, ListSpider, HEADER, None),
    ("ScrapysBot", WITHOUT_REP, ListSpider, HEADER, None),
    ("HeaderBot", USER_AGENT_ONLY, ListSpider, HEADER, None),
    ("HeaderBot", USER_AGENT_ONLY, OldStyleSpider, HEADER, None),
    ("ProjectBot", USER_AGENT_ONLY, ListSpider, None, None),
    # Other headers and other meta change nothing.
    ("ProjectBot", USER_AGENT_ONLY, ListSpider, {"Accept": "*/*"}, {"x": 1}),
]


@pytest.mark.parametrize(("name", "settings", "spider", "headers", "meta"), PRECEDENCE)
async def test_precedence(
    sites: Sites,
    name: str,
    settings: dict[str, Any],
    spider: type[ListSpider],
    headers: Any,
    meta: Any,
) -> None:
    assert (await went_by(sites, settings, spider, headers, meta))[0] == name


async def test_user_agent_of_the_spider(sites: Sites) -> None:
    assert (await went_by(sites, USER_AGENT_ONLY, OldStyleSpider))[0] == "SpiderBot"


VALUES: list[tuple[str, dict[str, Any], str]] = [
    # Where Scrapy takes a full header (ROBOTSTXT_USER_AGENT), so do we.
    ("a header for Scrapy", {"ROBOTSTXT_USER_AGENT": FULL.format("ScrapysBot")}, "ScrapysBot"),
    ("a list for Scrapy", {"ROBOTSTXT_USER_AGENT": ["Unknown", "ScrapysBot"]}, "ScrapysBot"),
    ("other case", {"REP_USER_AGENT": "sEtTiNgBoT"}, "SettingBot"),
    ("with a hyphen", {"REP_USER_AGENT": "Scrapy-Bot"}, "scrapy-bot"),
    ("a chain", {"REP_USER_AGENT": ["SettingBot", "MetaBot"]}, "SettingBot"),
    (
        "the first that is named",
        {"REP_USER_AGENT": ["Unknown", "MetaBot", "SettingBot"]},
        "MetaBot",
    ),
    ("a chain for a command line", {"REP_USER_AGENT": "Unknown, MetaBot"}, "MetaBot"),
    ("a chain that nobody names", {"REP_USER_AGENT": ["Unknown", "Stranger"]}, "all"),
    ("a part of a name", {"REP_USER_AGENT": "Set"}, "all"),
    ("a longer name", {"REP_USER_AGENT": "SettingBot-Images"}, "all"),
    # The form that DESIGN.md quotes, with a name that does not sound like a crawler's.
    ("a name among browsers' names", {"USER_AGENT": FULL.format("Acme")}, "Acme"),
    ("Scrapy's own default", {"USER_AGENT": "Scrapy/2.19 (+https://scrapy.org)"}, "all"),
]


@pytest.mark.parametrize(
    ("settings", "name"), [row[1:] for row in VALUES], ids=[r[0] for r in VALUES]
)
async def test_values(sites: Sites, settings: dict[str, Any], name: str) -> None:
    assert (await went_by(sites, settings))[0] == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("MetaBot", "MetaBot"),
        (["Unknown", "MetaBot"], "MetaBot"),
        (("MetaBot", "SettingBot"), "MetaBot"),
        ("Unknown,MetaBot", "MetaBot"),
        (FULL.format("MetaBot"), "MetaBot"),
    ],
    ids=str,
)
async def test_meta(sites: Sites, value: Any, name: str) -> None:
    got, result = await went_by(sites, EVERYTHING, meta={"rep_user_agent": value})
    assert got == name
    assert token_warnings(result) == []


@pytest.mark.parametrize(
    ("attribute", "name"),
    [(["Unknown", "MetaBot"], "MetaBot"), ("Unknown,MetaBot", "MetaBot"), (None, "SettingBot")],
)
async def test_spider_attribute(sites: Sites, attribute: Any, name: str) -> None:
    class SomeSpider(ListSpider):
        robotstxt_user_agent = attribute

    assert (await went_by(sites, EVERYTHING, SomeSpider))[0] == name


async def test_attribute_set_in_the_constructor(sites: Sites) -> None:
    class ArgumentSpider(ListSpider):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.robotstxt_user_agent = "AttributeBot"

    assert (await went_by(sites, EVERYTHING, ArgumentSpider))[0] == "AttributeBot"


async def test_each_request_goes_by_its_own(sites: Sites) -> None:
    """To one site, one robots.txt: the cached entry serves all agents."""
    site = sites.add(robots=RULES)
    requests = [
        Request(site.url("/MetaBot#1"), meta={"rep_user_agent": "MetaBot"}),
        Request(site.url("/MetaBot#2"), headers={"User-Agent": "HeaderBot/1.0"}),
        Request(site.url("/MetaBot#3")),
        Request(site.url("/HeaderBot#4"), headers={"User-Agent": "HeaderBot/1.0"}),
    ]
    result = await crawl(requests, USER_AGENT_ONLY)
    agents = {url: error.decision.agent for url, error in result.failures.items()}  # type: ignore[attr-defined]
    assert agents == {requests[0].url: "MetaBot", requests[3].url: "HeaderBot"}
    assert site.count("/robots.txt") == 1
    result.assert_clean()


NO_TOKEN = [
    ({"USER_AGENT": "12345"}, None, None),
    ({"USER_AGENT": ""}, None, None),
    # A browser's: nothing in it is a crawler's own name.
    ({"USER_AGENT": "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101"}, None, None),
    ({"ROBOTSTXT_USER_AGENT": "*"}, None, None),
    ({}, {"User-Agent": "Mozilla/5.0"}, None),
    ({}, {"User-Agent": b"\xff\xfe\x00"}, None),
    ({}, None, {"rep_user_agent": "*"}),
    ({}, None, {"rep_user_agent": ""}),
    ({}, None, {"rep_user_agent": []}),
    ({}, None, {"rep_user_agent": 12345}),
    # Not the token "False" of its string.
    ({}, None, {"rep_user_agent": False}),
    ({}, None, {"rep_user_agent": ["*", ""]}),
    ({}, None, {"rep_user_agent": "\ud800"}),
]


@pytest.mark.parametrize(("settings", "headers", "meta"), NO_TOKEN, ids=str)
async def test_no_token_can_be_told(sites: Sites, settings: Any, headers: Any, meta: Any) -> None:
    """`*` applies, with one warning (DESIGN.md), however many requests are sent so."""
    name, result = await went_by(sites, settings, headers=headers, meta=meta)
    assert name == "all"
    [message] = token_warnings(result)
    assert message.startswith("No product token can be told from ")
    assert message.endswith("Name yours in the setting REP_USER_AGENT.")


async def test_meta_that_says_nothing(sites: Sites) -> None:
    """As with Scrapy's own meta keys: the next in the row applies."""
    assert (await went_by(sites, EVERYTHING, meta={"rep_user_agent": None}))[0] == "SettingBot"


async def test_warning_after_very_many_headers(sites: Sites) -> None:
    """What is remembered of headers is bounded; one without a token is still warned of, once."""
    site = sites.add(robots=RULES)

    class ManySpider(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> None:
            middleware: Any = self.crawler.get_downloader_middleware(RepMiddleware)
            agents = [f"HeaderBot/{number}" for number in range(1500)]
            for agent in [*agents, "Mozilla/5.0", "Mozilla/4.0", *agents, "Mozilla/3.0"]:
                request = Request(site.url("/x"), headers={"User-Agent": agent})
                assert middleware.process_request(request) is None

    result = await crawl(ManySpider, requests=[site.url("/y")])
    assert len(token_warnings(result)) == 1
    result.assert_clean()


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("SettingBot", "SettingBot"),
        ("Unknown", None),
        (["Unknown", "MetaBot"], "MetaBot"),
        (None, "ProjectBot"),
    ],
)
async def test_crawler_that_ignores_the_global_group(sites: Sites, agent: Any, name: Any) -> None:
    settings = {**USER_AGENT_ONLY, "REP_USER_AGENT": agent, "REP_OBEY_GLOBAL_GROUP": False}
    assert (await went_by(sites, settings))[0] == name
