"""Answers that try to block the event loop or fill memory, or have no meaning: none permits."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep.engine import timers
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.sitemaps import STEP
from scrapy_rep.seeding import loader
from scrapy_rep.text import MAX_SITEMAP_URL
from tests.helpers.behaviours import (
    RULES,
    RULES_BYTES,
    answer,
    encoded,
    in_turn,
    layers,
    raw,
    redirect,
)
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
from tests.helpers.log import lines, summary
from tests.helpers.recorded import decisions
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import pages, seeded, urlset

MEBIBYTE = 1 << 20
RULES_APPLY, NONE = "Disallow: /private", ""
# Behaviours, and what they mean for a page that the rules forbid: an error with these words, if any.
ROBOTS: dict[str, tuple[Any, str]] = {
    "5 encodings": (encoded(layers(RULES_BYTES, 5), *["gzip"] * 5), RULES_APPLY),
    "6 encodings": (
        encoded(layers(RULES_BYTES, 6), "gzip, gzip, gzip", "gzip, gzip, gzip"),
        "6 content encodings",
    ),
    "an encoding twice": (encoded(RULES_BYTES, "br", "br"), "the body is not br"),
    "a long header": (
        encoded(RULES_BYTES, *["identity, " * 700] * 3),
        "header is longer than",
    ),
    # Invalid HTTP (REP.md section 3).
    **{
        f"a status of {len(status)} digits, {status[:2]!r}": (
            raw(
                b"HTTP/1.1 "
                + status
                + b" Fine\r\nConnection: close\r\n\r\nUser-agent: *\n"
            ),
            "unreachable",
        )
        for status in (b"99999999999999999999999", b"1000", b"99", b"0", b"9" * 4000)
    },
    # Twisted takes megabytes of it; without a reactor, Scrapy's handler refuses such a header.
    "a folded Location": (
        raw(
            b"HTTP/1.1 301 Moved\r\nLocation: /rules"
            + b"\r\n   /longer" * 5_000
            + b"\r\n\r\n"
        ),
        NONE if is_reactor_installed() else "unreachable",
    ),
}


@pytest.mark.slow
@pytest.mark.download
@pytest.mark.usefixtures("in_time")
async def test_what_an_answer_means(sites: Sites, tmp_path: Path) -> None:
    wanted = [
        (name, sites.add(robots=one), means) for name, (one, means) in ROBOTS.items()
    ]
    # Servers take 8 KB; what is longer leads nowhere, whatever client reads the header.
    for length, means in ((2_000, RULES_APPLY), (8_100, RULES_APPLY), (8_193, NONE)):
        site = sites.add()
        path = "/" + "x" * (length - len(site.url("/")))
        site.set("/robots.txt", redirect(path))
        site.set(path, RULES)
        wanted.append((f"a Location of {length}", site, means))
    path, report = tmp_path / "d.jsonl", tmp_path / "report.html"
    result = await crawl(
        [site.url("/private") for _, site, _ in wanted],
        {**ONE_ATTEMPT, "REP_DECISIONS": str(path), "REP_REPORT": str(report)},
    )
    result.assert_clean()
    with every_row() as row:
        for name, site, means in wanted:
            with row(name):
                error = result.failure(site.url("/private"))
                assert (means in str(error)) if means else (error is None)
                assert means or site.pages_asked == ["/private"]
    verdicts = {(one["url"], one["verdict"]) for one in decisions(path)}
    assert verdicts == {
        (site.url("/private"), "disallowed" if means == RULES_APPLY else "unreachable")
        for _, site, means in wanted
        if means
    }
    assert f"{len(wanted)} origins: 3 with rules" in summary(result)[0]
    assert report.stat().st_size > 1000
    told = [
        name
        for name in result.stats
        if name.startswith("robotstxt/response_status_count/")
    ]
    assert {name.rpartition("/")[2] for name in told} <= {"200", "301"}


@pytest.mark.download
async def test_sitemaps_in_other_encodings(sites: Sites) -> None:
    """Gzip is unpacked up to three layers, of the others one, up to the smaller of two limits."""
    site = sites.add()
    start = f"<urlset><url><loc>{site.url('/no')}</loc></url>".encode()
    large = f"<urlset>{' ' * 9 * MEBIBYTE}<url><loc>{site.url('/late')}</loc></url></urlset>"
    twice, body = (
        urlset([site.url("/twice")]).encode(),
        urlset([site.url("/no")]).encode(),
    )
    files = {
        "bomb": encoded(zlib.compress(start + b" " * 9 * MEBIBYTE), "deflate"),
        "good": encoded(zlib.compress(urlset([site.url("/page")]).encode()), "deflate"),
        # What comes when it is asked for again is in no such encoding.
        "late": in_turn(
            encoded(zlib.compress(b"busy"), "deflate", status=503), answer(large)
        ),
        "twice": encoded(layers(twice, 2), "gzip", "gzip"),
        "br": encoded(b"\0" + body, "br, br"),
        "many": encoded(b"\0" + body, *["br"] * 2_000),
    }
    for name, content in files.items():
        site.set(f"/{name}.xml", content)
    listed = "".join(f"Sitemap: /{name}.xml\n" for name in files)
    site.set("/robots.txt", f"Sitemap: /{'x' * MAX_SITEMAP_URL}\n{listed}")
    result = await seeded(site, RETRY_TIMES=1)
    assert pages(result) == [site.url(f"/{name}") for name in ("late", "page", "twice")]
    assert result.stat("rep/sitemaps/failed") == 3
    assert result.stat("httpcompression/response_bytes") < MEBIBYTE
    told = "lists 7 sitemaps with a relative or an invalid URL"
    assert len(lines(result, told, level="WARNING")) == 1
    small = sites.add(robots="Sitemap: /map.xml")
    body = urlset([small.url("/no")]).encode() + b" " * 200_000
    small.set("/map.xml", encoded(zlib.compress(body), "deflate"))
    assert pages(await seeded(small, DOWNLOAD_MAXSIZE=100_000)) == []


async def test_sitemaps_are_worked_on_in_slices(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is listed, a piece of a file (a thousand entries), the proof that a host lists it."""
    turns: Counter[str] = Counter()
    pause = timers.pause

    def count_turns_of(module: ModuleType) -> None:
        def counted(*arguments: Any) -> Any:
            turns[module.__name__.rpartition(".")[2]] += 1
            return pause(*arguments)

        monkeypatch.setattr(module, "pause", counted)

    monkeypatch.setattr(timers, "SLICE_SECONDS", -1.0)
    for module in (timers, loader):
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
    result = await seeded(site, RETRY_TIMES=1)
    assert pages(result) == sorted(
        [*wanted, *(site.url(f"/of{path}") for path in maps)]
    )
    assert result.stat("rep/sitemaps/found") == 3 * 40 + 1
    assert result.stat("rep/sitemaps/rejected/invalid") == 800
    assert result.stat("rep/sitemaps/rejected/cross_host") == 3
    # What a robots.txt lists is announced, read, and looked at for proof.
    assert turns["timers"] > 240 + 800, turns
    assert turns["loader"] > 20


async def test_large_files_are_read_beside_the_event_loop(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    preload = RobotsTxt.preload

    def spy(robots: RobotsTxt, body: bytes, *arguments: Any) -> None:
        if len(body) > 100_000:
            threads.append(threading.get_ident())
        preload(robots, body, *arguments)

    monkeypatch.setattr(RobotsTxt, "preload", spy)
    large, other = sites.add(robots=RULES + "#\n" * 100_000), sites.add(robots=RULES)
    wanted = [large.url(f"/{number}") for number in range(5)]

    def on_page(spider: ListSpider) -> Any:
        # The other makes the large one leave the memory.
        then = {wanted[-1]: [other.url("/x")], other.url("/x"): again}
        return map(spider.recorded, then.get(spider.responses[-1].url, []))

    again = [large.url(f"/again{number}") for number in range(5)] + [
        large.url("/private")
    ]
    result = await crawl(wanted, {"_REP_CACHE_MAX_BYTES": 4000}, on_page=on_page)
    assert set(result.responses) == {*wanted, other.url("/x"), *again[:-1]}
    assert isinstance(result.failure(again[-1]), RobotsDisallowed)
    assert large.robots_fetches == 1
    assert len(threads) == 2
    assert threading.get_ident() not in threads
    result.assert_clean()
