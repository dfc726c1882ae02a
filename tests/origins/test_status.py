"""What follows each status after each event: the table, row by row (docs/DESIGN.md, "Status")."""

from __future__ import annotations

import pytest

from scrapy_rep.origins import status as module
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import (
    TABLE,
    UNKNOWN,
    Answered,
    Event,
    Expired,
    Failed,
    Failing,
    Fresh,
    ImpossibleTransition,
    Misconfigured,
    NotAccepted,
    NotConfigured,
    Stale,
    Status,
    Stored,
    TimeIsOver,
    Unknown,
    Unreachable,
    Unrestricted,
    after,
    expired,
)
from scrapy_rep.protocol import Origin
from tests.helpers.rows import every_row

FRESH = Fresh(100.0, "REP_X", forbids_all=True)
STALE = Stale(100.0, "REP_X", 50.0)
UNREACHABLE = Unreachable(100.0, "REP_X", 50.0)
UNRESTRICTED = Unrestricted(100.0, "REP_X", 50.0)
EXPIRED = Expired(setting="REP_X", was=STALE)
MISCONFIGURED = Misconfigured(100.0, reason="no handler")
STATUSES: list[Status] = [
    UNKNOWN,
    FRESH,
    STALE,
    UNREACHABLE,
    UNRESTRICTED,
    EXPIRED,
    MISCONFIGURED,
]

ANSWER = Answered(900.0, "REP_Y", forbids_all=True)
FAILURES = [
    Failed(means, 900.0, 450.0, "REP_Y") for means in (Stale, Unreachable, Unrestricted)
]
IMPOSSIBLE = "it can't be"

# What each event leads to, from any status.
FROM_ANY: list[tuple[Event, Status | str]] = [
    (NotAccepted(), UNKNOWN),
    (ANSWER, Fresh(900.0, "REP_Y", forbids_all=True)),
    *[(failure, failure.means(900.0, "REP_Y", 450.0)) for failure in FAILURES],
    (Stored(ANSWER), Fresh(900.0, "REP_Y", forbids_all=True)),
    *[(Stored(failure), failure.means(900.0, "REP_Y", 450.0)) for failure in FAILURES],
    (NotConfigured(900.0, "no handler"), Misconfigured(900.0, reason="no handler")),
]
# What the end of its time makes of each status.
WHEN_TIME_IS_OVER: list[tuple[Status, Status | str]] = [
    (UNKNOWN, IMPOSSIBLE),
    (EXPIRED, IMPOSSIBLE),
    *[
        (status, Expired(setting="REP_X", was=status))
        for status in (FRESH, STALE, UNREACHABLE, UNRESTRICTED)
    ],
    (MISCONFIGURED, UNKNOWN),
]
ROWS = [
    *[(status, event, follows) for status in STATUSES for event, follows in FROM_ANY],
    *[(status, TimeIsOver(), follows) for status, follows in WHEN_TIME_IS_OVER],
]


def test_each_status_after_each_event() -> None:
    with every_row() as checking:
        for status, event, follows in ROWS:
            with checking((status, event)):
                if follows == IMPOSSIBLE:
                    with pytest.raises(ImpossibleTransition, match="TimeIsOver in "):
                        after(status, event)
                else:
                    assert after(status, event) == follows


def test_the_rows_are_the_whole_table() -> None:
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    kinds = {kind for kind in classes if issubclass(kind, Status)} - {Status, Failing}
    events = {kind for kind in classes if issubclass(kind, Event)} - {Event}
    assert set(TABLE) == kinds
    assert all(set(row) == events for row in TABLE.values())
    tested = {(type(status), type(event)) for status, event, _ in ROWS}
    assert tested == {(kind, event) for kind in kinds for event in events}


def test_what_each_status_says() -> None:
    """Of what is allowed; and what it still counts as for requests that have passed the gate."""
    silent = [status for status in STATUSES if status.says_nothing]
    assert silent == [UNKNOWN, UNREACHABLE, MISCONFIGURED]
    for status in STATUSES:
        over = expired(status)
        assert over.says_nothing is status.says_nothing
        if isinstance(status, Unknown | Expired):
            assert over is status
        elif not isinstance(status, Misconfigured):
            assert isinstance(over, Expired)
            assert over.was is status
            state = OriginState(Origin("http", "a.example", 80))
            state.become(over)
            assert state.counts_as is status
            assert state.unreachable is status.says_nothing
        # The fast path of the middleware compares times, and nothing else.
        assert over.until < 0
