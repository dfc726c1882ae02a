"""Sitemaps made to hurt: each is read in pieces, so neither memory nor a single step is large."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest

from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.protocol.sitemaps import reader as unpack
from tests.helpers.sitemaps import BEFORE, GOOD, read

# Run in a process of its own: the peak of memory is that of all that was before.
MEASURE = """
import resource, sys, zlib
from scrapy_rep.protocol.sitemaps import SitemapReader
def peak():
    value = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return value / (1 << 20 if sys.platform == "darwin" else 1 << 10)
def measure(**limits):
    reader = SitemapReader(**limits)
    entries = sum(len(some) for some in reader.read(pieces()))
    print(peak() - before, reader.bytes, entries, reader.problem)
before = peak()
"""

MEBIBYTE = 1 << 20

LONG_LINE = f"""
def pieces():
    yield b"http://a.test/before\\nhttp://a.test/"
    piece = b"x" * {MEBIBYTE}
    for _ in range(256):
        yield piece
    yield b"\\nhttp://a.test/after\\n"
"""

# 10 MB that unpack to 10 GB.
GZIP_BOMB = f"""
packer = zlib.compressobj(9, zlib.DEFLATED, 31)
start = packer.compress(b"<urlset><url><loc>http://a.test/</loc></url>")
start += packer.flush(zlib.Z_FULL_FLUSH)
filler = packer.compress(b" " * (16 * {MEBIBYTE})) + packer.flush(zlib.Z_FULL_FLUSH)
def pieces():
    yield start
    for _ in range(640):
        yield filler
"""

ELEMENTS = """
def pieces():
    yield b"<urlset><url><loc>http://a.test/</loc></url>"
    piece = b"<a b='c'/>" * 10_000
    for _ in range(700):
        yield piece
"""

ONE_ENTRY = f"""
def pieces():
    yield b"<urlset><url><loc>http://a.test/"
    piece = b"x" * {MEBIBYTE}
    for _ in range(60):
        yield piece
"""


# Issue: 51 KB of gzip took 681 MB.
NESTED = """
def pieces():
    yield b"<urlset><url><loc>http://a.test/</loc></url><url>"
    piece = b"<a>" * 100_000
    for _ in range(8):
        yield piece
"""

NAMES = """
def pieces():
    yield b"<urlset><url><loc>http://a.test/</loc></url><url><loc>http://a.test/</loc>"
    for number in range(0, 1_000_000, 1_000):
        yield b"".join(b"<a%d/>" % (number + one) for one in range(1_000))
    yield b"</url></urlset>"
"""


# What makes the pieces, the reader's limits, then how many bytes are read at most, how many entries
# come of them, and what is said of the rest.
BOMBS = {
    "a long line": (LONG_LINE, f"max_bytes={1 << 40}", 300 * MEBIBYTE, "3", "None"),
    "a bomb of gzip": (GZIP_BOMB, "", 50 * MEBIBYTE, "1", "longer than 52428800"),
    "elements": (ELEMENTS, f"max_bytes={5 * MEBIBYTE}", 5 * MEBIBYTE, "1", "longer than 5242880"),
    "nested elements": (NESTED, "", 50 * MEBIBYTE, "1", "ends too early"),
    "names": (NAMES, "", 50 * MEBIBYTE, "2", "None"),
    "one entry": (ONE_ENTRY, f"max_bytes={10 * MEBIBYTE}", 10 * MEBIBYTE, "0", "longer than"),
}


@pytest.mark.process
def test_hostile_sitemaps_are_read_in_little_memory() -> None:
    code = MEASURE + "".join(
        f"{pieces}\nmeasure({limits})\n" for pieces, limits, *_ in BOMBS.values()
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split("\n")
    for (name, (*_, most_bytes, entries, problem)), line in zip(BOMBS.items(), lines, strict=True):
        megabytes, count, found, why = line.split(" ", 3)
        assert float(megabytes) < 30, name
        assert int(count) <= most_bytes, name
        assert found == entries, name
        assert problem in why, name


def test_a_bomb_comes_out_in_small_pieces() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(b"http://a.test/\n" * MEBIBYTE) + packer.flush()
    reader = SitemapReader(max_entries=1 << 30)
    sizes = []
    last = 0
    for _ in reader.read([packed]):
        sizes.append(reader.bytes - last)
        last = reader.bytes
    assert max(sizes) <= 64 * 1024
    assert len(sizes) > 100


def declared(entities: str, loc: str) -> str:
    return (
        f"<!DOCTYPE urlset [{entities}]>\n<urlset>"
        f"<url><loc>{loc}</loc><xhtml:link href='{loc}' xmlns:xhtml='x'/></url>{BEFORE}</urlset>"
    )


LAUGHS = "<!ENTITY l0 'lol'>" + "".join(
    f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 20)
)


@pytest.mark.parametrize(
    "body",
    [
        declared(LAUGHS, "http://a.test/&l19;"),
        declared("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "http://a.test/&x;"),
        declared("<!ENTITY x SYSTEM 'http://127.0.0.1:1/x'>", "http://a.test/&x;"),
        declared("<!ENTITY % x SYSTEM 'file:///etc/passwd'> %x;", "http://a.test/"),
    ],
    ids=["billion-laughs", "file", "http", "parameter"],
)
def test_entities_are_never_resolved(body: str) -> None:
    """A file that declares any is not read."""
    for data, step in [(body, unpack.STEP), (body, 1), (body.encode("utf-16"), unpack.STEP)]:
        reader, entries = read(data, step=step)
        assert entries == []
        assert reader.kind is None
        assert reader.problem == "it declares XML entities, which are not resolved"


def test_a_dtd_is_not_loaded() -> None:
    body = f'<!DOCTYPE urlset SYSTEM "http://127.0.0.1:1/x.dtd"><urlset>{BEFORE}</urlset>'
    reader, entries = read(body)
    assert [entry["loc"] for entry in entries] == GOOD
    assert reader.problem is None
