"""REP.md section 2: nothing that belongs to page requests leaks into the fetch of robots.txt, and
credentials never travel to another origin. The servers record what they were sent."""

from __future__ import annotations

from typing import ClassVar

import pytest
from scrapy import Request
from scrapy.settings import default_settings

from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.behaviours import RULES, answer, redirect
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Sites


def disallowed(result: CrawlResult, url: str) -> bool:
    return isinstance(result.failure(url), RobotsDisallowed)


@pytest.mark.download
async def test_cookies_of_pages_and_of_robots_txt_do_not_mix(sites: Sites) -> None:
    setting = [("Set-Cookie", "robots=1; Path=/")]
    other = sites.add(pages={"/rules": answer(RULES, headers=setting)})
    site = sites.add(robots=answer(b"", 302, [("Location", other.url("/rules")), *setting]))
    requests = [
        Request(site.url("/x"), cookies={"session": "secret"}),
        Request(site.url("/y"), headers={"Cookie": "raw=secret"}),
        Request(other.url("/z"), cookies={"other": "secret"}),
    ]
    result = await crawl(requests, {"CONCURRENT_REQUESTS": 1})
    assert len(result.responses) == 3
    robots_hits = site.hits("/robots.txt") + other.hits("/rules") + other.hits("/robots.txt")
    assert len(robots_hits) == 3
    assert [hit.header("Cookie") for hit in robots_hits] == [None, None, None]
    assert site.hits("/x")[0].header("Cookie") == "session=secret"
    assert "robots=1" not in str([hit.headers for hit in site.requests + other.requests])
    result.assert_clean()


async def test_authorization_of_pages_stays_with_pages(sites: Sites) -> None:
    other = sites.add(pages={"/rules": RULES})
    site = sites.add(robots=redirect(other.url("/rules")))
    requests = [
        Request(site.url("/x"), headers={"Authorization": "Bearer secret"}),
        Request(site.url("/private"), headers={"Authorization": "Bearer secret"}),
        Request(site.url("/y"), meta={"http_user": "user", "http_pass": "secret"}),
    ]
    result = await crawl(requests, {"CONCURRENT_REQUESTS": 1})
    assert disallowed(result, site.url("/private"))
    assert site.hits("/x")[0].header("Authorization") == "Bearer secret"
    assert site.hits("/robots.txt")[0].header("Authorization") is None
    assert [hit.header("Authorization") for hit in other.requests] == [None]
    result.assert_clean()


@pytest.mark.scrapy_api
async def test_http_auth_of_the_project_stays_in_its_domain(sites: Sites) -> None:
    """HTTPAUTH_DOMAIN is where the user wants it sent, robots.txt included; hops leave it."""
    other = sites.add(name="other.test", pages={"/rules": RULES})
    site = sites.add(name="secret.test", robots=redirect(other.url("/rules")))
    domain = f"secret.test:{site.port}"  # Scrapy compares it with the port, if there is one
    urls = [site.url("/x"), site.url("/private")]
    if hasattr(default_settings, "HTTPAUTH_USER"):
        settings = {"HTTPAUTH_USER": "user", "HTTPAUTH_PASS": "pass", "HTTPAUTH_DOMAIN": domain}
        result = await crawl(urls, settings)
    else:  # by attributes of the spider, in older Scrapy

        class HttpAuthSpider(ListSpider):
            http_user, http_pass, http_auth_domain = "user", "pass", domain

        result = await crawl(HttpAuthSpider, requests=urls)
    assert disallowed(result, site.url("/private"))
    assert site.hits("/x")[0].header("Authorization") == "Basic dXNlcjpwYXNz"
    assert [hit.header("Authorization") for hit in other.requests] == [None]
    result.assert_clean()


class MetaSpy:
    """A downloader middleware that notes what requests for robots.txt carry."""

    seen: ClassVar[list[Request]] = []

    def process_request(self, request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            self.seen.append(request)


async def test_meta_of_pages_stays_with_pages(sites: Sites) -> None:
    """Nor does a browser or API download handler fetch robots.txt for them."""
    site = sites.add(robots=RULES)
    MetaSpy.seen.clear()
    meta = {
        "playwright": True,
        "zyte_api": {"browserHtml": True},
        "cookiejar": 7,
        "download_slot": "a",
    }
    request = Request(
        site.url("/x"),
        method="POST",
        body=b"secret",
        headers={"X-Secret": "1", "Referer": "http://example.com/"},
        meta=meta,
        cb_kwargs={"mine": 1},
    )
    result = await crawl(request, {"DOWNLOADER_MIDDLEWARES": {MetaSpy: 50}})
    assert result.status(site.url("/x")) == 200
    [robots] = MetaSpy.seen
    assert not any(robots.meta.get(key) == value for key, value in meta.items())
    assert robots.cb_kwargs == {}
    [hit] = site.hits("/robots.txt")
    assert (hit.method, hit.body) == ("GET", b"")
    assert hit.header("X-Secret") is None
    assert hit.header("Referer") is None
    for validator in ("If-None-Match", "If-Modified-Since", "Range"):
        assert hit.header(validator) is None
    result.assert_clean()
