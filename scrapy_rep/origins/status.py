"""What is known of an origin, and what changes that (REP.md sections 3 to 5;
docs/DESIGN.md, "Status").

A status is immutable. It says one thing: what the origin's robots.txt is good for, and
until when. :func:`after` is the only way from one status to the next; ``TABLE`` has
every case, impossible ones included.

- ``Unknown``: nothing usable. robots.txt has to be fetched before anything is decided.
- ``Fresh``: an answer that counts: rules, or no restrictions.
- ``Stale``: the last fetch failed, and an older copy applies until the next attempt.
- ``Unreachable``: the last fetch failed, and nothing says what is allowed.
- ``Unrestricted``: fetches have failed for so long (30 days) that there are no
  restrictions.
- ``Expired``: the time of one of the four above is over. A fetch is due; for requests
  that had passed the gate (holding/gate.py) by then, what was known still counts.
- ``Misconfigured``: the project's own settings prevent the fetch. Trying again can't
  help for a while. After that, what else was known counts again: the cache (cache.py)
  keeps this status beside it.

That somebody asks, or waits no more, changes no status. An origin that was packed
(state.py) gets a new status from its entry (``Stored``); one that was forgotten is
``Unknown``. That a fetch is queued or in flight is no status either: who waits for it
is in queue.py. Nor is the end of the crawl, which is the same for all origins:
:meth:`.flights.Flights.end`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

_LONG_AGO = -math.inf
"""A time that has always been over."""


@dataclass(frozen=True, slots=True)
class Status:
    """What an origin's robots.txt is good for. This one is never used: its subclasses
    are."""

    until: float = _LONG_AGO
    """Seconds since the epoch: from then on, robots.txt has to be fetched before the
    next decision."""
    setting: str = ""
    """The setting that decides (REP.md section 13), in words; empty: the protocol
    does."""

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is known of what the origin allows."""
        return isinstance(self, SAYS_NOTHING)


@dataclass(frozen=True, slots=True)
class Unknown(Status):
    """Nothing usable is known. The default values fit: its time is over."""


@dataclass(frozen=True, slots=True)
class Fresh(Status):
    """An answer counts."""

    forbids_all: bool = False
    """Whether a 401 or 403 forbids everything, by ``REP_FORBIDDEN``."""


@dataclass(frozen=True, slots=True)
class Failing(Status):
    """The last fetch failed. What that means is for the subclasses."""

    retry_at: float = _LONG_AGO
    """When to ask again, in seconds of the crawl's running time: the wall clock may be
    set."""


@dataclass(frozen=True, slots=True)
class Stale(Failing):
    """The last fetch failed, and an older copy applies."""


@dataclass(frozen=True, slots=True)
class Unreachable(Failing):
    """The last fetch failed, and nothing says what is allowed.

    What may follow: another failure (``Unreachable`` again; ``Unrestricted`` after
    ``REP_UNREACHABLE_LIMIT`` or, by the rules of 2026, earlier without a copy;
    ``Stale`` only if the storage has got a copy meanwhile, or by the rules of 2026); an
    answer; ``Unknown``, if what is stored isn't accepted; or ``Expired``, once somebody
    asks when an attempt is due, or the origin leaves memory. ``Misconfigured`` may
    stand beside it. :meth:`.holding.Holding.answered` decides about the requests in its
    queue, and :meth:`.policy.Policy.at_the_gate` about those that come."""


@dataclass(frozen=True, slots=True)
class Unrestricted(Failing):
    """Fetches have failed for so long that there are no restrictions."""


Usable: TypeAlias = Fresh | Stale | Unreachable | Unrestricted
"""The statuses whose time can be over."""


@dataclass(frozen=True, slots=True)
class Expired(Status):
    """The time of another status is over."""

    was: Usable = Unreachable()
    """What it was before: that still counts for requests that have passed the gate."""

    @property
    def says_nothing(self) -> bool:
        return self.was.says_nothing


@dataclass(frozen=True, slots=True)
class Misconfigured(Status):
    """The project's own settings prevent the fetch."""

    reason: str = ""
    """What prevents it, in words."""


UNKNOWN = Unknown()

SAYS_NOTHING = (Unknown, Unreachable, Misconfigured)
"""The statuses that don't say what the origin allows."""


@dataclass(frozen=True, slots=True)
class Event:
    """What can happen to an origin. Times and settings in the subclasses are those of
    the status that follows."""


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """An answer came that counts."""

    fresh_until: float
    setting: str = ""
    forbids_all: bool = False


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """A fetch failed. What counts now depends on the copy at hand and on how long
    fetches have failed."""

    means: type[Failing]
    """The status that follows."""
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
    """What is stored is no answer that this project accepts (by ``REP_CHALLENGE``,
    say), or says nothing."""


@dataclass(frozen=True, slots=True)
class TimeIsOver(Event):
    """The time of the status (``until``) is over. No alarm rings then:
    :meth:`.cache.RobotsCache.get` notices it when a request asks; so does
    ``status_of``, but only for ``Fresh``. It also happens to what leaves memory
    (state.py)."""


@dataclass(frozen=True, slots=True)
class Stored(Event):
    """The storage has what another process, or an earlier run, found out."""

    news: Answered | Failed


class ImpossibleTransition(Exception):
    """The event can't happen to that status: a bug."""


def after(status: Status, event: Event) -> Status:
    """Return the status that follows *status* once *event* has happened."""
    row = TABLE[type(status)]
    follow = row[type(event)]
    return follow(status, event)


# What follows a status after an event: the functions for the table below.


def _forgotten(status: Status, event: Any) -> Status:
    return UNKNOWN


def _answered(status: Status, event: Answered) -> Status:
    return Fresh(event.fresh_until, event.setting, event.forbids_all)


def _failed(status: Status, event: Failed) -> Status:
    return event.means(event.until, event.setting, event.retry_at)


def _stored(status: Status, event: Stored) -> Status:
    return after(status, event.news)


def _misconfigured(status: Status, event: NotConfigured) -> Status:
    return Misconfigured(event.until, reason=event.reason)


def _expired(status: Any, event: TimeIsOver) -> Status:
    return Expired(setting=status.setting, was=status)


def _tried_again(status: Status, event: TimeIsOver) -> Status:
    return UNKNOWN


def _impossible(status: Status, event: Event) -> Status:
    event_name = type(event).__name__
    status_name = type(status).__name__
    raise ImpossibleTransition(f"{event_name} in {status_name}")


_Follow: TypeAlias = Callable[[Any, Any], Status]
"""A function of a status and an event that returns the status that follows."""

_Row: TypeAlias = dict[type[Event], _Follow]
"""What follows one status, by event."""

_AFTER_ANY: _Row = {
    Answered: _answered,
    Failed: _failed,
    NotConfigured: _misconfigured,
    NotAccepted: _forgotten,
    Stored: _stored,
}
"""What follows any status. An answer replaces whatever was known, and so does a
failure: both were worked out from the entry (storages/base.py), which remembers the
copy and the failures before. A fetch may end in any status: somebody may ask although
the answer at hand is fresh (``scrapy robots``), or shortly before the time of those who
wait is over."""

TABLE: dict[type[Status], _Row] = {
    Unknown: {**_AFTER_ANY, TimeIsOver: _impossible},
    Fresh: {**_AFTER_ANY, TimeIsOver: _expired},
    Stale: {**_AFTER_ANY, TimeIsOver: _expired},
    Unreachable: {**_AFTER_ANY, TimeIsOver: _expired},
    Unrestricted: {**_AFTER_ANY, TimeIsOver: _expired},
    Expired: {**_AFTER_ANY, TimeIsOver: _impossible},
    Misconfigured: {**_AFTER_ANY, TimeIsOver: _tried_again},
}
"""What follows each status after each event. What follows ``NotConfigured`` doesn't
replace the status: the cache keeps it beside."""


def expired(status: Status) -> Status:
    """Return what follows *status* once its time is over."""
    if isinstance(status, Unknown | Expired):
        return status
    return after(status, TimeIsOver())
