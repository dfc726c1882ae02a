"""DESIGN.md, "Agents, by precedence": which group of a robots.txt a request goes by."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsDisallowed
from tests.crawling import CrawlResult, ListSpider, crawl
from tests.servers import Sites

# Each agent is kept from a path of its own, so that what is dropped tells who one went by.
AGENTS = ("Meta", "Attribute", "Setting", "Scrapys", "Header", "Project", "Spider", "scrapy-bot")
RULES = "".join(f"User-agent: {name}\nDisallow: /{name}\n\n" for name in AGENTS)
RULES += "User-agent: *\nDisallow: /all\n"
PATHS = [*(f"/{name}" for name in AGENTS), "/all"]


async def went_by(
    sites: Sites,
    settings: dict[str, Any] | None = None,
    spider: type[ListSpider] = ListSpider,
    headers: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
    rules: str = RULES,
) -> tuple[str | None, CrawlResult]:
    """The agent that a request with these goes by: a name of AGENTS, "all", or None."""
    site = sites.add(robots=rules)
    requests = [Request(site.url(path), headers=headers, meta=meta) for path in PATHS]
    result = await crawl(spider, settings, requests=requests)
    result.assert_clean()
    dropped = [
        path for path in PATHS if isinstance(result.failure(site.url(path)), RobotsDisallowed)
    ]
    assert len(dropped) <= 1
    assert site.count("/robots.txt") == 1
    return (dropped[0][1:] if dropped else None), result


class AttributeSpider(ListSpider):
    robotstxt_user_agent: Any = "Attribute"


class OldStyleSpider(ListSpider):
    user_agent = "Spider/1.0 (+https://example.com)"  # Scrapy's old way to set USER_AGENT


FULL = "Mozilla/5.0 (compatible; {}/1.2; +https://example.com/bot)"

# Of each step down the ladder the one above is taken away.
EVERYTHING = {
    "REP_USER_AGENT": "Setting",
    "ROBOTSTXT_USER_AGENT": "Scrapys",
    "USER_AGENT": "Project/1.0",
}
WITHOUT_REP = {**EVERYTHING, "REP_USER_AGENT": None}
USER_AGENT_ONLY = {"USER_AGENT": "Project/1.0"}
HEADER = {"User-Agent": FULL.format("Header")}
META = {"rep_user_agent": "Meta"}

PRECEDENCE: list[tuple[str, dict[str, Any], type[ListSpider], Any, Any]] = [
    ("Meta", EVERYTHING, AttributeSpider, HEADER, META),
    ("Attribute", EVERYTHING, AttributeSpider, HEADER, None),
    ("Setting", EVERYTHING, ListSpider, HEADER, None),
    ("Scrapys", WITHOUT_REP, ListSpider, HEADER, None),
    ("Header", USER_AGENT_ONLY, ListSpider, HEADER, None),
    ("Header", USER_AGENT_ONLY, OldStyleSpider, HEADER, None),
    ("Project", USER_AGENT_ONLY, ListSpider, None, None),
    # Other headers and other meta change nothing.
    ("Project", USER_AGENT_ONLY, ListSpider, {"Accept": "*/*"}, {"x": 1}),
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


@pytest.mark.filterwarnings("ignore:.*user_agent:scrapy.exceptions.ScrapyDeprecationWarning")
async def test_user_agent_of_the_spider(sites: Sites) -> None:
    assert (await went_by(sites, USER_AGENT_ONLY, OldStyleSpider))[0] == "Spider"


VALUES: list[tuple[str, dict[str, Any], str]] = [
    # Where Scrapy takes a full header (ROBOTSTXT_USER_AGENT), so do we.
    ("a header for Scrapy", {"ROBOTSTXT_USER_AGENT": FULL.format("Scrapys")}, "Scrapys"),
    ("a list for Scrapy", {"ROBOTSTXT_USER_AGENT": ["Unknown", "Scrapys"]}, "Scrapys"),
    ("other case", {"REP_USER_AGENT": "sEtTiNg"}, "Setting"),
    ("with a hyphen", {"REP_USER_AGENT": "Scrapy-Bot"}, "scrapy-bot"),
    ("a chain", {"REP_USER_AGENT": ["Setting", "Meta"]}, "Setting"),
    ("the first that is named", {"REP_USER_AGENT": ["Unknown", "Meta", "Setting"]}, "Meta"),
    ("a chain for a command line", {"REP_USER_AGENT": "Unknown, Meta"}, "Meta"),
    ("a chain that nobody names", {"REP_USER_AGENT": ["Unknown", "Stranger"]}, "all"),
    ("a part of a name", {"REP_USER_AGENT": "Set"}, "all"),
    ("a longer name", {"REP_USER_AGENT": "Setting-Images"}, "all"),
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
        ("Meta", "Meta"),
        (["Unknown", "Meta"], "Meta"),
        (("Meta", "Setting"), "Meta"),
        ("Unknown,Meta", "Meta"),
        (FULL.format("Meta"), "Meta"),
    ],
    ids=str,
)
async def test_meta(sites: Sites, value: Any, name: str) -> None:
    got, result = await went_by(sites, EVERYTHING, meta={"rep_user_agent": value})
    assert got == name
    assert "WARNING" not in result.log


@pytest.mark.parametrize(
    ("attribute", "name"),
    [(["Unknown", "Meta"], "Meta"), ("Unknown,Meta", "Meta"), (None, "Setting")],
)
async def test_spider_attribute(sites: Sites, attribute: Any, name: str) -> None:
    class SomeSpider(ListSpider):
        robotstxt_user_agent = attribute

    assert (await went_by(sites, EVERYTHING, SomeSpider))[0] == name


async def test_attribute_set_in_the_constructor(sites: Sites) -> None:
    class ArgumentSpider(ListSpider):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.robotstxt_user_agent = "Attribute"

    assert (await went_by(sites, EVERYTHING, ArgumentSpider))[0] == "Attribute"


async def test_each_request_goes_by_its_own(sites: Sites) -> None:
    """To one site, one robots.txt: the cached entry serves all agents."""
    site = sites.add(robots=RULES)
    requests = [
        Request(site.url("/Meta#1"), meta={"rep_user_agent": "Meta"}),
        Request(site.url("/Meta#2"), headers={"User-Agent": "Header/1.0"}),
        Request(site.url("/Meta#3")),
        Request(site.url("/Header#4"), headers={"User-Agent": "Header/1.0"}),
    ]
    result = await crawl(requests, USER_AGENT_ONLY)
    agents = {url: error.decision.agent for url, error in result.failures.items()}  # type: ignore[attr-defined]
    assert agents == {requests[0].url: "Meta", requests[3].url: "Header"}
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
    ({}, None, {"rep_user_agent": ["*", ""]}),
    ({}, None, {"rep_user_agent": "\ud800"}),
]


@pytest.mark.parametrize(("settings", "headers", "meta"), NO_TOKEN, ids=str)
async def test_no_token_can_be_told(sites: Sites, settings: Any, headers: Any, meta: Any) -> None:
    """`*` applies, with one warning (DESIGN.md), however many requests are sent so."""
    name, result = await went_by(sites, settings, headers=headers, meta=meta)
    assert name == "all"
    warnings = [record for record in result.records if record.levelname == "WARNING"]
    [message] = [record.getMessage() for record in warnings if record.name == "scrapy_rep.agents"]
    assert message.startswith("No product token can be told from ")
    assert message.endswith("Name yours in the setting REP_USER_AGENT.")


@pytest.mark.parametrize("value", [None, False, 0], ids=str)
async def test_meta_that_says_nothing(sites: Sites, value: Any) -> None:
    """As with Scrapy's own meta keys: the next in the row applies."""
    got, result = await went_by(sites, EVERYTHING, meta={"rep_user_agent": value})
    assert got == "Setting"


async def test_warning_after_very_many_headers(sites: Sites) -> None:
    """What is remembered of headers is bounded; a new one without a token is still warned of."""
    site = sites.add(robots=RULES)
    agents = [f"Header/{number}" for number in range(1001)]
    urls = [site.url("/all"), site.url("/Header")]
    requests = [Request(urls[1], headers={"User-Agent": agent}) for agent in agents]
    requests += [Request(urls[0], headers={"User-Agent": f"Mozilla/{n}"}) for n in range(3)]
    result = await crawl(
        requests,
        {
            "CONCURRENT_REQUESTS": 1,
            "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        },
    )
    assert len(result.spider.errors) == len(requests)
    assert result.log.count("No product token can be told") == 1
    result.assert_clean()


@pytest.mark.parametrize(
    ("agent", "name"),
    [("Setting", "Setting"), ("Unknown", None), (["Unknown", "Meta"], "Meta"), (None, "Project")],
)
async def test_crawler_that_ignores_the_global_group(sites: Sites, agent: Any, name: Any) -> None:
    settings = {**USER_AGENT_ONLY, "REP_USER_AGENT": agent, "REP_OBEY_GLOBAL_GROUP": False}
    assert (await went_by(sites, settings))[0] == name
