"""What users of SitemapSpider know works on any spider; what the settings choose; what travels in
a page's meta."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

from scrapy_rep.engine.pause import pause
from tests.helpers.behaviours import redirect
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, pages, urlset

pytestmark = pytest.mark.slow

ON = {"REP_SITEMAPS": True}


def listing(site: Site, *paths: str) -> None:
    site.set("/robots.txt", "".join(f"Sitemap: {site.url(path)}\n" for path in paths))


def seeding(sites: Sites, count: int = 6) -> Site:
    """A site with an index of two sitemaps of pages."""
    site = sites.add()
    listing(site, "/index.xml")
    site.set("/index.xml", index([site.url("/news.xml"), site.url("/shop.xml")]))
    for name in ("news", "shop"):
        site.set(f"/{name}.xml", urlset([site.url(f"/{name}/{n}") for n in range(count)]))
    return site


class RulesSpider(SeededSpider):
    sitemap_rules = [("/news/[0-2]$", "parse_news"), (re.compile("/shop/1"), "other")]

    def parse_news(self, response: Response) -> None:
        self.items.append(response.url)


async def test_the_first_rule_that_matches_gives_the_callback(sites: Sites) -> None:
    """Without any, a page is not wanted."""
    site = seeding(sites)
    result = await crawl(RulesSpider, ON, requests=[site.url("/start")])
    assert pages(result) == [site.url("/shop/1")]
    assert result.stat("rep/sitemaps/emitted") == 4
    assert result.stat("rep/sitemaps/rejected/no_rule") == 8
    result.assert_clean()


class MethodSpider(SeededSpider):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sitemap_rules = [("", self.other)]


async def test_rules_with_methods(sites: Sites) -> None:
    site = seeding(sites)
    result = await crawl(MethodSpider, ON, requests=[site.url("/start")])
    assert len(pages(result)) == 12
    result.assert_clean()


class FollowSpider(SeededSpider):
    sitemap_follow = ["/news", "/nothing"]


async def test_sitemap_follow_chooses_what_an_index_lists(sites: Sites) -> None:
    """For what an index lists; what robots.txt lists is followed."""
    site = seeding(sites)
    result = await crawl(FollowSpider, ON, requests=[site.url("/start")])
    assert {url.rpartition("/")[0] for url in pages(result)} == {site.url("/news")}
    assert result.stat("rep/sitemaps/rejected/not_followed") == 1
    result.assert_clean()


class AlternateSpider(SeededSpider):
    sitemap_alternate_links = True


@pytest.mark.parametrize("spider", [SeededSpider, AlternateSpider])
async def test_alternate_links_are_pages_if_the_spider_says_so(
    sites: Sites, spider: type[SeededSpider]
) -> None:
    site = sites.add()
    listing(site, "/map.xml")
    links = "".join(f'<l:link rel="alternate" href="{site.url(p)}"/>' for p in ("/de", "/fr"))
    site.set(
        "/map.xml",
        f'<urlset xmlns:l="x"><url><loc>{site.url("/en")}</loc>{links}'
        '<l:link rel="alternate" href="/relative"/></url></urlset>',
    )
    result = await crawl(spider, ON, requests=[site.url("/start")])
    wanted = ["/de", "/en", "/fr"] if spider is AlternateSpider else ["/en"]
    assert pages(result) == [site.url(path) for path in wanted]
    meta = result.spider.responses[-1].meta["rep_sitemap"]
    assert meta == {
        "sitemap": site.url("/map.xml"),
        "lastmod": None,
        "alternate": [site.url("/de"), site.url("/fr"), "/relative"],
    }
    result.assert_clean()


class FilterSpider(SeededSpider):
    def sitemap_filter(self, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            if entry["loc"].endswith("3"):
                raise RuntimeError("an error of the user's")
            if entry["loc"].endswith("/1"):
                entry["loc"] += "?changed"
            if not entry["loc"].endswith("2"):
                yield entry


async def test_the_filter_may_change_and_leave_out_entries(sites: Sites) -> None:
    """Also of what an index lists; it may change entries. Where it raises, one entry is left out,
    with one error in the log for each sitemap, and the rest goes on."""
    site = seeding(sites)
    result = await crawl(FilterSpider, ON, requests=[site.url("/start")])
    wanted = [f"/{name}/{n}" for name in ("news", "shop") for n in ("0", "1?changed", "4", "5")]
    assert pages(result) == sorted(site.url(path) for path in wanted)
    assert result.stat("rep/sitemaps/rejected/filtered") == 2
    assert result.stat("rep/sitemaps/rejected/filter_error") == 2
    assert len(lines(result, "sitemap_filter() raised", level="ERROR")) == 2
    assert result.reason == "finished"


class BadFilterSpider(SeededSpider):
    def sitemap_filter(self, entries: Any) -> Any:
        return {
            "nothing": lambda: None,
            "text": lambda: ["http://a.test/"],
            "empty": lambda: [{}],
            "number": lambda: [{"loc": 5}],
            "at-once": lambda: 1 / 0,
            "list": lambda: [1 / 0 for _ in list(entries)],
        }[self.kind]()


@pytest.mark.parametrize("kind", ["nothing", "text", "empty", "number", "at-once", "list"])
async def test_filter_that_is_wrong(sites: Sites, kind: str) -> None:
    """No traceback of ours, and the crawl ends."""
    site = seeding(sites)
    result = await crawl(BadFilterSpider, ON, requests=[site.url("/start")], kind=kind)
    assert pages(result) == []
    assert result.stat("rep/sitemaps/failed") == 0
    assert result.reason == "finished"


async def test_pages_older_than_the_date_are_left_out(sites: Sites) -> None:
    site = sites.add()
    listing(site, "/index.xml", "/new.xml")
    site.set("/index.xml", index([site.url("/skipped.xml")], "2026-01-01T12:00:00+00:00"))
    dates = ["2026-02-01", "2026-01-31T23:59:59Z", "2026", "2026-01", "2026-02-01T00:30:00+01:00"]
    dates += ["nonsense", "", "Sun, 01 Feb 2026 00:00:00 GMT", "Sat, 31 Jan 2026 00:00:00 GMT"]
    site.set(
        "/new.xml",
        "<urlset>"
        + "".join(
            f"<url><loc>{site.url(f'/{n}')}</loc><lastmod>{mod}</lastmod></url>"
            for n, mod in enumerate(dates)
        )
        + "</urlset>",
    )
    settings = {**ON, "REP_SITEMAP_SINCE": "2026-02-01"}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert pages(result) == [site.url(f"/{n}") for n in (0, 2, 5, 6, 7)]
    assert result.stat("rep/sitemaps/rejected/old") == 5
    assert site.count("/skipped.xml") == 0
    lastmods = {
        response.meta.get("rep_sitemap", {}).get("lastmod") for response in result.spider.responses
    }
    assert lastmods == {None, "2026-02-01", "2026", "nonsense", "Sun, 01 Feb 2026 00:00:00 GMT"}
    result.assert_clean()


@pytest.mark.parametrize("on", [True, False])
async def test_a_sitemap_is_guessed_where_none_is_listed(sites: Sites, on: bool) -> None:
    silent = {
        "no robots.txt": sites.add(robots=404),
        "robots.txt without sitemaps": sites.add(robots="User-agent: *\nDisallow: /x\n"),
    }
    for site in silent.values():
        site.set("/sitemap.xml", urlset([site.url("/page")]))
    listed, missing = sites.add(), sites.add(pages={"/sitemap.xml": 404})
    listing(listed, "/other.xml")
    listed.set("/other.xml", urlset([]))
    starts = [one.url("/start") for one in (*silent.values(), listed, missing)]
    result = await crawl(SeededSpider, {**ON, "REP_SITEMAP_GUESS": on}, requests=starts)
    with every_row() as row:
        for name, site in silent.items():
            with row(name):
                assert (site.url("/page") in pages(result)) == on
    assert len(pages(result)) == (len(silent) if on else 0)
    assert listed.count("/sitemap.xml") == 0
    assert missing.count("/sitemap.xml") == int(on)
    # To be expected: not worth a warning.
    assert len(lines(result, "was not read: HTTP 404")) == int(on)
    result.assert_clean()


class LinkingSpider(SeededSpider):
    """Follows one link."""

    link = ""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        if response.url.endswith("/start") and self.link:
            yield Request(self.link)


class AttributeSpider(LinkingSpider):
    rep_sitemaps: Any = "start"


@pytest.mark.parametrize(
    ("spider", "setting", "seeds"),
    [
        (LinkingSpider, True, "both"),
        (LinkingSpider, "all", "both"),
        (LinkingSpider, "start", "start"),
        (LinkingSpider, False, "none"),
        (AttributeSpider, False, "start"),
        (AttributeSpider, "all", "start"),
    ],
)
async def test_which_origins_seed(
    sites: Sites, spider: type[LinkingSpider], setting: Any, seeds: str
) -> None:
    one, two, three = sites.add(), sites.add(), sites.add()
    for site in (one, two, three):
        listing(site, "/map.xml")
        site.set("/map.xml", urlset([site.url("/page")]))
    # A start request that is redirected starts there too.
    one.set("/start", redirect(three.url("/start")))
    result = await crawl(
        spider, {"REP_SITEMAPS": setting}, requests=[one.url("/start")], link=two.url("/linked")
    )
    wanted = {"both": [one, two, three], "start": [one, three], "none": []}[seeds]
    found = [url for url in pages(result) if url.endswith("/page")]
    assert found == sorted(site.url("/page") for site in wanted)
    result.assert_clean()


async def test_an_origin_that_is_known_before_it_may_seed(sites: Sites) -> None:
    """Its robots.txt was had for pages that do not count; then a start request comes."""
    site, other = seeding(sites), sites.add()
    linked = [site.url(f"/linked/{number}") for number in range(3)]

    class Late(SeededSpider):
        async def start(self) -> Any:
            yield Request(other.url("/start"))
            while len(self.responses) < 4:
                await pause()
            yield Request(site.url("/start"))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            self.responses.append(response)
            if len(self.responses) <= len(linked):
                yield Request(linked[len(self.responses) - 1])

    result = await crawl(Late, {"REP_SITEMAPS": "start"})
    assert len(pages(result)) == 12 + len(linked)
    assert site.count("/robots.txt") == 1
    result.assert_clean()


class OnsiteSpider(SeededSpider):
    allowed_domains = ["pages.test"]


async def test_sitemaps_may_be_anywhere_and_pages_may_not(sites: Sites) -> None:
    """A sitemap of another host needs nothing in allowed_domains; its own robots.txt decides."""
    maps = sites.add(name="maps.example")
    page_site, other = sites.add(name="pages.test"), sites.add(name="other.test")
    page_site.set("/robots.txt", f"Sitemap: {maps.url('/index.xml')}")
    maps.set("/index.xml", index([maps.url("/private/no.xml"), maps.url("/map.xml")]))
    maps.set("/robots.txt", "User-agent: *\nDisallow: /private\nSitemap: http://ignored.test/x\n")
    maps.set("/map.xml", urlset([page_site.url("/page"), other.url("/page")]))
    settings = {**ON, "REP_SITEMAP_CROSS_HOST": "any"}
    result = await crawl(OnsiteSpider, settings, requests=[page_site.url("/start")])
    assert pages(result) == [page_site.url("/page")]
    assert maps.count("/private/no.xml") == 0
    assert result.stat("offsite/filtered") == 1
    # Who only serves sitemaps for others is not a site that the crawl meets.
    assert result.stat("rep/sitemaps/failed") == 1
    result.assert_clean()


async def test_priorities_are_those_of_the_settings(sites: Sites) -> None:
    site = seeding(sites, 3)
    result = await crawl(
        SeededSpider,
        {**ON, "REP_SITEMAP_PAGE_PRIORITY": -7, "REP_SITEMAP_PRIORITY": 500},
        requests=[site.url("/start")],
    )
    found = {response.request.priority for response in result.spider.responses if response.request}
    assert found == {0, -7}
    assert all(
        response.meta.get("rep_sitemap") or response.url.endswith("/start")
        for response in result.spider.responses
    )
    assert not any(key.startswith("_rep") for one in result.spider.responses for key in one.meta)
    assert not any(one.request.dont_filter for one in result.spider.responses if one.request)
    result.assert_clean()


class OldSitemapSpider(SitemapSpider, ListSpider):
    """A SitemapSpider may be seeded too."""

    def __init__(self, **kwargs: Any) -> None:
        requests = kwargs.pop("requests")
        super().__init__(**kwargs)
        self.requests = requests

    async def start(self) -> Any:
        for request in self.requests:
            yield Request(request)

    def parse(self, response: Response, **kwargs: Any) -> None:
        self.responses.append(response)


async def test_a_sitemap_spider(sites: Sites) -> None:
    site = seeding(sites)
    result = await crawl(OldSitemapSpider, ON, requests=[site.url("/start")])
    assert len(pages(result)) == 12
    result.assert_clean()


class RuleSpider(CrawlSpider, ListSpider):
    rules = [Rule(LinkExtractor(allow="/linked"), callback="parse_linked")]

    def __init__(self, **kwargs: Any) -> None:
        requests = kwargs.pop("requests")
        super().__init__(**kwargs)
        self.requests = requests

    async def start(self) -> Any:
        for request in self.requests:
            yield Request(request)

    def parse_linked(self, response: Response) -> None:
        self.responses.append(response)


async def test_a_crawl_spider(sites: Sites) -> None:
    """Without sitemap_rules, pages get what the spider does with any page: here its own rules."""
    site = sites.add()
    listing(site, "/map.xml")
    site.set("/map.xml", urlset([site.url("/page")]))
    site.set("/start", "nothing")
    result = await crawl(RuleSpider, ON, requests=[site.url("/start")])
    assert site.count("/page") == 1
    assert site.count("/linked") == 0
    result.assert_clean()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "mode": ({"rep_sitemaps": "often"}, "attribute rep_sitemaps is 'often', but must be True, "),
    "rules": ({"sitemap_rules": [("", "nothing")]}, "attribute sitemap_rules must be a list of "),
    "regex": ({"sitemap_rules": [("(", "parse")]}, "attribute sitemap_rules must be a list of "),
    "pairs": ({"sitemap_rules": ["/x"]}, "attribute sitemap_rules must be a list of "),
    "follow": ({"sitemap_follow": ["("]}, "attribute sitemap_follow must be a list of "),
    "text": ({"sitemap_follow": "/news"}, "attribute sitemap_follow must be a list of "),
    "filter": ({"sitemap_filter": "x"}, "attribute sitemap_filter must be a method."),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_attributes_end_the_crawl_at_its_start(sites: Sites, name: str) -> None:
    """One sentence at the start, and nothing is fetched."""
    attributes, message = WRONG[name]
    site = seeding(sites)
    spider = type("WrongSpider", (SeededSpider,), attributes)
    result = await crawl(spider, ON, requests=[site.url("/start")])
    assert result.reason == "rep_settings_error"
    assert site.requests == []
    [error] = [one.getMessage() for one in result.records if one.levelname == "ERROR"]
    assert message in error
    assert "\n" not in error
