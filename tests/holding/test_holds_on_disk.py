"""The file under JOBDIR, over several runs: what becomes of a request that was held."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, DiskHold
from scrapy_rep.holding.hold import dumps
from tests.helpers.crawling import captured_log
from tests.helpers.held import (
    SPIDER,
    A,
    B,
    count,
    file_of,
    held,
    hold_spider,
    numbers,
    opened,
    ran,
    run,
    take,
    take_all,
    unserialisable,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def killed(hold: DiskHold) -> None:
    """What a kill leaves: nothing is closed in order."""
    file_of(hold).close()


def test_killed_while_held(path: Path) -> None:
    hold = opened(path)
    for number in range(1, 5):
        hold.hold((A, B)[number % 2], held(number, since=number * 10.0))
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
    hold = opened(path)
    for number in range(1, 4):
        hold.hold(A, held(number))
    assert take_all(hold) == [1, 2, 3]
    killed(hold)
    hold, recovered = run(path)
    assert recovered == {A: 3}
    assert take_all(hold) == [1, 2, 3]
    hold.close()


def test_killed_after_download(path: Path) -> None:
    hold = opened(path)
    for number in range(1, 4):
        hold.hold(A, held(number))
    hold.done([one.row for one in take(hold, 2) if one.row])
    killed(hold)
    hold, recovered = run(path)
    assert recovered == {A: 1}
    assert take_all(hold) == [3]
    hold.close()


def test_closed_in_order(path: Path) -> None:
    """What was released and dealt with is gone; all else stays."""
    hold = opened(path)
    for number in range(1, 7):
        hold.hold(A, held(number))
    released, _ = take(hold, 2)
    assert released.row is not None
    hold.done([released.row])
    for one in take(hold, 2):
        hold.give_up(A, one)
    assert count(hold, A) == 2
    hold.close()
    hold, recovered = run(path)
    assert recovered == {A: 5}
    assert take_all(hold) == [2, 3, 4, 5, 6]
    hold.close()


def test_given_up_requests_wait_again_in_the_next_run(path: Path) -> None:
    hold = opened(path)
    hold.hold(A, held(1, since=5.0))
    hold.hold(A, held(2, since=6.0))
    [first] = take(hold, 1)
    hold.give_up(A, first)
    ran(hold, 50.0)
    hold.close()
    hold, _ = run(path)
    assert [(one.number, one.since) for one in take(hold)] == [(1, 50.0), (2, 6.0)]
    hold.close()


def test_unserialisable_among_others(path: Path) -> None:
    """In memory, in their places, with one warning."""
    hold = opened(path)
    with captured_log() as records:
        for number in range(1, 10):
            hold.hold(A, unserialisable(number) if number % 3 == 0 else held(number))
        hold.hold(A, held(10, meta={"lock": _Unpicklable()}))
    warnings = [one for one in records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"{A}/3" in warnings[0].getMessage()
    assert count(hold, A) == 10
    assert take_all(hold) == list(range(1, 11))
    hold.close()


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("not even a pickle error")


def test_what_ends_with_the_process(path: Path) -> None:
    """What only waits, and what can't be written. The rest stays, and stays in order."""
    hold = opened(path)
    for number in range(1, 10):
        one = unserialisable if number % 3 == 0 else held
        (hold.hold if number < 6 else hold.add)(A, one(number, priority=number % 2))
    assert numbers(list(hold.take_mortal(A))) == [3, 7, 9, 6, 8]
    assert take_all(hold) == [1, 5, 2, 4]
    hold.close()


# Files of earlier versions

OLD = """
CREATE TABLE held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL,
    state INTEGER NOT NULL,
    request BLOB NOT NULL
);
CREATE TABLE clock (id INTEGER PRIMARY KEY, ran REAL NOT NULL);
CREATE INDEX held_by_origin ON held (origin, state, number);
"""


def old_file(path: Path, script: str = "") -> None:
    """What is held, what was released and is not known to be done with, and what was given up."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(OLD)
        for number, state in ((1, 0), (2, 1), (3, 2)):
            request = dumps(Request(f"{A}/{number}", priority=number), SPIDER)
            row = (number, A, number, 10.0 * number, state, request)
            db.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("INSERT INTO clock VALUES (1, 50.0)")
        db.executescript(script)


@pytest.mark.parametrize(
    "script", ["", "ALTER TABLE held ADD COLUMN priority INTEGER NOT NULL DEFAULT 0"]
)
def test_a_file_of_an_earlier_version_loses_nothing(path: Path, script: str) -> None:
    """Nor does one whose process was killed while it was brought up to date."""
    old_file(path, script)
    with captured_log() as records:
        hold = opened(path)
        assert list(hold.recover()) == [(A, 3, 10.0)]
        hold.hold(A, held(4, priority=9))
        hold.close()
        hold, recovered = run(path)
    assert recovered == {A: 4}
    taken = take(hold)
    assert numbers(taken) == [4, 1, 2, 3]
    assert [(one.since, one.request.priority) for one in taken[1:]] == [(10, 1), (20, 2), (50, 3)]
    assert not hold.is_held_already(A, held(1).request)
    assert not records
    hold.close()


# Requests that come again


def test_one_is_recognised_for_each_that_an_earlier_run_held(path: Path) -> None:
    hold = opened(path)
    for number in (1, 1, 2):
        hold.hold(A, held(number))
    again = [held(number).request for number in (1, 1, 1, 2, 3)]
    assert not any(hold.is_held_already(A, one) for one in again), "of this run"
    hold.close()
    hold, _ = run(path)
    assert not any(hold.is_held_already(B, one) for one in again)
    assert [hold.is_held_already(A, one) for one in again] == [True, True, False, True, False]
    hold.close()


def test_what_has_left_is_not_held_any_more(path: Path) -> None:
    """A retry of it is a request of its own."""
    hold = opened(path)
    for number in range(1, 4):
        hold.hold(A, held(number))
    hold.close()
    hold, _ = run(path)
    _, second = take(hold, 2)
    hold.put_back(A, second)  # it didn't leave after all
    again = [hold.is_held_already(A, held(number).request) for number in range(1, 4)]
    assert again == [False, True, True]
    hold.close()


class ByUrl:
    """A project's own, which is no hash."""

    def fingerprint(self, request: Request) -> bytes:
        return request.url.encode()


class Failing:
    def fingerprint(self, request: Request) -> bytes:
        raise KeyError("id")


@pytest.mark.parametrize(("kind", "recognised"), [(ByUrl, [True, False]), (Failing, [False] * 2)])
def test_fingerprints_of_a_project(path: Path, kind: type, recognised: list[bool]) -> None:
    spider = hold_spider(REQUEST_FINGERPRINTER_CLASS=kind)
    hold = opened(path, spider)
    hold.hold(A, held(1))
    hold.close()
    hold = opened(path, spider)
    assert [hold.is_held_already(A, held(number).request) for number in (1, 2)] == recognised
    assert take_all(hold) == [1]
    hold.close()
