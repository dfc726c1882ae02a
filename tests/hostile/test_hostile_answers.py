"""Answers made to keep the event loop, or the memory, through whole crawls."""

from __future__ import annotations

import gzip
import threading
import zlib
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from scrapy_rep.engine import timers
from scrapy_rep.engine.text import MAX_SITEMAP_URL
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.sitemaps import STEP
from scrapy_rep.seeding import discovery, loader, seeding, selection
from scrapy_rep.seeding.discovery import MAX_SITEMAPS
from scrapy_rep.seeding.selection import Listing, Listings
from scrapy_rep.storages import Entry
from tests.helpers.behaviours import RULES, answer, in_turn, raw
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, pages, urlset

ON = {"REP_SITEMAPS": True, "RETRY_TIMES": 1}
MEBIBYTE = 1 << 20


async def seeded(site: Site, settings: dict[str, Any] | None = None) -> CrawlResult:
    result = await crawl(SeededSpider, {**ON, **(settings or {})}, requests=[site.url("/start")])
    result.assert_clean()
    return result


def encoded(body: bytes, *encodings: str, status: int = 200) -> Any:
    return answer(body, status, [("Content-Encoding", one) for one in encodings])


def layers(body: bytes, count: int) -> bytes:
    for _ in range(count):
        body = gzip.compress(body)
    return body


# robots.txt


@pytest.mark.download
async def test_five_encodings_and_no_more(sites: Sites) -> None:
    body = RULES.encode()
    five = sites.add(robots=encoded(layers(body, 5), *["gzip"] * 5))
    no_use = {
        "6 content encodings": encoded(layers(body, 6), "gzip, gzip, gzip", "gzip, gzip, gzip"),
        "encoded as br, br": encoded(body, "br", "br"),
        "header is longer than": encoded(body, *["identity, " * 700] * 3),
    }
    some = {words: sites.add(robots=answered) for words, answered in no_use.items()}
    result = await crawl([site.url("/private") for site in (five, *some.values())])
    assert isinstance(result.failure(five.url("/private")), RobotsDisallowed)
    for words, site in some.items():
        error = result.failure(site.url("/private"))
        assert isinstance(error, RobotsUnreachable)
        assert words in str(error)
    result.assert_clean()


@pytest.mark.needs_reactor(reason="without one, Scrapy's handler refuses such a header")
async def test_a_location_that_is_folded_over_and_over(sites: Sites) -> None:
    """Twisted takes megabytes of it. It leads nowhere, so there are no rules."""
    folded = b"Location: /rules" + b"\r\n   /longer" * 5_000
    site = sites.add(robots=raw(b"HTTP/1.1 301 Moved\r\n" + folded + b"\r\n\r\n"))
    result = await crawl(site.url("/page"))
    assert result.status(site.url("/page")) == 200
    assert [hit.path for hit in site.requests] == ["/robots.txt", "/page"]
    assert result.stat("rep/outcome/missing") == 1
    result.assert_clean()


# Sitemaps in encodings that nobody asked for


@pytest.mark.download
async def test_sitemaps_in_other_encodings(sites: Sites) -> None:
    """Gzip is unpacked piece by piece, three layers; of the others one, up to a limit."""
    site = sites.add()
    start = f"<urlset><url><loc>{site.url('/no')}</loc></url>".encode()
    large = f"<urlset>{' ' * 9 * MEBIBYTE}<url><loc>{site.url('/late')}</loc></url></urlset>"
    twice, body = urlset([site.url("/twice")]).encode(), urlset([site.url("/no")]).encode()
    files = {
        "bomb": encoded(zlib.compress(start + b" " * 9 * MEBIBYTE), "deflate"),
        "good": encoded(zlib.compress(urlset([site.url("/page")]).encode()), "deflate"),
        # What comes when it is asked for again is in no such encoding.
        "late": in_turn(encoded(zlib.compress(b"busy"), "deflate", status=503), answer(large)),
        "twice": encoded(layers(twice, 2), "gzip", "gzip"),
        "br": encoded(b"\0" + body, "br, br"),
        "many": encoded(b"\0" + body, *["br"] * 2_000),
    }
    for name, content in files.items():
        site.set(f"/{name}.xml", content)
    site.set("/robots.txt", "".join(f"Sitemap: /{name}.xml\n" for name in files))
    result = await seeded(site)
    assert pages(result) == [site.url(f"/{name}") for name in ("late", "page", "twice")]
    assert result.stat("rep/sitemaps/failed") == 3
    assert result.stat("httpcompression/response_bytes") < MEBIBYTE


async def test_the_limit_of_the_project_holds(sites: Sites) -> None:
    site = sites.add()
    body = urlset([site.url("/no")]).encode() + b" " * 200_000
    site.set("/map.xml", encoded(zlib.compress(body), "deflate"))
    site.set("/robots.txt", "Sitemap: /map.xml")
    result = await seeded(site, {"DOWNLOAD_MAXSIZE": 100_000})
    assert pages(result) == []


# What a robots.txt lists


async def test_sitemaps_are_worked_on_in_slices(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop has its turn after each step: of what is listed, of a piece of a file, which can have a
    thousand entries, of the proof that a host lists a sitemap. None is lost."""
    turns: Counter[str] = Counter()
    pause = timers.pause

    def count_turns_of(module: ModuleType) -> None:
        def counted(*arguments: Any) -> Any:
            turns[module.__name__.rpartition(".")[2]] += 1
            return pause(*arguments)

        monkeypatch.setattr(module, "pause", counted)

    monkeypatch.setattr(timers, "SLICE_SECONDS", -1.0)
    # What a robots.txt lists is announced, and read.
    for module in (discovery, seeding, loader, selection):
        count_turns_of(module)
    site, other, not_listed = sites.add(), sites.add(), sites.add()
    maps = [f"/map{number}.xml" for number in range(40)]
    some = "".join(f"Sitemap: {path}\n" for path in maps)
    url = site.url("/map.txt")
    site.set("/robots.txt", f"{some}Sitemap: {url}\n")
    other.set("/robots.txt", f"{some}Sitemap: {url}#x\n")
    not_listed.set("/robots.txt", some)
    for path in maps:
        site.set(path, urlset([site.url(f"/of{path}")]))
    wanted = [one.url(f"/{number}") for one in (site, other) for number in range(20)]
    text = "\n".join([*wanted, *(not_listed.url(f"/{number}") for number in range(3))])
    text += "\nhttp://" * 800  # so short that all are in one piece
    assert len(text) < STEP
    site.set("/map.txt", text)
    result = await seeded(site)
    assert pages(result) == sorted([*wanted, *(site.url(f"/of{path}") for path in maps)])
    assert result.stat("rep/sitemaps/found") == 3 * 40 + 1
    assert result.stat("rep/sitemaps/rejected/invalid") == 800
    assert result.stat("rep/sitemaps/rejected/cross_host") == 3
    assert min(turns["discovery"], turns["seeding"], turns["selection"]) > 40, turns
    assert turns["loader"] > 20


def test_a_listing_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "SLICE_SECONDS", -1.0)
    values = [f"/{number}" for number in range(MAX_SITEMAPS + 10)]
    some = Listing("http://a.test/robots.txt", ["/0", "http://[", *values])
    steps = 1
    while not some.complete():
        steps += 1
    assert steps == MAX_SITEMAPS + 1
    assert some.has_any(["http://b.test/", f"http://a.test/{MAX_SITEMAPS - 2}"])
    assert not some.has_any([f"http://a.test/{MAX_SITEMAPS - 1}", "http://["])


def test_a_hundred_listings_are_kept() -> None:
    """By what their file is, and where it is."""
    states = [OriginState(Entry(f"http://h{number}.test")) for number in range(150)]
    listings = Listings()
    first = [listings.of(one) for one in states]
    kept = [listings.of(one) is was for one, was in zip(states[50:], first[50:], strict=True)]
    assert kept == [True] * 100
    assert listings.of(states[0]) is not first[0]
    last = states[149]
    for news in ({}, {"url": "http://www.h149.test/robots.txt"}, {"sha256": "0" * 64}):
        before = listings.of(last)
        last.update(Entry("http://h149.test", updated_at=1, **news))
        assert (listings.of(last) is before) is (not news)


async def test_a_line_that_is_too_long_is_told(sites: Sites) -> None:
    site = sites.add()
    site.set("/robots.txt", f"Sitemap: /{'x' * MAX_SITEMAP_URL}\nSitemap: /map.xml\n")
    site.set("/map.xml", urlset([site.url("/page")]))
    result = await seeded(site)
    assert pages(result) == [site.url("/page")]
    assert len(lines(result, "lists a sitemap with an invalid URL", level="WARNING")) == 1


async def test_large_files_are_read_beside_the_event_loop(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When they come, and when they are needed again; each once, whoever waits."""
    threads: list[int] = []
    preload = RobotsTxt.preload

    def spy(robots: RobotsTxt, body: bytes, *arguments: Any) -> None:
        if len(body) > 100_000:
            threads.append(threading.get_ident())
        preload(robots, body, *arguments)

    monkeypatch.setattr(RobotsTxt, "preload", spy)
    large, other = sites.add(robots=RULES + "#\n" * 100_000), sites.add(robots=RULES)
    wanted = [large.url(f"/{number}") for number in range(5)]

    class Later(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response)
            if response.url == wanted[-1]:
                yield self.recorded(other.url("/x"))  # the large one leaves the memory
            elif response.url == other.url("/x"):
                yield from map(self.recorded, again)

    again = [large.url(f"/again{number}") for number in range(5)] + [large.url("/private")]
    result = await crawl(Later, {"REP_CACHE_MAX_BYTES": 4000}, requests=wanted)
    assert set(result.responses) == {*wanted, other.url("/x"), *again[:-1]}
    assert isinstance(result.failure(again[-1]), RobotsDisallowed)
    assert large.robots_fetches == 1
    assert len(threads) == 2
    assert threading.get_ident() not in threads
    result.assert_clean()
