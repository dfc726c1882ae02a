"""Texts that make a regular expression slow if anything does: made from the expression itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as constants
    import sre_parse as parser

NASTY = [
    *(" ", "\t", "\n", "\r", "\r\n", "\f", "\0", "a", "A", "aB", "1", "0", "-", "_", ".", ",", ";"),
    *("\"", "'", "(", ")", "()", "[", "]", "]]>", "<![CDATA[", "<", ">", "<>", "<a ", "<h1>", "</h1"),
    *("<!---->", "<!--", "-->", "<title>", "&", "&a", "&#1", "%", "%aa", "%(", "%AA%aa"),
    *("/", "//", "://", "a:", ":", "@", "?", "#", "\\", "*", "$", "=", "+", "a b", " a", "é", "ÿ"),
    *("http://", "https://a", "User-agent:", "user", "\nuser", "not ", "does not ", "bot", "a-"),
]  # fmt: skip

# Categories, and what is in none of them.
CATEGORIES = {
    constants.CATEGORY_DIGIT: "1",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_DIGIT: "x",
    constants.CATEGORY_NOT_SPACE: "x",
    constants.CATEGORY_NOT_WORD: "!",
}
LARGE = 32
"""More repetitions count as any number."""
REPEATS = {constants.MAX_REPEAT, constants.MIN_REPEAT} | {
    getattr(constants, "POSSESSIVE_REPEAT", constants.MAX_REPEAT)
}


def may_be_slow(pattern: re.Pattern[Any]) -> bool:
    """Whether it repeats anything without end: else the time that each place takes is bounded."""
    return _is_unbounded(_tree_of(pattern))


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (start, pump, end): the pump is to be repeated."""
    tree = _tree_of(pattern)
    found = list(dict.fromkeys(_repeats(tree, "")))
    starts = list(dict.fromkeys(["", *(start for start, _ in found), _sample(tree)]))
    own = list(dict.fromkeys([*(pump for _, pump in found), *starts]))
    pumps = [one for one in dict.fromkeys([*own, *NASTY]) if one]
    yield from (("", pump, "") for pump in pumps)
    yield from ((start, pump, "\1") for start in starts for pump in pumps)
    # What an expression begins with over and over, each time with a part of its own.
    repeated = dict.fromkeys(start + pump for start in starts if start for pump in own if pump)
    yield from (("", both, "\1") for both in repeated)


def _tree_of(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def _is_unbounded(part: Any) -> bool:
    if isinstance(part, parser.SubPattern):
        return any(
            (code in REPEATS and value[1] > LARGE) or _is_unbounded(value) for code, value in part
        )
    return isinstance(part, list | tuple) and any(map(_is_unbounded, part))


def _sample(tree: Any) -> str:
    """Return a text that the expression, or a part of it, may match."""
    return "".join(_one(code, value) for code, value in tree)


def _one(code: Any, value: Any) -> str:
    if code is constants.LITERAL:
        return chr(value)
    if code is constants.NOT_LITERAL:
        return "x" if value != ord("x") else "y"
    if code is constants.ANY:
        return "x"
    if code is constants.IN:
        return _member(value)
    if code in REPEATS:
        least, most, part = value
        return _sample(part) * max(least, min(most, 1))
    if code is constants.BRANCH:
        return _sample(value[1][0])
    if code is constants.SUBPATTERN:
        return _sample(value[-1])
    if code is getattr(constants, "ATOMIC_GROUP", None):
        return _sample(value)
    return ""  # what has no width


def _member(items: Any) -> str:
    (code, value), *others = items
    if code is constants.NEGATE:
        barred = {_member([item]) for item in others}
        return next(letter for letter in "x 1/<:.-" if letter not in barred)
    if code is constants.RANGE:
        return chr(value[0])
    return CATEGORIES[value] if code is constants.CATEGORY else chr(value)


def _repeats(tree: Any, start: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand before each repetition, and what it repeats."""
    for code, value in tree:
        if code in REPEATS:
            part = value[2]
            yield start, _sample(part)
            yield from _repeats(part, start)
        elif code is constants.BRANCH:
            for part in value[1]:
                yield from _repeats(part, start)
                yield start + _sample(part), ""
        elif code is constants.SUBPATTERN:
            yield from _repeats(value[-1], start)
        elif code in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _repeats(value[1], start)
        elif code is getattr(constants, "ATOMIC_GROUP", None):
            yield from _repeats(value, start)
        start += _one(code, value)
