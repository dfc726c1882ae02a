"""Bytes that try to block the event loop or hide what follows: work is counted, not timed."""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from typing import Any

import pytest

from scrapy_rep.origins import answer
from scrapy_rep.origins.answer import decode
from scrapy_rep.protocol import sitemaps as unpack
from scrapy_rep.protocol.availability import is_soft_404
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from tests.helpers.rows import every_row
from tests.helpers.timing import TIMES, assert_linear
from tests.protocol.reading import BEFORE, GOOD, read

EMPTY = gzip.compress(b"", mtime=0)
MEBIBYTE = 1 << 20


def locs(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["loc"] for entry in entries]


@pytest.mark.slow
def test_comments_that_a_sitemap_begins_with() -> None:
    small, large = (b"<!---->" * count for count in (2, 2 * TIMES))
    assert_linear(*(lambda text=text: read(text) for text in (small, large)))


@pytest.mark.parametrize(
    "start", ["<!---->", "<!-- a -->\n", "<!---->\n<!--> -->\t<!-- - -->"]
)
def test_what_follows_comments_tells_what_it_is(start: str) -> None:
    reader, entries = read(start + "<!DOCTYPE  html><title>x")
    assert (reader.problem, entries) == ("it is an HTML page, not a sitemap", [])
    reader, entries = read(f"{start}<urlset><!-- --><html/>{BEFORE}</urlset>")
    assert (reader.kind, locs(entries)) == (Kind.URLSET, GOOD)


def attributes(count: int, value: str = "''") -> str:
    return " ".join(f"a{number}={value}" for number in range(count))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_attributes_of_one_tag(encoding: str) -> None:
    with every_row() as row:
        for value in ("''", "'>'", "\t''"):
            with row(value):
                body = (
                    f"<urlset>{BEFORE}<a {attributes(20_000, value)}>{BEFORE}</urlset>"
                )
                _, entries = read(body.encode(encoding))
                assert locs(entries) == [*GOOD, *GOOD]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_attributes_that_are_declared(encoding: str) -> None:
    declared = "".join(f"<!ATTLIST b a{number} CDATA 'x'>" for number in range(1_000))
    body = f"<!DOCTYPE urlset [{declared}]><urlset>{BEFORE}{'<b/>' * 1_000}</urlset>"
    for step in (unpack.STEP, 1):
        reader, entries = read(body.encode(encoding), step=step)
        assert (locs(entries), reader.problem) == (GOOD, None)


MANY = "&" * 1_000_000
MEANT = [f"http://a.test/?{'&a=b' * 20}&{number}" for number in range(1_000)]
# What stands in a <urlset>, the URLs that are found, and the problem.
BODIES: dict[str, tuple[str, list[str], str]] = {
    "attributes of many tags": (
        f"{BEFORE}{f'<a {attributes(1_000)}/>' * 100}",
        GOOD,
        "",
    ),
    "text of any length is not kept": (f"<x>{'x = ' * MEBIBYTE}</x>{BEFORE}", GOOD, ""),
    "CDATA without an end": (f"{'<![CDATA[' * 1000}&]]>{BEFORE}", GOOD, ""),
    "ampersands that are meant": (
        "".join(f"<url><loc>{u}</loc></url>" for u in MEANT),
        MEANT,
        "",
    ),
    "nothing but ampersands": (
        f"<url><loc>http://a.test/{MANY}</loc></url>{BEFORE}<x>{MANY}</x>",
        GOOD,
        "an entry is longer than 262144 characters",
    ),
}


def test_what_is_read_of_long_bodies() -> None:
    with every_row() as row:
        for name, (body, urls, problem) in BODIES.items():
            with row(name):
                reader, entries = read(f"<urlset>{body}{BEFORE}</urlset>")
                assert locs([one for one in entries if not one.get("broken")]) == [
                    *urls,
                    *GOOD,
                ]
                told = reader.problem or ""
                assert problem in told if problem else not told


ENDS_LATE = [
    *(("<!--", "x", "-->"), ("<!--", "<b/>", "-->"), ("<?a ", "<b/>", "?>")),
    *(("<![CDATA[", "<b/>", "]]>"), ("<a x='", "<b/>", "'/>"), ("</urlset", " ", ">")),
    # A sitemap that is commented out.
    (
        "<!--",
        "<url><loc>http://a.test/?old=1&amp;x=2</loc><x y='z' a='b'/></url>\n",
        "-->",
    ),
]


def test_what_takes_long_to_end() -> None:
    with every_row() as row:
        for start, filling, end in ENDS_LATE:
            with row(start + filling):
                many = filling * (MEBIBYTE // len(filling))
                _, entries = read(
                    f"<urlset>{BEFORE}{start}{many}{end}{BEFORE}</urlset>"
                )
                assert locs(entries) == [*GOOD, *GOOD]


def test_children_of_one_entry() -> None:
    children = "".join(f"<c{number}/>" for number in range(20_000))
    links = "<x:link href='http://a.test/a'/>" * 20_000
    reader, [entry] = read(
        f"<urlset xmlns:x='x'><url><loc>http://a.test/</loc>{links}{children}</url></urlset>"
    )
    assert entry["loc"] == "http://a.test/"
    assert len(entry["alternate"]) <= 10_000
    assert "an entry is longer than 262144 characters" in str(reader.problem)


class ZlibSpy:
    """Stands for the `zlib` of a module, and counts."""

    error = zlib.error

    def __init__(self) -> None:
        self.streams = self.calls = 0

    def decompressobj(self, wbits: int) -> Any:
        self.streams += 1
        return _Stream(zlib.decompressobj(wbits), self)


class _Stream:
    def __init__(self, stream: Any, spy: ZlibSpy) -> None:
        self._stream, self._spy = stream, spy

    def decompress(self, *arguments: Any) -> bytes:
        self._spy.calls += 1
        return bytes(self._stream.decompress(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def in_steps(
    data: bytes, monkeypatch: pytest.MonkeyPatch, **limits: int
) -> tuple[Any, int, int]:
    """Read a sitemap: the reader, how many steps it took, and how much was unpacked in one."""
    spy = ZlibSpy()
    monkeypatch.setattr(unpack, "zlib", spy)
    reader = SitemapReader(**limits)
    steps = most = last = 0
    for _ in reader.read([data]):
        steps += 1
        most, last = max(most, spy.calls - last), spy.calls
    return reader, steps, max(most, spy.calls - last)


def repeated(piece: bytes, times: int, start: bytes = b"") -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = piece * 10_000
    packed = packer.compress(start) + b"".join(
        packer.compress(block) for _ in range(times)
    )
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


TOO_MUCH = f"it unpacks to more than {2 * (MEBIBYTE + unpack.STEP)} bytes"
# Of bombs: the limit in bytes, if it isn't the usual one, what is told, and the steps that it takes.
STEPS: list[tuple[str, dict[str, int], str | None, range]] = [
    *((name, {}, None, range(101, 1 << 30)) for name in ("members of members", "a layer of zeros")),
    *((name, {}, None, range(101, 1 << 30)) for name in ("blocks", "blocks three deep")),
    *((name, {"max_bytes": MEBIBYTE}, TOO_MUCH, range(400)) for name in ("blocks", "blocks three deep")),
    ("members", {}, "the gzip file has more than 10000 members", range(101, 11_000)),
]  # fmt: skip


def test_layers_that_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has its turn, however deep the layer is that is worked on; and they have a limit."""
    with every_row() as row:
        for name, limits, problem, wanted in STEPS:
            with row(f"{name} {limits}"):
                reader, steps, most = in_steps(bombs()[name], monkeypatch, **limits)
                assert most <= 4
                assert steps in wanted
                assert reader.count == 0
                assert problem is None or reader.problem == problem
    text = b"".join(
        gzip.compress(f"http://a.test/{n}\n".encode()) for n in range(5_000)
    )
    reader, entries = read(text)
    assert (len(entries), reader.problem) == (5_000, None)


def test_packed_files_of_the_largest_size_are_read_as_before() -> None:
    """Both layers: the inner one is no longer than its content, which the limit is for."""
    packed = gzip.compress(gzip.compress(f"<urlset>{BEFORE}</urlset>".encode(), 0), 0)
    size = len(f"<urlset>{BEFORE}</urlset>")
    reader, entries = read(packed, max_bytes=size)
    assert (locs(entries), reader.problem, reader.bytes) == (GOOD, None, size)


def test_members_of_a_robots_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = ZlibSpy()
    monkeypatch.setattr(answer, "zlib", spy)
    assert decode(EMPTY * 25_600, "gzip") == (b"", True)
    assert spy.streams <= 100
    some = [gzip.compress(b"Disallow: /%d\n" % number) for number in range(50)]
    assert decode(b"\0".join(some), "gzip")[0].count(b"\n") == 50


X500 = b"x" * 500
BLANKS = b" " * 500
HEADINGS = {
    b"<h2 class='a'>not\nfound</H3 >": True,
    b"<h1>" + X500[4:] + b" 404</h1>": False,
    b"<h1>" + BLANKS[3:] + b"404</h1>": True,
    b"<h1>" + BLANKS[2:] + b"404</h1>": False,
    b"<h1 " + X500[1:] + b">404</h1>": True,
    b"<h1 " + X500 + b">404</h1>": False,
    b"<h10>404</h1>": False,
    b"<h1><a href='404'>here</a></h1>": False,
    b"<h1>4<b>04</h1>": False,
    b"<title></title><title>404</title>": False,
    b"<title>" + BLANKS[3:] + b"404</title>": True,
    b"<title>" + BLANKS + b" 404</title>": False,
}


def test_headings_are_read_as_before() -> None:
    assert {page: is_soft_404(page) for page in HEADINGS} == HEADINGS
