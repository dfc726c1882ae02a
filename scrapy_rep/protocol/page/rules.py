"""The rules of a page, added up: nothing cancels a restriction (REP.md section 10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_rep.protocol.page.directives import PREVIEWS, Value, read_content, read_header
from scrapy_rep.protocol.page.html import MAX_TEXT, metas_of
from scrapy_rep.protocol.tokens import GLOBAL, checked_chain, leading_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Bytes that a meta counts for besides its content: even an empty one takes time.
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
        value = self.value.isoformat() if isinstance(self.value, datetime) else self.value
        return f"{self.name}: {value}"


class _Says:
    """An attribute of :class:`PageRules`: whether there is a rule of one of these names."""

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
    def from_headers(cls, values: Iterable[bytes], agents: str | Sequence[str] = ()) -> PageRules:
        """Read the values of ``X-Robots-Tag`` header lines, any bytes.

        :param agents: the crawler's product tokens; all of them count
        :raises ValueError: if one is not a product token
        """
        tokens = {GLOBAL, *_tokens(agents)}
        left, found = MAX_TEXT, []
        for number, line in enumerate(values, start=1):
            if left <= 0:
                break
            text = line[:left].decode("latin-1")
            left -= len(line) + 1
            source = f"X-Robots-Tag {number}"
            rules = read_header(text)
            found += [
                PageRule(name, value, source) for agent, name, value in rules if agent in tokens
            ]
        return cls(tuple(dict.fromkeys(found)))

    @classmethod
    def from_html(
        cls, body: bytes, encoding: str = "utf-8", agents: str | Sequence[str] = ()
    ) -> PageRules:
        """Read the metas of a page, any bytes. *agents* are those of :meth:`from_headers`."""
        left, found = MAX_TEXT, []
        for name, content, line in metas_of(body, encoding, {"robots", *_tokens(agents)}):
            source = f"meta {name}"
            found += [PageRule(*rule, source, line) for rule in read_content(content[:left])]
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
        """Return the first rule that has one of *names*."""
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
        values = {rule.value for rule in self.rules if rule.name == "max-image-preview"}
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
        return (now if now.tzinfo else now.replace(tzinfo=timezone.utc)) >= date

    def _least(self, name: str) -> int | None:
        values = [rule.value for rule in self.rules if rule.name == name]
        limits = [value for value in values if isinstance(value, int) and value >= 0]
        return min(limits, default=-1 if values else None)


def _tokens(agents: str | Sequence[str]) -> set[str]:
    """Return *agents* in lower case, with and without their digits: no restriction may be lost. ``*``
    names no crawler."""
    names = {token.lower() for token in checked_chain(agents)}
    return (names | set(map(leading_token, names))) - {"", GLOBAL}
