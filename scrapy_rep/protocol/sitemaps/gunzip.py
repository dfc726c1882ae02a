"""Gzip by its magic number, whatever a name or a header says, unpacked piece by piece: a bomb is
as large as the caller lets it be, and takes no more time at once than any other file."""

from __future__ import annotations

import zlib
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC = b"\x1f\x8b\x08"

STEP = 32 * 1024
"""No piece that comes out is longer, in bytes: reading one takes about a millisecond."""

# A packed file that a server packs once more for the way, and a name for it. More is a joke.
_LAYERS = 3

# Members of one layer: a file of 50 MiB that was packed in blocks (bgzip) has 800. Empty ones cost
# time and give nothing.
_MAX_MEMBERS = 10_000

_GZIP = 31  # zlib's number for "with a gzip header"


class GunzipError(Exception):
    """The file is damaged, or a bomb. What was unpacked before that is good."""


def gunzip(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield a file, unpacked if it is packed, in pieces of no more than :data:`STEP` bytes. Some are
    empty: the caller has its turn after each step of work, whether that brought something or not.

    :param max_bytes: how much of the content the caller reads
    :raises GunzipError: after the last piece that can be unpacked
    """
    pieces = _evenly(pieces)
    for _ in range(_LAYERS):
        first = b""
        for piece in pieces:
            first += piece
            if len(first) >= len(MAGIC):
                break
            yield b""
        pieces = chain([first], pieces)
        if not first.startswith(MAGIC):
            break
        # What was packed is hardly longer than its content, unless it is a bomb.
        pieces = _layer(pieces, 2 * max_bytes + 2 * STEP)
    yield from pieces


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


def _layer(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
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
                    raise GunzipError(f"the gzip file has more than {_MAX_MEMBERS} members")
                decoder = zlib.decompressobj(_GZIP)
            try:
                out = decoder.decompress(data, STEP)
            except zlib.error as error:
                # Rubbish after the end of a member is no news: gunzip ignores it too.
                if members and not begun:
                    return
                raise GunzipError(f"broken gzip ({error})") from None
            begun = not decoder.eof
            full = begun and len(out) == STEP
            members += decoder.eof
            data = decoder.unconsumed_tail or decoder.unused_data.lstrip(b"\0")
            size += len(out)
            yield out
            if size > max_bytes:
                raise GunzipError(f"unpacked, it is longer than {max_bytes} bytes")
    if not decoder.eof:
        raise GunzipError("the gzip file ends too early")
