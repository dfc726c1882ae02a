"""One crawl that meets all hostile answers at once, with a watch on its event loop and memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import (
    RULES,
    LongBody,
    answer,
    encoded,
    gzip_bomb,
    hang_up,
    layers,
    lying_length,
    raw,
    redirect,
    reset,
    silence,
)
from tests.helpers.process import Crawl
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import index, listing, urlset
from tests.hostile.evil import IN_A_LINE
from tests.hostile.links import hostile_pages

pytestmark = [pytest.mark.process, pytest.mark.slow]
MEBIBYTE = 1 << 20
EMPTY = gzip.compress(b"")


def rules(line: str, size: int = 512_000) -> str:
    return "User-agent: *\n" + line * (size // len(line))


# Headers and interim answers (1xx) without end are not among these: Scrapy's download handlers read
# them until the timeout, and hand over nothing meanwhile (docs/limits.md).
def robots_files() -> dict[str, Any]:
    """Made when they are needed: it takes seconds."""
    return {
        "blanks in Cache-Control": answer(
            RULES, headers=[("Cache-Control", "max-age=" + " " * 1400)] * 11
        ),
        "dates": answer(RULES, headers=[("Date", "0" * 9000), ("Expires", "9" * 9000), ("Age", "9" * 900)]),
        "empty members": encoded(EMPTY * 25_600, "gzip"),
        "stacked encodings": encoded(b"x", *["gzip"] * 200),
        "nested gzip": encoded(layers(b"a" * 20 * MEBIBYTE, 5), *["gzip"] * 5),
        "gzip bomb": gzip_bomb(b"User-agent: *\n", 100),
        "a long Location": redirect("/" + "a" * 15_000),
        "a Location of many dots": redirect("/." * 7_000),
        "foreign letters": redirect("http://" + "é" * 4_000 + "/robots.txt"),
        "a status of 23 digits": raw(b"HTTP/1.1 99999999999999999999999 Yes\r\n\r\n"),
        "no HTTP": raw(b"\0" * 5000),
        "an endless body": LongBody(RULES.encode(), 1 << 34, announce=False),
        "a body shorter than it says": lying_length(RULES.encode(), 5000),
        "silence": silence(),
        "a reset": reset(),
        "a hang-up": hang_up(),
        "headings": answer("<h1>" * 16_384, 503),
        "titles": answer("<title" * 16_384, 500),
        "relative sitemaps": "".join(f"Sitemap: /é{number}.xml\n" for number in range(500)),
        "long sitemaps": "".join(f"Sitemap: http://{'é' * 1900}{n}/\n" for n in range(200)),
        "control characters": f"User-agent: *\nDisallow: /{IN_A_LINE}\nDisallow: /page\nSitemap: {IN_A_LINE}\n",
        "noise": bytes(range(256)) * 2000,
        "many rules": rules("Disallow: /a*b*c$\nallow:/\n"),
        "short rules": rules("d:/\n"),
        "stars": rules("Disallow: /" + "*a" * 8000 + "\n"),
        "agents": rules("User-agent: a\n"),
        "agents and rules": rules("User-agent: *\nDisallow: /x\n"),
        "comments": rules("#\n"),
        "escapes": rules("Disallow: /%zz%e9é\n"),
        "one line": "Disallow: /" + "é" * 200_000,
    }  # fmt: skip


def sitemap_files() -> dict[str, Any]:
    return {
        "comments": "<!---->" * 40_000 + "<urlset>",
        "nested gzip": layers(b" " * 8 * MEBIBYTE, 3),
        "empty members": EMPTY * 50_000,
        "deflate": encoded(zlib.compress(b" " * 12 * MEBIBYTE), "deflate"),
        "ampersands": gzip.compress(b"<urlset><url><loc>" + b"&" * 8 * MEBIBYTE),
        "attributes": "<urlset " + " ".join(f"a{n}=''" for n in range(50_000)) + ">",
        "an open CDATA": "<urlset><url><loc><![CDATA[" + "x" * 4 * MEBIBYTE,
        "deep": "<urlset>" + "<a>" * 150_000,
        "children of one entry": "<urlset><url>" + "<lastmod>2026-01-01</lastmod>" * 50_000,
        "entities": '<!DOCTYPE a [<!ENTITY a "b"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc>',
        "one line": "http://a.example/" + "x" * 4 * MEBIBYTE,
        "many hosts": urlset(f"http://host{n}.example/" for n in range(2_000)),
        "many hosts as text": "".join(f"http://h{n}.example/\n" for n in range(2_000)),
        "an index of many": index(f"/none{n}.xml" for n in range(2_000)),
        "silence": silence(b"HTTP/1.1 200 OK\r\n\r\n<urlset>"),
        "an endless body": LongBody(b"<urlset>", 1 << 34, announce=False),
        "an error page": answer("<h1>" * 100_000, 503),
    }  # fmt: skip


def hostile(sites: Sites) -> Iterator[Site]:
    for robots in robots_files().values():
        yield sites.add(robots=robots)
    for content in sitemap_files().values():
        site = sites.add(pages={"/map.xml": content})
        site.set("/robots.txt", listing(site.url("/map.xml"), rules=RULES))
        yield site
    for html in hostile_pages().values():
        yield sites.add(RULES, {"/page": answer(html, type="text/html; charset=utf-8")})


def good(sites: Sites) -> Site:
    site = sites.add()
    site.set("/robots.txt", listing(site.url("/map.xml"), rules=RULES))
    site.set("/map.xml", urlset(site.url(f"/listed{number}") for number in range(5)))
    return site


def test_a_crawl_on_a_hostile_day(sites: Sites, tmp_path: Path) -> None:
    bad = [site.url("/page") for site in hostile(sites)]
    healthy = [good(sites) for _ in range(10)]
    started = [site.url(f"/page{number}") for site in healthy for number in range(5)]
    listed = [site.url(f"/listed{number}") for site in healthy for number in range(5)]
    settings = {
        "EXTENSIONS": {
            "tests.helpers.pages_spider.Recorder": 0,
            "tests.hostile.loopwatch.LoopWatch": 0,
        },
        "REP_SITEMAPS": True,
        "REP_NOFOLLOW": "count",
        "REP_DOWNLOAD_TIMEOUT": 2,
        "REP_RETRY_DELAY": 0.5,
        "REP_RETRY_MAX_DELAY": 2,
        "REP_HOLD_MAX_WAIT": 3,
        "REP_REPORT": tmp_path / "report.html",
        "REP_DECISIONS": tmp_path / "decisions.jsonl",
        "DOWNLOAD_TIMEOUT": 3,
        "RETRY_ENABLED": False,
    }
    crawl = Crawl(tmp_path, [*bad, *started], settings).join(180)
    assert crawl.reason == "finished"
    assert {*started, *listed} - set(crawl.urls("page")) == set()
    assert "Traceback" not in crawl.log, crawl.log.partition("Traceback")[2][:2000]
    assert [f"{one.url} {one.detail}" for one in crawl.of("stall")] == []
    [memory] = crawl.of("memory")
    assert int(memory.detail) < 150
