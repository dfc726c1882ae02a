"""Sitemaps made to hurt: each is read in pieces, so neither memory nor a single step is large."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import pairwise

import pytest

from scrapy_rep.protocol import sitemaps as unpack
from scrapy_rep.protocol.sitemaps import SitemapReader
from tests.protocol.reading import BEFORE, GOOD, read

MEBIBYTE = 1 << 20
ONE = b"<urlset><url><loc>http://a.test/</loc></url>"


def of_pieces(
    start: bytes, piece: bytes, times: int, end: bytes = b""
) -> Iterator[bytes]:
    yield start
    for _ in range(times):
        yield piece
    yield end


def gzip_bomb() -> Iterator[bytes]:
    """100 KB that unpack to 100 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = packer.compress(ONE) + packer.flush(zlib.Z_FULL_FLUSH)
    filler = packer.compress(b" " * MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return of_pieces(start, filler, 100)


def names() -> Iterator[bytes]:
    yield ONE + b"<url><loc>http://a.test/</loc>"
    for number in range(0, 20_000, 1_000):
        yield b"".join(b"<a%d/>" % (number + one) for one in range(1_000))
    yield b"</url></urlset>"


# Most bytes that are read; the file; how many entries come of it; what is said of the rest.
LONG = b"x" * (MEBIBYTE // 4)
BOMBS = {
    "a long line": (
        20 * MEBIBYTE, of_pieces(b"http://a.test/1\nhttp://a.test/", LONG, 40, b"\nhttp://a.test/2\n"),
        3, None,
    ),
    "a bomb of gzip": (5 * MEBIBYTE, gzip_bomb(), 1, "longer than 5242880 bytes: the rest is ignored"),
    "elements": (MEBIBYTE // 4, of_pieces(ONE, b"<a b='c'/>" * 1_000, 99), 1, "longer than 262144"),
    "nested elements": (MEBIBYTE, of_pieces(ONE + b"<url>", b"<a>" * 10_000, 7), 1, "ends too early"),
    "names": (MEBIBYTE, names(), 2, None),
    "comments": (MEBIBYTE, of_pieces(ONE + b"<url>", b"<!---->" * 10_000, 20), 1, "longer than"),
    "one entry": (MEBIBYTE, of_pieces(ONE + b"<url><loc>http://a.test/", LONG, 60), 1, "longer than"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_hostile_sitemaps_are_read_in_little_memory(name: str) -> None:
    max_bytes, pieces, count, problem = BOMBS[name]
    reader = SitemapReader(max_bytes=max_bytes)
    found = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for entries in reader.read(pieces):
            found += len(entries)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < MEBIBYTE
    assert reader.bytes <= max_bytes
    assert (found, problem or None) == (count, reader.problem and problem)
    assert (problem or "") in (reader.problem or "")


def test_a_bomb_comes_out_in_small_pieces() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(b"http://a.test/\n" * 50_000) + packer.flush()
    reader = SitemapReader()
    sizes = [0]
    for _ in reader.read([packed]):
        sizes.append(reader.bytes)
    assert max(later - size for size, later in pairwise(sizes)) <= 16 * 1024
    assert len(sizes) > 50


def declared(entities: str, loc: str) -> str:
    return (
        f"<!DOCTYPE urlset [{entities}]>\n<urlset>"
        f"<url><loc>{loc}</loc><xhtml:link href='{loc}' xmlns:xhtml='x'/></url>{BEFORE}</urlset>"
    )


LAUGHS = "<!ENTITY l0 'lol'>" + "".join(
    f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 20)
)
DECLARED = {
    "billion laughs": declared(LAUGHS, "http://a.test/&l19;"),
    "a file": declared("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "http://a.test/&x;"),
    "a page": declared(
        "<!ENTITY x SYSTEM 'http://127.0.0.1:1/x'>", "http://a.test/&x;"
    ),
    "a parameter": declared(
        "<!ENTITY % x SYSTEM 'file:///etc/passwd'> %x;", "http://a.test/"
    ),
}


@pytest.mark.parametrize("body", DECLARED.values(), ids=DECLARED)
def test_a_file_that_declares_entities_is_not_read(body: str) -> None:
    for data, step in [
        (body, unpack.STEP),
        (body, 1),
        (body.encode("utf-16"), unpack.STEP),
    ]:
        reader, entries = read(data, step=step)
        assert (entries, reader.kind) == ([], None)
        assert reader.problem == "it declares XML entities, which are not resolved"


def test_a_dtd_is_not_loaded() -> None:
    body = (
        f'<!DOCTYPE urlset SYSTEM "http://127.0.0.1:1/x.dtd"><urlset>{BEFORE}</urlset>'
    )
    reader, entries = read(body)
    assert [entry["loc"] for entry in entries] == GOOD
    assert reader.problem is None
