"""Page-level rules, in headers and metas: a list with commas, in which some have a value. They add up,
and nothing cancels a restriction (REP.md section 10).

>>> from scrapy_rep.protocol.page import PageRules
>>> rules = PageRules.from_headers([b"foobot: noindex, max-snippet:20"], "FooBot")
>>> rules |= PageRules.from_html(b'<meta name="robots" content="nofollow">', "utf-8", "FooBot")
>>> rules.noindex, rules.nofollow, rules.max_snippet
(True, True, 20)
>>> [f"{rule.source}: {rule}" for rule in rules.rules]
['X-Robots-Tag 1: noindex', 'X-Robots-Tag 1: max-snippet: 20', 'meta robots: nofollow']
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from scrapy_rep.protocol.freshness import moment, read_date
from scrapy_rep.protocol.html import MAX_BYTES, MAX_TEXT, metas_of, with_blanks
from scrapy_rep.protocol.syntax import GLOBAL, as_bytes, leading_token, obeyed

Value: TypeAlias = "int | str | datetime | None"

# fmt: off
FLAGS = frozenset({
    "all", "index", "follow", "noindex", "nofollow", "none", "noarchive", "nocache", "nosnippet",
    "notranslate", "noimageindex", "noodp", "indexifembedded", "noai", "noimageai",
    "noml",
})
# fmt: on
"""Rules without a value."""

PREVIEWS = ("none", "standard", "large")
"""Values of ``max-image-preview``, the most restrictive first."""

_AROUND = " \t\r\n\f\v:"
_NUMBERS = ("max-snippet", "max-video-preview")
_PREVIEW = "max-image-preview"
_DATE = "unavailable_after"
_NAMES = FLAGS | {*_NUMBERS, _PREVIEW, _DATE}

# "Wed, December 3, 2025, 13:09:53 GMT" has the most commas of all dates.
_DATE_PARTS, _DATE_LENGTH = 4, 300

_NUMBER = re.compile(r"-1|\d{1,18}", re.ASCII)
# A known name, and nothing that makes it a longer one.
_KNOWN = rf"(?:{'|'.join(sorted(_NAMES))})(?![^\s;:,])"
# Blanks or semicolons instead of commas are wrong, but clear.
_WORD = re.compile(r"[\s;:,]*([^\s,;:]+)", re.ASCII)
# An agent is followed by a rule that is known: anything else with a colon is a rule of somebody else's
# ("revisit-after: 7 days").
_AGENT = re.compile(rf"([a-z*_-][^\s,;:=]*)\s*:\s*(?={_KNOWN})", re.ASCII)
# A rule, whatever follows, unless the crawler itself has such a name.
_LIMIT = "max-"
_VALUE = re.compile(r"\s*(:?)\s*([^\s,;]*)", re.ASCII)
# Where a date ends at the latest.
_NEXT = re.compile(rf";|(?<=[\s,]){_KNOWN}", re.ASCII)

# Bytes that a meta counts beside its content: even an empty one takes time.
_META_TEXT = 32


@dataclass(frozen=True, slots=True)
class PageRule:
    """One rule of a header or a meta."""

    name: str
    """In lower case."""
    value: Value
    """None for a rule without one."""
    source: str
    """``X-Robots-Tag 2`` for the second header line, or ``meta googlebot``."""
    line: int | None = None
    """Of the HTML, counted from 1."""

    @property
    def where(self) -> str:
        """The source, with the line."""
        return self.source if self.line is None else f"{self.source} (line {self.line})"

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        value = (
            self.value.isoformat() if isinstance(self.value, datetime) else self.value
        )
        return f"{self.name}: {value}"


class _Says:
    """An attribute of :class:`PageRules`: whether there is a rule with one of these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, rules: PageRules, owner: type[PageRules]) -> bool:
        return rules.saying(*self._names) is not None


@dataclass(frozen=True, slots=True)
class PageRules:
    """All rules of a page for a crawler. ``a | b`` combines two."""

    rules: tuple[PageRule, ...] = ()
    """Headers first. Includes ``all``, ``index`` and ``follow``, which mean nothing."""

    @classmethod
    def from_headers(
        cls, values: Iterable[bytes | str], agents: str | Sequence[str] = ()
    ) -> PageRules:
        """Read the values of ``X-Robots-Tag`` header lines, any bytes or texts.

        :param agents: the crawler's product tokens; all of them count
        :raises ValueError: if one is not a product token
        """
        tokens = {GLOBAL, *_tokens(agents)}
        left, found = MAX_TEXT, []
        for number, line in enumerate(values, start=1):
            if left <= 0:
                break
            start = line[:left]
            text = start if isinstance(start, str) else start.decode("latin-1")
            left -= len(line) + 1
            found += [
                PageRule(name, value, f"X-Robots-Tag {number}")
                for agent, name, value in _read(text, tokens)
                if agent in tokens
            ]
        return cls(tuple(dict.fromkeys(found)))

    @classmethod
    def from_html(
        cls,
        body: bytes | str,
        encoding: str = "utf-8",
        agents: str | Sequence[str] = (),
    ) -> PageRules:
        """Read the metas of a page, any bytes. A text has no *encoding*. *agents* are those of
        :meth:`from_headers`."""
        if isinstance(body, str):
            body, encoding = as_bytes(body[:MAX_BYTES]), "utf-8"
        left, found = MAX_TEXT, []
        for name, content, line in metas_of(
            body, encoding, {"robots", *_tokens(agents)}
        ):
            rules = _read(content[:left], None)
            found += [
                PageRule(rule, value, f"meta {name}", line) for _, rule, value in rules
            ]
            left -= len(content) + _META_TEXT
            if left <= 0:
                break
        return cls(tuple(dict.fromkeys(found)))

    def __or__(self, other: PageRules) -> PageRules:
        if not isinstance(other, PageRules):
            return NotImplemented
        return PageRules(tuple(dict.fromkeys(self.rules + other.rules)))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def saying(self, *names: str) -> PageRule | None:
        """Return the first rule with one of *names*."""
        return next((rule for rule in self.rules if rule.name in names), None)

    noindex = _Says("noindex", "none")
    """Don't keep or show the page."""
    nofollow = _Says("nofollow", "none")
    """Don't follow its links."""
    noarchive = _Says("noarchive", "nocache")
    """Show no cached copy."""
    nosnippet = _Says("nosnippet")
    """Show no text of it."""
    noimageindex = _Says("noimageindex")
    """Don't index its images."""
    notranslate = _Says("notranslate")
    """Don't translate it."""
    indexifembedded = _Says("indexifembedded")
    """With :attr:`noindex`: may be used embedded in another page."""
    noai = _Says("noai")
    """Don't train on the page."""
    noimageai = _Says("noimageai")
    """Don't train on its images."""
    noml = _Says("noml")
    """Don't use it for machine learning."""

    @property
    def max_snippet(self) -> int | None:
        """Characters that may be shown; 0: none, -1: no limit."""
        return self._least("max-snippet")

    @property
    def max_video_preview(self) -> int | None:
        """Seconds of a video that may be shown; 0: a still, -1: no limit."""
        return self._least("max-video-preview")

    @property
    def max_image_preview(self) -> str | None:
        """``none``, ``standard`` or ``large``."""
        values = {rule.value for rule in self.rules if rule.name == _PREVIEW}
        return next((value for value in PREVIEWS if value in values), None)

    @property
    def unavailable_after(self) -> datetime | None:
        """When the page becomes noindex, with a time zone."""
        dates = [rule.value for rule in self.rules if isinstance(rule.value, datetime)]
        return min(dates, default=None)

    def expired(self, now: datetime | float) -> bool:
        """Return whether :attr:`unavailable_after` is before *now*: seconds since the epoch, or a date
        (default time zone: UTC)."""
        date = self.unavailable_after
        if date is None:
            return False
        if not isinstance(now, datetime):
            return now >= date.timestamp()
        return moment(now) >= date

    def _least(self, name: str) -> int | None:
        values = [rule.value for rule in self.rules if rule.name == name]
        limits = [value for value in values if isinstance(value, int) and value >= 0]
        return min(limits, default=-1 if values else None)


def _tokens(agents: str | Sequence[str]) -> set[str]:
    """Return *agents* in lower case, with and without their digits, so that no restriction is lost.
    ``*`` names no crawler."""
    chain = (agents,) if isinstance(agents, str) else tuple(agents)
    return {token.lower() for token in (*obeyed(chain, False), *chain)} - {"", GLOBAL}


def _read(
    text: str, tokens: Collection[str] | None
) -> Iterator[tuple[str, str, Value]]:
    """Yield agent (in lower case, or ``*``), name and value of each rule in a header line. *tokens*: the
    crawler's; None for the content of a meta, which names no agents."""
    text = with_blanks(text).lower()
    agent, at = GLOBAL, 0
    while word := _WORD.match(text, at):
        named = None if tokens is None else _AGENT.match(text, word.start(1))
        if named is not None and _is_agent(named[1], tokens or ()):
            # In a meta, "robots" means all agents.
            agent = (
                GLOBAL if named[1] in (GLOBAL, "robots") else leading_token(named[1])
            )
            at = named.end()
            continue
        name, at = word[1], word.end()
        value: Value = None
        if name == _DATE:
            value, at = _date(text, at)
        elif name in _NUMBERS or name == _PREVIEW:
            value, at = _limit(text, at, is_number=name != _PREVIEW)
        elif name not in FLAGS:
            at = _after_unknown(text, at)
        if value is not None or name in FLAGS:
            yield agent, name, value


def _is_agent(name: str, tokens: Collection[str]) -> bool:
    """Return whether *name*, before a colon and a known rule, is an agent's."""
    return name not in _NAMES and (
        not name.startswith(_LIMIT) or leading_token(name) in tokens
    )


def _after_unknown(text: str, at: int) -> int:
    """Return where what an unknown rule says ends: after its value, if it has one."""
    given = _VALUE.match(text, at)
    assert given is not None  # it matches anything
    return given.end() if given[1] else at


def _limit(text: str, at: int, *, is_number: bool) -> tuple[Value, int]:
    """Return a value that is a number or a word, and where it ends."""
    given = _VALUE.match(text, at)
    assert given is not None  # it matches anything
    value: Value = None
    if is_number and _NUMBER.fullmatch(given[2]):
        value = int(given[2])
    elif not is_number and given[2] in PREVIEWS:
        value = given[2]
    return value, given.end() if value is not None or given[1] else at


def _date(text: str, at: int) -> tuple[Value, int]:
    """Return a date, with as many commas as possible, and where it ends."""
    text = text[: at + _DATE_LENGTH]
    ends = _NEXT.search(text, at)
    parts = text[at : ends.start() if ends else len(text)].split(",", _DATE_PARTS)[
        :_DATE_PARTS
    ]
    for count in range(len(parts), 0, -1):
        date = ",".join(parts[:count])
        if (value := read_date(date.strip(_AROUND))) is not None:
            return value, at + len(date)
    return None, at + len(parts[0])
