"""The one decision, as a table: what is known, the situation, the advice (REP.md section 4)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from scrapy_rep.origins.policy import Decide, Drop, Hold, Pass, Policy, Room, Situation, Wait
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.entry import Entry

NOW = 1000.0
PATIENCE = 30.0
FULL, GREEDY = Room.FULL, Room.GREEDY
NO_ROOM = Drop("too many of its requests are held", for_room=True)
FAILED = Drop("HTTP 503", 2)
ENDING = Drop("the crawl is ending")
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
    ("situation", "advice"),
    [
        (Situation(), Wait(0.5)),
        (Situation(slot_free=False), Hold()),
        (Situation(room=FULL), Wait(math.inf)),
        (Situation(room=FULL, slot_free=False), Wait(math.inf)),
        (Situation(room=GREEDY), Wait(math.inf)),
        (Situation(room=GREEDY, slot_free=False), NO_ROOM),
        (Situation(direct=True), Wait(math.inf)),
        (Situation(direct=True, room=GREEDY, slot_free=False), Wait(math.inf)),
    ],
)
@pytest.mark.parametrize("unreachable", ["defer", "drop", "allow"])
def test_advice_while_nothing_is_known(
    situation: Situation, advice: object, unreachable: str
) -> None:
    assert policy(unreachable).advise(None, NOW, situation) == advice


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
@pytest.mark.parametrize("situation", [Situation(), Situation(True, GREEDY, slot_free=False)])
@pytest.mark.parametrize("unreachable", ["defer", "drop", "allow"])
def test_advice_while_rules_are_at_hand(
    state: OriginState, situation: Situation, unreachable: str
) -> None:
    assert policy(unreachable).advise(state, NOW, situation) == Decide()


@pytest.mark.parametrize(
    ("unreachable", "dead_attempts", "situation", "advice"),
    [
        ("defer", 0, Situation(), Hold()),
        ("defer", 2, Situation(), Hold()),
        ("defer", 3, Situation(), FAILED),  # REP_DEFER_DEAD_HOST_TRIES
        ("defer", 0, Situation(room=FULL), FAILED._replace(for_room=True)),
        ("defer", 0, Situation(room=GREEDY), FAILED._replace(for_room=True)),
        ("defer", 0, Situation(slot_free=False), Hold()),
        ("defer", 0, Situation(direct=True), Wait(5.0)),
        ("defer", 3, Situation(direct=True), FAILED),
        ("drop", 0, Situation(), FAILED),
        ("drop", 0, Situation(direct=True), FAILED),
        ("drop", 0, Situation(room=FULL), FAILED),
        ("allow", 0, Situation(), Pass()),
        ("allow", 9, Situation(direct=True, room=FULL), Pass()),
    ],
)
def test_advice_while_it_is_unreachable(
    unreachable: str, dead_attempts: int, situation: Situation, advice: object
) -> None:
    state = known(replace(UNREACHABLE, dead_attempts=dead_attempts), Standing.UNREACHABLE)
    assert policy(unreachable).advise(state, NOW, situation) == advice


@pytest.mark.parametrize(
    ("seconds", "advice"),
    [(-1.0, Wait(0.0)), (0.0, Wait(0.0)), (29.9, Wait(29.9)), (30.0, FAILED), (600.0, FAILED)],
)
def test_direct_downloads_wait_only_for_an_attempt_that_is_near(
    seconds: float, advice: object
) -> None:
    entry = replace(UNREACHABLE, next_attempt_at=NOW + seconds)
    state = known(entry, Standing.UNREACHABLE)
    found = policy().advise(state, NOW, Situation(direct=True))
    assert found == (Wait(pytest.approx(advice.seconds)) if isinstance(advice, Wait) else advice)


@pytest.mark.parametrize(
    ("situation", "advice"),
    [
        (Situation(durable=True), Hold()),
        (Situation(durable=False), ENDING),
        (Situation(durable=True, direct=True), ENDING),
        (Situation(durable=True, room=FULL), Hold()),
    ],
)
def test_advice_at_the_end_of_a_crawl(situation: Situation, advice: object) -> None:
    assert policy().at_the_end(situation) == advice
