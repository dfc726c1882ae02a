"""REP.md section 2: robots.txt is obeyed beside Scrapy's other middlewares and installed plugins."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.settings import default_settings
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred

from scrapy_rep import may_fetch
from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import (
    RULES,
    Behaviour,
    answer,
    chunked,
    head,
    lying_length,
    raw,
    redirect,
    reset,
)
from tests.helpers.crawling import (
    ONE_ATTEMPT,
    CrawlResult,
    ListSpider,
    captured_log,
    crawl,
    new_runner,
)
from tests.helpers.handlers import WrappedHandler
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import urlset
from tests.reporting.report.browser import CHROMIUM


class OnsiteSpider(ListSpider):
    """Under the offsite filter, which `dont_filter` would switch off."""

    dont_filter = False

    def __init__(self, domains: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.allowed_domains = domains


@pytest.mark.scrapy_api
async def test_offsite_requests_ask_for_no_robots_txt_but_its_redirect_is_followed(
    sites: Sites,
) -> None:
    offsite = sites.add(name="offsite.test", pages={"/rules": RULES})
    other = sites.add(name="other.test", robots=RULES)
    onsite = sites.add(robots=redirect(offsite.url("/rules")), name="onsite.test")
    result = await crawl(
        OnsiteSpider,
        requests=[onsite.url("/private"), onsite.url("/x"), other.url("/x")],
        domains=["onsite.test"],
    )
    assert result.disallowed(onsite.url("/private"))
    assert result.responses == {onsite.url("/x"): 200}
    assert offsite.count("/rules") == 1
    assert result.stat("offsite/filtered") == 1
    assert other.requests == []
    result.assert_clean()


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_redirected_pages_obey_the_rules_of_where_they_lead(sites: Sites) -> None:
    other = sites.add(robots="User-agent: *\nDisallow: /theirs\n")
    site = sites.add(
        robots=RULES,
        pages={
            "/a": redirect("/private"),
            "/b": redirect(other.url("/theirs")),
            "/c": redirect(other.url("/private")),
            "/d": answer(
                '<meta http-equiv="refresh" content="0; url=/private">',
                type="text/html",
            ),
        },
    )
    result = await crawl([site.url(path) for path in ("/a", "/b", "/c", "/d")])
    assert result.disallowed(site.url("/private"))
    assert result.disallowed(other.url("/theirs"))
    assert result.responses == {other.url("/private"): 200}
    assert site.count("/private") == other.count("/theirs") == 0
    assert site.count("/robots.txt") == other.count("/robots.txt") == 1
    assert result.stat("robotstxt/forbidden") == 3
    result.assert_clean()


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_proxy_of_the_project_is_used(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = sites.add(robots=RULES)
    monkeypatch.setenv("http_proxy", proxy.url(""))
    monkeypatch.setenv("no_proxy", "")
    result = await crawl(["http://behind.test/private", "http://behind.test/x"])
    assert result.disallowed("http://behind.test/private")
    assert result.status("http://behind.test/x") == 200
    assert [hit.target for hit in proxy.requests] == [
        "http://behind.test/robots.txt",
        "http://behind.test/x",
    ]
    result.assert_clean()


NEIGHBOURS: dict[str, dict[str, Any]] = {
    "slow": {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 0.01,
        "DOWNLOAD_DELAY": 0.01,
        "CONCURRENT_REQUESTS": 1,
        # Of pages: robots.txt has the clock of its origin, and a limit of its own.
        "RETRY_TIMES": 5,
        "REDIRECT_MAX_TIMES": 1,
    },
    "without": {
        "COMPRESSION_ENABLED": False,
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "REDIRECT_MAX_TIMES": 1,
        "DOWNLOAD_FAIL_ON_DATALOSS": False,
        "HTTPERROR_ALLOW_ALL": True,
    },
}


@pytest.mark.scrapy_api
@pytest.mark.parametrize("settings", NEIGHBOURS.values(), ids=NEIGHBOURS)
async def test_the_answer_does_not_change(
    sites: Sites, settings: dict[str, Any]
) -> None:
    def add(robots: Behaviour | str | int) -> Site:
        return sites.add(robots=robots)

    plain, missing, busy, gone = add(RULES), add(404), add(503), add(reset())
    moved = add(redirect("/1"))
    moved.set("/1", redirect("/2"))
    moved.set("/2", redirect(plain.url("/robots.txt")))
    every = (plain, missing, busy, gone, moved)
    urls = [site.url(path) for site in every for path in ("/private", "/x")]
    result = await crawl(urls, {**ONE_ATTEMPT, **settings})
    assert result.responses == {
        plain.url("/x"): 200,
        moved.url("/x"): 200,
        missing.url("/x"): 200,
        missing.url("/private"): 200,
    }
    for site in (plain, moved):
        assert result.disallowed(site.url("/private"))
    for site in (busy, gone):
        assert isinstance(result.failure(site.url("/x")), RobotsUnreachable)
    assert [site.count("/robots.txt") for site in (plain, missing, busy, moved)] == [
        2,
        1,
        1,
        1,
    ]
    assert gone.tried_once("/robots.txt")
    assert result.stat("retry/count") == 0
    result.assert_clean()


@pytest.mark.download
async def test_projects_that_take_cut_transfers_take_a_cut_robots_txt(
    sites: Sites,
) -> None:
    """By DOWNLOAD_FAIL_ON_DATALOSS = False alone. Nothing then advises to set it."""
    packed = gzip.compress(RULES.encode())[:-8]  # without its checksum
    zipped = [("Content-Encoding", "gzip"), ("Content-Length", "500")]
    cut = [
        lying_length(RULES.encode(), 500),
        chunked(RULES.encode(), end=b""),
        raw(head(200, zipped) + packed),
    ]
    some = [sites.add(robots=one) for one in cut]
    result = await crawl(
        [site.url("/private") for site in some], {"DOWNLOAD_FAIL_ON_DATALOSS": False}
    )
    for site in some:
        assert result.disallowed(site.url("/private"))
    assert "data loss" not in result.log
    result.assert_clean()
    result = await crawl(some[0].url("/private"))
    assert isinstance(result.failure(some[0].url("/private")), RobotsUnreachable)


@pytest.mark.download
async def test_robots_txt_is_asked_for_with_the_headers_of_pages(sites: Sites) -> None:
    """Download handlers may take others for the project's: scrapy-zyte-api warns of each."""
    site = sites.add(robots=RULES)
    result = await crawl([site.url("/x")])
    robots, page = site.requests
    assert robots.path == "/robots.txt"
    assert robots.headers == page.headers
    result.assert_clean()


class ForeignHandler(WrappedHandler):
    """One that asks for pages in its own way, as scrapy-zyte-api does. (Here it is Scrapy's.)"""


class OwnHandler(load_object(default_settings.DOWNLOAD_HANDLERS_BASE["http"])):  # type: ignore[misc]
    """As scrapy-playwright's, made of Scrapy's."""


@pytest.mark.needs_reactor
@pytest.mark.parametrize(
    ("handler", "asked_for"),
    [(None, "gzip"), (OwnHandler, "gzip"), (ForeignHandler, None)],
)
async def test_sitemaps_are_asked_for_as_the_handler_needs_it(
    sites: Sites, handler: Any, asked_for: str | None
) -> None:
    site = sites.add()
    site.set("/sitemap.xml", urlset([site.url("/listed")]))
    site.set("/robots.txt", f"Sitemap: {site.url('/sitemap.xml')}\n")
    settings = {"DOWNLOAD_HANDLERS": {"http": handler}} if handler else {}
    result = await crawl([site.url("/x")], {**settings, "REP_SITEMAPS": True})
    assert result.status(site.url("/listed")) == 200
    [sitemap], [page] = site.hits("/sitemap.xml"), site.hits("/listed")
    assert sitemap.header("Accept-Encoding") == (
        asked_for or page.header("Accept-Encoding")
    )
    assert (sitemap.headers == page.headers) == (asked_for is None)
    result.assert_clean()


async def test_no_encoding_is_asked_for_that_cannot_be_decoded(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Scrapy can, by another library."""
    monkeypatch.setattr(
        "scrapy_rep.origins.answer.ACCEPTED_ENCODINGS", [b"gzip", b"br", b"new"]
    )
    site = sites.add(robots=RULES)
    await crawl([site.url("/x")])
    assert site.requests[0].header("Accept-Encoding") == "gzip, deflate"


def needs(module: str) -> pytest.MarkDecorator:
    missing = find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


def assert_obeys(result: CrawlResult, site: Site) -> None:
    assert result.status(site.url("/page")) == 200
    assert result.disallowed(site.url("/private"))
    assert (site.count("/robots.txt"), site.count("/private")) == (1, 0)
    result.assert_clean()


def both(site: Site) -> list[str]:
    return [site.url("/page"), site.url("/private")]


@needs("scrapy_poet")
@pytest.mark.scrapy_api
async def test_scrapy_poet_pages_and_inline_requests_obey(sites: Sites) -> None:
    from tests.engine.poet import PoetSpider

    site, other = sites.add(robots=RULES), sites.add(robots=RULES)
    addons = {"scrapy_rep.Addon": 300, "scrapy_poet.Addon": 300}
    inline = [other.url("/page"), other.url("/private")]
    result = await crawl(
        PoetSpider, {"ADDONS": addons}, requests=both(site), inline=inline
    )
    assert_obeys(result, site)
    assert list(result.responses) == [site.url("/page")]
    assert result.spider.items == [{inline[0]: 200}, {inline[1]: None}]
    assert other.count("/robots.txt") == other.count("/page") == 1
    assert other.count("/private") == 0


@needs("scrapy_playwright")
@pytest.mark.process
@pytest.mark.needs_reactor
async def test_playwright_pages_and_their_requests_obey(sites: Sites) -> None:
    """robots.txt is fetched without the browser; what the page loads is asked for by
    `PLAYWRIGHT_ABORT_REQUEST`, as docs/api.md has it."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package chromium")
    other = sites.add(robots=RULES, pages={"/open.js": "", "/private/x.js": ""})
    html = "".join(
        f'<script src="{one}"></script>'
        for one in (
            "/own.js",
            "/private/y.js",
            other.url("/open.js"),
            other.url("/private/x.js"),
        )
    )
    site = sites.add(robots=RULES, pages={"/page": answer(html, type="text/html")})

    class Browsing(ListSpider):
        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Browsing:
            spider = super().from_crawler(crawler, *args, **kwargs)

            async def forbidden(request: Any) -> bool:
                return not await may_fetch(crawler, request.url)

            crawler.settings.set("PLAYWRIGHT_ABORT_REQUEST", forbidden, "spider")
            return spider

    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    settings = {
        "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
        "PLAYWRIGHT_LAUNCH_OPTIONS": {
            "executable_path": CHROMIUM,
            "args": ["--no-sandbox", "--no-proxy-server"],
        },
    }
    requests = [Request(url, meta={"playwright": True}) for url in both(site)]
    result = await crawl(Browsing, settings, requests=requests)
    assert_obeys(result, site)
    assert (
        site.count("/own.js")
        == other.count("/open.js")
        == other.count("/robots.txt")
        == 1
    )
    assert site.count("/private/y.js") == other.count("/private/x.js") == 0
    assert result.stat("playwright/request_count/aborted") == 2
    [fetch] = site.hits("/robots.txt")
    assert "Sec-Fetch-Mode" not in dict(fetch.headers)


@pytest.mark.scrapy_api
async def test_two_crawls_in_one_process_keep_apart(sites: Sites) -> None:
    """Each asks for robots.txt itself, and is its own agent."""
    site = sites.add(
        robots="User-agent: one\nDisallow: /1\n\nUser-agent: two\nDisallow: /2\n"
    )
    runner = new_runner()
    crawlers = [runner.create_crawler(ListSpider) for _ in range(2)]
    for crawler, agent in zip(crawlers, ("one", "two"), strict=True):
        crawler.settings.set("REP_USER_AGENT", agent, "cmdline")
    urls = [site.url("/1"), site.url("/2")]
    with captured_log() as records:
        for running in [runner.crawl(crawler, requests=urls) for crawler in crawlers]:
            await (
                maybe_deferred_to_future(running)
                if isinstance(running, Deferred)
                else running
            )
    found = [
        (
            {one.url for one in spider.responses},
            {request.url for request, _ in spider.errors},
        )
        for spider in [crawler.spider for crawler in crawlers]
    ]
    assert found == [({urls[1]}, {urls[0]}), ({urls[0]}, {urls[1]})]
    assert site.count("/robots.txt") == 2
    assert not [one for one in records if one.levelname == "ERROR"]
