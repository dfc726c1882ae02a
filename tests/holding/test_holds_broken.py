"""The file under JOBDIR when it, or a part of it, can't be used: nobody loses more than that."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME
from tests.helpers.crawling import captured_log
from tests.helpers.files import ask, change
from tests.helpers.held import (
    SPIDER,
    A,
    count,
    file_of,
    held,
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


def test_a_row_that_can_not_be_read(path: Path) -> None:
    hold = opened(path)
    for number in range(1, 6):
        hold.hold(A, held(number, callback=SPIDER.parse))
    gone = Request(f"{A}/2").to_dict() | {"callback": "parse_that_is_gone"}
    file_of(hold).execute("UPDATE held SET request = ? WHERE number = 2", (pickle.dumps(gone),))
    file_of(hold).execute("UPDATE held SET request = ? WHERE number = 4", (b"no pickle",))
    hold.close()
    hold, _ = run(path)
    with captured_log() as records:
        assert take_all(hold) == [1, 3, 5]
        assert count(hold, A) == 0
        hold.close()
    [warning] = records
    assert warning.levelname == "WARNING"
    assert "2 held requests can't be read" in warning.getMessage()
    assert "parse_that_is_gone" in warning.getMessage()


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
def test_numbers_that_can_not_be(path: Path, query: str) -> None:
    """One row is skipped, and what is held then is as safe as ever."""
    hold = opened(path)
    for number in (1, 2, 3):
        hold.hold(A, held(number))
    ran(hold, 10.0)
    hold.close()
    change(path, query)
    with captured_log() as records:
        hold, _ = run(path)
        assert 0 <= hold.last()[1] < 100
        hold.hold(A, held(4))
        found = take_all(hold)
        hold.close()
    assert found == ([1, 3, 4] if "number = 2" in query else [1, 2, 3, 4])
    said = [one.getMessage() for one in records if one.levelname == "WARNING"]
    assert [line for line in said if "1 held request can't be read" in line] == said[
        : 4 - len(found)
    ]
    assert ask(path, "SELECT count(*) FROM held") == 4


def test_what_can_not_be_written_waits_in_memory(path: Path) -> None:
    """It is in its place all the same, has no row when it leaves, and is on disk once that works."""
    hold = opened(path)
    for number in range(1, 5):
        hold.hold(A, unserialisable(number) if number == 2 else held(number))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first, second, third, fourth = take(hold)
    hold.done([row for row in (first.row, fourth.row) if row])
    hold.give_up(A, third)
    hold.put_back(A, second)
    for number in (5, 6):
        hold.hold(A, held(number))
    assert ask(path, "SELECT count(*) FROM held") == 3
    assert [one.number for one in hold.take_mortal(A)] == [2, 5, 6]
    hold.hold(A, held(7))
    other.close()
    hold.close()
    query = "SELECT group_concat(number || ':' || state) FROM (SELECT * FROM held ORDER BY id)"
    assert ask(path, query) == "3:2,7:0"
