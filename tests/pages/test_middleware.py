"""``REP_NOFOLLOW`` and ``REP_NOINDEX``: which requests of a page are not sent, which items not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response, XmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

import scrapy_rep
from scrapy_rep import page_rules
from scrapy_rep.pages import is_sitemap
from tests.helpers.behaviours import answer, in_turn, page, redirect
from tests.helpers.crawling import Clock, CrawlResult, ListSpider, crawl
from tests.helpers.log import lines, summary
from tests.helpers.recorded import decisions
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import lists, urlset

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]
NOINDEX = '<meta name="robots" content="noindex">'
NOFOLLOW = '<meta name="robots" content="nofollow">'


class FollowsEachLink(ListSpider):
    dont_filter = False

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        yield {"url": response.url, "noindex": page_rules(response).noindex}
        if isinstance(response, HtmlResponse):
            for href in response.css("a::attr(href)").getall():
                yield response.follow(href, errback=self.failed)


class AsyncFollowsEachLink(FollowsEachLink):
    async def parse(self, response: Response, **kwargs: Any) -> Any:  # type: ignore[override]
        for one in super().parse(response):
            yield one


LINKS = (
    '<a href="/plain">1</a> <a rel="nofollow" href="/marked">2</a> <a rel="ugc" href="/ugc">3</a>'
    '<a rel="external,SPONSORED" href="/paid#top">4</a>'
    '<a rel="nofollow" href="/both">5</a> <a href="both">6</a>'
)
ALL = {"/plain", "/marked", "/ugc", "/paid", "/both"}
UNMARKED = {"/plain", "/both"}


def asked(site: Site) -> set[str]:
    return set(site.pages_asked) - {"/"}


@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("spider", "setting", "of_page", "of_links", "counted"),
    [
        (FollowsEachLink, False, ALL, ALL, (0, 0)),
        (FollowsEachLink, "links", ALL, UNMARKED, (0, 3)),
        (FollowsEachLink, "page", set(), ALL, (12, 0)),
        (FollowsEachLink, "count", ALL, ALL, (12, 3)),
        (AsyncFollowsEachLink, True, set(), UNMARKED, (12, 3)),
    ],
)
async def test_pages_that_say_nofollow_and_links_that_are_marked(
    sites: Sites,
    spider: Any,
    setting: Any,
    of_page: set[str],
    of_links: set[str],
    counted: Any,
) -> None:
    html = LINKS.replace("rel", "data-rel")
    pages = [page(html + NOFOLLOW), page(html, "nofollow"), page(LINKS)]
    meta, header, marked = (sites.add(pages={"/": start}) for start in pages)
    starts = [site.url("/") for site in (meta, header, marked)]
    result = await crawl(spider, {"REP_NOFOLLOW": setting}, requests=starts)
    assert (asked(meta), asked(header), asked(marked)) == (of_page, of_page, of_links)
    stats = result.stat("rep/page/nofollow"), result.stat("rep/page/nofollow_link")
    assert stats == counted
    assert len(result.spider.items) == 3 + 2 * len(of_page) + len(of_links)
    result.assert_clean()


async def test_it_goes_by_the_agent_and_the_meta_of_the_request(sites: Sites) -> None:
    rows = {
        "own": ("testbot: nofollow", {}, {}, False),  # the crawl's agent
        "other": ("otherbot: nofollow", {}, {}, True),
        "named": (
            "foobot: nofollow",
            {"rep_user_agent": ["foobot-x", "foobot"]},
            {},
            False,
        ),
        "follow": ("nofollow", {}, {"rep_follow": True}, True),
        "forced": ("nofollow", {}, {"dont_obey_robotstxt": True}, True),
        "key": ("nofollow", {}, {"other": True}, False),
    }
    site = sites.add(
        pages={f"/{name}": page("x", header) for name, (header, *_) in rows.items()}
    )

    def follow(spider: Any) -> Any:
        response = spider.responses[-1]
        name = response.url.rpartition("/")[2]
        return (
            [response.follow(f"/from/{name}", meta=rows[name][2])]
            if name in rows
            else None
        )

    starts = [Request(site.url(f"/{name}"), meta=row[1]) for name, row in rows.items()]
    result = await crawl(starts, {"REP_NOFOLLOW": "page"}, on_page=follow)
    followed = {path for path in site.pages_asked if "from" in path}
    assert followed == {f"/from/{name}" for name, row in rows.items() if row[3]}
    assert result.stat("rep/page/nofollow") == 3


async def test_the_same_page_again_is_no_link(sites: Sites) -> None:
    site = sites.add(pages={"/old": redirect("/"), "/": page(NOFOLLOW)})

    def again(spider: Any) -> Any:
        response, meta = spider.responses[-1], {"again": True}
        if "again" in response.meta:
            return None
        urls = [
            response.request.url,
            f"{response.url}#again",
            *response.meta["redirect_urls"],
        ]
        same = [Request(url, meta=meta, dont_filter=True) for url in urls]
        return [*same, response.follow("/other", meta=meta)]

    result = await crawl(site.url("/old"), {"REP_NOFOLLOW": True}, on_page=again)
    assert sorted(site.pages_asked) == ["/", "/", "/", "/", "/old", "/old"]
    assert result.stat("rep/page/nofollow") == 1


async def test_starts_redirects_and_retries_are_no_links(sites: Sites) -> None:
    pages = {
        "/a": redirect("/b"),
        "/b": in_turn(500, page("x", "nofollow")),
        "/c": page("%PDF", "none", type="application/pdf"),
    }
    site = sites.add(pages=pages)
    result = await crawl([site.url("/a"), site.url("/c")], {"REP_NOFOLLOW": True})
    assert sorted(result.responses) == [site.url("/b"), site.url("/c")]
    result.assert_clean()


class SitemapListSpider(ListSpider, SitemapSpider):
    def recorded(self, request: str | Request) -> Request:
        return Request(str(request), self._parse_sitemap)


async def test_pages_of_a_sitemap_are_no_links(sites: Sites) -> None:
    """Such a header is often about the sitemap itself. One is the spider's, the other is listed."""
    site = lists(sites.add(), "/listed.xml")
    for path, page_path in {"/listed.xml": "/seeded", "/sitemap.xml": "/x"}.items():
        site.set(
            path,
            page(urlset([site.url(page_path)]), "noindex, nofollow", type="text/xml"),
        )
    settings = {"REP_NOFOLLOW": True, "REP_SITEMAPS": True}
    result = await crawl(
        SitemapListSpider, settings, requests=[site.url("/sitemap.xml")]
    )
    assert sorted(site.pages_asked) == ["/listed.xml", "/seeded", "/sitemap.xml", "/x"]
    result.assert_clean()
    # For other spiders it's the content that tells.
    for body, right in {
        b"<urlset>": True,
        b"<sitemapindex>": True,
        b"<rss>": False,
    }.items():
        assert is_sitemap(XmlResponse("http://a.test/", body=body), None) is right


class LinkRulesSpider(ListSpider, CrawlSpider):
    rules = (Rule(LinkExtractor()),)

    def recorded(self, request: str | Request) -> Request:
        return Request(str(request))

    parse_start_url = ListSpider.parse


class ProcessLinks(LinkRulesSpider):
    rules = (Rule(LinkExtractor(unique=False), process_links=scrapy_rep.follow_links),)


class ProcessRequest(LinkRulesSpider):
    rules = (Rule(LinkExtractor(), process_request=scrapy_rep.follow_links),)


@pytest.mark.parametrize(
    ("spider", "setting", "of_links", "of_page"),
    [
        (LinkRulesSpider, False, ALL, ALL),
        (LinkRulesSpider, True, UNMARKED, set()),
        (ProcessLinks, False, ALL - {"/marked"}, ALL - {"/marked"}),
        (ProcessRequest, False, UNMARKED, set()),
    ],
)
async def test_a_crawl_spider(
    sites: Sites, spider: Any, setting: bool, of_links: set[str], of_page: set[str]
) -> None:
    marked, nofollow = (
        sites.add(pages={"/": page(html)}) for html in (LINKS, LINKS + NOFOLLOW)
    )
    requests = [marked.url("/"), nofollow.url("/")]
    result = await crawl(spider, {"REP_NOFOLLOW": setting}, requests=requests)
    assert (asked(marked), asked(nofollow)) == (of_links, of_page)
    result.assert_clean()


async def test_links_are_found_whatever_way_they_are_written(sites: Sites) -> None:
    html = (
        '<base href="/dir/"><a rel=nofollow href=" a?x=1&amp;y=\xe4#z ">1</a>'
        '<a rel=nofollow href="../up">2</a> <a rel=nofollow href="//[">3</a>'
        '<a rel=nofollow href="b c">4</a> <noscript><a rel=nofollow href="d">5</a></noscript>'
    )
    site = sites.add(
        pages={"/": answer(html.encode("latin-1"), type="text/html; charset=latin-1")}
    )

    def follow(spider: Any) -> Any:
        response = spider.responses[-1]
        hrefs = ("a?x=1&y=\xe4", "../up", "b c", "d", "other")
        return (
            [response.follow(href) for href in hrefs]
            if response.url == site.url("/")
            else None
        )

    result = await crawl(site.url("/"), {"REP_NOFOLLOW": "links"}, on_page=follow)
    assert asked(site) == {"/dir/other"}
    result.assert_clean()


async def test_media_are_no_links(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(pages={"/": page(LINKS + NOFOLLOW)})
    urls = [site.url("/file"), site.url("/marked")]
    settings = {
        "REP_NOFOLLOW": True,
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path),
    }
    files = {"file_urls": urls}, Request(site.url("/x"))
    result = await crawl(site.url("/"), settings, on_page=lambda spider: files)
    [item] = result.spider.items
    assert {one["url"] for one in item["files"]} == {*urls}
    assert asked(site) == {"/file", "/marked"}
    result.assert_clean()


def kept(result: CrawlResult) -> list[str]:
    return [item["url"] for item in result.spider.items]


@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("spider", "setting"),
    [
        (AsyncFollowsEachLink, "drop"),
        (FollowsEachLink, False),
        (FollowsEachLink, "count"),
    ],
)
async def test_items_of_pages_that_say_noindex(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, spider: Any, setting: Any
) -> None:
    Clock().install(monkeypatch).now = 1_764_767_393.0  # 2025-12-03T13:09:53Z
    refused = {
        "/meta": page(f'<a href="/x">{NOINDEX}'),
        "/header": page("x", "noindex"),
        "/none": page("x", "testbot: none"),
        "/pdf": page("%PDF", "noindex", type="application/pdf"),
        "/now": page("x", "unavailable_after: 2025-12-03T13:09:53Z"),
        "/both": page("x", "noindex, indexifembedded"),
        "/embedded": page("x", "noindex"),
    }
    allowed = {
        "/other": page("x", "otherbot: noindex"),
        "/soon": page("x", "unavailable_after: 2025-12-03T13:09:54Z"),
        "/bad": page("x", "unavailable_after: someday"),
        "/plain": page("x"),
    }
    site = sites.add(pages={**refused, **allowed, "/forced": page(NOINDEX)})
    requests: list[str | Request] = [site.url(path) for path in (*refused, *allowed)]
    # The project knows which page is embedded in another one.
    requests += [
        Request(site.url(f"{path}?of=x"), meta={"rep_embedded": True})
        for path in ("/both", "/embedded")
    ]
    requests.append(Request(site.url("/forced"), meta={"dont_obey_robotstxt": True}))
    result = await crawl(spider, {"REP_NOINDEX": setting}, requests=requests)
    every = [str(getattr(one, "url", one)) for one in requests] + [site.url("/x")]
    kept_paths = [*allowed, "/x", "/both?of=x", "/forced"]
    wanted = [site.url(path) for path in kept_paths] if setting == "drop" else every
    assert sorted(kept(result)) == sorted(wanted)
    counts = result.stat("rep/page/noindex"), result.stat("rep/page/expired")
    assert counts == ((7, 1) if setting else (0, 0))
    assert result.stat("item_scraped_count") == len(wanted)
    result.assert_clean()


@pytest.mark.parametrize("how", ["obeyed", "counted", "dry run"])
async def test_what_is_dropped_is_told(sites: Sites, tmp_path: Path, how: str) -> None:
    pages = {
        "/": page(LINKS),
        "/plain": page('<a href="/z">\n' + NOFOLLOW),
        "/1": page(NOINDEX),
        "/2": page("x", "foo", "noindex"),
        "/3": page("x", "unavailable_after: 2001-01-01"),
    }
    site, path, obeyed = (
        sites.add(pages=pages),
        tmp_path / "decisions.jsonl",
        how == "obeyed",
    )
    settings = {
        "REP_NOFOLLOW": "count" if how == "counted" else True,
        "REP_NOINDEX": "count" if how == "counted" else "drop",
        "REP_DECISIONS": str(path),
        "REP_DRY_RUN": how == "dry run",
        "CONCURRENT_REQUESTS": 1,
    }
    urls = [site.url(path) for path in ("/1", "/2", "/3", "/")]
    result = await crawl(FollowsEachLink, settings, requests=urls)
    followed = UNMARKED if obeyed else {*ALL, "/z"}
    assert asked(site) == {"/1", "/2", "/3"} | followed
    date = "2001-01-01T00:00:00+00:00"
    link = f'rel="nofollow", "ugc" or "sponsored", of {site.url("/")}'
    assert sorted(
        (one["verdict"], one["url"], one["reason"]) for one in decisions(path)
    ) == [
        ("expired", urls[2], f"X-Robots-Tag 1: unavailable_after: {date}"),
        (
            "nofollow",
            site.url("/z"),
            f"meta robots (line 2): nofollow, of {site.url('/plain')}",
        ),
        *(
            ("nofollow_link", site.url(one), link)
            for one in ("/marked", "/paid#top", "/ugc")
        ),
        ("noindex", urls[0], "meta robots (line 1): noindex"),
        ("noindex", urls[1], "X-Robots-Tag 2: noindex"),
    ]
    places = {(one["origin"], one["dry_run"]) for one in decisions(path)}
    assert places == {(site.url("").rstrip("/"), not obeyed)}
    drop, more = (
        "Dropping" if obeyed else "Would drop",
        "more for this origin at DEBUG level",
    )
    assert lines(result, "item from", "more for") == [
        f"{drop} item from {urls[0]}: meta robots (line 1): noindex; {more}",
        f"{drop} item from {urls[2]}: X-Robots-Tag 1: unavailable_after: {date}; {more}",
    ]
    assert len(lines(result, f"{drop} request to", more)) == 2
    assert len(lines(result, f"{drop} request to", level="DEBUG")) == 2
    assert summary(result)[2] == (
        "Rules of pages: 2 by noindex, 1 by unavailable_after, 1 by nofollow, 3 by rel of links"
        f"{', 7 dropped in all' if obeyed else ''}"
    )
    result.assert_clean()


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        ({}, False),  # a crawl pays nothing
        ({"REP_NOINDEX": "count"}, True),
        ({"REP_NOINDEX": "count", "ROBOTSTXT_OBEY": False}, False),
    ],
)
async def test_no_middleware_without_a_setting(
    sites: Sites, settings: dict[str, Any], there: bool
) -> None:
    seen: list[type] = []

    def look(spider: Any) -> None:
        seen.extend(map(type, spider.crawler.engine.scraper.spidermw.middlewares))

    await crawl(sites.add(pages={"/": page(NOINDEX)}).url("/"), settings, on_page=look)
    assert (scrapy_rep.PageMiddleware in seen) is there


async def test_by_hand_it_needs_the_other_one(sites: Sites) -> None:
    site = sites.add(pages={"/": page(NOINDEX)})
    settings = {
        "ADDONS": {},
        "ROBOTSTXT_OBEY": True,
        "SPIDER_MIDDLEWARES": {"scrapy_rep.PageMiddleware": 950},
        "REP_NOINDEX": "drop",
    }
    result = await crawl(FollowsEachLink, settings, requests=[site.url("/")])
    assert kept(result) == [site.url("/")]
    settings["DOWNLOADER_MIDDLEWARES"] = {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "scrapy_rep.RepMiddleware": 100,
    }
    assert kept(await crawl(FollowsEachLink, settings, requests=[site.url("/")])) == []
