"""Answers made to keep the event loop, or the memory, through whole crawls."""

from __future__ import annotations

import gzip
import threading
import zlib
from typing import Any

import pytest

from scrapy_rep.engine import timers
from scrapy_rep.engine.text import MAX_SITEMAP_URL
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.sitemaps.reader import STEP
from scrapy_rep.seeding import discovery, loader, seeding, verifier
from scrapy_rep.seeding.discovery import MAX_SITEMAPS
from scrapy_rep.seeding.verifier import Listing, Listings
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
    body = RULES.encode() if isinstance(RULES, str) else RULES
    five = sites.add(robots=encoded(layers(body, 5), *["gzip"] * 5))
    six = sites.add(robots=encoded(layers(body, 6), "gzip, gzip, gzip", "gzip, gzip, gzip"))
    other = sites.add(robots=encoded(body, "br", "br"))
    result = await crawl([site.url("/private") for site in (five, six, other)])
    assert isinstance(result.failure(five.url("/private")), RobotsDisallowed)
    errors = [str(result.failure(site.url("/private"))) for site in (six, other)]
    assert all(
        isinstance(result.failure(site.url("/private")), RobotsUnreachable) for site in (six, other)
    )
    assert "6 content encodings" in errors[0]
    assert "encoded as br, br" in errors[1]
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


@pytest.fixture
def one_step_a_slice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The event loop has its turn after each step; how often it had."""
    turns = []
    really = timers.work

    def work(steps: Any) -> bool:
        turns.append(1)
        return really(steps)

    async def paused(seconds: float = 0) -> None:
        turns.append(1)
        await timers.pause(seconds)

    monkeypatch.setattr(timers, "SLICE_SECONDS", -1.0)
    for module in (discovery, verifier):
        monkeypatch.setattr(module, "work", work)
    monkeypatch.setattr(seeding, "pause", paused)
    return turns


async def test_sitemaps_are_taken_in_slices(sites: Sites, one_step_a_slice: list[int]) -> None:
    """None is lost, and the crawl does not end before the last."""
    site = sites.add()
    maps = [f"/map{number}.xml" for number in range(40)]
    for path in maps:
        site.set(path, urlset([site.url(path + ".page")]))
    site.set("/robots.txt", "".join(f"Sitemap: {path}\n" for path in maps))
    result = await seeded(site)
    assert pages(result) == sorted(site.url(path + ".page") for path in maps)
    assert result.stat("rep/sitemaps/found") == 40
    assert len(one_step_a_slice) > 80  # to announce them, and to have them read


async def test_what_is_read_at_once_is_written_in_slices(
    sites: Sites, one_step_a_slice: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of a file can have a thousand entries, each on another host."""
    pauses = []

    async def paused(seconds: float = 0) -> None:
        pauses.append(seconds)
        await timers.pause(seconds)

    monkeypatch.setattr(loader, "pause", paused)
    site = sites.add(robots="Sitemap: /map.txt\n")
    # So short that only a few are pages.
    text = "".join(f"{site.url(f'/{number}')}\n" for number in range(50)) + "http://\n" * 800
    site.set("/map.txt", text)
    assert len(text) < STEP
    result = await seeded(site)
    assert len(pages(result)) == 50
    assert result.stat("rep/sitemaps/rejected/invalid") == 800
    assert len(pauses) > 20


async def test_proof_is_looked_for_in_slices(sites: Sites, one_step_a_slice: list[int]) -> None:
    site, other, not_listed = sites.add(), sites.add(), sites.add()
    some = "".join(f"Sitemap: /{number}\n" for number in range(20))
    url = site.url("/map.xml")
    site.set("/robots.txt", f"Sitemap: {url}\n")
    other.set("/robots.txt", f"{some}Sitemap: {url}#x\n")
    not_listed.set("/robots.txt", some)
    hosts = (site, other, not_listed)
    site.set("/map.xml", urlset([one.url(f"/{n}") for one in hosts for n in range(3)]))
    result = await seeded(site)
    assert pages(result) == sorted(one.url(f"/{n}") for one in hosts[:2] for n in range(3))
    assert result.stat("rep/sitemaps/rejected/cross_host") == 3
    assert len(one_step_a_slice) > 40


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
    long = Listing(
        "http://a.test/robots.txt",
        ["http://" + "ä." * MAX_SITEMAP_URL, "/" + "x" * MAX_SITEMAP_URL],
    )
    assert (long.complete(), long.complete(), long.complete()) == (False, False, True)
    assert not long.has_any(["http://a.test/" + "x" * MAX_SITEMAP_URL])


def test_some_listings_are_kept() -> None:
    def known(number: int) -> Any:
        from scrapy_rep.origins.state import OriginState

        return OriginState(Entry(f"http://h{number}.test"))

    many = [known(number) for number in range(150)]
    listings = Listings()
    first = [listings.of(one) for one in many]
    assert [listings.of(one) is was for one, was in zip(many[50:], first[50:], strict=True)] == (
        [True] * 100
    )
    assert listings.of(many[0]) is not first[0]
    many[149].update(Entry("http://h149.test", updated_at=1))
    assert listings.of(many[149]) is first[149], "the same file"
    for news in ({"url": "http://www.h149.test/robots.txt"}, {"sha256": "0" * 64}):
        before = listings.of(many[149])
        many[149].update(Entry("http://h149.test", **news))
        assert listings.of(many[149]) is not before


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
