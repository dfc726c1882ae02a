"""What must be true of a crawl after each of its events: **each origin with somebody in its queue has a
fetch (queued, in flight or being told), a step with a time (here: its alarm is set), or a turn to leave**.
Whoever had none would wait for ever.

    monkeypatch.setattr(RepMiddleware, "__init__", watched(broken.append))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from scrapy_rep import RepMiddleware

MANY = 50
"""Origins. With more, only every so many-th event is followed by a look at all of them."""


class Standing(NamedTuple):
    """What the product knows of one origin with somebody in its queue."""

    origin: str
    callers: int
    waiting: int
    held: int
    leaving: int
    is_asked: bool
    """It has a fetch that is queued, in flight or being told."""
    has_wakeup: bool
    has_turn: bool

    @property
    def is_stuck(self) -> bool:
        if self.is_asked or self.has_wakeup:
            return False
        stays = self.callers + self.waiting + self.held
        return bool(stays) or not self.has_turn


def has_wakeup(flights: Any, origin: Any) -> bool:
    return origin in flights._alarm


def queues_of(middleware: Any) -> Iterator[Standing]:
    """The one place that reads private names: change it with them."""
    flights = middleware.origins.flights
    for origin, queue in flights.queues.items():
        if not queue.is_empty:
            yield Standing(
                str(origin),
                len(queue.callers),
                len(queue.waiting),
                len(queue.held),
                len(queue.leaving),
                is_asked=queue.fetch is not None or bool(queue.being_told),
                has_wakeup=has_wakeup(flights, origin),
                has_turn=queue.has_turn,
            )


def events_of(middleware: Any) -> list[tuple[Any, str]]:
    """The objects and names of the methods after which it must be true, synchronous ones."""
    flights, gate = middleware.origins.flights, middleware._gate
    return [
        (gate, "next_request"),
        (gate, "look_for_pending_requests"),
        (flights._alarm, "_ring"),
        (flights, "_take_off"),
        (flights, "_came_down"),
        (flights, "_landed"),
        (flights, "set_alarm_or_forget"),
        (flights, "abandon"),
    ]


def is_closing(middleware: Any) -> bool:
    return bool(middleware._holding.closing)


class Invariant:
    def __init__(self, middleware: Any, broken: Callable[[str], object]) -> None:
        self._middleware = middleware
        self._broken = broken
        self._depth = self._events = 0
        self.checks = 0
        self._known: set[str] = set()
        for owner, name in events_of(middleware):
            setattr(owner, name, self._checked(getattr(owner, name), name))

    def _checked(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def event(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._check(name)

        return event

    def _check(self, event: str) -> None:
        self._events += 1
        origins = len(self._middleware.origins.flights.queues)
        if is_closing(self._middleware) or self._events % (1 + origins // MANY):
            return
        self.checks += 1
        for queue in queues_of(self._middleware):
            if queue.is_stuck and queue.origin not in self._known:
                self._known.add(queue.origin)
                self._broken(f"after {event}(), nothing will ever happen to {queue}")

    def snapshot(self) -> str:
        return "; ".join(map(str, queues_of(self._middleware))) or "no queue"


def watched(
    broken: Callable[[str], object],
    made: Callable[[Invariant], object] = lambda _: None,
) -> Callable[..., None]:
    """A constructor for RepMiddleware: *broken* is told what is wrong; *made* gets each invariant."""
    construct = RepMiddleware.__init__

    def __init__(self: RepMiddleware, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        made(Invariant(self, broken))

    return __init__
