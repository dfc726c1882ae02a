"""Sitemaps of any kind, in whatever pieces they come."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.entries import MAX_ELEMENT_TEXT
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.text import Encoder
from tests.fuzz.strategies import damaged, split
from tests.helpers.sitemaps import atom, index, rss, urlset
from tests.helpers.timing import in_a_slice, in_slices

pytestmark = pytest.mark.slow
URLS = ["http://a.example/?a=1&b=2", "https://b.example/ä", "http://a.example/3"]
PLAIN = [
    *(make(URLS).encode() for make in (urlset, index, rss, atom, "\n".join)),
    urlset(URLS, "2024-05-06T07:08:09+02:00").encode("utf-16"),
    "\r\n".join(URLS).encode("utf-16"),
    b"<urlset><url><loc><![CDATA[http://a.example/?a&b]]></loc><lastmod>2024</lastmod></url></urlset>",
    b"<urlset><url><loc>http://a.example/?a&b&amp;c&eacute;</loc></url>",
    b"<?xml version='1.0' encoding='latin-1'?><urlset xmlns:x='y'><url><x:loc>z</x:loc></url></urlset>",
    b"<urlset><url><loc>\xe4</loc><link rel='alternate' hreflang='de' href='/d'/></url></urlset>",
    b"<!-- x --><!DOCTYPE urlset [<!ELEMENT urlset ANY>]><urlset/>",
    b"\xef\xbb\xbf<!-- <html> --><html><loc>http://a.example/</loc></html>",
    b"",
]
WORDS = [
    *(b"<", b">", b"</", b"/>", b"&", b";", b"&amp;", b"&#38;", b"&#x0;", b"&x;", b'"', b"=", b" "),
    *(b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?", b"?>", b"<!DOCTYPE a [", b"<!ENTITY a 'b'>"),
    *(b"<url>", b"</url>", b"<loc>", b"</loc>", b"<urlset>", b"</urlset>", b"<item>", b"<link>"),
    *(b"<lastmod>", b"<a b='c'>", b"<a>", b"</a>", b"<sitemap>", b"<entry>", b" a='b'", b"xmlns='x'"),
    *(b"\0", b"\n", b"\r", b"\xff", b"\xfe", b"\xef\xbb\xbf", b"\x1b[m", b"\xe2\x80\xae", b"]]"),
    *(b"http://a.example/x\n", b"<!ATTLIST", b"<html", b"encoding='utf-16'", b"<x:loc xmlns:x='y'>"),
]  # fmt: skip
PACKED = [gzip.compress(plain, mtime=0) for plain in PLAIN]
PACKED += [
    gzip.compress(PACKED[0]),
    PACKED[1][:60] + PACKED[1][60:],
    PACKED[2] + b"\0" + PACKED[3],
]
PACKED += [gzip.compress(b"<url><loc>http://a.example/</loc></url>" * 50_000)]
SITEMAPS = (
    damaged(PLAIN, WORDS)
    | damaged(PLAIN, WORDS, 2_000)
    | damaged(PACKED, [b"\x1f\x8b\x08"])
)
Entries = list[dict[str, Any]]


def read(pieces: list[bytes], **limits: int) -> tuple[Entries, SitemapReader]:
    readers: list[SitemapReader] = []

    def steps() -> Iterator[Entries]:
        readers[:] = [SitemapReader(**limits)]
        return readers[0].read(pieces)

    return [entry for some in in_slices(steps) for entry in some], readers[0]


def outcome(pieces: list[bytes]) -> tuple[Any, ...]:
    entries, reader = read(pieces)
    return entries, reader.kind, reader.problem, reader.count, reader.bytes


@given(SITEMAPS, st.integers(0, 99))
def test_a_sitemap_has_entries_and_a_kind_or_a_problem(data: bytes, most: int) -> None:
    """What is kept of it is text that can be stored and sent; limits cut it off."""
    entries, reader = read([data])
    assert reader.count == len(entries)
    assert reader.kind is not None or (reader.problem and not entries)
    assert len(reader.problem or "") < 400
    assert read([data], max_entries=most)[0] == entries[:most]
    some, reader = read([data], max_bytes=50 * most)
    assert len(some) <= reader.bytes <= 50 * most
    for entry in entries:
        assert entry.pop("broken", True) is True
        for name, value in entry.items():
            values = [*value, *value.values()] if isinstance(value, dict) else value
            for text in [name, value] if isinstance(value, str) else [name, *values]:
                assert len(text) <= MAX_ELEMENT_TEXT
                text.encode()


# zlib gives what is in front of an error only if it was asked for that before.
CUT_SHORT = b"\x1f\x8b\x08\0\0\0\0\0\2" + PACKED[0]


@given(SITEMAPS, st.lists(st.integers(0, 1 << 20), max_size=5))
@example(CUT_SHORT, [12])
@example(
    b"\n" + "http://a.example/".encode("utf-16"), []
)  # its mark is not the first thing
def test_the_pieces_that_a_sitemap_comes_in_make_no_difference(
    data: bytes, places: list[int]
) -> None:
    assert outcome(split(data, places)) == outcome([data])


LOCS = damaged(
    [b"http://a.example/x?y=z", "https://exämple.com/ä".encode(), b"//a/b", b"x", b"ftp://a/"],
    [b"http://", b"/", b"\\", b"@", b":", b"[", b"]", b"?", b"#", b"%", b" ", b"\n", b"\x1b", b".",
     b"\xff", "\ufdfa".encode(), "\u3002".encode(), "\u202e".encode(), b"..", b"xn--", b"'"],
    100_000,
)  # fmt: skip
# Each of these letters stands for 18.
LONG_HOST = ("http://" + "\ufdfa" * 1300).encode()


@pytest.mark.python  # URLs are read by the standard library
@given(LOCS)
@example(LONG_HOST)
@example(b"http://" + b"." * 300 + b"/")
@example(b"http://a.example:99999/")
def test_pages_of_any_kind(loc: bytes) -> None:
    text = loc.decode("utf-8", "surrogateescape").strip()
    try:
        url, start = in_a_slice(lambda: Encoder().page_and_prefix(text))
    except ValueError:
        return
    assert url.isascii()
    assert Request(url).url.startswith(("http://", "https://"))
    assert Origin.from_url(start).scheme in ("http", "https")


@given(st.lists(LOCS, max_size=5))
@example([LONG_HOST])
@example([rb"http://a\[.example/"])
def test_lines_of_any_kind(lines: list[bytes]) -> None:
    host = Origin.from_url("http://a.example")
    robots = RobotsTxt.parse(b"".join(b"Sitemap: " + line + b"\n" for line in lines))
    steps = in_slices(lambda: listed_sitemaps(host.robots_url, robots.sitemaps))
    found = [(one.url, str(one.origin)) for _, one in steps if one is not None]
    for url, place in found:
        assert str(Origin.from_url(url)) == place
