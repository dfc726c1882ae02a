"""How many columns of a terminal a text takes, and how to make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Sequence

# Columns: no cell is cut down to fewer.
_NARROWEST = 8


def width(text: str) -> int:
    """Return the columns of *text*, which is printable (:func:`~scrapy_rep.engine.words.clean`)."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(one: str) -> int:
    if category(one) in ("Mn", "Me"):
        return 0  # drawn over the character before it
    return 2 if east_asian_width(one) in "WF" else 1


def shortened(text: str, columns: int, sign: str = "…") -> str:
    """Return *text*, cut in the middle if it is too wide: rules and URLs differ at their ends."""
    if width(text) <= columns:
        return text
    tail = (columns - 1) // 3
    return _begin(text, columns - 1 - tail) + sign + _begin(text[::-1], tail)[::-1]


def _begin(text: str, columns: int) -> str:
    for at, one in enumerate(text):
        columns -= _columns_of(one)
        if columns < 0:
            return text[:at]
    return text


def wrapped(text: str, columns: int) -> list[str]:
    """Return *text* in lines, broken after spaces unless these are too far off."""
    lines = []
    begin = used = blank = 0
    for at, one in enumerate(text):
        size = _columns_of(one)
        if used + size > columns and at > begin:
            end = blank if blank > begin + columns // 2 else at
            lines.append(text[begin:end].rstrip())
            begin, used = end, width(text[end:at])
        if one == " ":
            blank = at + 1
        used += size
    return [*lines, text[begin:]]


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Return *widths* with the widest ones reduced until they fit into *room*."""
    found = [min(one, max(room, _NARROWEST)) for one in widths]
    while found and sum(found) > room and max(found) > _NARROWEST:
        found[found.index(max(found))] -= 1
    return found
