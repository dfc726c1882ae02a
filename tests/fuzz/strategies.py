"""Bytes that are nearly right: good ones with some damage, and few that become many."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.protocol.strategies import FIELDS, GROUPS, PATH_PARTS

MOST = 600_000  # bytes: more than is read of a robots.txt

Edit = tuple[str, int, int, bytes]


def damaged(
    seeds: Sequence[bytes], words: Sequence[bytes], most: int = MOST
) -> st.SearchStrategy:
    """One of *seeds* with *words* put in or over, parts cut, moved, repeated up to *most* bytes."""
    word = st.sampled_from(words) if words else st.binary(max_size=4)
    edit = st.tuples(
        st.sampled_from(["insert", "write", "cut", "copy", "end", "repeat"]),
        st.integers(0, 1 << 16),
        st.integers(0, 64),
        word | word | word | st.binary(max_size=8),
    )

    def edited(parts: tuple[bytes, list[Edit], int]) -> bytes:
        data, edits, times = parts
        for kind, where, length, piece in edits:
            data = _edited(data, kind, where % (len(data) + 1), length, piece, times)[
                :most
            ]
        return data

    many = st.sampled_from([2, 2, 3, 10, 100, most])
    return st.tuples(st.sampled_from(seeds), st.lists(edit, max_size=6), many).map(
        edited
    )


def _edited(
    data: bytes, kind: str, at: int, length: int, piece: bytes, times: int
) -> bytes:
    end = at + length
    match kind:
        case "insert":
            return data[:at] + piece + data[at:]
        case "write":
            return data[:at] + piece + data[at + len(piece) :]
        case "cut":
            return data[:at] + data[end:]
        case "copy":
            return data[: at // 2] + data[at:end] + data[at // 2 :]
        case "end":
            return data[:at]
        case _:  # no more than a fuzz of this size is for
            some = piece or data[at:end]
            return data[:at] + some * min(times, MOST // max(len(some), 1)) + data[at:]


def split(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return *data* in pieces; some may be empty."""
    cuts = sorted(place % (len(data) + 1) for place in places)
    return [
        data[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
    ]


def columns(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[str, object]]:
    """An expression of SQL and its parameter: SQLite keeps anything in any column, text that is no UTF-8 too."""
    kinds = st.sampled_from(["?", "CAST(? AS TEXT)", "CAST(? AS BLOB)"])
    numbers = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1)
    return st.tuples(kinds, values | numbers)


_FILES = [
    b"User-agent: *\nDisallow: /a\nAllow: /a/b*c$\nCrawl-delay: 5\n",
    b"User-agent: foo\r\nUser-agent: bar\r\nDisallow: /*.php$\r\nSitemap: https://a.example/s\r\n",
    b"\xef\xbb\xbfuser-agent: foo-bar\rdisallow /x\rAllow: /index.html\rdisallow: %c3%A9\xe9#x\r",
    b"<html><title>404 Not Found</title><h1>Not <b>found</b></h1>",
    b"",
]
_WORDS = [
    *(f"{field}: ".encode() for field in dict.fromkeys(FIELDS)),
    *(value.encode("latin-1", "replace") for value in [*GROUPS, *PATH_PARTS]),
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b"#",
        b":",
        b"<h1>",
        b"</h1>",
        b"<title>",
        b"<",
        b">",
    ),
    *(
        b"\nDisallow: /*a*a*a*b",
        b"\nAllow: /x/index.htm",
        b"\nUser-agent: foo\n",
        b"\nSitemap: /",
    ),
]
FILES = damaged(_FILES, _WORDS)
SMALL_FILES = damaged(_FILES, _WORDS, 5_000)
