"""The package's exceptions. Those that errbacks of refused requests get are subclasses
of ``IgnoreRequest``, which Scrapy neither retries nor logs as errors."""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import IgnoreRequest

from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.text import clean


class RobotsDisallowed(IgnoreRequest):
    """robots.txt forbids the URL. The message names the deciding line."""

    # There may be thousands of these exceptions. Without slots, each would have a
    # dictionary.
    __slots__ = ("decision", "origin", "why")

    def __init__(self, origin: Origin, decision: Decision, by: str = "") -> None:
        """*by*: the setting that decided, if it wasn't a line alone."""
        self.origin = origin
        self.decision = decision
        _, rule, agent = decision
        why = by
        if rule is not None:
            why = f"line {rule.line}: {rule.text or rule}, group {agent}"
            if by:
                why = f"{why}; {by}"
        why = clean(why)
        self.why = why
        """The deciding line and setting."""
        # `why` is clean, since Scrapy logs messages of exceptions as they are.
        # `args` is set as super().__init__() sets it, which takes twice as long.
        self.args = (f"Forbidden by robots.txt ({why})",)


class RobotsUnreachable(IgnoreRequest):
    """The origin's robots.txt is unreachable, so nothing allows the URL.

    ``__cause__`` is a new exception like the one that the last attempt raised; None if
    there was an answer, such as HTTP 503, or no attempt.
    """

    decision: Decision | None = None
    """Always None: no line decided."""
    held_for: float | None = None
    """Seconds for which the request was held, in all runs together; None if it
    wasn't."""

    def __init__(
        self,
        origin: Origin | None,
        reason: str,
        attempts: int = 0,
        cause: BaseException | None = None,
    ) -> None:
        self.origin = origin
        """None if the URL has no origin."""
        self.reason = clean(reason)
        """Why the last attempt failed."""
        self.attempts = attempts
        """Consecutive failed fetches of robots.txt."""
        asked = f" (asked {attempts} times)" if attempts > 1 else ""
        super().__init__(f"robots.txt unreachable{asked}: {self.reason}")
        self.__cause__ = cause


class UsageDisallowed(IgnoreRequest):
    """robots.txt disallows a use of the page that ``REP_USAGE`` names."""

    def __init__(self, origin: Origin, purpose: str, statement: Any) -> None:
        self.origin = origin
        self.purpose = purpose
        self.statement = statement
        """The :class:`scrapy_rep.preferences.Statement` that disallows it."""
        message = f"Use for {purpose} is not permitted ({statement})"
        super().__init__(clean(message))


class NotFetched(Exception):
    """Raised by ``fetch()`` in the Scrapy shell instead of :class:`RobotsUnreachable`,
    since the shell ignores an ``IgnoreRequest`` silently."""


class SettingsError(ValueError):
    """A setting has a wrong value. The message is a sentence for the user."""
