"""The text of a header or a meta: rules between commas, some with a value (REP.md section 10)."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from scrapy_rep.protocol.page.dates import read_date
from scrapy_rep.protocol.tokens import GLOBAL, leading_token

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = "int | str | datetime | None"

# fmt: off
FLAGS = frozenset(
    {
        "all", "index", "follow", "noindex", "nofollow", "none", "noarchive", "nocache", "nosnippet",
        "notranslate", "noimageindex", "noodp", "indexifembedded", "noai", "noimageai",
    }
)
# fmt: on
"""Rules without a value."""

PREVIEWS = ("none", "standard", "large")
"""Values of ``max-image-preview``, the most restrictive first."""

_NUMBERS = ("max-snippet", "max-video-preview")
_PREVIEW = "max-image-preview"
_DATE = "unavailable_after"
_VALUED = frozenset({*_NUMBERS, _PREVIEW, _DATE})

# "Wed, December 3, 2025, 13:09:53 GMT" has the most commas of all dates.
_DATE_PARTS = 4

_BLANK = " \t\r\n\f\v"
_NUMBER = re.compile(r"-1|\d{1,18}", re.ASCII)
# In a date no word is followed by a colon.
_AGENT = re.compile(r"[ \t\r\n\f\v]*([A-Za-z*_-][^\s,:]*)[ \t\r\n\f\v]*:")
_BETWEEN = re.compile(r"[\s;:]+")


def read_header(text: str) -> Iterator[tuple[str, str, Value]]:
    """Yield agent (in lower case, ``*`` for everybody), name and value of each rule of a line."""
    agent = GLOBAL
    parts = text.split(",")
    for at, part in enumerate(parts):
        start = 0
        while (named := _AGENT.match(part, start)) and not _is_rule(named[1]):
            # "robots" is how a meta calls everybody.
            name = named[1].lower()
            agent = GLOBAL if name in (GLOBAL, "robots") else leading_token(name)
            start = named.end()
        for rule, value in _read(part[start:], parts, at):
            yield agent, rule, value


def read_content(text: str) -> Iterator[tuple[str, Value]]:
    """Yield name and value of each rule of a meta's content."""
    parts = text.split(",")
    for at, part in enumerate(parts):
        yield from _read(part, parts, at)


def _is_rule(name: str) -> bool:
    return name.lower() in FLAGS or name.lower() in _VALUED


def _read(part: str, parts: list[str], at: int) -> Iterator[tuple[str, Value]]:
    """Yield the rules of one part. A date may continue in the parts after it."""
    name, _, text = part.partition(":")
    name, text = name.strip(_BLANK).lower(), text.strip(_BLANK).lower()
    if name == _DATE:
        if (date := _date(text, parts[at + 1 : at + _DATE_PARTS])) is not None:
            yield name, date
    elif name in _NUMBERS:
        if _NUMBER.fullmatch(text):
            yield name, int(text)
    elif name == _PREVIEW:
        if text in PREVIEWS:
            yield name, text
    else:
        # Blanks or semicolons instead of commas are wrong, but their meaning is clear.
        words = _BETWEEN.split(part.strip(_BLANK).lower())
        for word in takewhile(FLAGS.__contains__, words):
            yield word, None


def _date(text: str, following: list[str]) -> datetime | None:
    """Read a date that commas may have split: with as many of the *following* parts as possible."""
    for count in range(len(following), -1, -1):
        date = read_date(",".join([text, *following[:count]]))
        if date is not None:
            return date
    return None
