"""REP.md section 9: an entry counts if its URL is intact. Damage elsewhere costs the text that it is
in, damage within `loc` the page, and neither ends the file."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from scrapy_rep.protocol.sitemaps import Kind
from scrapy_rep.protocol.sitemaps import reader as unpack
from tests.helpers.sitemaps import NAMESPACE, read

LOC = "<loc>http://a.test/p</loc>"
SURROGATES = "&#55357;&#56832;"

# Each stands in an entry beside its `loc`.
ELSEWHERE = {
    "an undeclared prefix": "<image:image><image:loc>http://a.test/i.png</image:loc></image:image>",
    "an undeclared prefix of an attribute": "<x:mobile y:z='1'/>",
    "an HTML entity": "<title>x&nbsp;y&rsquo;</title>",
    "a control character": "<title>x\x01y</title>",
    "a NUL": "<title>x\0y</title>",
    "a pair of surrogates": f"<title>{SURROGATES}</title>",
    "half a pair": "<title>&#xD83D;</title>",
    "no character": "<title>&#x110000;&#0;&#99999999;</title>",
    "an end tag is missing": "<title>x",
    "one tag is missing within another": "<title>x<b>y</title>",
    "a start tag is missing": "x</title>",
    "tags cross": "<b>x<i>y</b>z</i>",
    "a tag that HTML doesn't close": "<br>",
    "a sign": "<title>1 < 2</title>",
    "an ampersand": "<title>x & y &co</title>",
    "a quote is missing": "<title lang='en>x</title>",
    "no quotes": "<title lang=en>x</title>",
    "an attribute twice": "<title a='1' a='2'>x</title>",
    "a tag is cut": "<title",
    "CDATA's end": "<title>x]]></title>",
    "a comment within": "<title>x<!-- y -- z -->y</title>",
    "a NUL in a name": "<ti\0tle>x</title>",
    "lastmod": "<lastmod>2026-01-\x0231</lastmod>",
    "an alternate": "<l:link rel='alternate' href='http://a.test/&eacute;'/>",
}


@pytest.mark.parametrize("damage", ELSEWHERE.values(), ids=ELSEWHERE)
def test_damage_elsewhere_costs_that_text_only(damage: str) -> None:
    next_ = "<url><loc>http://a.test/next</loc><lastmod>2026</lastmod></url>"
    for one, step in product((damage + LOC, LOC + damage), (unpack.STEP, 1)):
        body = f"<urlset xmlns='{NAMESPACE}'><url>{one}</url>{next_}</urlset>"
        found, last = read(body, step=step)[1]
        assert found["loc"] == "http://a.test/p"
        assert not {"broken", "lastmod", "alternate"} & set(found)
        assert last == {"loc": "http://a.test/next", "lastmod": "2026"}
        assert not {"\x01", "\0"} & set("".join(found.values()))


WITHIN = {
    "an element": "http://a.test/<b>x</b>1",
    "an empty element": "http://a.test/<br/>1",
    "an HTML entity": "http://a.test/caf&eacute;",
    "a control character": "http://a.test/\x01",
    "a NUL": "http://a.test/\0",
    "a pair of surrogates": f"http://a.test/{SURROGATES}",
    "no character": "http://a.test/&#0;",
    "no UTF-8": b"http://a.test/caf\xe9",
    "no UTF-8, in CDATA": b"<![CDATA[http://a.test/caf\xe9]]>",
    "an end tag": "http://a.test/</b>x",
    "another end tag": "http://a.test/</lastmod>",
    "its end tag is missing": "http://a.test/x<lastmod>2026</lastmod></url><url>",
    "a sign": "http://a.test/?1<2",
    "CDATA's end": "http://a.test/]]>",
    "a text without end": "http://a.test/" + "x" * 70_000,
}


@pytest.mark.parametrize("damage", WITHIN.values(), ids=WITHIN)
def test_damage_within_loc_costs_that_page_only(damage: str | bytes) -> None:
    """However many there are: libxml2 is silent after 100 errors."""
    loc = damage if isinstance(damage, bytes) else damage.encode()
    many = 3 if len(loc) > 1000 else 150
    bad, good = b"<url><loc>" + loc + b"</loc></url>", b"<url><loc>http://a.test/good</loc></url>"
    for root in (b"<urlset>", b"<urlset xmlns='x'>"):
        reader, entries = read(root + (bad + good) * many + b"</urlset>")
        sound = [entry["loc"] for entry in entries if not entry.get("broken") and entry.get("loc")]
        assert sound == ["http://a.test/good"] * many
        assert sum(entry.get("broken", False) for entry in entries) == many
        assert (reader.problem or "").startswith("broken XML, line 1: ")


@pytest.mark.parametrize(
    ("encoding", "data"), [("utf-16", b"\xff\xfe"), ("gbk", b""), ("shift_jis", b"")]
)
def test_bytes_that_are_no_text_in_other_encodings(encoding: str, data: bytes) -> None:
    bad = b"\x00\xd8" if data else b"\xff"
    head = f"<?xml version='1.0' encoding='{encoding}'?><urlset><url><loc>http://a.test/"
    tail = "</loc></url><url><loc>http://a.test/good</loc></url></urlset>"
    codec = "utf-16-le" if data else encoding
    _, entries = read(data + head.encode(codec) + bad + tail.encode(codec))
    assert [entry.get("broken") for entry in entries] == [True, None]


def test_an_entry_is_not_lost_with_what_is_around_it() -> None:
    """Rubbish between entries, a second root, an end tag too many."""
    one = "<url><loc>http://a.test/1</loc></url>"
    rubbish = "\x01 < & &nbsp;|</url></x>|<url>|<!-- x -->|<?php x ?>|<![CDATA[<]]>|</urlset>"
    rubbish += "|</urlset><urlset>|<a|<!x>|<!|<a b='|<url/>|<url></url>"
    for some in rubbish.split("|"):
        _, entries = read(f"<urlset>{one}{some}{one}</urlset>")
        assert [entry.get("loc") for entry in entries] == ["http://a.test/1"] * 2, some


MIXED = {
    "none on the entry": f"<urlset xmlns='{NAMESPACE}'><url xmlns=''>{LOC}</url></urlset>",
    "none on the root": f"<urlset><url xmlns='{NAMESPACE}'>{LOC}</url></urlset>",
    "another scheme": f"<urlset xmlns='{NAMESPACE}'><url xmlns='{NAMESPACE.replace('http', 'https')}'>"
    f"{LOC}</url></urlset>",
    "a prefix on the root": f"<s:urlset xmlns:s='{NAMESPACE}'><url>{LOC}</url></s:urlset>",
    "a prefix on the entry": f"<urlset xmlns:s='{NAMESPACE}'><s:url>{LOC}</s:url></urlset>",
    "a prefix on the URL": f"<urlset xmlns:s='{NAMESPACE}'><url><s:loc>http://a.test/p</s:loc></url>"
    "</urlset>",
    "an undeclared prefix": "<ns0:urlset><ns1:url><ns2:loc>http://a.test/p</ns2:loc></ns1:url>"
    "</ns0:urlset>",
    "an index": f"<sitemapindex xmlns='x'><sitemap xmlns='y'>{LOC}</sitemap></sitemapindex>",
    "a channel of RSS": "<rss><channel xmlns='http://a.test/ns'><item><link>http://a.test/p</link>"
    "</item></channel></rss>",
    "an item of RSS": "<rss><channel><item xmlns='x'><link>http://a.test/p</link></item></channel></rss>",
    "Atom without any": "<feed><entry><link href='http://a.test/p'/></entry></feed>",
}


def test_namespaces_that_are_missing_wrong_or_mixed() -> None:
    for name, body in MIXED.items():
        reader, entries = read(body)
        found = [entry["loc"] for entry in entries]
        assert (found, reader.problem) == (["http://a.test/p"], None), name


FOREIGN = [
    "<image:loc>http://a.test/i</image:loc>",
    "<x:loc xmlns:x='http://www.google.com/schemas/sitemap-video/1.1'>http://a.test/i</x:loc>",
    "<image><loc>http://a.test/i</loc></image>",
]


def test_a_loc_of_an_extension_is_no_page() -> None:
    for foreign in FOREIGN:
        for children, loc in {
            foreign + LOC: "http://a.test/p",
            LOC + foreign: "http://a.test/p",
            foreign: None,
        }.items():
            for entry in read(f"<urlset><url>{children}</url></urlset>")[1]:
                assert entry.get("loc") == loc, foreign


ITEMS: list[tuple[str, str | None]] = [
    ("<guid>http://a.test/p</guid>", "http://a.test/p"),
    ("<guid isPermaLink='true'>http://a.test/p</guid>", "http://a.test/p"),
    ("<guid isPermaLink='false'>http://a.test/p</guid><title>x</title>", None),
    ("<guid>http://a.test/g</guid><link>http://a.test/p</link>", "http://a.test/p"),
    ("<link/><guid>http://a.test/p</guid>", "http://a.test/p"),
    ("<atom:link href='http://a.test/a'/><link>http://a.test/p</link>", "http://a.test/p"),
    (
        "<link xmlns='http://www.w3.org/2005/Atom' href='x'/><link>http://a.test/p</link>",
        "http://a.test/p",
    ),
]


def test_items_of_rss_without_a_link() -> None:
    for item, loc in ITEMS:
        [entry] = read(f"<rss><channel><item>{item}</item></channel></rss>")[1]
        assert entry.get("loc") == loc, item


def test_what_extensions_say() -> None:
    body = (
        f"<urlset xmlns='{NAMESPACE}'><url>{LOC}<news:news><news:publication><news:name>N</news:name>"
        "<news:language>en</news:language></news:publication><news:title>A &amp; B</news:title></news:news>"
        "<image:image><image:loc> http://a.test/1.png </image:loc><image:title>x</image:title></image:image>"
        "<image:image><image:loc><![CDATA[http://a.test/?2&3]]></image:loc></image:image>"
        "<video:video><video:content_loc>http://a.test/v</video:content_loc></video:video></url></urlset>"
    )
    news = {"name": "N", "language": "en", "title": "A & B"}
    [entry] = read(body)[1]
    assert entry == {"loc": "http://a.test/p", "news": news}
    reader, [entry] = read(body, media=True)
    assert entry == {
        "loc": "http://a.test/p",
        "news": news,
        "images": ["http://a.test/1.png", "http://a.test/?2&3"],
        "videos": ["http://a.test/v"],
    }
    assert reader.problem is None


def test_elements_with_names_of_ours() -> None:
    names = ("alternate", "broken", "hreflang", "images", "news", "videos")
    children = "".join(f"<{name}>x</{name}><{name}><a>x</a></{name}>" for name in names)
    link = "<x:link hreflang='de' href='http://a.test/de'/><news:news><news:title>x</news:title></news:news>"
    [entry] = read(f"<urlset><url>{children}{link}{LOC}</url></urlset>", media=True)[1]
    assert (entry["loc"], entry["alternate"]) == ("http://a.test/p", ["http://a.test/de"])
    assert "broken" not in entry


TEXTS: dict[str, str | None] = {
    "http://a.test/1\nhttp://a.test/2": None,
    "# mine\n# all of it\nhttp://a.test/1": None,
    "HTTPS://a.test/1": None,
    "404 page not found": "it is text",
    '{"urls": ["http://a.test/1"]}': "it is text",
    "Notice: Undefined index in /x.php on line 3\n": "it is text",
    "Allow: /\nDisallow: /x\nSitemap: http://a.test/": "it is text",
    "/a\n/b\n": "it is text",
}


def test_a_text_is_a_sitemap_if_its_first_lines_are_urls() -> None:
    for (text, problem), encoding in product(TEXTS.items(), ("utf-8", "utf-16")):
        reader, entries = read(text.encode(encoding))
        assert reader.kind is (None if problem else Kind.TEXT)
        assert bool(entries) is (problem is None)
        assert (reader.problem or "").startswith(problem or "")


def test_a_line_that_is_no_utf_8_is_percent_encoded() -> None:
    entries: list[dict[str, Any]] = read(b"http://a.test/caf\xe9/\xc3\xa9\n")[1]
    assert entries == [{"loc": "http://a.test/caf%E9/é"}]


def test_encodings_that_are_none() -> None:
    for name in ("zlib_codec", "unicode_escape", "utf-7", "idna", "x-none", "rot13"):
        head = f"<?xml version='1.0' encoding='{name}'?>"
        reader, entries = read(f"{head}<urlset><url>{LOC}</url></urlset>")
        assert [entry["loc"] for entry in entries] == ["http://a.test/p"], name
        assert reader.kind is Kind.URLSET
