"""Bytes made to keep the event loop: what is read of them at once, and in all, has a limit.

Asserted are growth, counts and sizes, never seconds.
"""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.http import Headers, Response

from scrapy_rep.origins import body
from scrapy_rep.origins.body import (
    MAX_HEADER,
    NotCredible,
    content_encodings,
    decode,
    header_text,
)
from scrapy_rep.origins.fetcher import redirect_target
from scrapy_rep.protocol import sitemaps as unpack
from scrapy_rep.protocol import syntax
from scrapy_rep.protocol.availability import says_not_found
from scrapy_rep.protocol.freshness import fresh_seconds
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from tests.helpers.rows import every_row
from tests.helpers.sitemaps import BEFORE, GOOD, read
from tests.helpers.timing import TIMES, assert_linear, seconds

EMPTY = gzip.compress(b"", mtime=0)


def locs(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["loc"] for entry in entries]


# Comments before the first element of a sitemap


@pytest.mark.slow
def test_comments_that_a_sitemap_begins_with() -> None:
    small, large = (b"<!---->" * count for count in (2, 2 * TIMES))
    assert_linear(*(lambda text=text: read(text) for text in (small, large)))


@pytest.mark.parametrize("start", ["<!---->", "<!-- a -->\n", "<!---->\n<!--> -->\t<!-- - -->"])
def test_what_follows_comments_tells_what_it_is(start: str) -> None:
    reader, entries = read(start + "<!DOCTYPE  html><title>x")
    assert (reader.problem, entries) == ("it is an HTML page, not a sitemap", [])
    reader, entries = read(f"{start}<urlset>{BEFORE}</urlset>")
    assert (reader.kind, locs(entries)) == (Kind.URLSET, GOOD)


def test_a_page_within_the_first_comment_is_none() -> None:
    reader, entries = read(f"<!-- a --><urlset><!-- --><html/>{BEFORE}</urlset>")
    assert (reader.kind, locs(entries)) == (Kind.URLSET, GOOD)


# Headers


def fresh(value: str) -> float:
    return fresh_seconds(value, None, default=1, minimum=0, maximum=1e9)


@pytest.mark.slow
@pytest.mark.parametrize("pump", ["max-age={}", "max-age{}", 'max-age="{}', "max-age=1{}x"])
def test_blanks_in_cache_control(pump: str) -> None:
    small, large = (pump.format(" " * size) for size in (2_000, 2_000 * TIMES))
    assert_linear(*(lambda value=value: fresh(value) for value in (small, large)))


def test_max_age_is_read_as_before() -> None:
    read_as = {
        'max-age = " 60 "': 60,
        'max-age="60"': 60,
        "max-age =\t60": 60,
        "max-age= 60": 60,
        'max-age=""60': 1,
        "max-age=60x": 1,
    }
    assert {value: fresh(value) for value in read_as} == read_as


def test_no_header_is_longer_than_it_may_be() -> None:
    long = b"max-age=1" + b" " * MAX_HEADER
    assert header_text(Headers({"Cache-Control": long}), "Cache-Control") is None
    assert header_text(Headers({"Age": b"1" * 20_000}), "Age") is None
    half = MAX_HEADER // 2 - 1
    some = Headers({"Age": [b"1" * half, b"2" * half]})
    assert len(header_text(some, "Age") or "") == MAX_HEADER - 1
    some.appendlist("Age", b"3")
    assert header_text(some, "Age") is None
    assert header_text(None, "Age") is None


@pytest.mark.python
def test_a_location_that_is_too_long_leads_nowhere() -> None:
    long = "http://b.test/" + "x" * 8_000
    for location, target in {
        long: long,
        long + "x" * 200: None,
        b"http://" + b"x" * 3_000_000: None,
        b"http://" + b"\xe4." * 4_000: None,
        b"http://" + b" " * 20_000 + b"x": None,
    }.items():
        response = Response("http://a.test/robots.txt", headers={"Location": location})
        assert redirect_target("http://a.test/robots.txt", response) == target


# Gzip


class Spy:
    """Stands for the `zlib` of a module, and counts."""

    error = zlib.error

    def __init__(self) -> None:
        self.streams = self.calls = 0

    def decompressobj(self, wbits: int) -> Any:
        self.streams += 1
        return _Stream(zlib.decompressobj(wbits), self)


class _Stream:
    def __init__(self, stream: Any, spy: Spy) -> None:
        self._stream, self._spy = stream, spy

    def decompress(self, *arguments: Any) -> bytes:
        self._spy.calls += 1
        return bytes(self._stream.decompress(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def in_steps(data: bytes, monkeypatch: pytest.MonkeyPatch, **limits: int) -> tuple[Any, int, int]:
    """Read a sitemap: the reader, how many steps it took, and how much was unpacked in one."""
    spy = Spy()
    monkeypatch.setattr(unpack, "zlib", spy)
    reader = SitemapReader(**limits)
    steps = most = last = 0
    for _ in reader.read([data]):
        steps += 1
        most, last = max(most, spy.calls - last), spy.calls
    return reader, steps, max(most, spy.calls - last)


def repeated(piece: bytes, times: int, start: bytes = b"") -> bytes:
    """Gzip of very much."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = piece * 10_000
    packed = packer.compress(start) + b"".join(packer.compress(block) for _ in range(times))
    return packed + packer.flush()


@cache
def bombs() -> dict[str, bytes]:
    # The header of a gzip file and blocks that hold nothing: 50 KB an entry.
    nothing = repeated(b"\0\0\0\xff\xff", 1_000, start=EMPTY[:10])
    return {
        "members": EMPTY * 50_000,
        "members of members": repeated(EMPTY, 10),
        "blocks": nothing,
        "blocks three deep": gzip.compress(nothing),
        "a layer of zeros": gzip.compress(repeated(b"\0" * 100, 20, start=EMPTY)),
    }


def test_layers_that_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has its turn, however deep the layer is that is worked on."""
    with every_row() as row:
        for name, bomb in bombs().items():
            with row(name):
                reader, steps, most = in_steps(bomb, monkeypatch)
                assert most <= 4
                assert steps > 100
                assert reader.count == 0


def test_the_layers_within_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("blocks", "blocks three deep"):
        reader, steps, _ = in_steps(bombs()[name], monkeypatch, max_bytes=1 << 20)
        assert reader.problem == f"it unpacks to more than {2 * ((1 << 20) + unpack.STEP)} bytes"
        assert steps < 400


def test_members_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, steps, _ = in_steps(bombs()["members"], monkeypatch)
    assert reader.problem == "the gzip file has more than 10000 members"
    assert steps < 11_000
    text = b"".join(gzip.compress(f"http://a.test/{n}\n".encode()) for n in range(5_000))
    reader, entries = read(text)
    assert (len(entries), reader.problem) == (5_000, None)


def test_packed_files_of_the_largest_size_are_read_as_before() -> None:
    """Both layers: the inner one is no longer than its content, which the limit is for."""
    packed = gzip.compress(gzip.compress(f"<urlset>{BEFORE}</urlset>".encode(), 0), 0)
    size = len(f"<urlset>{BEFORE}</urlset>")
    reader, entries = read(packed, max_bytes=size)
    assert (locs(entries), reader.problem, reader.bytes) == (GOOD, None, size)


def test_members_of_a_robots_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy()
    monkeypatch.setattr(body, "zlib", spy)
    assert decode(EMPTY * 25_600, "gzip") == (b"", True)
    assert spy.streams <= 100
    some = [gzip.compress(b"Disallow: /%d\n" % number) for number in range(50)]
    assert decode(b"\0".join(some), "gzip")[0].count(b"\n") == 50


@pytest.mark.scrapy_api
def test_encodings_have_a_limit() -> None:
    def encodings(*values: str) -> list[str]:
        return content_encodings(Headers({"Content-Encoding": list(values)}))

    assert encodings(" GZIP,identity", "deflate, ,br") == ["gzip", "deflate", "br"]
    assert encodings("gzip, gzip", "gzip", *["identity"] * 100, "gzip,gzip") == ["gzip"] * 5
    for values in (["gzip"] * 6, ["gzip, " * 2_000], ["identity, " * 2_000]):
        with pytest.raises(NotCredible):
            encodings(*values)


# Pages


@pytest.mark.alone
@pytest.mark.parametrize("piece", [b"<h1>", b"<h1></h1", b"<h1></h1 ", b"<h1>x<b>"])
def test_headings_without_end(piece: bytes) -> None:
    """As many as there is room for."""
    small, large = (piece * (size // len(piece)) for size in (8_000, 8_000 * TIMES))
    assert_linear(*(lambda page=page: says_not_found(page) for page in (small, large)))
    assert_steps_are_few(piece * (65_536 // len(piece)))


def assert_steps_are_few(page: bytes) -> None:
    """Not 500 for each heading: as quick as to look for the word in so many copies of the page."""
    plain = min(seconds(lambda: says_not_found(b" " * len(page))) for _ in range(10))
    assert min(seconds(lambda: says_not_found(page)) for _ in range(10)) < 100 * plain


X500 = b"x" * 500
BLANKS = b" " * 500
HEADINGS = {
    b"<h1>404</h1>": True,
    b"<h1>" + BLANKS + b"<h2 class='a'>not\nfound</H3 >": True,
    b"<h1>" + X500[4:] + b" 404</h1>": False,
    b"<h1>" + BLANKS[3:] + b"404</h1>": True,
    b"<h1>" + BLANKS[2:] + b"404</h1>": False,
    b"<h1>fine</h1><h1>404</h1>": False,
    b"<h1 " + X500[1:] + b">404</h1>": True,
    b"<h1 " + X500 + b">404</h1>": False,
    b"<h1 " + X500 + b"<h1>404</h1>": True,
    b"<h10>404</h1>": False,
    b"<h1><a href='404'>here</a></h1>": False,
    b"<h1>does <b>not</b> exist</h1>": True,
    b"<h1>4<b>04</h1>": False,
    b"<title lang=en>404": True,
    b"<title " + X500 + b"><title>not found": True,
    b"<title></title><title>404</title>": False,
    b"<title>" + BLANKS[3:] + b"404</title>": True,
    b"<title>" + BLANKS + b" 404</title>": False,
}


def test_headings_are_read_as_before() -> None:
    assert {page: says_not_found(page) for page in HEADINGS} == HEADINGS


# Lines


def test_lines_that_begin_with_no_field_are_left_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """250,000 of them fit into a file."""
    taken = []
    split = syntax._BLANK.split
    blank = SimpleNamespace(split=lambda line: taken.append(line) or split(line))
    monkeypatch.setattr(syntax, "_BLANK", blank)
    rows = ["a", "D", "D x", "all", "allo w", "\tu x", "sit emap", "disallow /x", "allow\t/y"]
    assert list(syntax.read(rows)) == [(8, 0, "/x"), (9, 1, "/y")]
    assert taken == rows[-2:]
