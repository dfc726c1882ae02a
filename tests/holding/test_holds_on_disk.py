"""The file under JOBDIR, over several runs: what becomes of a request that was held."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, DiskHold
from scrapy_rep.holding.hold import Held
from tests.helpers.crawling import captured_log
from tests.helpers.holds import (
    INF,
    SPIDER,
    A,
    B,
    count,
    file_of,
    held,
    in_slices,
    ran,
    run,
    take_all,
    unserialisable,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture(autouse=True)
def no_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow one, rows stay in memory for a second."""
    monkeypatch.setattr("scrapy_rep.holding.disk_writer._SLOW_SECONDS", INF)


def killed(hold: DiskHold) -> None:
    """What a kill leaves: nothing is closed in order."""
    file_of(hold).close()


def test_another_connection_sees_it_at_once(path: Path) -> None:
    hold = DiskHold(path, SPIDER)
    other = sqlite3.connect(path)
    for number in range(1, 4):
        hold.add(A, held(number))
        assert other.execute("SELECT count(*) FROM held").fetchone() == (number,)
    other.close()
    hold.close()


def test_killed_while_held(path: Path) -> None:
    hold = DiskHold(path, SPIDER)
    for number in range(1, 5):
        hold.add((A, B)[number % 2], held(number, since=number * 10.0))
    killed(hold)
    hold, recovered = run(path)
    assert recovered == {A: 2, B: 2}
    assert hold.oldest(B) == 10.0
    assert hold.last()[0] == 4
    assert take_all(hold, A) == [2, 4]
    assert take_all(hold, B) == [1, 3]
    hold.close()


def test_killed_after_release(path: Path) -> None:
    """Nobody knows whether they were fetched: at least once."""
    hold = DiskHold(path, SPIDER)
    for number in range(1, 4):
        hold.add(A, held(number))
    assert take_all(hold) == [1, 2, 3]
    killed(hold)
    hold, recovered = run(path)
    assert recovered == {A: 3}
    assert take_all(hold) == [1, 2, 3]
    hold.close()


def test_killed_after_download(path: Path) -> None:
    hold = DiskHold(path, SPIDER)
    for number in range(1, 4):
        hold.add(A, held(number))
    first, second, _ = hold.take(A, 10, 10, INF)
    assert first.row is not None and second.row is not None
    hold.done([first.row, second.row])
    killed(hold)
    hold, recovered = run(path)
    assert recovered == {A: 1}
    assert take_all(hold) == [3]
    hold.close()


def test_closed_in_order(path: Path) -> None:
    """What was released and dealt with is gone; all else stays."""
    hold = DiskHold(path, SPIDER)
    for number in range(1, 7):
        hold.add(A, held(number))
    released = hold.take(A, 2, 10, INF)
    hold.done([released[0].row])
    given_up = hold.take(A, 2, 10, INF)
    hold.give_up(A, given_up)
    assert count(hold, A) == 2
    hold.close()
    hold, recovered = run(path)
    assert recovered == {A: 5}
    assert take_all(hold) == [2, 3, 4, 5, 6]
    hold.close()


def test_given_up_requests_wait_again_in_the_next_run(path: Path) -> None:
    hold = DiskHold(path, SPIDER)
    hold.add(A, held(1, since=5.0))
    hold.add(A, held(2, since=6.0))
    [first] = hold.take(A, 1, 10, INF)
    assert first.row is not None
    hold.give_up(A, [first])
    ran(hold, 50.0)
    hold.close()
    hold, _ = run(path)
    assert [(one.number, one.since) for one in hold.take(A, 10, 10, INF)] == [(1, 50.0), (2, 6.0)]
    hold.close()


def test_rows_are_never_used_again(path: Path) -> None:
    """A request in the scheduler may know one that is gone."""
    hold = DiskHold(path, SPIDER)
    hold.add(A, held(1))
    [first] = hold.take(A, 1, 10, INF)
    assert first.row is not None
    hold.done([first.row])
    hold.close()
    hold, _ = run(path)
    hold.add(A, held(2))
    [second] = hold.take(A, 1, 10, INF)
    assert second.row != first.row
    hold.close()


def test_unserialisable_among_others(path: Path) -> None:
    """In memory, in their places, with one warning."""
    hold = DiskHold(path, SPIDER)
    with captured_log() as records:
        for number in range(1, 10):
            hold.add(A, unserialisable(number) if number % 3 == 0 else held(number))
        hold.add(A, held(10, meta={"lock": _Unpicklable()}))
    warnings = [one for one in records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"{A}/3" in warnings[0].getMessage()
    assert count(hold, A) == 10
    assert in_slices(hold, 4) == list(range(1, 11))
    hold.close()


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("not even a pickle error")


def test_dont_filter_is_written_as_the_user_set_it(path: Path) -> None:
    """In a run of its own, too: the file does not know what the request looked like while held."""
    hold = DiskHold(path, SPIDER)
    for number, dont_filter in ((1, False), (2, True)):
        hold.add(A, Held(number, 0.0, dont_filter, Request(f"{A}/{number}", dont_filter=True)))
    hold.close()
    hold, _ = run(path)
    assert [one.dont_filter for one in hold.take(A, 10, 10, INF)] == [False, True]
    hold.close()


@pytest.mark.loop
async def test_checkpoints_are_made_in_a_thread(path: Path) -> None:
    """They wait for the disk: nothing that is written in the event loop makes one."""
    hold = DiskHold(path, SPIDER)
    size = path.stat().st_size
    for number in range(1, 1001):
        hold.add(A, held(number, meta={"filler": "x" * 8000}))
    assert path.stat().st_size == size
    await hold.upkeep(None)
    assert path.stat().st_size > 8_000_000
    hold.close()
