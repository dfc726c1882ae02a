"""Nobody in a queue can be stuck: each origin with somebody in its queue has a fetch (queued, in flight or
being told), a step with a time, or a turn to leave (docs/DESIGN.md, "Nobody can be stuck")."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from scrapy import Request
from twisted.internet.defer import Deferred

from scrapy_rep.origins.queue import (
    LANDING_SECONDS,
    LATE_SECONDS,
    SLOW_SECONDS,
    VERY_LATE_SECONDS,
    Flight,
    Lateness,
    Limits,
    Queue,
    Step,
    Tally,
    steps,
)
from scrapy_rep.origins.status import (
    UNKNOWN,
    Expired,
    Fresh,
    Misconfigured,
    Stale,
    Status,
    Unreachable,
    Unrestricted,
)
from scrapy_rep.protocol import Origin
from tests.helpers.rows import every_row
from tests.holding.holds import held

NOW = 1000.0
LIMITS = Limits(grace=1.0, max_wait=60.0, fetch=30.0)
RETRY_AT = NOW + 20.0
STATUSES: list[Status] = [
    UNKNOWN,
    Fresh(9e9),
    Stale(9e9, "", RETRY_AT),
    Unreachable(9e9, "", RETRY_AT),
    Unrestricted(9e9, "", RETRY_AT),
    Expired(was=Unreachable(0.0, "", RETRY_AT)),
    Misconfigured(9e9, reason="no handler"),
]
FETCHES = [
    "none",
    "queued",
    "in a middleware",
    "sent, slow",
    "in the downloader's queue",
]
WAITING = ["nobody", "one", "one without room"]


def queue_with(
    fetch: str,
    being_told: bool,
    waiting: str,
    held_ones: bool,
    leaving: bool,
    callers: bool,
) -> Queue:
    queue = Queue(Origin("http", "a.example", 80), Tally())
    if waiting != "nobody":
        queue.arrive(held(1, NOW - 10))
        queue.without_room = int(waiting == "one without room")
    if held_ones:
        queue.recover([held(2, NOW - 50)._replace(was_held=True)])
    if leaving:
        queue.join_leaving(held(3, NOW - 10))
        queue.has_turn = True
    if callers:
        queue.callers.append(Deferred())
    flight = Flight(queue.origin, Request("http://a.example"), began_at=NOW - 3)
    if fetch != "none":
        queue.begin_fetch(flight, NOW - 3)
    if fetch not in ("none", "queued"):
        flight.took_off_at = NOW - 3
        queue.run_clock(NOW - 3, runs=True)
    if fetch == "sent, slow":
        flight.sent_at = NOW - 3
        flight.is_slow = True
        queue.become_late(Lateness.VERY_LATE)
    if fetch == "in the downloader's queue":
        queue.run_clock(NOW, runs=False)
    if being_told:
        told = Flight(queue.origin, Request("http://a.example"), answered_at=NOW - 0.1)
        queue.being_told.append(told)
    return queue


def every_queue() -> Iterator[tuple[tuple[Any, ...], Queue]]:
    two = (False, True)
    for row in product(FETCHES, two, WAITING, two, two, two):
        yield row, queue_with(*row)


def test_whoever_is_in_a_queue_has_something_to_wait_for() -> None:
    """Of all statuses and queues there are: 1,680."""
    checked = 0
    with every_row() as checking:
        for status in STATUSES:
            for row, queue in every_queue():
                checked += 1
                with checking((status, row)):
                    assert_nobody_is_stuck(status, queue)
    assert checked == len(STATUSES) * 240


def assert_nobody_is_stuck(status: Status, queue: Queue) -> None:
    wakeup = min(steps(status, queue, NOW, LIMITS).values(), default=None)
    stays = bool(queue.waiting or queue.held or queue.callers)
    if queue.being_told:
        assert wakeup is not None, "a listener may never return"
    elif queue.fetch is None and stays:
        assert wakeup is not None
    elif queue.fetch is not None and queue.stopped_at is None:
        # A fetch that was sent ends within its own limit; a middleware of the project's may never return.
        # Requests don't wait much longer.
        if queue.waiting or queue.held:
            assert wakeup is not None
            assert wakeup <= NOW + LIMITS.fetch + LIMITS.max_wait + LANDING_SECONDS
    elif queue.fetch is None and not stays:
        assert wakeup is None
        assert queue.has_turn == bool(queue.leaving)


def test_a_step_that_is_due_is_no_endless_loop() -> None:
    """Once the steps that are due are done, as far as they change the queue, none of them is due again."""
    with every_row() as checking:
        for status in STATUSES:
            for row, queue in every_queue():
                with checking((status, row)):
                    due = {
                        step
                        for step, at in steps(status, queue, NOW, LIMITS).items()
                        if at <= NOW
                    }
                    for step in due:
                        do(step, queue)
                    again = steps(status, queue, NOW, LIMITS)
                    assert not [step for step in due if again.get(step, NOW + 1) <= NOW]


def do(step: Step, queue: Queue) -> None:
    """Do what each step does to a queue at least, by the fewest assumptions."""
    match step:
        case Step.ASK:
            if queue.fetch is None:
                queue.begin_fetch(
                    Flight(queue.origin, Request("http://a.example"), began_at=NOW), NOW
                )
        case Step.FREE_PLACE:
            assert queue.fetch is not None
            queue.fetch.is_slow = True
        case Step.COUNT_LATE:
            if queue.lateness is Lateness.NOT_LATE:
                queue.become_late(Lateness.LATE)
        case Step.COUNT_VERY_LATE:
            queue.become_late(Lateness.VERY_LATE)
            queue.dismiss_waiting()
        case Step.HOLD:
            queue.hold(0, lambda request: request)  # there is no room
        case Step.APPLY:
            queue.being_told.clear()
            queue.callers.clear()
            queue.hold(9, lambda request: request)
            queue.let_leave(None, NOW)
        case Step.TIME_IS_OVER:
            queue.let_leave(None, NOW)


def only(**values: Any) -> Queue:
    """A queue with nothing but what *values* say."""
    nothing: dict[str, Any] = {
        "fetch": "none",
        "being_told": False,
        "waiting": "nobody",
        "held_ones": False,
        "leaving": False,
        "callers": False,
    }
    return queue_with(**(nothing | values))


# What is in the queue, the status, the steps and their times.
ROWS: list[tuple[str, Queue, Status, dict[Step, float]]] = [
    ("held while unreachable", only(held_ones=True), STATUSES[3],
     {Step.ASK: RETRY_AT, Step.TIME_IS_OVER: NOW + 10}),
    ("a caller that waits for the next attempt", only(callers=True), STATUSES[3],
     {Step.ASK: RETRY_AT}),
    ("held, and it isn't known any more whether it is reachable", only(held_ones=True), STATUSES[5],
     {Step.ASK: NOW}),
    ("held, and an answer came", only(held_ones=True), STATUSES[1], {Step.APPLY: NOW}),
    ("leaving only", only(leaving=True), STATUSES[1], {}),
    ("leaving only, though it is down again", only(leaving=True), STATUSES[3], {}),
    ("in a queue of the downloader", only(held_ones=True, fetch="in the downloader's queue"), UNKNOWN,
     {Step.FREE_PLACE: NOW - 3 + SLOW_SECONDS, Step.COUNT_LATE: NOW - 3 + LATE_SECONDS,
      Step.COUNT_VERY_LATE: NOW - 3 + VERY_LATE_SECONDS}),
    ("sent", only(held_ones=True, fetch="sent, slow"), UNKNOWN,
     {Step.TIME_IS_OVER: NOW - 3 + LIMITS.fetch + LANDING_SECONDS}),
    ("nobody waits for the fetch", only(fetch="sent, slow"), UNKNOWN, {}),
    ("being told", only(waiting="one", being_told=True), STATUSES[1],
     {Step.APPLY: NOW - 0.1 + LIMITS.grace}),
]  # fmt: skip


def test_what_is_due_and_when() -> None:
    with every_row() as checking:
        for name, queue, status, due in ROWS:
            with checking(name):
                assert steps(status, queue, NOW, LIMITS) == due
