"""REP.md section 9: what is wrong in a sitemap costs what it is in, and is told. One crawl of many
hosts, each with a sitemap that public reports are about."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from scrapy_rep.engine.resolution import registrable_domain
from scrapy_rep.engine.text import PageURLs
from scrapy_rep.seeding.discovery import Entries
from scrapy_rep.seeding.selection import entry_as_json
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import SeededSpider, pages, urlset

pytestmark = pytest.mark.slow

ON = {"REP_SITEMAPS": True}


def entries(*bodies: str) -> str:
    return f"<urlset>{''.join(f'<url>{body}</url>' for body in bodies)}</urlset>"


# The sitemap (its own site's URL is {}), the pages taken, and what the log says at WARNING.
TABLE: dict[str, tuple[str | bytes, list[str], str]] = {
    "surrogates": (
        entries("<loc>{}/1</loc><title>&#55357;&#56832;</title>", "<loc>{}/2</loc>"),
        ["/1", "/2"],
        "broken XML, line 1: &#55357; is no character",
    ),
    "an undeclared prefix": (
        entries("<loc>{}/1</loc><image:image><image:loc>{}/i</image:loc></image:image>"),
        ["/1"],
        "",
    ),
    "many errors": (
        entries(*["<loc>{}/caf&eacute;</loc>"] * 150, "<loc>{}/1</loc>"),
        ["/1"],
        "broken XML, line 1: Entity 'eacute' not defined",
    ),
    "mixed namespaces": (
        "<urlset xmlns='http://x'><url xmlns=''><loc>{}/1</loc></url></urlset>",
        ["/1"],
        "",
    ),
    "guid": ("<rss><channel><item><guid>{}/1</guid></item></channel></rss>", ["/1"], ""),
    "no sitemap": ("404 page not found", [], "most of its first lines are no URLs"),
    "relative URLs": (entries("<loc>/1</loc>"), [], "1 entry, 0 accepted; rejected: 1 not an absolute"),
    "nothing but damage": (entries("<loc>{}/<b>1</b></loc>"), [], "0 accepted; rejected: 1 damaged"),
    "nothing at all": ("<urlset/>", [], ""),
}  # fmt: skip


async def test_an_entry_counts_if_its_url_is_intact(sites: Sites) -> None:
    table = {name: sites.add() for name in TABLE}
    latin = sites.add(pages={"/plan-du-sit%E9.xml": "<urlset/>"})
    latin.set("/robots.txt", f"Sitemap: {latin.url('/plan-du-sit')}".encode() + b"\xe9.xml\n")
    for name, site in table.items():
        body = TABLE[name][0]
        assert isinstance(body, str)
        site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
        site.set("/map.xml", body.replace("{}", site.url("")))
    starts = [site.url("/start") for site in (*table.values(), latin)]
    result = await crawl(SeededSpider, ON, requests=starts)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                _, wanted, why = TABLE[name]
                found = [url for url in pages(result) if url.startswith(site.url("/"))]
                assert found == [site.url(path) for path in wanted]
                warned = lines(result, site.url("/map.xml"), level="WARNING")
                assert bool(warned) is bool(why)
                assert any(why in message for message in warned) or not why
    assert latin.count("/plan-du-sit%E9.xml") == 1
    assert result.stat("rep/sitemaps/rejected/broken") == 151
    assert result.stat("rep/sitemaps/nothing_taken") == 2
    assert result.stat("rep/sitemaps/failed") == 1
    result.assert_clean()


class MetaSpider(SeededSpider):
    sitemap_media = True
    kind = ""

    def sitemap_filter(self, entries: Any) -> Iterator[dict[str, Any]]:
        self.kind = entries.type
        for entry in entries:
            entry["mine"] = {"when": datetime(2026, 1, 2), "list": [1]}
            entry.pop("changefreq", None)
            yield entry


async def test_a_page_carries_its_entry_as_the_filter_left_it(sites: Sites) -> None:
    site = sites.add()
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    site.set(
        "/map.xml",
        entries(
            f"<loc>{site.url('/1')}</loc><lastmod>2026</lastmod><changefreq>daily</changefreq>"
            "<priority>0.5</priority><news:news><news:title>T</news:title></news:news>"
            "<image:image><image:loc>http://a.test/i</image:loc></image:image>"
            "<x:link rel='alternate' hreflang='de' href='http://a.test/de'/>"
            "<x:link rel='alternate' media='print' href='http://a.test/print'/>"
        ),
    )
    result = await crawl(MetaSpider, ON, requests=[site.url("/start")])
    [page] = [one for one in result.spider.responses if one.url.endswith("/1")]
    assert page.meta["rep_sitemap"] == {
        "sitemap": site.url("/map.xml"),
        "lastmod": "2026",
        "priority": "0.5",
        "news": {"title": "T"},
        "images": ["http://a.test/i"],
        "alternate": ["http://a.test/de", "http://a.test/print"],
        "hreflang": {"de": "http://a.test/de"},
        "mine": {"when": "2026-01-02 00:00:00", "list": [1]},
    }
    assert result.spider.kind == "urlset"  # type: ignore[attr-defined]
    result.assert_clean()


def test_what_a_page_carries_is_bounded() -> None:
    recursive: dict[str, Any] = {"loc": "x", "lastmod": "2026"}
    recursive["mine"] = recursive
    assert entry_as_json(recursive, 1) == '{"lastmod": "2026"}'
    long = {"loc": "x", "lastmod": "2026", "text": "x" * 70_000}
    assert entry_as_json(long, 1) == '{"lastmod": "2026"}'
    some = {"loc": "x", "text": "x" * 10_000}
    assert len(entry_as_json(some, 10)) > 10_000
    assert entry_as_json(some, 1_000) == "{}"


def test_what_a_filter_gets_is_an_iterator_with_a_type() -> None:
    some = Entries([{"loc": "1"}, {"loc": "2"}], "urlset")
    assert (next(some), some.type, list(some)) == ({"loc": "1"}, "urlset", [{"loc": "2"}])


@pytest.mark.parametrize("mode", ["strict", "site", "any"])
async def test_hosts_of_one_site(sites: Sites, mode: str) -> None:
    """Apex, www and other subdomains of one registrable domain; users of github.io are no site."""
    names = ["example.co.uk", "www.example.co.uk", "shop.example.co.uk", "other.co.uk"]
    apex, *others = [sites.add(name=name) for name in names]
    mine, yours = sites.add(name="me.github.io"), sites.add(name="you.github.io")
    apex.set("/robots.txt", f"Sitemap: {apex.url('/map.xml')}\n")
    mine.set("/robots.txt", f"Sitemap: {mine.url('/map.xml')}\n")
    apex.set("/map.xml", urlset([one.url("/page") for one in (apex, *others)]))
    mine.set("/map.xml", urlset([mine.url("/page"), yours.url("/page")]))
    settings = {**ON, "REP_SITEMAP_CROSS_HOST": mode}
    result = await crawl(SeededSpider, settings, requests=[apex.url("/start"), mine.url("/start")])
    taken = {
        "strict": [apex, mine],
        "site": [apex, *others[:2], mine],
        "any": [apex, *others, mine, yours],
    }
    assert pages(result) == sorted(one.url("/page") for one in taken[mode])
    result.assert_clean()


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.com", "example.com"),
        ("example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("me.github.io", "me.github.io"),
        ("www.xn--bcher-kva.example.de", "example.de"),
        *[
            (host, None)
            for host in ("127.0.0.1", "[::1]", "localhost", "com", "co.uk", "github.io")
        ],
    ],
)
def test_a_host_has_a_registrable_domain_or_none(host: str, domain: str | None) -> None:
    """Two hosts without any are never one site."""
    assert registrable_domain(host) == domain


async def test_a_sitemap_whose_entries_wait_in_vain_is_told(sites: Sites) -> None:
    """All of them are on a host that doesn't list it, say `www`."""
    apex, www = sites.add(name="example.com"), sites.add(name="www.example.com")
    apex.set("/robots.txt", f"Sitemap: {apex.url('/map.xml')}\nSitemap: {apex.url('/some.xml')}\n")
    apex.set("/map.xml", urlset([www.url(f"/{n}") for n in range(300)]))
    apex.set("/some.xml", urlset([apex.url("/y")]))
    result = await crawl(SeededSpider, ON, requests=[apex.url("/start")])
    assert pages(result) == [apex.url("/y")]
    [message] = lines(result, "Nothing was taken", level="WARNING")
    assert message == (
        f"Nothing was taken from sitemap {apex.url('/map.xml')}: its entries are on a host that "
        "does not list the sitemap"
    )
    assert result.stat("rep/sitemaps/nothing_taken") == 1
    result.assert_clean()


async def test_dates_that_nobody_can_read_are_counted(sites: Sites) -> None:
    site = sites.add()
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    dates = ["2024/05/08", "May 8, 2024", "20240508", "tomorrow", "2026-13-01", "2026-02-02"]
    dated = [
        f"<loc>{site.url(f'/{n}')}</loc><lastmod>{one}</lastmod>" for n, one in enumerate(dates)
    ]
    site.set("/map.xml", entries(*dated))
    settings = {**ON, "REP_SITEMAP_SINCE": "2026-01-01"}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert pages(result) == [site.url(f"/{n}") for n in (3, 4, 5)]
    assert result.stat("rep/sitemaps/rejected/old") == 3
    assert result.stat("rep/sitemaps/undated") == 2
    result.assert_clean()


def test_hosts_that_are_slow_to_encode_are_few() -> None:
    """A sitemap of 50,000 of them took 39 s."""
    urls, began, refused = PageURLs(), time.process_time(), 0
    for number in range(50_000):
        try:
            urls.resolve(f"http://{'é.' * 80}{number}/")
        except ValueError:
            refused += 1
    assert refused == 50_000
    assert time.process_time() - began < 5
    with pytest.raises(ValueError, match="too many hosts that aren't ASCII"):
        urls.encode("http://bücher.example/")  # of an index
    # Those of one host cost one encoding.
    urls = PageURLs()
    assert urls.resolve("http://bücher.example/ä?ö#x") == (
        "http://xn--bcher-kva.example/%C3%A4?%C3%B6",
        "http://xn--bcher-kva.example",
    )
