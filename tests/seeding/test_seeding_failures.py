"""REP.md section 9: what is wrong in a sitemap costs what it is in, and is told in a word."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.text import MAX_LISTED_IDN, Encoder
from tests.helpers.behaviours import RULES, answer, encoded, gzip_bomb, redirect, reset
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Hit, Sites
from tests.helpers.sitemaps import (
    SeededSpider,
    index,
    listing,
    lists,
    pages,
    seeded,
    urlset,
)

pytestmark = pytest.mark.slow


def entries(*bodies: str) -> str:
    return f"<urlset>{''.join(f'<url>{body}</url>' for body in bodies)}</urlset>"


# What a file can be instead of a sitemap: tests/protocol/test_sitemaps.py.
FAILURES: dict[str, tuple[Any, str]] = {
    "404": (404, "HTTP 404"),
    "503": (503, "HTTP 503"),
    "reset": (reset(), "onnection"),
    "html": (
        answer("<!doctype html><title>Not found", type="text/html"),
        "an HTML page",
    ),
    "redirect-without-end": (
        redirect("/map.xml"),
        "another component dropped its request (IgnoreRequest: max redirections reached)",
    ),
    "forbidden": (
        answer("never asked"),
        "Forbidden by robots.txt (line 3: Disallow: /map",
    ),
}


@pytest.mark.scrapy_api
async def test_a_sitemap_that_fails_does_not_stop_the_others(sites: Sites) -> None:
    table = {
        name: sites.add(pages={"/map.xml": FAILURES[name][0]}) for name in FAILURES
    }
    for name, site in table.items():
        lists(site, "/map.xml", "/good.xml").set(
            "/good.xml", urlset([site.url("/page")])
        )
        if name == "forbidden":
            first, second = (
                f"Sitemap: {site.url(path)}" for path in ("/map.xml", "/good.xml")
            )
            site.set("/robots.txt", f"User-agent: *\n{first}\nDisallow: /map\n{second}")
    result = await seeded(*table.values(), RETRY_TIMES=1)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                found = [url for url in pages(result) if url.startswith(site.url("/"))]
                assert found == [site.url("/page")]
                level = "INFO" if name == "forbidden" else "WARNING"
                [message] = lines(
                    result, "was not read: ", site.url("/map.xml"), level=level
                )
                assert message.startswith(
                    f"Sitemap {site.url('/map.xml')} was not read: "
                )
                assert FAILURES[name][1] in message
    counts = [result.stat(f"rep/sitemaps/{name}") for name in ("failed", "fetched")]
    assert counts == [len(table)] * 2
    assert lines(result, "", level="ERROR") == []


# A sitemap (its own site's URL is {}), the pages taken of it, and what the log says at WARNING.
DAMAGED: dict[str, tuple[str, list[str], str]] = {
    "cut": (
        urlset(["{}/1", "{}/2"]).removesuffix("</urlset>") + "<url><loc>http://x/cu",
        ["/1", "/2"],
        ": broken XML, line 5",
    ),
    "relative": (entries("<loc>/1</loc>"), [], "1 entry, 0 accepted; rejected: 1 not an absolute"),
    "nothing but damage": (
        entries("<loc>{}/<b>1</b></loc>"), [], "0 accepted; rejected: 1 damaged"
    ),
    "nothing at all": ("<urlset/>", [], ""),
    "text with nonsense": ("# my pages\n{}/1\nnonsense\n" + "x" * 100_000, ["/1"], ""),
}  # fmt: skip


async def test_an_entry_counts_if_its_url_is_intact(sites: Sites) -> None:
    table = {name: lists(sites.add(), "/map.xml") for name in DAMAGED}
    latin = sites.add(pages={"/plan-du-sit%E9.xml": "<urlset/>"})
    latin.set(
        "/robots.txt", f"Sitemap: {latin.url('/plan-du-sit')}".encode() + b"\xe9.xml\n"
    )
    for name, site in table.items():
        site.set("/map.xml", DAMAGED[name][0].replace("{}", site.url("")))
    result = await seeded(*table.values(), latin)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                _, wanted, why = DAMAGED[name]
                found = [url for url in pages(result) if url.startswith(site.url("/"))]
                assert found == [site.url(path) for path in wanted]
                warned = lines(result, site.url("/map.xml"), level="WARNING")
                assert bool(warned) is bool(why)
                assert any(why in message for message in warned) or not why
    assert latin.count("/plan-du-sit%E9.xml") == 1
    names = ("nothing_taken", "failed", "rejected/broken", "rejected/invalid")
    assert [result.stat(f"rep/sitemaps/{name}") for name in names] == [2, 0, 1, 4]


LOCS = {
    "  http://a.test/a b\n ": "http://a.test/a%20b",
    "http://a.test/k\u00e4se": "http://a.test/k%C3%A4se",
    "http://a.test/fragment#x": "http://a.test/fragment",
    "http://a.test:59999/": "http://a.test:59999/",
    "http://b\u00fccher.example/\u00e4?\u00f6#x": "http://xn--bcher-kva.example/%C3%A4?%C3%B6",
    **dict.fromkeys(
        ["/relative", "//a.test/x", "javascript:alert(1)", "ftp://a.test/x", "http://"]
    ),
    **dict.fromkeys(
        ["http://[", "http://a.test:65536/", "", "http://a.test/" + "x" * 10_000]
    ),
}


def test_locs_are_encoded_or_invalid() -> None:
    encode = Encoder(MAX_LISTED_IDN)
    for value, url in LOCS.items():
        if url is None:
            with pytest.raises(ValueError):
                encode.page_and_prefix(value)
        else:
            assert encode.page_and_prefix(value) == (url, "/".join(url.split("/")[:3]))
    # Hosts that are slow to encode are few: a sitemap of 50,000 of them took 39 s.
    encode = Encoder(MAX_LISTED_IDN)
    for number in range(500):
        with pytest.raises(ValueError):
            encode.page_and_prefix(f"http://{'é.' * 80}{number}/")
    with pytest.raises(ValueError, match="too many hosts that aren't ASCII"):
        encode("http://bücher.example/")  # of an index


async def test_a_gzip_bomb_is_read_up_to_the_limit(sites: Sites) -> None:
    site = lists(sites.add(), "/encoded.xml", "/packed.gz", "/long.xml")
    start = f"<urlset><url><loc>{site.url('/page')}</loc></url>".encode()
    site.set("/encoded.xml", gzip_bomb(start, 16))
    site.set("/packed.gz", answer(gzip.compress(start + b" " * (16 << 20))))
    site.set("/long.xml", answer(start + b" " * 300_000))
    # A site that ends the transfer of what is too long says nothing of the sort.
    result = await seeded(site, _REP_SITEMAP_MAX_BYTES=100_000)
    assert pages(result) == [site.url("/page")]
    assert len(lines(result, "longer than 100000 bytes", level="WARNING")) == 3
    assert result.stat("rep/sitemaps/fetched") == 3


async def test_indexes_without_end(sites: Sites) -> None:
    site, loop = (
        lists(sites.add(), "/index?1"),
        lists(sites.add(), "/index.xml", "/child.xml"),
    )

    async def next_level(hit: Hit, connection: Any) -> None:
        level = int(hit.target.partition("?")[2])
        await answer(index([site.url(f"/index?{level + 1}")]))(hit, connection)

    site.set("/index", next_level)
    loop.set("/index.xml", index([loop.url("/index.xml"), loop.url("/child.xml")]))
    # And one more twice.
    children = ("/index.xml", "/child.xml", "/m", "/m")
    loop.set("/child.xml", index([loop.url(path) for path in children]))
    loop.set("/m", urlset([loop.url("/page")]))
    result = await seeded(site, loop)
    assert pages(result) == [loop.url("/page")]
    assert [loop.count(path) for path in ("/index.xml", "/child.xml", "/m")] == [
        1,
        1,
        1,
    ]
    assert result.stat("rep/sitemaps/rejected/known") == 5
    assert site.count("/index") == 5
    assert result.stat("rep/sitemaps/rejected/depth") == 1
    [message] = lines(result, "?5 (sitemapindex)", level=None)
    assert "1 nested too deep" in message
    result = await seeded(site, _REP_SITEMAP_MAX_DEPTH=12)
    assert result.stat("rep/sitemaps/fetched") == 12


async def test_limits_of_urls_and_files(sites: Sites) -> None:
    site = lists(sites.add(), "/a.xml", "/b.xml")
    for name in ("a", "b"):
        site.set(f"/{name}.xml", urlset([site.url(f"/{name}{n}") for n in range(9)]))
    result = await seeded(site, _REP_SITEMAP_MAX_URLS=3)
    assert len(pages(result)) == 6
    assert (
        len(lines(result, "more than 3 entries: the rest is ignored", level="WARNING"))
        == 2
    )
    result = await seeded(site, _REP_SITEMAP_MAX_ORIGIN_URLS=12)
    assert len(pages(result)) == 12
    assert result.stat("rep/sitemaps/rejected/limit") == 6
    result = await seeded(site, _REP_SITEMAP_MAX_FILES=1)
    assert len(pages(result)) == 9
    assert len(lines(result, "has too many sitemaps", level="WARNING")) == 1

    async def leaf(hit: Hit, connection: Any) -> None:
        listed = [site.url(f"/map?{hit.target.partition('?')[2]}"), *many[:5]]
        await answer(index(listed))(hit, connection)

    many = [site.url(f"/index?{n}") for n in range(2_000)]
    lists(site, "/root").set("/root", index(many))
    site.set("/index", leaf)
    site.set("/map", urlset([site.url("/page")]))
    result = await seeded(site, _REP_SITEMAP_MAX_FILES=40)
    assert site.count("/index") + site.count("/map") == 39
    assert result.stat("rep/sitemaps/rejected/limit") >= 2_000 - 39


BROKEN: dict[str, Any] = {
    "/br.xml": encoded(b"<urlset>", "br"),
    "/deflate.xml": encoded(b"<urlset>" * 9, "deflate"),
    "/port.xml": redirect("http://127.0.0.1:99999/"),
    "/loop.xml": redirect("/loop.xml"),
}


async def test_no_site_writes_errors_into_the_log_by_our_requests(sites: Sites) -> None:
    """Nor a traceback: one line says why each sitemap was not read. What a file names as user and password
    is sent to nobody."""
    site = sites.add()
    named = site.url("/named.xml").replace("http://", "http://me:hunter2@")
    lists(site, *BROKEN, "/users.xml")
    site.set(
        "/robots.txt", listing(*map(site.url, BROKEN), site.url("/users.xml"), named)
    )
    for path, behaviour in BROKEN.items():
        site.set(path, behaviour)
    users = [
        site.url("/a").replace("//", "//u@"),
        site.url("/b").replace("//", "//u:hunter2@"),
    ]
    site.set("/users.xml", urlset(users))
    site.set("/named.xml", urlset([site.url("/c")]))
    result = await seeded(site)
    assert pages(result) == [site.url("/a"), site.url("/b"), site.url("/c")]
    for record in result.records:
        assert record.levelname not in ("ERROR", "CRITICAL"), record.getMessage()
        assert record.exc_info is None
        assert "hunter2" not in record.getMessage()
    for path in BROKEN:
        assert len(lines(result, "was not read", site.url(path), level="WARNING")) == 1
    assert all(hit.header("Authorization") is None for hit in site.requests)


@pytest.mark.parametrize("where", ["rep_sitemaps", "request"])
async def test_passwords_stand_nowhere(
    sites: Sites, tmp_path: Path, where: str
) -> None:
    """Neither in our log lines, nor in the record or the report."""
    site = sites.add(RULES)
    secret = "http://me:hunter2@" + site.url("/private").removeprefix("http://")

    class NamesSecret(SeededSpider):
        rep_sitemaps = [secret] if where == "rep_sitemaps" else True

    record, report = tmp_path / "record.jsonl", tmp_path / "report.html"
    settings = {"REP_DECISIONS": str(record), "REP_REPORT": str(report)}
    starts = (
        [] if where == "rep_sitemaps" else [secret, secret.replace("private", "page")]
    )
    result = await crawl(NamesSecret, settings, requests=starts)
    ours = [one for one in result.records if one.name.startswith("scrapy_rep")]
    texts = [one.getMessage() + (one.exc_text or "") for one in ours]
    texts += [record.read_text(), report.read_text()]
    assert [
        text[max(0, text.index("hunter2") - 150) :][:200]
        for text in texts
        if "hunter2" in text
    ] == []
    assert "/private" in record.read_text()
    if where == "rep_sitemaps":
        [warning] = lines(result, "are not sent", level="WARNING")
        assert "http://me:***@" in warning
