"""REP.md section 9: sitemaps that can't be fetched, or are none, and those made to hurt. None is
lost without a word, none keeps the crawl open, none is a traceback."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.helpers.behaviours import answer, gzip_bomb, redirect, reset
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Hit, Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, pages, urlset

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

ON = {"REP_SITEMAPS": True, "RETRY_TIMES": 1}


def listing(site: Site, *paths: str) -> None:
    site.set("/robots.txt", "".join(f"Sitemap: {site.url(path)}\n" for path in paths))


async def seeded(*sites: Site, settings: dict[str, Any] | None = None) -> CrawlResult:
    starts = [site.url("/start") for site in sites]
    result = await crawl(SeededSpider, {**ON, **(settings or {})}, requests=starts)
    result.assert_clean()
    assert result.stat("rep/sitemaps/waiting") == 0
    return result


FAILURES: dict[str, tuple[Any, str]] = {
    "404": (404, "HTTP 404"),
    "410": (410, "HTTP 410"),
    "500": (500, "HTTP 500"),
    "503": (503, "HTTP 503"),
    "reset": (reset(), "onnection"),
    "html": (answer("<!doctype html><title>Not found", type="text/html"), "an HTML page"),
    "html-as-xml": (answer("<html><body>x</body></html>", type="text/xml"), "an HTML page"),
    "empty": (answer(""), "it is empty"),
    "empty-gzip": (answer(gzip.compress(b"")), "it is empty"),
    "binary": (answer(b"\x89PNG\r\n\0\0\0"), "neither XML nor text"),
    "other-xml": (answer("<opml/>"), "root element is <opml>"),
    "redirect-without-end": (redirect("/map.xml"), "another component dropped its request"),
    "forbidden": (answer("never asked"), "Forbidden by robots.txt (line 3: Disallow: /map"),
}


async def test_a_sitemap_that_fails_does_not_stop_the_others(sites: Sites) -> None:
    """A word in the log, a number in the stats; the other sitemap is read all the same."""
    table = {name: sites.add(pages={"/map.xml": FAILURES[name][0]}) for name in FAILURES}
    for name, site in table.items():
        site.set("/good.xml", urlset([site.url("/page")]))
        listing(site, "/map.xml", "/good.xml")
        if name == "forbidden":
            first, second = (f"Sitemap: {site.url(path)}" for path in ("/map.xml", "/good.xml"))
            site.set("/robots.txt", f"User-agent: *\n{first}\nDisallow: /map\n{second}")
    result = await seeded(*table.values())
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                found = [url for url in pages(result) if url.startswith(site.url("/"))]
                assert found == [site.url("/page")]
                level = "INFO" if name == "forbidden" else "WARNING"
                [message] = lines(result, "was not read: ", site.url("/map.xml"), level=level)
                assert message.startswith(f"Sitemap {site.url('/map.xml')} was not read: ")
                assert FAILURES[name][1] in message
    assert result.stat("rep/sitemaps/failed") == len(table)
    assert result.stat("rep/sitemaps/fetched") == len(table)
    assert len(lines(result, "was not read: ", level=None)) == len(table)
    assert lines(result, "", level="ERROR") == []


async def test_what_precedes_broken_xml_counts(sites: Sites) -> None:
    """What comes before the break, and a warning."""
    site = sites.add()
    wanted = [site.url(f"/{n}") for n in range(20)]
    site.set("/map.xml", urlset(wanted).removesuffix("</urlset>") + "<url><loc>http://x/cu")
    listing(site, "/map.xml")
    result = await seeded(site)
    assert pages(result) == sorted(wanted)
    [message] = lines(result, "broken XML", level="WARNING")
    assert message.startswith(f"Sitemap {site.url('/map.xml')}: broken XML, line 2")


async def test_a_gzip_bomb_is_read_up_to_the_limit(sites: Sites) -> None:
    """Under either layer of gzip: what comes before the limit counts."""
    site = sites.add()
    start = f"<urlset><url><loc>{site.url('/page')}</loc></url>".encode()
    site.set("/encoded.xml", gzip_bomb(start, 80))
    packed = gzip.compress(start + b" " * (80 << 20))
    site.set("/packed.gz", answer(packed))
    site.set("/long.xml", answer(start + b" " * 300_000))
    listing(site, "/encoded.xml", "/packed.gz", "/long.xml")
    # A site that ends the transfer of what is too long says nothing of the sort.
    result = await seeded(site, settings={"REP_SITEMAP_MAX_BYTES": 100_000})
    assert pages(result) == [site.url("/page")]
    assert len(lines(result, "longer than 100000 bytes", level="WARNING")) == 3
    assert result.stat("rep/sitemaps/fetched") == 3


async def test_a_sitemap_that_declares_entities_is_not_read(sites: Sites) -> None:
    site = sites.add()
    laughs = "<!ENTITY l0 'lol'>" + "".join(
        f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 12)
    )
    for path, declared in (
        ("/laughs.xml", laughs),
        ("/file.xml", "<!ENTITY l11 SYSTEM '/etc/passwd'>"),
    ):
        site.set(
            path,
            f"<!DOCTYPE urlset [{declared}]><urlset><url><loc>{site.url('/')}&l11;</loc></url></urlset>",
        )
    listing(site, "/laughs.xml", "/file.xml")
    result = await seeded(site)
    assert pages(result) == []
    assert len(lines(result, "was not read: it declares XML entities", level="WARNING")) == 2


async def test_an_index_that_lists_itself_and_its_parent(sites: Sites) -> None:
    site = sites.add()
    site.set("/index.xml", index([site.url("/index.xml"), site.url("/child.xml")]))
    site.set("/child.xml", index([site.url(path) for path in ("/index.xml", "/child.xml", "/m")]))
    site.set("/m", urlset([site.url("/page")]))
    listing(site, "/index.xml", "/child.xml")
    result = await seeded(site)
    assert pages(result) == [site.url("/page")]
    for path in ("/index.xml", "/child.xml", "/m"):
        assert site.count(path) == 1
    assert result.stat("rep/sitemaps/rejected/known") == 4


async def test_indexes_nested_without_end(sites: Sites) -> None:
    """10,000 levels: each lists the next."""
    site = sites.add()

    async def next_level(hit: Hit, connection: Any) -> None:
        level = int(hit.target.partition("?")[2])
        urls = [site.url(f"/index?{level + 1}")] if level < 10_000 else [site.url("/never")]
        await answer(index(urls))(hit, connection)

    site.set("/index", next_level)
    listing(site, "/index?1")
    result = await seeded(site)
    assert site.count("/index") == 5
    assert result.stat("rep/sitemaps/rejected/depth") == 1
    assert (
        "1 nested deeper than REP_SITEMAP_MAX_DEPTH"
        in lines(result, "?5 (sitemapindex)", level=None)[0]
    )
    result = await seeded(site, settings={"REP_SITEMAP_MAX_DEPTH": 50})
    assert result.stat("rep/sitemaps/fetched") == 50


async def test_an_index_of_very_many_indexes(sites: Sites) -> None:
    """As many as REP_SITEMAP_MAX_FILES says, then no more."""
    site = sites.add()
    many = [site.url(f"/index?{n}") for n in range(10_000)]

    async def leaf(hit: Hit, connection: Any) -> None:
        await answer(index([site.url(f"/map?{hit.target.partition('?')[2]}"), *many[:5]]))(
            hit, connection
        )

    site.set("/root", index(many))
    site.set("/index", leaf)
    site.set("/map", urlset([site.url("/page")]))
    listing(site, "/root")
    result = await seeded(site, settings={"REP_SITEMAP_MAX_FILES": 300})
    assert site.count("/index") + site.count("/map") == 299
    assert result.stat("rep/sitemaps/rejected/limit") >= 10_000 - 299
    result.assert_clean()


LOCS = {
    "/a b": "/a%20b",
    "  /stripped\n ": "/stripped",
    "/?a=1&amp;b=2": "/?a=1&b=2",
    "<![CDATA[/?c=1&d=2]]>": "/?c=1&d=2",
    "/k\u00e4se": "/k%C3%A4se",
    "/fragment#x": "/fragment",
}
NO_LOCS = [
    "/relative",
    "relative",
    "//a.test/x",
    "javascript:alert(1)",
    "mailto:a@b.test",
    "ftp://a.test/x",
    "http://",
    "http://[",
    "http://a.test:99999/",
    "",
    "http://a.test/" + "x" * 10_000,
]


async def test_locs_are_decoded_or_counted_as_invalid(sites: Sites) -> None:
    """Decoded, stripped, encoded as Scrapy does; what is no absolute http(s) URL is counted."""
    site = sites.add()
    root = site.url("")
    good = [
        value.replace("<![CDATA[", "<![CDATA[" + root)
        if "CDATA" in value
        else value.replace("/", root + "/", 1)
        for value in LOCS
    ]
    items = "".join(f"<url><loc>{value}</loc></url>" for value in [*NO_LOCS, *good])
    site.set("/map.xml", f"<urlset>{items}<url><lastmod>2026</lastmod></url></urlset>")
    listing(site, "/map.xml")
    result = await seeded(site)
    assert pages(result) == sorted(site.url(path) for path in LOCS.values())
    assert result.stat("rep/sitemaps/rejected/invalid") == len(NO_LOCS) + 1
    [message] = lines(result, "accepted")
    assert message.endswith(f"; rejected: {len(NO_LOCS) + 1} not an absolute http(s) URL")


async def test_text_with_nonsense(sites: Sites) -> None:
    site = sites.add()
    text = "\n".join(["# my pages", site.url("/page"), "nonsense", "x" * 100_000])
    site.set("/map.txt", text)
    listing(site, "/map.txt")
    result = await seeded(site)
    assert pages(result) == [site.url("/page")]
    assert result.stat("rep/sitemaps/rejected/invalid") == 3


async def test_limits_of_urls(sites: Sites) -> None:
    site = sites.add()
    site.set("/a.xml", urlset([site.url(f"/a{n}") for n in range(30)]))
    site.set("/b.xml", urlset([site.url(f"/b{n}") for n in range(30)]))
    listing(site, "/a.xml", "/b.xml")
    result = await seeded(site, settings={"REP_SITEMAP_MAX_URLS": 10})
    assert len(pages(result)) == 20
    assert len(lines(result, "more than 10 entries: the rest is ignored", level="WARNING")) == 2
    result = await seeded(site, settings={"REP_SITEMAP_MAX_ORIGIN_URLS": 40})
    assert len(pages(result)) == 40
    assert result.stat("rep/sitemaps/rejected/limit") == 20
    result = await seeded(site, settings={"REP_SITEMAP_MAX_FILES": 1})
    assert len(pages(result)) == 30
    assert len(lines(result, "has reached REP_SITEMAP_MAX_FILES", level="WARNING")) == 1


async def test_several_name_the_same_sitemap(sites: Sites) -> None:
    """Other sites' robots.txt, other pages of the crawl, and the spider itself."""
    site = sites.add()
    others = [sites.add(robots=f"Sitemap: {site.url('/map.xml')}\n") for _ in range(3)]
    listing(site, "/map.xml", "/map.xml")
    wanted = [site.url("/page"), *[other.url("/page") for other in others]]
    site.set("/map.xml", urlset(wanted))
    starts = [one.url(path) for one in (site, *others) for path in ("/start", "/x/start")]
    result = await crawl(SeededSpider, ON, requests=[*starts])
    assert pages(result) == sorted(wanted)
    assert site.count("/map.xml") == 1
    result.assert_clean()
    # The spider's own request for it is the spider's: it is asked for once more to be read.
    result = await crawl(SeededSpider, ON, requests=[site.url("/start"), site.url("/map.xml")])
    assert [url for url in pages(result) if url != site.url("/map.xml")] == sorted(wanted)
    result.assert_clean()
