"""What the errback of a refused request gets. Both are Scrapy's ``IgnoreRequest``: not logged
as errors, not retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from scrapy_rep.protocol import Decision, Origin
    from scrapy_rep.protocol.usage import Statement


class RobotsDisallowed(IgnoreRequest):
    """The robots.txt of the URL's origin forbids it. The message names the deciding line."""

    def __init__(self, origin: Origin, decision: Decision) -> None:
        self.origin = origin
        self.decision = decision
        line = decision.rule.line if decision.rule else 0
        # Cleaned: Scrapy logs messages of exceptions as they are.
        super().__init__(
            clean(f"Forbidden by robots.txt (line {line}: {decision.rule}, group {decision.agent})")
        )


class RobotsUnreachable(IgnoreRequest):
    """The origin's robots.txt is unreachable, so nothing says that the URL may be fetched."""

    decision: Decision | None = None
    """There was nothing to decide by."""

    def __init__(self, origin: Origin | None, reason: str, attempts: int = 0) -> None:
        self.origin = origin
        """None if the URL has no origin."""
        self.reason = clean(reason)
        """What happened at the last attempt."""
        self.attempts = attempts
        """Failed fetches of the file in a row."""
        asked = f" (asked {attempts} times)" if attempts > 1 else ""
        super().__init__(f"robots.txt unreachable{asked}: {self.reason}")


class UsageDisallowed(IgnoreRequest):
    """The robots.txt says that the page must not be used for what the crawl is for (``REP_USAGE``)."""

    def __init__(self, origin: Origin, purpose: str, statement: Statement) -> None:
        self.origin = origin
        self.purpose = purpose
        self.statement = statement
        super().__init__(clean(f"The site says no to {purpose} ({statement})"))


class NotFetched(Exception):
    """What ``fetch()`` raises in the Scrapy shell, instead of :class:`RobotsUnreachable`: the shell
    passes over an ``IgnoreRequest`` without a word."""


class SettingsError(ValueError):
    """A setting has a value that it can't have. The message is a sentence for the user."""
