"""The decisions at the gate and in the middleware, as tables: what is known, the advice (REP.md section 4)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from scrapy_rep.origins.policy import Decide, Drop, Hold, Leave, Pass, Policy, Room, Wait
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.entry import Entry

NOW = 1000.0
PATIENCE = 30.0
FREE, FULL, GREEDY = Room.FREE, Room.FULL, Room.GREEDY
NO_ROOM = Drop("too many of its requests are held", for_room=True)
FAILED = Drop("HTTP 503", 2)
ENTRY = Entry("http://a.example", updated_at=NOW, fetched_at=NOW, outcome=Outcome.MISSING)
UNREACHABLE = Entry(
    "http://a.example",
    updated_at=NOW,
    unreachable_since=NOW,
    attempts=2,
    error="HTTP 503",
    next_attempt_at=NOW + 5,
)


def policy(unreachable: str = "defer", **more: Any) -> Policy:
    return replace(Policy.of(RepSettings()), unreachable=unreachable, patience=PATIENCE, **more)


def known(entry: Entry, standing: Standing) -> OriginState:
    state = OriginState(entry)
    state.standing = standing
    return state


@pytest.mark.parametrize(
    ("room", "at_the_gate"), [(FREE, Wait(0.5)), (FULL, Wait(0.5)), (GREEDY, NO_ROOM)]
)
@pytest.mark.parametrize("unreachable", ["defer", "drop", "allow"])
def test_advice_while_nothing_is_known(unreachable: str, room: Room, at_the_gate: object) -> None:
    assert policy(unreachable).at_the_gate(None, room) == at_the_gate
    assert policy(unreachable).in_the_middleware(None, NOW) == Wait(math.inf)


@pytest.mark.parametrize(
    "state",
    [
        known(ENTRY, Standing.FRESH),
        known(replace(ENTRY, outcome=Outcome.RULES), Standing.FRESH),
        known(replace(UNREACHABLE, outcome=Outcome.RULES, fetched_at=1.0), Standing.STALE),
        known(UNREACHABLE, Standing.UNRESTRICTED),
    ],
    ids=["missing", "rules", "stale", "30 days"],
)
@pytest.mark.parametrize("room", Room)
@pytest.mark.parametrize("unreachable", ["defer", "drop", "allow"])
def test_advice_while_rules_are_at_hand(state: OriginState, room: Room, unreachable: str) -> None:
    assert policy(unreachable).at_the_gate(state, room) == Leave()
    assert policy(unreachable).in_the_middleware(state, NOW) == Decide()


@pytest.mark.parametrize(
    ("unreachable", "dead_attempts", "room", "at_the_gate", "in_the_middleware"),
    [
        ("defer", 0, FREE, Hold(), Wait(5.0)),
        ("defer", 2, FREE, Hold(), Wait(5.0)),
        ("defer", 0, FULL, FAILED._replace(for_room=True), Wait(5.0)),
        ("defer", 0, GREEDY, FAILED._replace(for_room=True), Wait(5.0)),
        ("defer", 3, FREE, Leave(), FAILED),  # REP_DEFER_DEAD_HOST_TRIES
        ("defer", 3, FULL, Leave(), FAILED),
        ("drop", 0, FREE, Leave(), FAILED),
        ("drop", 0, FULL, Leave(), FAILED),
        ("allow", 0, FREE, Leave(), Pass()),
        ("allow", 9, FULL, Leave(), Pass()),
    ],
)
def test_advice_while_it_is_unreachable(
    unreachable: str, dead_attempts: int, room: Room, at_the_gate: object, in_the_middleware: object
) -> None:
    state = known(replace(UNREACHABLE, dead_attempts=dead_attempts), Standing.UNREACHABLE)
    assert policy(unreachable).at_the_gate(state, room) == at_the_gate
    assert policy(unreachable).in_the_middleware(state, NOW) == in_the_middleware


@pytest.mark.parametrize(
    ("seconds", "advice"),
    [(-1.0, Wait(0.0)), (0.0, Wait(0.0)), (29.9, Wait(29.9)), (30.0, FAILED), (600.0, FAILED)],
)
def test_direct_downloads_wait_only_for_an_attempt_that_is_near(
    seconds: float, advice: object
) -> None:
    entry = replace(UNREACHABLE, next_attempt_at=NOW + seconds)
    found = policy().in_the_middleware(known(entry, Standing.UNREACHABLE), NOW)
    assert found == (Wait(pytest.approx(advice.seconds)) if isinstance(advice, Wait) else advice)
