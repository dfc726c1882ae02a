"""What SitemapSpider has, on any spider; settings' choices; unlisted sitemaps; a page's meta."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from scrapy.utils.test import get_crawler

from scrapy_rep.engine.timers import pause
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.seeding.discovery import SpiderOptions, seeding_mode
from scrapy_rep.seeding.loader import GUESSES
from scrapy_rep.seeding.selection import entry_as_json
from scrapy_rep.settings import RepSettings
from tests.helpers.behaviours import page, redirect
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, lists, pages, seeded, urlset

pytestmark = pytest.mark.slow


def seeding(sites: Sites, count: int = 6) -> Site:
    site = lists(sites.add(), "/index.xml")
    site.set("/index.xml", index([site.url("/news.xml"), site.url("/shop.xml")]))
    for name in ("news", "shop"):
        site.set(
            f"/{name}.xml", urlset([site.url(f"/{name}/{n}") for n in range(count)])
        )
    return site


def spider(**attributes: Any) -> type[SeededSpider]:
    return type("Spider", (SeededSpider,), attributes)


class SitemapRulesSpider(SeededSpider):
    sitemap_follow = ["/news", "/nothing"]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.news: list[str] = []
        self.sitemap_rules = [
            ("/news/[0-2]$", "parse_news"),
            (re.compile("/news/3"), self.other),
        ]

    def parse_news(self, response: Response) -> None:
        self.news.append(response.url)


@pytest.mark.scrapy_api
async def test_the_first_rule_that_matches_gives_the_callback(sites: Sites) -> None:
    site = seeding(sites)
    result = await seeded(site, spider=SitemapRulesSpider)
    assert pages(result) == [site.url("/news/3")]
    news = sorted(result.spider.news)  # type: ignore[attr-defined]
    assert news == [site.url(f"/news/{n}") for n in range(3)]
    assert result.stat("rep/sitemaps/rejected/no_rule") == 2
    assert result.stat("rep/sitemaps/rejected/not_followed") == 1


@pytest.mark.parametrize("on", [True, False])
async def test_alternate_links_are_pages_if_the_spider_says_so(
    sites: Sites, on: bool
) -> None:
    site = lists(sites.add(), "/map.xml")
    links = "".join(
        f'<l:link rel="alternate" href="{site.url(p)}"/>' for p in ("/de", "/fr")
    )
    entry = (
        f'<loc>{site.url("/en")}</loc>{links}<l:link rel="alternate" href="/relative"/>'
    )
    site.set("/map.xml", f'<urlset xmlns:l="x"><url>{entry}</url></urlset>')
    result = await seeded(site, spider=spider(sitemap_alternate_links=on))
    assert pages(result) == [
        site.url(path) for path in (["/de", "/en", "/fr"] if on else ["/en"])
    ]
    [page] = [one for one in result.spider.responses if one.url == site.url("/en")]
    assert page.meta["rep_sitemap"] == {
        "sitemap": site.url("/map.xml"),
        "lastmod": None,
        "alternate": [site.url("/de"), site.url("/fr"), "/relative"],
    }


class MetaSpider(SeededSpider):
    sitemap_media = True
    kinds: set[str] = set()

    def sitemap_filter(self, entries: Any) -> Iterator[dict[str, Any]]:
        self.kinds.add(entries.type)
        for entry in entries:
            if entry["loc"].endswith("3"):
                raise RuntimeError("an error of the user's")
            if entry["loc"].endswith("/1"):
                entry["loc"] += "?changed"
                entry["mine"] = {"when": datetime(2026, 1, 2), "list": [1]}
                entry.pop("changefreq", None)
            if not entry["loc"].endswith("2"):
                yield entry


async def test_a_page_carries_its_entry_as_the_filter_left_it(sites: Sites) -> None:
    """An index's, too. If it raises, that entry is left out, with one error for the crawl."""
    site = lists(sites.add(), "/index.xml", "/map.xml")
    site.set("/index.xml", index([site.url("/2"), site.url("/3")]))
    first = (
        f"<loc>{site.url('/1')}</loc><lastmod>2026</lastmod><changefreq>daily</changefreq>"
        "<priority>0.5</priority><news:news><news:title>T</news:title></news:news>"
        "<image:image><image:loc>http://a.test/i</image:loc></image:image>"
        "<x:link rel='alternate' hreflang='de' href='http://a.test/de'/>"
        "<x:link rel='alternate' media='print' href='http://a.test/print'/>"
    )
    entries = [first, *(f"<loc>{site.url(f'/{n}')}</loc>" for n in (2, 3, 4, 13, 5))]
    site.set(
        "/map.xml",
        f"<urlset>{''.join(f'<url>{one}</url>' for one in entries)}</urlset>",
    )
    result = await crawl(
        MetaSpider, {"REP_SITEMAPS": True}, requests=[site.url("/start")]
    )
    assert pages(result) == [site.url(path) for path in ("/1?changed", "/4", "/5")]
    [page] = [one for one in result.spider.responses if one.url.endswith("changed")]
    assert page.meta["rep_sitemap"] == {
        "sitemap": site.url("/map.xml"),
        "lastmod": "2026",
        "priority": "0.5",
        "news": {"title": "T"},
        "images": ["http://a.test/i"],
        "alternate": ["http://a.test/de", "http://a.test/print"],
        "hreflang": {"de": "http://a.test/de"},
        "mine": {"when": "2026-01-02 00:00:00", "list": [1]},
    }
    assert MetaSpider.kinds == {"urlset", "sitemapindex"}
    assert result.stat("rep/sitemaps/rejected/filtered") == 2
    assert result.stat("rep/sitemaps/rejected/filter_error") == 3
    assert len(lines(result, "sitemap_filter() raised", level="ERROR")) == 1
    assert result.reason == "finished"


def test_what_a_page_carries_is_bounded() -> None:
    recursive: dict[str, Any] = {"loc": "x", "lastmod": "2026"}
    recursive["mine"] = recursive
    long = {"loc": "x", "lastmod": "2026", "text": "x" * 70_000}
    assert (
        entry_as_json(recursive, 1) == entry_as_json(long, 1) == '{"lastmod": "2026"}'
    )
    some = {"loc": "x", "text": "x" * 10_000}
    assert len(entry_as_json(some, 10)) > 10_000
    assert entry_as_json(some, 1_000) == "{}"


# What a filter does with two entries: how many are left of them, and how many it failed with.
BAD_FILTERS: dict[str, tuple[Any, int, int]] = {
    "nothing": (lambda entries: None, 0, 0),
    "text": (lambda entries: ["http://a.test/"], 0, 2),
    "no entry of ours": (lambda entries: [{}], 1, 0),
    "at once": (lambda entries: 1 / 0, 0, 2),
    "after the first": (lambda entries: [1 / 0 for _ in entries], 0, 2),
    "once it has all": (lambda entries: [1 / 0 for _ in list(entries)], 0, 1),
}


def test_filters_that_are_wrong_leave_entries_out() -> None:
    left = {}
    for name, (function, *_) in BAD_FILTERS.items():
        options = SpiderOptions(spider(sitemap_filter=staticmethod(function))())
        some, errors = options.filtered(
            [{"loc": "1"}, {"loc": "2"}], "urlset", "http://a.test/map.xml"
        )
        left[name] = (function, len(some), errors)
    assert left == BAD_FILTERS


async def test_pages_older_than_the_date_are_left_out(sites: Sites) -> None:
    site = lists(sites.add(), "/index.xml", "/new.xml")
    site.set(
        "/index.xml", index([site.url("/skipped.xml")], "2026-01-01T12:00:00+00:00")
    )
    dates = [
        "2026-02-01",
        "2026-01-31T23:59:59Z",
        "2026",
        "2026-01",
        "2026-02-01T00:30:00+01:00",
    ]
    dates += [
        "nonsense",
        "",
        "Sun, 01 Feb 2026 00:00:00 GMT",
        "Sat, 31 Jan 2026 00:00:00 GMT",
    ]
    dates += ["2024/05/08", "May 8, 2024", "20240508", "2026-13-01"]
    entries = [
        f"<loc>{site.url(f'/{n}')}</loc><lastmod>{d}</lastmod>"
        for n, d in enumerate(dates)
    ]
    site.set(
        "/new.xml",
        f"<urlset>{''.join(f'<url>{one}</url>' for one in entries)}</urlset>",
    )
    result = await seeded(site, REP_SITEMAP_SINCE="2026-02-01")
    assert pages(result) == sorted(site.url(f"/{n}") for n in (0, 2, 5, 6, 7, 12))
    assert result.stat("rep/sitemaps/rejected/old") == 8
    assert result.stat("rep/sitemaps/undated") == 2
    assert site.count("/skipped.xml") == 0


async def test_well_known_places_are_tried_one_after_the_other(sites: Sites) -> None:
    missing = dict.fromkeys(GUESSES, 404)
    every = [sites.add(robots=404, pages=dict(missing)) for _ in GUESSES]
    for place, site in zip(GUESSES, every, strict=True):
        text = (
            f"{site.url('/page')}\n"
            if place.endswith("txt")
            else urlset([site.url("/page")])
        )
        site.set(place, text)
    forbidden = sites.add(robots=f"User-agent: *\nDisallow: {GUESSES[0]}$\n")
    forbidden.set(GUESSES[1], urlset([forbidden.url("/page")]))
    nowhere = sites.add(robots="User-agent: *\nDisallow: /x\n", pages=dict(missing))
    down = sites.add(robots=404, pages=dict.fromkeys(GUESSES, 503))
    listed = lists(sites.add(), "/other.xml")
    listed.set("/other.xml", urlset([]))
    others = [forbidden, nowhere, down, listed]
    result = await seeded(*every, *others, REP_SITEMAP_GUESS=True)
    assert pages(result) == sorted(site.url("/page") for site in (*every, forbidden))
    with every_row() as row:
        for at, site in enumerate(every):
            with row(GUESSES[at]):
                asked = [hit.path for hit in site.requests if hit.path in GUESSES]
                assert asked == list(GUESSES[: at + 1])
    # Scrapy retries it twice; the next place isn't tried.
    assert [down.count(place) for place in GUESSES] == [3, 0, 0, 0, 0, 0]
    assert listed.count(GUESSES[0]) == 0
    # To be expected: not worth a warning.
    assert len(
        lines(result, nowhere.url("/"), "was not read: HTTP 404", level=None)
    ) == len(GUESSES)
    assert lines(result, "was not read", level="WARNING") == []


@pytest.mark.parametrize("others", [False, True])
async def test_a_spider_names_sitemaps_itself(
    sites: Sites, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are."""
    monkeypatch.setattr("scrapy_rep.seeding.discovery.MAX_SITEMAPS", 1)
    own, other = sites.add(robots="User-agent: *\nDisallow: /private\n"), sites.add()
    own.set("/index.xml", index([own.url("/a.xml")]))
    own.set(
        "/a.xml", urlset([own.url("/a"), own.url("/private"), other.url("/foreign")])
    )
    lists(other, "/b.xml").set("/b.xml", urlset([other.url("/b")]))
    own.set("/c.xml", urlset([own.url("/c")]))
    named = spider(rep_sitemaps=(own.url("/index.xml"), own.url("/c.xml")))
    result = await seeded(
        *([other] if others else []), spider=named, REP_SITEMAPS=others
    )
    found = [own.url("/a"), own.url("/c"), *([other.url("/b")] if others else [])]
    assert pages(result) == found, (
        "as if robots.txt had listed it: no pages of other hosts"
    )
    assert result.stat("rep/sitemaps/found") == 4


class HookSpider(SeededSpider):
    def sitemap_request(self, request: Request) -> Request | None:
        if request.url.endswith("index.xml"):
            request.headers["X-Token"] = "index"
            return None
        if request.url.endswith("broken.xml"):
            raise ValueError("mine")
        if request.url.endswith("odd.xml"):
            return "odd"  # type: ignore[return-value]
        return Request(request.url, headers={"X-Token": "file"}, meta={"mine": 1})


async def test_a_hook_of_the_spiders_sees_each_request_for_a_sitemap(
    sites: Sites,
) -> None:
    names = ["a", "broken", "odd"]
    site = lists(sites.add(), "/index.xml")
    site.set("/index.xml", index([site.url(f"/{name}.xml") for name in names]))
    for name in names:
        site.set(f"/{name}.xml", urlset([site.url(f"/{name}")]))
    starts = [
        site.url("/start"),
        site.url("/a.xml"),
    ]  # which the dupe filter knows then
    result = await crawl(HookSpider, {"REP_SITEMAPS": True}, requests=starts)
    assert set(pages(result)) == {starts[1], *(site.url(f"/{name}") for name in names)}
    tokens = {
        hit.path: token for hit in site.requests if (token := hit.header("X-Token"))
    }
    assert tokens == {"/index.xml": "index", "/a.xml": "file"}
    assert result.log.count("sitemap_request() raised an exception") == 1
    assert result.reason == "finished"


class LinkingSpider(SeededSpider):
    link = ""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        if response.url.endswith("/start") and self.link:
            yield Request(self.link)


@pytest.mark.parametrize(
    ("attributes", "setting", "seeds"),
    [
        ({}, "all", "both"),
        ({}, "start", "start"),
        ({}, False, "none"),
        ({"rep_sitemaps": "start"}, False, "start"),
        ({"rep_sitemaps": "start"}, "all", "start"),
    ],
)
async def test_which_origins_seed(
    sites: Sites, attributes: dict[str, Any], setting: Any, seeds: str
) -> None:
    one, two, three = (lists(sites.add(), "/map.xml") for _ in range(3))
    for site in (one, two, three):
        site.set("/map.xml", urlset([site.url("/page")]))
    # A start request that is redirected starts there too.
    one.set("/start", redirect(three.url("/start")))
    kind = type("Spider", (LinkingSpider,), {**attributes, "link": two.url("/linked")})
    result = await seeded(one, spider=kind, REP_SITEMAPS=setting)
    wanted = {"both": [one, two, three], "start": [one, three], "none": []}[seeds]
    found = [url for url in pages(result) if url.endswith("/page")]
    assert found == sorted(site.url("/page") for site in wanted)


async def test_an_origin_that_is_known_before_it_may_seed(sites: Sites) -> None:
    site, other = seeding(sites, 1), sites.add()
    linked = [site.url(f"/linked/{number}") for number in range(3)]

    class LateStart(SeededSpider):
        async def start(self) -> Any:
            yield Request(other.url("/start"))
            while len(self.responses) < 4:
                await pause()
            yield Request(site.url("/start"))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            self.responses.append(response)
            if len(self.responses) <= len(linked):
                yield Request(linked[len(self.responses) - 1])

    result = await seeded(spider=LateStart, REP_SITEMAPS="start")
    assert len(pages(result)) == 2 + len(linked)
    assert site.count("/robots.txt") == 1


async def test_priorities_are_those_of_the_settings(sites: Sites) -> None:
    settings = {"_REP_SITEMAP_PAGE_PRIORITY": -7, "_REP_SITEMAP_PRIORITY": 500}
    result = await seeded(seeding(sites, 3), **settings)
    requests = [
        response.request for response in result.spider.responses if response.request
    ]
    assert sorted(one.priority for one in requests) == [-7] * 6 + [0]
    assert all(("rep_sitemap" in one.meta) == (one.priority == -7) for one in requests)
    # Nothing else of ours is left on them.
    assert not any(key.startswith("_rep") for one in requests for key in one.meta)
    assert not any(one.dont_filter for one in requests)


class Starting(ListSpider):
    def __init__(self, requests: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.requests = requests

    async def start(self) -> Any:
        for request in self.requests:
            yield Request(request)


class OldSitemapSpider(Starting, SitemapSpider):
    def parse(self, response: Response, **kwargs: Any) -> None:
        self.responses.append(response)


class RuleSpider(CrawlSpider, Starting):
    rules = [Rule(LinkExtractor(), callback="parse_linked")]

    def parse_linked(self, response: Response) -> None:
        self.responses.append(response)


@pytest.mark.scrapy_api
async def test_spiders_that_have_callbacks_of_their_own(sites: Sites) -> None:
    site = lists(
        sites.add(pages={"/page": page("<a href='/linked'>x</a>")}), "/map.xml"
    )
    site.set("/map.xml", urlset([site.url("/page")]))
    assert pages(await seeded(site, spider=OldSitemapSpider)) == [site.url("/page")]
    # Its rule takes every link, and doesn't follow those of the page.
    assert pages(await seeded(site, spider=RuleSpider)) == [site.url("/page")]


NO_MODE, METHOD = "rep_sitemaps is ", " must be a method."
RULES, FOLLOW = (f"sitemap_{name} must be a list of " for name in ("rules", "follow"))
NO_MODE, METHOD = "rep_sitemaps is ", " must be a method."
WRONG: list[tuple[str, Any, str]] = [
    *(
        ("sitemap_rules", [rule], RULES)
        for rule in (("", "nothing"), ("(", "parse"), "/x")
    ),
    *(("sitemap_follow", value, FOLLOW) for value in (["("], "/news")),
    *(("sitemap_filter", "x", METHOD), ("sitemap_request", 1, METHOD)),
    *(
        ("rep_sitemaps", value, NO_MODE)
        for value in (["/map.xml"], ["ftp:x"], ["http://a.test", 3])
    ),
]


@pytest.mark.parametrize(
    ("name", "value"), [("rep_sitemaps", "often"), ("sitemap_follow", 1)]
)
async def test_wrong_attributes_end_the_crawl_at_its_start(
    sites: Sites, name: str, value: Any
) -> None:
    site = sites.add()
    kind = spider(**{name: value})
    result = await crawl(kind, {"REP_SITEMAPS": True}, requests=[site.url("/start")])
    assert result.reason == "rep_settings_error"
    assert site.requests == []
    [error] = lines(result, level="ERROR")
    assert f"attribute {name} " in error
    assert "\n" not in error


def test_attributes_are_checked() -> None:
    with every_row() as row:
        for name, value, message in WRONG:
            crawler = get_crawler(SeededSpider)
            crawler.spider = spider(**{name: value})()
            with (
                row((name, value)),
                pytest.raises(SettingsError, match=re.escape(message)),
            ):
                SpiderOptions(crawler.spider)
                seeding_mode(crawler, RepSettings())
