"""Unpacks gzip piece by piece, so that a bomb grows no larger, and blocks no longer, than any other
file. Its magic number tells gzip, not a name or a header."""

from __future__ import annotations

import zlib
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC = b"\x1f\x8b\x08"
# Bytes of the longest piece yielded. Reading one takes about a millisecond.
STEP = 8 * 1024
# Servers compress compressed files once more for transfer. More is a joke.
_LAYERS = 3
# Of one layer: 50 MiB packed in blocks (bgzip) have 800. Empty ones cost time and give nothing.
_MAX_MEMBERS = 10_000
_GZIP = 31  # zlib's code for gzip


class GunzipError(Exception):
    """The file is damaged, or a bomb. What was unpacked before is good."""


def gunzip(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield a file, unpacked if it is packed, in pieces of at most :data:`STEP` bytes. Steps that
    bring nothing yield an empty piece, so that the caller gets its turn.

    :param max_bytes: how many bytes the caller will read
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
        # Only a bomb's compressed form is much longer than its content.
        pieces = _layer(pieces, 2 * max_bytes + 2 * STEP)
    yield from pieces


def _evenly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut into pieces of :data:`STEP` bytes: what zlib and libxml2 make of a broken file depends on
    where it is cut."""
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
    """Unpack one layer, yielding at least once for each piece."""
    decoder = zlib.decompressobj(_GZIP)
    members = size = 0  # members: those that have ended
    begun = False
    for piece in pieces:
        data = piece.lstrip(b"\0") if decoder.eof else piece  # padding between members
        if not data:
            yield b""
        full = False
        # After a full piece there may be more to come without further input.
        while data or full:
            if decoder.eof:
                if members >= _MAX_MEMBERS:
                    raise GunzipError(f"the gzip file has more than {_MAX_MEMBERS} members")
                decoder = zlib.decompressobj(_GZIP)
            try:
                out = decoder.decompress(data, STEP)
            except zlib.error as error:
                # Like gunzip, ignore garbage after the end of a member.
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
                raise GunzipError(f"it unpacks to more than {max_bytes} bytes")
    if not decoder.eof:
        raise GunzipError("the gzip file is truncated")
