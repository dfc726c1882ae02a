"""Sitemaps for the tests, of every format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

import pytest
from scrapy.http import Response

from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Site

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def urlset(urls: Iterable[str], lastmod: str = "") -> str:
    mod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    items = "".join(f"<url><loc>{escape(url)}</loc>{mod}</url>\n" for url in urls)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{NAMESPACE}">\n{items}</urlset>'


def index(urls: Iterable[str], lastmod: str = "") -> str:
    mod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    items = "".join(
        f"<sitemap><loc>{escape(url)}</loc>{mod}</sitemap>\n" for url in urls
    )
    return f'<sitemapindex xmlns="{NAMESPACE}">\n{items}</sitemapindex>'


def rss(urls: Iterable[str]) -> str:
    items = "".join(
        f"<item><title>x</title><link>{escape(url)}</link>"
        "<pubDate>Mon, 06 Sep 2021 00:01:00 +0000</pubDate></item>"
        for url in urls
    )
    return (
        '<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom">'
        "<channel><title>t</title><link>http://not.an.entry/</link>"
        f'<atom:link rel="self" href="http://not.an.entry/feed"/>{items}</channel></rss>'
    )


def atom(urls: Iterable[str]) -> str:
    items = "".join(
        f'<entry><title>x</title><link rel="self" href="http://not.an.entry/1"/>'
        f'<link href="{escape(url)}"/><updated>2003-12-13T18:30:02Z</updated></entry>'
        for url in urls
    )
    return (
        '<feed xmlns="http://www.w3.org/2005/Atom"><link href="http://not.an.entry/"/>'
        f"{items}</feed>"
    )


class SeededSpider(ListSpider):
    """Its start requests are filtered like all others."""

    dont_filter = False

    def other(self, response: Response) -> None:
        self.responses.append(response)


def pages(result: CrawlResult) -> list[str]:
    """The URLs that callbacks got, sorted; not that of the start request `/start`."""
    urls = sorted(response.url for response in result.spider.responses)
    return [url for url in urls if not url.endswith("/start")]


def listing(*sitemaps: str, rules: str = "") -> str:
    return "".join(f"Sitemap: {url}\n" for url in sitemaps) + rules


def lists(site: Site, *paths: str) -> Site:
    site.set("/robots.txt", listing(*map(site.url, paths)))
    return site


def lists_two(site: Site) -> Site:
    """It lists a sitemap of two pages and of something that is none, and a sitemap that is gone."""
    site.set(
        "/a.xml", urlset([site.url("/1"), site.url("/2"), "mailto:me@example.com"])
    )
    site.set("/gone.xml", 404)
    return lists(site, "/a.xml", "/gone.xml")


def in_the_scheduler(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of one origin's listed pages, *most* are in the scheduler at a time; the others wait in the spool."""
    monkeypatch.setattr("scrapy_rep.seeding.seeding._MAX_PAGES_OF_A_SITE", most)


async def seeded(
    *sites: Site, spider: type[ListSpider] = SeededSpider, **settings: Any
) -> CrawlResult:
    """A crawl of `/start` of each, which ends by itself and leaves nothing."""
    starts = [site.url("/start") for site in sites]
    result = await crawl(spider, {"REP_SITEMAPS": True, **settings}, requests=starts)
    result.assert_clean()
    assert result.stat("rep/sitemaps/waiting") == 0
    return result
