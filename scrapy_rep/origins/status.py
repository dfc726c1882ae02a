"""What is known of an origin, and what changes that (REP.md sections 3 to 5; docs/DESIGN.md, "Status").

A status is immutable. It says one thing: what the origin's robots.txt is good for, and until when.
:func:`after` is the only way from one to the next; ``TABLE`` has every case, also those that can't be.

- ``Unknown``: nothing usable. robots.txt has to be fetched before anything is decided.
- ``Fresh``: an answer that counts: rules, or no restrictions.
- ``Stale``: the last fetch failed, and an older copy applies until the next attempt.
- ``Unreachable``: the last fetch failed, and nothing says what is allowed.
- ``Unrestricted``: it has failed for so long that there are no restrictions (30 days).
- ``Expired``: time is over for one of the four above. A fetch is due; for requests that had passed the gate
  by then, what was known still counts.
- ``Misconfigured``: the project's own settings prevent the fetch. Trying again can't help for a while. What
  else was known counts again then: the cache keeps this status beside it.

That somebody asks, or waits no more, changes no status. That a fetch is queued or in flight is none: who
waits for it is in :mod:`scrapy_rep.origins.queue`.
Nor is the end of the crawl, which is the same for all origins: :meth:`.flights.Flights.end`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Status:
    until: float = _NEVER
    """Seconds since the epoch: from then on, robots.txt has to be fetched before the next decision."""
    setting: str = ""
    """The setting that decides (REP.md section 13), in words; empty: the protocol does."""

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is known of what the origin allows."""
        return True

    @property
    def counts_as(self) -> Status:
        """What it still counts as for requests that have passed the gate."""
        return self


@dataclass(frozen=True, slots=True)
class Unknown(Status):
    pass


@dataclass(frozen=True, slots=True)
class Fresh(Status):
    forbids_all: bool = False
    """By ``REP_FORBIDDEN``."""

    @property
    def says_nothing(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Failing(Status):
    retry_at: float = _NEVER
    """When to ask again, in seconds of the crawl's running time: the wall clock may be set."""


@dataclass(frozen=True, slots=True)
class Stale(Failing):
    @property
    def says_nothing(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Unreachable(Failing):
    pass


@dataclass(frozen=True, slots=True)
class Unrestricted(Failing):
    @property
    def says_nothing(self) -> bool:
        return False


Usable: TypeAlias = Fresh | Stale | Unreachable | Unrestricted


@dataclass(frozen=True, slots=True)
class Expired(Status):
    was: Usable = Unreachable()

    @property
    def says_nothing(self) -> bool:
        return self.was.says_nothing

    @property
    def counts_as(self) -> Status:
        return self.was


@dataclass(frozen=True, slots=True)
class Misconfigured(Status):
    reason: str = ""


UNKNOWN = Unknown()


# What can happen


@dataclass(frozen=True, slots=True)
class Event:
    pass


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """An answer came that counts."""

    fresh_until: float
    setting: str = ""
    forbids_all: bool = False


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """A fetch failed. What counts now depends on the copy at hand and on how long it has failed."""

    means: type[Failing]
    until: float
    retry_at: float
    setting: str = ""


@dataclass(frozen=True, slots=True)
class NotConfigured(Event):
    """The project's own settings prevent the fetch."""

    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class NotAccepted(Event):
    """What is stored is no answer to this project (``REP_CHALLENGE``, say), or says nothing."""


@dataclass(frozen=True, slots=True)
class TimeIsOver(Event):
    """The status' time is over."""


@dataclass(frozen=True, slots=True)
class Stored(Event):
    """The storage has what another process, or an earlier run, found out."""

    news: Answered | Failed


class ImpossibleTransition(Exception):
    """The event can't happen to that status: a bug."""


def after(status: Status, event: Event) -> Status:
    """Return the status that follows *status* once *event* has happened."""
    return TABLE[type(status)][type(event)](status, event)


def _forgets(status: Status, event: Any) -> Status:
    return UNKNOWN


def _answered(status: Status, event: Answered) -> Status:
    return Fresh(event.fresh_until, event.setting, event.forbids_all)


def _failed(status: Status, event: Failed) -> Status:
    return event.means(event.until, event.setting, event.retry_at)


def _stored(status: Status, event: Stored) -> Status:
    return after(status, event.news)


def _misconfigured(status: Status, event: NotConfigured) -> Status:
    return Misconfigured(event.until, reason=event.reason)


def _expires(status: Any, event: TimeIsOver) -> Status:
    return Expired(setting=status.setting, was=status)


def _may_be_tried_again(status: Status, event: TimeIsOver) -> Status:
    return UNKNOWN


def _impossible(status: Status, event: Event) -> Status:
    raise ImpossibleTransition(f"{type(event).__name__} in {type(status).__name__}")


# An answer replaces whatever was known, and so does a failure: both were worked out from the entry,
# which remembers the copy and the failures before. A fetch may end in any status: somebody may ask
# although the answer at hand is fresh (`scrapy robots`), or shortly before the time of those who wait is over.
_ANY: dict[type[Event], Callable[[Any, Any], Status]] = {
    Answered: _answered,
    Failed: _failed,
    NotConfigured: _misconfigured,
    NotAccepted: _forgets,
    Stored: _stored,
}

TABLE: dict[type[Status], dict[type[Event], Callable[[Any, Any], Status]]] = {
    Unknown: {**_ANY, TimeIsOver: _impossible},
    Fresh: {**_ANY, TimeIsOver: _expires},
    Stale: {**_ANY, TimeIsOver: _expires},
    Unreachable: {**_ANY, TimeIsOver: _expires},
    Unrestricted: {**_ANY, TimeIsOver: _expires},
    Expired: {**_ANY, TimeIsOver: _impossible},
    Misconfigured: {**_ANY, TimeIsOver: _may_be_tried_again},
}
"""What follows each status after each event."""


def expired(status: Status) -> Status:
    """Return *status* once its time is over."""
    if isinstance(status, Unknown | Expired):
        return status
    return after(status, TimeIsOver())
