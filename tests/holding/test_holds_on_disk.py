"""The file under JOBDIR, over several runs: what becomes of a request that was held, also when the file, or a
part of it, can't be used."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.held_origins import HeldOrigins
from scrapy_rep.holding.hold import dumps
from scrapy_rep.origins.origins import Origins
from scrapy_rep.protocol import Origin
from tests.helpers.crawling import captured_log
from tests.helpers.files import ask, change
from tests.helpers.held import (
    SPIDER,
    A,
    B,
    file_of,
    held,
    hold_spider,
    numbers,
    opened,
    ran,
    read_all,
    run,
    unserialisable,
)
from tests.helpers.recorded import context_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.mark.parametrize("in_order", [True, False])
def test_what_has_not_been_dealt_with_stays(path: Path, in_order: bool) -> None:
    """After a kill too: nobody knows whether what was released was fetched."""
    hold = opened(path)
    first, given_up, *_ = read_all(hold, [hold.hold(A, held(n, since=n)) for n in range(1, 6)])
    hold.hold(B, held(6, since=60.0))
    assert first.row is not None
    hold.done([first.row])
    hold.give_up(A, given_up)
    ran(hold, 50.0)
    if in_order:
        hold.close()
    else:
        file_of(hold).close()
    hold, recovered = run(path)
    assert hold.last() == (6, 60.0)
    # What was given up waits anew.
    found = [(one.number, one.since) for one in read_all(hold, recovered[A])]
    assert found == [(2, 60.0), (3, 3.0), (4, 4.0), (5, 5.0)]
    assert numbers(read_all(hold, recovered[B])) == [6]
    hold.close()


async def test_those_of_an_earlier_run_come_before_what_is_held_so_far(path: Path) -> None:
    """The file can be opened only now: these stay in memory."""
    earlier = opened(path)
    for number in (1, 2):
        earlier.hold(A, held(number))
    ran(earlier, 50.0)
    earlier.close()
    context, origin = context_of(), Origin.from_url(A)
    table = HeldOrigins(context, Origins(context))
    for number in (3, 4):
        table.settle(table.wait(origin, held(number).request, None))
    one = table.wait(origin, held(5).request, None)
    async for _ in table.move_to(hold := opened(path)):
        pass
    assert numbers([*read_all(hold, one.heap), *one.waiting]) == [1, 2, 3, 4, 5]
    assert min(entry[2] for entry in one.heap[2:]) >= 50.0
    assert table.wait(origin, held(6).request, None).waiting[-1].number == 6
    hold.close()


def test_unserialisable_among_others(path: Path) -> None:
    """In memory, in their places, with one warning."""
    hold = opened(path)
    some = [unserialisable(number) if number % 3 == 0 else held(number) for number in range(1, 10)]
    some.append(held(10, meta={"lock": _Unpicklable()}))
    with captured_log() as records:
        entries = [hold.hold(A, one) for one in some]
    [warning] = [one for one in records if one.levelname == "WARNING"]
    assert f"{A}/3" in warning.getMessage()
    assert numbers(read_all(hold, entries)) == list(range(1, 11))
    hold.close()


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("not even a pickle error")


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
        hold, recovered = run(path)
        entries = [*recovered[A], hold.hold(A, held(4, priority=9))]
    taken = read_all(hold, entries)
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
    hold, recovered = run(path)
    first, *_ = read_all(hold, recovered[A])
    hold.left(A, first)
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
    hold.close()


GONE = pickle.dumps(Request(f"{A}/2").to_dict() | {"callback": "parse_that_is_gone"}).hex()


@pytest.mark.parametrize(
    "query",
    [
        "UPDATE held SET id = 9000000000000000000 WHERE number = 2",
        "UPDATE held SET number = 'two' WHERE number = 2",
        "UPDATE held SET since = 1e300 WHERE number = 2",
        "UPDATE held SET since = x'00' WHERE number = 2",
        "UPDATE held SET origin = x'00' WHERE number = 2",
        "UPDATE held SET state = 'held' WHERE number = 2",
        "UPDATE held SET request = 5 WHERE number = 2",
        "UPDATE held SET request = x'6e6f' WHERE number = 2",
        f"UPDATE held SET request = x'{GONE}' WHERE number = 2",  # noqa: S608 (ours)
        "UPDATE held SET priority = 'high' WHERE number = 2",
        "UPDATE held SET priority = 1e300 WHERE number = 2",
        "UPDATE held SET fingerprint = x'00' WHERE number = 2",
        "UPDATE held SET request = CAST(x'fffe' AS TEXT) WHERE number = 2",
        "UPDATE clock SET ran = 'long'",
        "UPDATE clock SET ran = 9e99",
        "UPDATE sqlite_sequence SET seq = 'many'",
        "UPDATE sqlite_sequence SET seq = 9000000000000000000",
    ],
)
def test_values_that_can_not_be(path: Path, query: str) -> None:
    """One row is skipped, with a warning, and what is held then is as safe as ever."""
    hold = opened(path)
    for number in (1, 2, 3):
        hold.hold(A, held(number, callback=SPIDER.parse))
    ran(hold, 10.0)
    hold.close()
    change(path, query)
    with captured_log() as records:
        hold, recovered = run(path)
        assert 0 <= hold.last()[1] < 100
        found = numbers(read_all(hold, [*recovered[A], hold.hold(A, held(4))]))
        hold.close()
    assert found == ([1, 3, 4] if "number = 2" in query else [1, 2, 3, 4])
    said = [one.getMessage() for one in records if one.levelname == "WARNING"]
    unread = [line for line in said if "1 held request could not be read" in line]
    assert unread == said and len(said) == 4 - len(found)
    assert ("parse_that_is_gone" in "".join(said)) is (GONE in query)
    assert ask(path, "SELECT count(*) FROM held") == 4


def test_what_can_not_be_written_waits_in_memory(path: Path) -> None:
    """It has no row when it leaves, and is on disk once that works."""
    hold = opened(path)
    entries = [
        hold.hold(A, unserialisable(number) if number == 2 else held(number))
        for number in range(1, 5)
    ]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first, _, third, fourth = read_all(hold, entries)
    hold.done([row for row in (first.row, fourth.row) if row])
    hold.give_up(A, third)
    entries = [entries[1], *(hold.hold(A, held(number)) for number in (5, 6))]
    assert ask(path, "SELECT count(*) FROM held") == 3
    assert all(map(hold.is_mortal, entries))
    assert numbers(read_all(hold, entries)) == [2, 5, 6]
    hold.hold(A, held(7))
    other.close()
    hold.close()
    query = "SELECT group_concat(number || ':' || state) FROM (SELECT * FROM held ORDER BY id)"
    assert ask(path, query) == "3:2,7:0"
