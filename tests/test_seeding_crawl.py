"""REP.md section 9, whole: what sitemaps list is what is fetched."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.behaviours import answer, gzipped
from tests.crawling import crawl
from tests.servers import Site, Sites
from tests.sitemaps import (
    SeededSpider,
    atom,
    index,
    lines,
    pages,
    rss,
    urlset,
)

ON = {"REP_SITEMAPS": True}
RULES = "User-agent: *\nDisallow: /private\n"


def some(site: Site, name: str, count: int = 5) -> list[str]:
    return [site.url(f"/{name}/{number}") for number in range(count)]


async def test_what_is_fetched_is_what_is_listed(sites: Sites) -> None:
    """Nested indexes, gz, text, RSS, Atom, two hosts; rules forbid some pages and one sitemap."""
    one = sites.add(name="one.test")
    two = sites.add(name="two.test")
    maps = sites.add(name="maps.test")
    xml = {"type": "application/xml"}
    wanted: list[str] = []
    files: dict[Site, dict[str, Any]] = {one: {}, two: {}, maps: {}}

    def listed(site: Site, name: str, count: int = 5) -> list[str]:
        urls = some(site, name, count)
        wanted.extend(urls)
        return urls

    forbidden = some(one, "private/pages")
    files[one] = {
        "/index.xml": answer(
            index([one.url("/deep.xml?x=1"), one.url("/plain.txt"), one.url("/private/map.xml")]),
            **xml,
        ),
        "/deep.xml": answer(
            index([one.url("/urlset.gz"), one.url("/feed"), one.url("/news"), two.url("/s.xml")]),
            type="text/plain",
        ),
        # gzip that no header and no name tells of
        "/urlset.gz": answer(
            gzip.compress(urlset(listed(one, "gz") + forbidden).encode()),
            type="application/octet-stream",
        ),
        "/plain.txt": "\n".join(listed(one, "text")),
        "/feed": answer(rss(listed(one, "rss")), type="application/rss+xml"),
        "/news": answer(atom(listed(one, "atom")), type="text/html"),
        "/private/map.xml": urlset(some(one, "never")),
    }
    files[two] = {
        # gzip once for the way, and once more because it is a .gz
        "/s.xml": gzipped(gzip.compress(urlset(listed(two, "two") + wanted[:3]).encode())),
    }
    files[maps] = {"/of-one.xml": gzipped(urlset(listed(one, "elsewhere")).encode())}
    for site, behaviours in files.items():
        for path, behaviour in behaviours.items():
            site.set(path, behaviour)
    one.set(
        "/robots.txt",
        RULES + f"Sitemap: {one.url('/index.xml')}\nSitemap: {maps.url('/of-one.xml')}\n",
    )
    # Both list the index, so both may be in what it leads to.
    two.set("/robots.txt", f"Sitemap: {one.url('/index.xml')}\n")

    result = await crawl(SeededSpider, ON, requests=[one.url("/start")])
    assert pages(result) == sorted(wanted)
    assert result.stat("robotstxt/forbidden") == len(forbidden) + 1
    assert result.stat("rep/sitemaps/found") == 9
    assert result.stat("rep/sitemaps/fetched") == 8
    assert result.stat("rep/sitemaps/failed") == 1
    assert result.stat("rep/sitemaps/waiting") == 0
    assert result.stat("rep/sitemaps/urls") == len(wanted) + len(forbidden) + 3 + 7
    assert len(lines(result, "accepted", "INFO")) == 8
    for site in (one, two, maps):
        assert site.count("/robots.txt") == 1
        assert max([site.count(path) for path in files[site]] or [0]) <= 1
    result.assert_clean()


@pytest.mark.parametrize("count", [1200])
async def test_more_pages_than_the_scheduler_is_given_at_once(sites: Sites, count: int) -> None:
    site = sites.add()
    wanted = some(site, "page", count)
    site.set("/map.xml", urlset(wanted))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    most = 0
    result = await crawl(SeededSpider, ON, requests=[site.url("/start")])
    assert most <= 1100
    assert pages(result) == sorted(wanted)
    assert result.stat("rep/sitemaps/emitted") == count
    result.assert_clean()
