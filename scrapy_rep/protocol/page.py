"""Reads page-level rules in headers and metas (REP.md section 10). Each header or meta
lists rules with commas in between, some of them with a value. All rules add up, and
none cancels a restriction of another.

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
from scrapy_rep.protocol.html import (
    MAX_HTML_BYTES,
    MAX_VALUE_BYTES,
    metas_of,
    with_plain_blanks,
)
from scrapy_rep.protocol.syntax import GLOBAL, as_bytes, leading_token, obeyed

Value: TypeAlias = "int | str | datetime | None"

FLAGS = frozenset(
    {
        # These say what holds without them, too.
        "all",
        "index",
        "follow",
        # This one means both noindex and nofollow.
        "none",
        "noindex",
        "nofollow",
        "noarchive",
        "nocache",
        "nosnippet",
        "notranslate",
        "noimageindex",
        "noodp",
        "indexifembedded",
        # These are about machine learning, not search engines.
        "noai",
        "noimageai",
        "noml",
    }
)
"""Rules without a value."""

PREVIEWS = ("none", "standard", "large")
"""Values of ``max-image-preview``, the most restrictive first."""

# What may surround a date.
_AROUND_DATES = " \t\r\n\f\v:"
# The rules whose value is a number.
_NUMBER_RULES = ("max-snippet", "max-video-preview")
# The rule whose value is one of PREVIEWS.
_PREVIEW_RULE = "max-image-preview"
# The rule whose value is a date.
_DATE_RULE = "unavailable_after"
_RULE_NAMES = FLAGS | {*_NUMBER_RULES, _PREVIEW_RULE, _DATE_RULE}

# Commas separate rules, but dates contain some, too. "Wed, December 3, 2025, 13:09:53
# GMT" has four parts, the most of all dates.
_MAX_DATE_PARTS = 4
# A date has to end within this many characters after the name of its rule.
_DATE_REACH = 300

# The value of one of _NUMBER_RULES: -1 says that there is no limit.
_LIMIT = re.compile(r"-1|\d{1,18}", re.ASCII)
# The name of a known rule, unless it is only the beginning of a longer name.
_ANY_NAME = "|".join(sorted(_RULE_NAMES))
_KNOWN_RULE = rf"(?:{_ANY_NAME})(?![^\s;:,])"
# The next word. Blanks or semicolons instead of commas before it are wrong, but clear.
_WORD = re.compile(r"[\s;:,]*([^\s,;:]+)", re.ASCII)
# An agent before a colon, which is followed by a rule that is known. Anything else with
# a colon is a rule of somebody else's ("revisit-after: 7 days").
_AGENT = re.compile(rf"([a-z*_-][^\s,;:=]*)\s*:\s*(?={_KNOWN_RULE})", re.ASCII)
# A name that begins so is that of a rule, known or unknown. It is an agent's name only
# if the crawler itself has this name.
_LIMIT_PREFIX = "max-"
# The value of a rule, with or without a colon before it.
_VALUE = re.compile(r"\s*(?P<colon>:?)\s*(?P<value>[^\s,;]*)", re.ASCII)
# What a date ends before, at the latest: a semicolon, or another rule.
_AFTER_DATE = re.compile(rf";|(?<=[\s,]){_KNOWN_RULE}", re.ASCII)

# So many bytes are read of all header lines together, and as many of all metas.
_MAX_RULES_BYTES = MAX_VALUE_BYTES

# Each meta counts this many bytes beside those of its content, since even an empty one
# takes time.
_META_BYTES = 32


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
    """The line of the HTML, counted from 1; None for a header."""

    @property
    def where(self) -> str:
        """The source, with the line."""
        if self.line is None:
            return self.source
        return f"{self.source} (line {self.line})"

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        value = self.value
        if isinstance(value, datetime):
            value = value.isoformat()
        return f"{self.name}: {value}"


class _Says:
    """An attribute of :class:`PageRules`: whether there is a rule with one of these
    names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, rules: PageRules, owner: type[PageRules]) -> bool:
        return rules.saying(*self._names) is not None


@dataclass(frozen=True, slots=True)
class PageRules:
    """All rules of a page for a crawler. ``a | b`` combines those of *a* and *b*."""

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
        unread_bytes = _MAX_RULES_BYTES  # how many may still be read
        rules: list[PageRule] = []
        for number, line in enumerate(values, start=1):
            if unread_bytes <= 0:
                break
            text = line[:unread_bytes]
            # Each line counts a byte more, since even an empty one takes time.
            unread_bytes -= len(line) + 1
            if not isinstance(text, str):
                text = text.decode("latin-1")
            source = f"X-Robots-Tag {number}"
            for agent, name, value in _rules_in(text, tokens):
                if agent in tokens:
                    rules.append(PageRule(name, value, source))
        return cls(_without_repeats(rules))

    @classmethod
    def from_html(
        cls,
        body: bytes | str,
        encoding: str = "utf-8",
        agents: str | Sequence[str] = (),
    ) -> PageRules:
        """Read the metas of a page, any bytes. *encoding* means nothing for a text.
        *agents* are those of :meth:`from_headers`."""
        if isinstance(body, str):
            body = as_bytes(body[:MAX_HTML_BYTES])
            encoding = "utf-8"
        unread_bytes = _MAX_RULES_BYTES  # how many may still be read
        rules: list[PageRule] = []
        names = {"robots", *_tokens(agents)}
        for meta, content, line in metas_of(body, encoding, names):
            source = f"meta {meta}"
            text = content[:unread_bytes]
            for _, name, value in _rules_in(text, None):  # a meta names no agents
                rules.append(PageRule(name, value, source, line))
            unread_bytes -= len(content) + _META_BYTES
            if unread_bytes <= 0:
                break
        return cls(_without_repeats(rules))

    def __or__(self, other: PageRules) -> PageRules:
        if not isinstance(other, PageRules):
            return NotImplemented
        return PageRules(_without_repeats(self.rules + other.rules))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def saying(self, *names: str) -> PageRule | None:
        """Return the first rule with one of *names*; None without one."""
        for rule in self.rules:
            if rule.name in names:
                return rule
        return None

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
        return self._lowest_limit("max-snippet")

    @property
    def max_video_preview(self) -> int | None:
        """Seconds of a video that may be shown; 0: a still, -1: no limit."""
        return self._lowest_limit("max-video-preview")

    @property
    def max_image_preview(self) -> str | None:
        """``none``, ``standard`` or ``large``."""
        values = self._values_of(_PREVIEW_RULE)
        for preview in PREVIEWS:
            if preview in values:
                return preview
        return None

    @property
    def unavailable_after(self) -> datetime | None:
        """When the page becomes noindex, with a time zone."""
        values = self._values_of(_DATE_RULE)
        dates = [value for value in values if isinstance(value, datetime)]
        return min(dates, default=None)

    def expired(self, now: datetime | float) -> bool:
        """Return whether :attr:`unavailable_after` is before *now*: seconds since the
        epoch, or a date (default time zone: UTC)."""
        date = self.unavailable_after
        if date is None:
            return False
        if not isinstance(now, datetime):
            return now >= date.timestamp()
        return moment(now) >= date

    def _values_of(self, name: str) -> list[Value]:
        return [rule.value for rule in self.rules if rule.name == name]

    def _lowest_limit(self, name: str) -> int | None:
        """Return the lowest number of the rules with this *name*; -1 if all of them say
        "no limit", None if there are none."""
        values = self._values_of(name)
        numbers = [value for value in values if isinstance(value, int)]
        limits = [number for number in numbers if number >= 0]
        if limits:
            return min(limits)
        return -1 if values else None


def _without_repeats(rules: Iterable[PageRule]) -> tuple[PageRule, ...]:
    """Return *rules*, each once, in order."""
    return tuple(dict.fromkeys(rules))


def _tokens(agents: str | Sequence[str]) -> set[str]:
    """Return *agents* in lower case. A crawler called Foo2 is also called foo, up to
    its first digit, so that no restriction is lost. ``*`` names no crawler."""
    chain = (agents,) if isinstance(agents, str) else tuple(agents)
    without_digits = obeyed(chain, obey_global=False)
    tokens = set(map(str.lower, (*without_digits, *chain)))
    return tokens - {"", GLOBAL}


def _rules_in(
    text: str, tokens: Collection[str] | None
) -> Iterator[tuple[str, str, Value]]:
    """Yield agent (in lower case, or ``*``), name and value of each rule in a header
    line. *tokens*: the crawler's; None for the content of a meta, which names no
    agents."""
    text = with_plain_blanks(text).lower()
    agent = GLOBAL
    position = 0
    while word := _WORD.match(text, position):
        if tokens is not None:
            named = _AGENT.match(text, word.start(1))
            if named is not None and _is_agent(named[1], tokens):
                # The rules up to the next agent are for this agent. As in a meta,
                # "robots" means all crawlers.
                is_for_all = named[1] in (GLOBAL, "robots")
                agent = GLOBAL if is_for_all else leading_token(named[1])
                position = named.end()
                continue
        name = word[1]
        position = word.end()
        if name in FLAGS:
            yield agent, name, None
            continue
        value, position = _value_of(name, text, position)
        if value is not None:
            yield agent, name, value


def _is_agent(name: str, tokens: Collection[str]) -> bool:
    """Return whether *name*, before a colon and a known rule, is an agent's. *tokens*:
    the crawler's."""
    if name in _RULE_NAMES:
        return False
    if name.startswith(_LIMIT_PREFIX):
        return leading_token(name) in tokens
    return True


def _value_of(name: str, text: str, position: int) -> tuple[Value, int]:
    """Return the value of the rule whose *name* ends at *position* in *text*, and where
    the value ends. None stands for the value of an unknown rule, and for a wrong
    value."""
    if name == _DATE_RULE:
        return _date(text, position)
    match = _VALUE.match(text, position)
    assert match is not None  # the pattern matches anything
    given = match["value"]
    value: Value = None
    if name in _NUMBER_RULES and _LIMIT.fullmatch(given):
        value = int(given)
    elif name == _PREVIEW_RULE and given in PREVIEWS:
        value = given
    # Without a colon, a word that can't be a value is the next rule.
    is_value = value is not None or match["colon"] != ""
    return value, match.end() if is_value else position


def _date(text: str, position: int) -> tuple[Value, int]:
    """Return the date in *text* from *position* on, with as many commas as possible,
    and where it ends. If there is no date, what stands before the next comma is passed
    over."""
    text = text[: position + _DATE_REACH]
    after = _AFTER_DATE.search(text, position)
    end = len(text) if after is None else after.start()
    between_commas = text[position:end].split(",")
    parts = between_commas[:_MAX_DATE_PARTS]
    for part_count in range(len(parts), 0, -1):
        candidate = ",".join(parts[:part_count])
        date = read_date(candidate.strip(_AROUND_DATES))
        if date is not None:
            return date, position + len(candidate)
    return None, position + len(parts[0])
