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
from tests.helpers.held import SPIDER, A, held, numbers, opened, ran, read_all, run, unserialisable

GONE = pickle.dumps(Request(f"{A}/2").to_dict() | {"callback": "parse_that_is_gone"}).hex()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


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
