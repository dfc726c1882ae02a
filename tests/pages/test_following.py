"""``REP_NOFOLLOW``: which requests of a page are not sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response, XmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

import scrapy_rep
from scrapy_rep.pages import is_sitemap
from tests.helpers.behaviours import answer, in_turn, redirect
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.log import lines, summary
from tests.helpers.pagesite import NOFOLLOW, AsyncLinkSpider, LinkSpider, page
from tests.helpers.recorded import decisions
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import lists, urlset

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]

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
        (LinkSpider, False, ALL, ALL, (0, 0)),
        (LinkSpider, "links", ALL, UNMARKED, (0, 3)),
        (LinkSpider, "page", set(), ALL, (12, 0)),
        (LinkSpider, "count", ALL, ALL, (12, 3)),
        (AsyncLinkSpider, True, set(), UNMARKED, (12, 3)),
    ],
)
async def test_pages_that_say_nofollow_and_links_that_are_marked(
    sites: Sites, spider: Any, setting: Any, of_page: set[str], of_links: set[str], counted: Any
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


async def test_it_goes_by_the_agent_of_the_request(sites: Sites) -> None:
    agents = ("testbot", "otherbot", "foobot")  # the first is the crawl's
    own, other, named = (
        sites.add(pages={"/": page(LINKS, f"{agent}: nofollow")}) for agent in agents
    )
    request = Request(named.url("/"), meta={"rep_user_agent": ["foobot-x", "foobot"]})
    starts = [own.url("/"), other.url("/"), request]
    await crawl(LinkSpider, {"REP_NOFOLLOW": "page"}, requests=starts)
    assert (asked(own), asked(other), asked(named)) == (set(), ALL, set())


class MarkingSpider(LinkSpider):
    """Its links have meta keys, each page's own."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        for found in super().parse(response):
            if isinstance(found, Request):
                found.meta[response.url.rpartition("/")[2]] = True
            yield found


async def test_requests_that_pass_in_any_case(sites: Sites) -> None:
    keys = ["rep_follow", "dont_obey_robotstxt", "other"]
    follow, obey, other = (
        sites.add(pages={f"/{key}": page('<a href="/x">' + NOFOLLOW)}) for key in keys
    )
    starts = [follow.url("/rep_follow"), obey.url("/dont_obey_robotstxt"), other.url("/other")]
    result = await crawl(MarkingSpider, {"REP_NOFOLLOW": True}, requests=starts)
    assert [site.count("/x") for site in (follow, obey, other)] == [1, 1, 0]
    assert result.stat("rep/page/nofollow") == 1


class BackSpider(ListSpider):
    """Asks for the page that it has once more, for the URL that redirected it, and for another."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        again = [response.url, response.url + "#again", *response.meta.get("redirect_urls", ())]
        for url in [] if "again" in response.meta else [*again, response.urljoin("/other")]:
            yield Request(url, meta={"again": True}, dont_filter=True)


async def test_the_same_page_again_is_no_link(sites: Sites) -> None:
    site = sites.add(pages={"/old": redirect("/"), "/": page(NOFOLLOW)})
    result = await crawl(BackSpider, {"REP_NOFOLLOW": True}, requests=[site.url("/old")])
    assert sorted(site.pages_asked) == ["/", "/", "/", "/", "/old", "/old"]
    assert result.stat("rep/page/nofollow") == 1


async def test_starts_redirects_and_retries_are_no_links(sites: Sites) -> None:
    pages = {
        "/a": redirect("/b"),
        "/b": in_turn(500, page("x", "nofollow")),
        "/c": page("%PDF", "none", type="application/pdf"),
    }
    site = sites.add(pages=pages)
    requests = [site.url("/a"), site.url("/c")]
    result = await crawl(LinkSpider, {"REP_NOFOLLOW": True}, requests=requests)
    assert sorted(result.responses) == [site.url("/b"), site.url("/c")]
    result.assert_clean()


class SitemapListSpider(ListSpider, SitemapSpider):
    def recorded(self, request: str | Request) -> Request:
        return Request(str(request), self._parse_sitemap)


async def test_pages_of_a_sitemap_are_no_links(sites: Sites) -> None:
    """Many a sitemap is served with such a header, which is about the file itself. One is the spider's,
    the other is listed."""
    site = lists(sites.add(), "/listed.xml")
    for path, page_path in {"/listed.xml": "/seeded", "/sitemap.xml": "/x"}.items():
        site.set(path, page(urlset([site.url(page_path)]), "noindex, nofollow", type="text/xml"))
    settings = {"REP_NOFOLLOW": True, "REP_SITEMAPS": True}
    result = await crawl(SitemapListSpider, settings, requests=[site.url("/sitemap.xml")])
    assert sorted(site.pages_asked) == ["/listed.xml", "/seeded", "/sitemap.xml", "/x"]
    result.assert_clean()
    # For other spiders it's the content that tells.
    for body, right in {b"<urlset>": True, b"<sitemapindex>": True, b"<rss>": False}.items():
        assert is_sitemap(XmlResponse("http://a.test/", body=body), None) is right


class RulesSpider(ListSpider, CrawlSpider):
    """A CrawlSpider whose rules are those of a subclass."""

    rules = (Rule(LinkExtractor()),)

    def recorded(self, request: str | Request) -> Request:
        return Request(str(request))

    parse_start_url = ListSpider.parse


class ProcessLinks(RulesSpider):
    rules = (Rule(LinkExtractor(unique=False), process_links=scrapy_rep.follow_links),)


class ProcessRequest(RulesSpider):
    rules = (Rule(LinkExtractor(), process_request=scrapy_rep.follow_links),)


@pytest.mark.parametrize(
    ("spider", "setting", "of_links", "of_page"),
    [
        (RulesSpider, False, ALL, ALL),
        (RulesSpider, True, UNMARKED, set()),
        (ProcessLinks, False, ALL - {"/marked"}, ALL - {"/marked"}),
        (ProcessRequest, False, UNMARKED, set()),
    ],
)
async def test_a_crawl_spider(
    sites: Sites, spider: Any, setting: bool, of_links: set[str], of_page: set[str]
) -> None:
    marked, nofollow = (sites.add(pages={"/": page(html)}) for html in (LINKS, LINKS + NOFOLLOW))
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
    site = sites.add(pages={"/": answer(html.encode("latin-1"), type="text/html; charset=latin-1")})

    class Spider(LinkSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            for href in ("a?x=1&y=\xe4", "../up", "b c", "d", "other"):
                yield response.follow(href, self.ignore)

        def ignore(self, response: Any) -> None:
            pass

    result = await crawl(Spider, {"REP_NOFOLLOW": "links"}, requests=[site.url("/")])
    assert asked(site) == {"/dir/other"}
    result.assert_clean()


class FilesSpider(ListSpider):
    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"file_urls": [response.urljoin("/file"), response.urljoin("/marked")]}
        yield response.follow("/x", self.parse)


async def test_media_are_no_links(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(pages={"/": page(LINKS + NOFOLLOW)})
    settings = {
        "REP_NOFOLLOW": True,
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path),
    }
    result = await crawl(FilesSpider, settings, requests=[site.url("/")])
    [item] = result.spider.items
    assert {one["url"] for one in item["files"]} == {site.url("/file"), site.url("/marked")}
    assert asked(site) == {"/file", "/marked"}
    result.assert_clean()


@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_is_dropped_is_told(sites: Sites, tmp_path: Path, dry_run: bool) -> None:
    path = tmp_path / "decisions.jsonl"
    site = sites.add(pages={"/": page(LINKS), "/plain": page('<a href="/z">' + "\n" + NOFOLLOW)})
    settings = {"REP_NOFOLLOW": True, "REP_DECISIONS": str(path), "REP_DRY_RUN": dry_run}
    result = await crawl(LinkSpider, settings, requests=[site.url("/")])
    assert asked(site) == (ALL | {"/z"} if dry_run else UNMARKED)
    told = [(one["verdict"], one["url"], one["reason"]) for one in decisions(path)]
    link = f'rel="nofollow", "ugc" or "sponsored", of {site.url("/")}'
    assert sorted(told) == [
        ("nofollow", site.url("/z"), f"meta robots (line 2): nofollow, of {site.url('/plain')}"),
        *(("nofollow_link", site.url(one), link) for one in ("/marked", "/paid#top", "/ugc")),
    ]
    places = {(one["origin"], one["dry_run"]) for one in decisions(path)}
    assert places == {(site.url("").rstrip("/"), dry_run)}
    drop = f"{'Would drop' if dry_run else 'Dropping'} request to"
    assert len(lines(result, drop, "more for this origin at DEBUG level")) == 2
    assert len(lines(result, drop, level="DEBUG")) == 2
    assert summary(result)[2] == (
        "Page rules: 1 request from pages that say nofollow, 3 requests for links marked "
        f"nofollow, ugc or sponsored; {0 if dry_run else 4} of 4 dropped"
    )
