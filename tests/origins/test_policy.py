"""The decisions at the gate and in the middleware, as a table: what is known, the advice (REP.md section 4)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.policy import (
    ALLOW,
    DECIDE,
    LEAVE,
    STAY,
    WAIT,
    Action,
    Advice,
    Drop,
    Policy,
)
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Fresh, Stale, Status, Unreachable, Unrestricted
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry
from tests.helpers.crawling import run_settings
from tests.helpers.rows import every_row
from tests.helpers.storing import know, rules, state_with

NOW = 1000.0
FREE, FULL = ROOMS = (False, True)
CHOICES = ("hold", "drop", "allow")
NO_ROOM = Advice(Action.FAIL, Drop("too many of its requests are held", for_room=True))
FAILED = Advice(Action.FAIL, Drop("HTTP 503", 2))
NOT_HELD = Advice(Action.FAIL, Drop("HTTP 503", 2, for_room=True))
ORIGIN = Origin("http", "a.example", 80)
ENTRY = Entry(
    "http://a.example", updated_at=NOW, fetched_at=NOW, outcome=Outcome.MISSING
)
FAILURE = {
    "unreachable_since": NOW,
    "attempts": 2,
    "error": "HTTP 503",
    "next_attempt_at": NOW + 5,
}
UNREACHABLE = Entry("http://a.example", updated_at=NOW, **FAILURE)  # type: ignore[arg-type]


def known(entry: Entry, status: Status) -> OriginState:
    state = state_with(entry, ORIGIN)
    state.become(status)
    return state


def down(seconds: float = 5.0, dead: int = 0) -> OriginState:
    entry = replace(UNREACHABLE, next_attempt_at=NOW + seconds, dead_attempts=dead)
    return known(entry, Unreachable())


AT_HAND = [
    known(ENTRY, Fresh()),
    known(replace(ENTRY, outcome=Outcome.RULES), Fresh()),
    known(replace(UNREACHABLE, outcome=Outcome.RULES, fetched_at=1.0), Stale()),
    known(UNREACHABLE, Unrestricted()),
]
# What is known, REP_UNREACHABLE, whether no more may be held, at the gate, in the middleware.
TABLE: list[tuple[OriginState | None, str, bool, object, object]] = [
    *[(None, choice, FREE, STAY, None) for choice in CHOICES],
    *[(None, choice, FULL, NO_ROOM, None) for choice in CHOICES],
    *[
        (one, how, room, LEAVE, DECIDE)
        for one in AT_HAND
        for how in CHOICES
        for room in ROOMS
    ],
    (down(), "hold", FREE, STAY, WAIT),
    (down(dead=2), "hold", FREE, STAY, WAIT),
    (down(), "hold", FULL, NOT_HELD, WAIT),
    *[
        (down(dead=3), "hold", room, LEAVE, FAILED) for room in ROOMS
    ],  # the default of tries
    *[(down(), "drop", room, LEAVE, FAILED) for room in ROOMS],
    *[(down(dead=9), "allow", room, LEAVE, ALLOW) for room in ROOMS],
    # Direct downloads wait only for an attempt that is near.
    (down(-1.0), "hold", FREE, STAY, WAIT),
    (down(29.5), "hold", FREE, STAY, WAIT),
    (down(30.0), "hold", FREE, STAY, FAILED),
    (down(600.0), "hold", FREE, STAY, FAILED),
]


def test_nothing_known_is_no_permission() -> None:
    """An entry that this project doesn't take for an answer (REP_CHALLENGE, say) leaves nothing."""
    assert state_with(Entry("http://a.example"), ORIGIN).unreachable
    assert not known(ENTRY, Fresh()).unreachable


async def test_an_origin_that_fails_while_its_rules_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large file is read in a thread, and another process may store a failure meanwhile."""
    middleware: Any = RepMiddleware.from_crawler(
        get_crawler(settings_dict=run_settings())
    )
    cache, origin = middleware.origins.cache, "http://a.example"
    know(cache, rules(origin, at=time.time()))

    async def read(state: OriginState, chain: object) -> None:
        failed = replace(UNREACHABLE, origin=origin, next_attempt_at=time.time() + 60)
        know(cache, failed)

    monkeypatch.setattr(cache, "read", read)
    monkeypatch.setattr(cache, "takes_long", lambda state, chain: True)
    with pytest.raises(RobotsUnreachable):
        await middleware.process_request(Request(f"{origin}/x"))


async def test_agents_by_the_dozen() -> None:
    """For each, only its group is looked for: the sitemaps neither take time nor count as memory again."""
    middleware: Any = RepMiddleware.from_crawler(
        get_crawler(settings_dict=run_settings())
    )
    origin, body = (
        "http://a.example",
        b"User-agent: *\nDisallow: /x\nSitemap: /" + b"s" * 2000,
    )
    entry = rules(origin, body, at=time.time())
    state: Any = know(middleware.origins.cache, entry)
    for name in "abcdefghijkl":
        await middleware.process_request(
            Request(f"{origin}/", meta={"rep_user_agent": name})
        )
    assert state.robots.size < 6 * 2000


def test_the_advice_for_each_request() -> None:
    with every_row() as checking:
        for row in TABLE:
            with checking(row[1:]):
                state, unreachable, full, at_the_gate, in_the_middleware = row
                policy = Policy(
                    RepSettings(unreachable=unreachable, download_timeout=30.0)
                )
                assert policy.at_the_gate(state, full=full) == at_the_gate
                if state is not None:
                    assert policy.in_the_middleware(state, NOW) == in_the_middleware
