"""docs/agents.md: which group of a robots.txt a request goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.requests import Agents
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.settings import RepSettings
from tests.helpers.crawling import CrawlResult, ListSpider, captured_log, crawl
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


@dataclass(frozen=True)
class Sent:
    """How requests are sent, and the agent that they go by: a name of AGENTS, "all", or None."""

    name: str | None
    headers: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None


async def assert_went_by(
    sites: Sites,
    settings: dict[str, Any] | None,
    *rows: Sent,
    spider: type[ListSpider] = ListSpider,
) -> CrawlResult:
    """One crawl, with a site for each row."""
    table = [(one, sites.add(robots=RULES)) for one in rows]
    requests = [
        Request(site.url(path), headers=one.headers, meta=one.meta)
        for one, site in table
        for path in PATHS
    ]
    result = await crawl(spider, settings, requests=requests)
    result.assert_clean()
    with every_row() as row:
        for one, site in table:
            with row(one):
                errors = {path: result.failure(site.url(path)) for path in PATHS}
                dropped = [path for path in PATHS if isinstance(errors[path], RobotsDisallowed)]
                assert dropped == ([] if one.name is None else [f"/{one.name}"])
                assert site.count("/robots.txt") == 1
    return result


def token_warnings(result: CrawlResult) -> list[str]:
    records = [record for record in result.records if record.module == "requests"]
    return [record.getMessage() for record in records if record.levelname == "WARNING"]


class AttributeSpider(ListSpider):
    """Has its attribute from its arguments."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.robotstxt_user_agent = ["Unknown", "AttributeBot"]


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

PRECEDENCE: list[tuple[dict[str, Any], type[ListSpider], list[Sent]]] = [
    (
        EVERYTHING,
        AttributeSpider,
        [Sent("MetaBot", HEADER, META), Sent("AttributeBot", HEADER)],
    ),
    (EVERYTHING, ListSpider, [Sent("SettingBot", HEADER)]),
    (WITHOUT_REP, ListSpider, [Sent("ScrapysBot", HEADER)]),
    (
        USER_AGENT_ONLY,
        ListSpider,
        [
            Sent("HeaderBot", HEADER),
            Sent("ProjectBot"),
            # Other headers and other meta change nothing.
            Sent("ProjectBot", {"Accept": "*/*"}, {"x": 1}),
        ],
    ),
    (USER_AGENT_ONLY, OldStyleSpider, [Sent("HeaderBot", HEADER), Sent("SpiderBot")]),
]


@pytest.mark.scrapy_api
@pytest.mark.parametrize(("settings", "spider", "rows"), PRECEDENCE)
async def test_the_first_that_is_there_takes_precedence(
    sites: Sites, settings: dict[str, Any], spider: type[ListSpider], rows: list[Sent]
) -> None:
    await assert_went_by(sites, settings, *rows, spider=spider)


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


def test_values_that_settings_take() -> None:
    """By no more than the group that a request goes by: what crawls make of it is above."""
    robots = RobotsTxt.parse(RULES.encode())
    with every_row() as row:
        for what, values, name in VALUES:
            with row(what):
                chain = agents_of(values).chain_of(Request("http://a.example/"))
                allowed = [path for path in PATHS if not robots.allowed(path, chain)]
                assert allowed == [f"/{name}"]


def agents_of(values: dict[str, Any], spider: type[Spider] = Spider) -> Agents:
    crawler = get_crawler(spider, values)
    agents = Agents(crawler, RepSettings.from_settings(crawler.settings))
    agents.check_spider()
    return agents


META_VALUES: list[tuple[Any, str]] = [
    ("MetaBot", "MetaBot"),
    (["Unknown", "MetaBot"], "MetaBot"),
    (("MetaBot", "SettingBot"), "MetaBot"),
    ("Unknown,MetaBot", "MetaBot"),
    (FULL.format("MetaBot"), "MetaBot"),
    # It says nothing: the next in the row applies, as with Scrapy's own meta keys.
    (None, "SettingBot"),
]


async def test_values_that_meta_takes(sites: Sites) -> None:
    rows = [Sent(name, meta={"rep_user_agent": value}) for value, name in META_VALUES]
    result = await assert_went_by(sites, EVERYTHING, *rows)
    assert token_warnings(result) == []


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


def test_no_token_can_be_told() -> None:
    """`*` applies, with one warning (DESIGN.md), however many requests are sent so."""
    with every_row() as row:
        for settings, headers, meta in NO_TOKEN:
            with row((settings, headers, meta)), captured_log() as records:
                agents = agents_of({"USER_AGENT": "SomeBot", **settings})
                for _ in range(3):
                    request = Request("http://a.example/", headers=headers, meta=meta)
                    assert agents.chain_of(request) in ((), ("*",))
                [message] = [one.getMessage() for one in records if one.levelname == "WARNING"]
                assert message.startswith("There is no product token in ")
                assert message.endswith("Set REP_USER_AGENT to yours.")


def test_warning_after_very_many_headers() -> None:
    """What is remembered of headers is bounded; one without a token is still warned of, once."""
    agents, some = agents_of({"USER_AGENT": "SomeBot"}), [f"HeaderBot/{one}" for one in range(1500)]
    with captured_log() as records:
        for header in [*some, "Mozilla/5.0", "Mozilla/4.0", *some, "Mozilla/3.0"]:
            agents.chain_of(Request("http://a.example/", headers={"User-Agent": header}))
    assert [one.levelname for one in records] == ["WARNING"]


@pytest.mark.parametrize(
    ("agent", "name"), [("Unknown", None), (["Unknown", "MetaBot"], "MetaBot")]
)
async def test_crawler_that_ignores_the_global_group(sites: Sites, agent: Any, name: Any) -> None:
    settings = {**USER_AGENT_ONLY, "REP_USER_AGENT": agent, "REP_OBEY_GLOBAL_GROUP": False}
    await assert_went_by(sites, settings, Sent(name))


# Product tokens with digits count up to the first of them, in the crawler's name as in the file: that is what
# Google's matcher makes of ``User-agent: MJ12bot`` (REP.md section 7).
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


async def test_a_crawl_goes_by_such_a_name_with_one_warning(sites: Sites) -> None:
    some = [sites.add(robots=FILE) for _ in range(2)]
    urls = [site.url(path) for site in some for path in ("/mj", "/all")]
    agent = "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://example.com/)"
    result = await crawl(urls, {"USER_AGENT": agent})
    result.assert_clean()
    assert [url for url in urls if url in result.failures] == [site.url("/mj") for site in some]
    [warning] = [one.getMessage() for one in result.records if "has digits" in one.getMessage()]
    assert warning.startswith("The product token MJ12bot has digits.")
    assert "it is read as MJ, and so obeys every group for MJ, whatever digits follow" in warning


def test_a_number_is_no_name() -> None:
    with captured_log() as records:
        agents_of({"REP_USER_AGENT": "008"})
    [told] = [one.getMessage() for one in records if "has digits" in one.getMessage()]
    assert "no group can name it, and the rules for all agents (*) apply" in told


def test_no_restriction_of_a_page_is_lost() -> None:
    header = PageRules.from_headers([b"MJ12bot: noindex"], "MJ12bot")
    meta = PageRules.from_html(b'<meta name="mj12bot" content="nofollow">', "utf-8", "MJ12bot")
    assert (header | meta).noindex
    assert (header | meta).nofollow
