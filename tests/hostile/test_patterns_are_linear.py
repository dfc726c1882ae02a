"""Each regular expression takes linear time on attacks derived from it: growth is compared."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import scrapy_rep
from tests.helpers.timing import seconds

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


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (start, pump, end): the pump is to be repeated."""
    tree = tree_of(pattern)
    found = list(dict.fromkeys(repeats(tree, "")))
    starts = list(dict.fromkeys(["", *(start for start, _ in found), sample_of(tree)]))
    own = list(dict.fromkeys([*(pump for _, pump in found), *starts]))
    pumps = [one for one in dict.fromkeys([*own, *NASTY]) if one]
    yield from (("", pump, "") for pump in pumps)
    yield from ((start, pump, "\1") for start in starts for pump in pumps)
    # What an expression begins with over and over, each time with a part of its own.
    repeated = dict.fromkeys(
        start + pump for start in starts if start for pump in own if pump
    )
    yield from (("", both, "\1") for both in repeated)


def tree_of(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def parts_of(code: Any, value: Any) -> list[Any]:
    if code in REPEATS:
        return [value[2]]
    if code is constants.BRANCH:
        return list(value[1])
    if code in (constants.SUBPATTERN, constants.ASSERT, constants.ASSERT_NOT):
        return [value[-1]]
    return [value] if code is getattr(constants, "ATOMIC_GROUP", None) else []


def may_be_slow(tree: Any) -> bool:
    """Whether it repeats anything without end: else the time that each place takes is bounded."""
    return any(
        (code in REPEATS and value[1] > LARGE)
        or any(map(may_be_slow, parts_of(code, value)))
        for code, value in tree
    )


def sample_of(tree: Any) -> str:
    """Return a text that the expression, or a part of it, may match."""
    return "".join(sample_of_one(code, value) for code, value in tree)


def sample_of_one(code: Any, value: Any) -> str:
    if code is constants.LITERAL:
        return chr(value)
    if code is constants.NOT_LITERAL:
        return "x" if value != ord("x") else "y"
    if code is constants.ANY:
        return "x"
    if code is constants.IN:
        return member(value)
    if code in (constants.ASSERT, constants.ASSERT_NOT):
        return ""
    times = max(value[0], min(value[1], 1)) if code in REPEATS else 1
    return "".join(map(sample_of, parts_of(code, value)[:1])) * times


def member(items: Any) -> str:
    (code, value), *others = items
    if code is constants.NEGATE:
        barred = {member([item]) for item in others}
        return next(letter for letter in "x 1/<:.-" if letter not in barred)
    if code is constants.RANGE:
        return chr(value[0])
    return CATEGORIES[value] if code is constants.CATEGORY else chr(value)


def repeats(tree: Any, start: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand before each repetition, and what it repeats."""
    for code, value in tree:
        for part in parts_of(code, value):
            if code in REPEATS:
                yield start, sample_of(part)
            yield from repeats(part, start)
            if code is constants.BRANCH:
                yield start + sample_of(part), ""
        start += sample_of_one(code, value)


TIMES = 4
MAX_GROWTH = 9.0
SIZE = 1_000
"""Characters of the smaller text."""
ROUNDS = 3
MOST_ROUNDS = 12
NOISE = 0.001
"""Seconds. A larger text that takes less is not suspicious: it has eight million pairs of characters."""
LONG = 0.05
"""Seconds. What takes longer needs no more rounds: other processes don't explain it."""
METHODS = ("match", "search", "fullmatch", "finditer")
SAME = {"findall": "finditer", "sub": "finditer", "split": "finditer"}
"""What does the same work as another method."""


def collected() -> dict[str, re.Pattern[Any]]:
    found: dict[re.Pattern[Any], str] = {}
    for info in pkgutil.walk_packages(scrapy_rep.__path__, "scrapy_rep."):
        with suppress(ImportError):  # of an extra that is not installed
            for name, value in vars(importlib.import_module(info.name)).items():
                for one in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(one, re.Pattern):
                        found.setdefault(one, f"{info.name}.{name}")
    return {name: pattern for pattern, name in found.items()}


PATTERNS = collected()
PACKAGE = Path(scrapy_rep.__path__[0])
SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    ): (path.read_text(encoding="utf-8"))
    for path in PACKAGE.rglob("*.py")
}
SOURCE = "\n".join(SOURCES.values())


def methods_of(name: str) -> list[str]:
    """What is only matched at a text's beginning need not be quick to search for."""
    where, _, short = name.rpartition(".")
    # Private ones are used in their own modules.
    source = SOURCES.get(where, SOURCE) if short.startswith("_") else SOURCE
    names = {
        short,
        *re.findall(rf"^ *(\w+) = .*\b{short}\b(?![.(\[])", source, re.MULTILINE),
    }
    used = set(re.findall(rf"\b(?:{'|'.join(names)})(?:\[\w+\])?\.(\w+)\b", source))
    used = {SAME.get(method, method) for method in used}
    return [method for method in METHODS if method in used] or list(METHODS)


def work_of(pattern: re.Pattern[Any], method: str, text: str) -> Callable[[], object]:
    subject = text.encode("utf-8") if isinstance(pattern.pattern, bytes) else text
    if method == "finditer":
        return lambda: list(pattern.finditer(subject))
    return lambda: getattr(pattern, method)(subject)


def worst_growth(pattern: re.Pattern[Any], methods: list[str]) -> tuple[float, str]:
    worst = (0.0, "")
    for start, pump, end in attacks(pattern):
        for method in methods:

            def work(
                size: int, parts: Any = (start, pump, end, method)
            ) -> Callable[[], object]:
                start, pump, end, method = parts
                return work_of(
                    pattern, method, start + pump * (size // len(pump) + 1) + end
                )

            grown = growth(work)
            if grown > MAX_GROWTH:  # what other processes did may have been in the way
                grown = min(grown, growth(work))
            if grown > worst[0]:
                worst = grown, f"{method} of {start!r} + {pump!r} * n + {end!r}"
                if grown > MAX_GROWTH:
                    return worst
    return worst


def growth(work: Callable[[int], Callable[[], object]]) -> float:
    # By and by, or exponential work would never end: 2**18 steps take a moment, 2**24 a second. A
    # text of a hundred characters has shown such work.
    before = float("inf")
    for size in (12, 18, 27, 40, 60, 90, 135, 540):
        now = seconds(work(size))
        if now > NOISE and now > 2 * MAX_GROWTH * before:
            now = min(seconds(work(size)) for _ in range(3))
            if now > MAX_GROWTH * before:
                return now / before
        before = max(now, 1e-6)
    large, small = work(SIZE * TIMES), work(SIZE)
    least_small = least_large = float("inf")
    for number in range(1, MOST_ROUNDS + 1):
        least_large = min(least_large, seconds(large))
        if least_large < NOISE:
            return 0.0
        least_small = min(least_small, seconds(small))
        bound = MAX_GROWTH if number >= ROUNDS else TIMES + 1.0  # as linear as can be
        if least_large < bound * least_small or (
            number >= ROUNDS and least_large > LONG
        ):
            break
    return least_large / least_small


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in PATTERNS if may_be_slow(tree_of(PATTERNS[name]))]
)
def test_time_is_linear(name: str) -> None:
    grown, attack = worst_growth(PATTERNS[name], methods_of(name))
    assert grown < MAX_GROWTH, (
        f"{TIMES} times the text takes {grown:.0f} times as long: {attack}"
    )


SLOW = {
    "comments": rb"(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    "blanks": r'\bmax-age\s*=\s*"?\s*(-?[0-9]+)\b',
    "tags": rb"<[^>]*>",
    "nested": r"(a+)+b",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_slow_ones_are_caught(name: str) -> None:
    """The first two were in the package."""
    pattern = re.compile(SLOW[name], re.IGNORECASE | re.DOTALL)
    assert worst_growth(pattern, ["search", "match"])[0] > MAX_GROWTH


def test_all_are_found() -> None:
    compiled = len(re.findall(r"^ *\w+ = re\.compile\(", SOURCE, re.MULTILINE))
    assert len(PATTERNS) >= compiled - 2  # equal ones count once
    assert "scrapy_rep.protocol.entries._PART" in PATTERNS
    assert "scrapy_rep.protocol.freshness._MAX_AGE" in PATTERNS
