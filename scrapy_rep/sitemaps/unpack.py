"""Gzip by its magic number, whatever a name or a header says, unpacked piece by piece: a bomb is
as large as the caller lets it be."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC = b"\x1f\x8b\x08"

STEP = 32 * 1024
"""No piece that comes out is longer, in bytes: reading one takes about a millisecond."""

# A packed file that a server packs once more for the way, and a name for it. More is a joke.
_LAYERS = 3

_GZIP = 31  # zlib's number for "with a gzip header"


class Unpacker:
    """Unpacks what is packed and leaves the rest as it is."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """What was wrong with the packing, if anything: what came before that is good."""

    def unpack(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Return the content in pieces of no more than :data:`STEP` bytes."""
        for _ in range(_LAYERS):
            pieces, first = _peek(pieces)
            if not first.startswith(MAGIC):
                break
            pieces = self._layer(pieces)
        yield from _small(pieces)

    def _layer(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        decoder = zlib.decompressobj(_GZIP)
        members = 0
        begun = False
        for piece in _small(pieces):
            data = piece
            while data:
                if decoder.eof:
                    members += 1
                    data = data.lstrip(b"\0")  # padding between members
                    if not data:
                        break
                    decoder = zlib.decompressobj(_GZIP)
                try:
                    out = decoder.decompress(data, STEP)
                except zlib.error as error:
                    # Rubbish after the end of a member is no news: gunzip ignores it too.
                    if begun or not members:
                        self.problem = f"broken gzip ({error})"
                    return
                begun = not decoder.eof
                data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if out:
                    yield out
                # A full piece may have left more behind without needing more input.
                while not decoder.eof and not data and len(out) == STEP:
                    out = decoder.decompress(b"", STEP)
                    if out:
                        yield out
                if decoder.eof:
                    begun = False
                    data = data or decoder.unused_data
        if not decoder.eof:
            self.problem = "the gzip file ends too early"


def _peek(pieces: Iterable[bytes]) -> tuple[Iterator[bytes], bytes]:
    """Return the pieces again, and the first bytes: enough of them to see what it is."""
    rest = iter(pieces)
    first = b""
    for piece in rest:
        first += piece
        if len(first) >= len(MAGIC):
            break

    def again() -> Iterator[bytes]:
        if first:
            yield first
        yield from rest

    return again(), first


def _small(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if len(piece) <= STEP:
            if piece:
                yield piece
            continue
        view = memoryview(piece)
        for start in range(0, len(view), STEP):
            yield bytes(view[start : start + STEP])
