"""Gzip by its magic number, whatever a name or a header says, unpacked piece by piece: a bomb is
as large as the caller lets it be, and takes no more time at once than any other file."""

from __future__ import annotations

import zlib
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

MAGIC = b"\x1f\x8b\x08"

STEP = 32 * 1024
"""No piece that comes out is longer, in bytes: reading one takes about a millisecond."""

# A packed file that a server packs once more for the way, and a name for it. More is a joke.
_LAYERS = 3

# Members of one layer: a file of 50 MiB that was packed in blocks (bgzip) has 800. Empty ones cost
# time and give nothing.
_MAX_MEMBERS = 10_000

_GZIP = 31  # zlib's number for "with a gzip header"


class Unpacker:
    """Unpacks what is packed and leaves the rest as it is."""

    def __init__(self, max_bytes: int) -> None:
        """:param max_bytes: how much of the content the caller reads"""
        # Of each layer. What was packed is hardly longer than its content, unless it is a bomb.
        self._max_bytes = 2 * max_bytes + 2 * STEP
        self.problem: str | None = None
        """What was wrong with the packing, if anything: what came before that is good."""

    def unpack(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Return the content in pieces of no more than :data:`STEP` bytes. Some are empty: after
        each step of work the caller has its turn, whether that brought something or not."""
        rest = _evenly(pieces)
        for _ in range(_LAYERS):
            first = yield from _start(rest)
            rest = chain([first], rest)
            if not first.startswith(MAGIC):
                break
            rest = self._layer(rest)
        yield from rest

    def _layer(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Unpack one layer: a step of this one, or none, for each step of the layer around it."""
        decoder = zlib.decompressobj(_GZIP)
        members = size = 0  # members that have ended
        begun = False
        for piece in pieces:
            data = piece.lstrip(b"\0") if decoder.eof else piece  # padding between members
            if not data:
                yield b""
            full = False
            # A full piece may have left more behind without needing more input.
            while data or full:
                if decoder.eof:
                    if members >= _MAX_MEMBERS:
                        self._fail(f"the gzip file has more than {_MAX_MEMBERS} members")
                        return
                    decoder = zlib.decompressobj(_GZIP)
                try:
                    out = decoder.decompress(data, STEP)
                except zlib.error as error:
                    # Rubbish after the end of a member is no news: gunzip ignores it too.
                    if begun or not members:
                        self._fail(f"broken gzip ({error})")
                    return
                begun = not decoder.eof
                full = begun and len(out) == STEP
                if begun:
                    data = decoder.unconsumed_tail
                else:
                    members += 1
                    data = decoder.unused_data.lstrip(b"\0")
                size += len(out)
                yield out
                if size > self._max_bytes:
                    self._fail(f"unpacked, it is longer than {self._max_bytes} bytes")
                    return
        if not decoder.eof:
            self._fail("the gzip file ends too early")

    def _fail(self, problem: str) -> None:
        # What the inner layers say then follows from what the outer one said first.
        self.problem = self.problem or problem


def _start(pieces: Iterator[bytes]) -> Generator[bytes, None, bytes]:
    """Return the first bytes: enough of them to see what it is."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= len(MAGIC):
            break
        yield b""
    return first


def _evenly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same in pieces of :data:`STEP` bytes: where a broken file is cut decides how much zlib
    gives of it, and what libxml2 makes of it."""
    data = bytearray()
    for piece in pieces:
        for start in range(0, len(piece), STEP):
            data += piece[start : start + STEP]
            if len(data) >= STEP:
                yield bytes(data[:STEP])
                del data[:STEP]
    if data:
        yield bytes(data)
