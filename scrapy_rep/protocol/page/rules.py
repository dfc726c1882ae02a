"""All that applies to a page, added up: nothing cancels a restriction (REP.md section 10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_rep.protocol.page.directives import (
    EVERYBODY,
    PREVIEWS,
    Value,
    read_content,
    read_header,
)
from scrapy_rep.protocol.page.html import MAX_TEXT, metas_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# What a meta counts for beside its content: without one it takes time, too.
_META_TEXT = 32


@dataclass(frozen=True, slots=True)
class PageRule:
    """One rule, as a header or a meta has it."""

    name: str
    """In lower case."""
    value: Value
    """None for a rule that has none."""
    source: str
    """``X-Robots-Tag 2`` for the second header line, ``meta googlebot``."""
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


@dataclass(frozen=True, slots=True)
class PageRules:
    """What applies to a crawler of all that a page says. ``a | b`` is both."""

    rules: tuple[PageRule, ...] = ()
    """In the order of the page, headers first. With ``all``, ``index`` and ``follow``, which mean
    nothing."""

    @classmethod
    def from_headers(cls, values: Iterable[bytes], agents: str | Sequence[str] = ()) -> PageRules:
        """Read the values of ``X-Robots-Tag`` headers, each a line: any bytes; never raises.

        :param agents: the crawler's product token, or all of its chain: every one counts
        """
        tokens = {EVERYBODY, *_tokens(agents)}
        left, found = MAX_TEXT, []
        for number, line in enumerate(values, start=1):
            if left <= 0:
                break
            text = line[:left].decode("latin-1")
            left -= len(line) + 1
            source = f"X-Robots-Tag {number}"
            for agent, name, value in read_header(text):
                if agent in tokens:
                    found.append(PageRule(name, value, source))
        return cls(tuple(dict.fromkeys(found)))

    @classmethod
    def from_html(
        cls, body: bytes, encoding: str = "utf-8", agents: str | Sequence[str] = ()
    ) -> PageRules:
        """Read the metas of a page: any bytes; never raises.

        :param agents: as for :meth:`from_headers`
        """
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

    @property
    def noindex(self) -> bool:
        """Not to be kept or shown."""
        return self.saying("noindex", "none") is not None

    @property
    def nofollow(self) -> bool:
        """Links of this page are not to be followed."""
        return self.saying("nofollow", "none") is not None

    @property
    def noarchive(self) -> bool:
        """No cached copy."""
        return self.saying("noarchive", "nocache") is not None

    @property
    def nosnippet(self) -> bool:
        """No text shown."""
        return self.saying("nosnippet") is not None

    @property
    def noimageindex(self) -> bool:
        """Images of this page are not to be indexed."""
        return self.saying("noimageindex") is not None

    @property
    def notranslate(self) -> bool:
        """Not to be translated."""
        return self.saying("notranslate") is not None

    @property
    def indexifembedded(self) -> bool:
        """With :attr:`noindex`: may be used where it is embedded in another page."""
        return self.saying("indexifembedded") is not None

    @property
    def noai(self) -> bool:
        """No training on the page (REP.md section 10)."""
        return self.saying("noai") is not None

    @property
    def noimageai(self) -> bool:
        """No training on the page's images (REP.md section 10)."""
        return self.saying("noimageai") is not None

    @property
    def max_snippet(self) -> int | None:
        """At most so many characters shown; 0: none, -1: no limit."""
        return self._least("max-snippet")

    @property
    def max_video_preview(self) -> int | None:
        """At most so many seconds of a video; 0: a still, -1: no limit."""
        return self._least("max-video-preview")

    @property
    def max_image_preview(self) -> str | None:
        """``none``, ``standard`` or ``large``."""
        values = {rule.value for rule in self.rules if rule.name == "max-image-preview"}
        return next((value for value in PREVIEWS if value in values), None)

    @property
    def unavailable_after(self) -> datetime | None:
        """Noindex from then on. Has a time zone."""
        return min(
            (one.value for one in self.rules if isinstance(one.value, datetime)), default=None
        )

    def expired(self, now: datetime | float) -> bool:
        """Return whether :attr:`unavailable_after` has come.

        :param now: UTC where it has no time zone; or seconds since the epoch
        """
        date = self.unavailable_after
        if date is None:
            return False
        if not isinstance(now, datetime):
            return now >= date.timestamp()
        return (now if now.tzinfo else now.replace(tzinfo=timezone.utc)) >= date

    def _least(self, name: str) -> int | None:
        values = [
            one.value for one in self.rules if one.name == name and isinstance(one.value, int)
        ]
        return min((value for value in values if value >= 0), default=-1 if values else None)


def _tokens(agents: str | Sequence[str]) -> set[str]:
    """In lower case. ``*`` names no crawler, and case is ASCII's: the Kelvin sign is no K."""
    chain = (agents,) if isinstance(agents, str) else agents
    return {token.lower() for token in chain if token.isascii() and token not in ("", EVERYBODY)}
