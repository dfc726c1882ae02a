"""The file under JOBDIR when it, or a part of it, can't be used: nobody loses more than that."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, DiskHold
from tests.helpers.brokenfiles import ask, change
from tests.helpers.crawling import captured_log
from tests.helpers.holds import (
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


@pytest.mark.parametrize(
    "garbage", [b"this is no database, it never was one" * 100, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_set_aside(path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    with captured_log() as records:
        hold = Opening(str(path.parent), SPIDER).hold()
    assert isinstance(hold, DiskHold)
    [warning] = [one for one in records if one.levelname == "WARNING"]
    [aside] = path.parent.glob(f"{FILE_NAME}.*unreadable*")
    assert aside.read_bytes() == garbage
    assert aside.name in warning.getMessage()
    hold.hold(A, held(1))
    assert take_all(hold) == [1]
    hold.close()


def test_a_file_that_is_damaged_within_is_set_aside(path: Path) -> None:
    """Its beginning is good, so that opening it alone tells nothing."""
    hold = opened(path)
    for number in range(1, 500):
        hold.hold(A, held(number, meta={"filler": "x" * 500}))
    hold.close()
    data = path.read_bytes()
    damaged = data[:4096] + b"\xaa" * (len(data) - 4096)
    path.write_bytes(damaged)
    with captured_log() as records:
        opened = Opening(str(path.parent), SPIDER).hold()
        assert isinstance(opened, DiskHold)
        list(opened.recover())
    assert [one for one in records if one.levelname == "WARNING"]
    [aside] = path.parent.glob(f"{FILE_NAME}.*unreadable*")
    assert aside.read_bytes() == damaged
    opened.close()


def test_a_folder_that_can_not_be_written_to(tmp_path: Path) -> None:
    """Tests may run as root, whom nothing is forbidden: there is a file where a folder should
    be."""
    folder = tmp_path / "folder"
    folder.write_text("")
    opening = Opening(str(folder), SPIDER)
    with captured_log() as records:
        assert opening.hold() is None
        assert opening.hold() is None
        folder.unlink()
        folder.mkdir()
        hold = opening.hold()
    assert hold is not None
    hold.close()
    warning, information = records
    assert warning.levelname == "WARNING"
    assert "retrying every second" in warning.getMessage()
    assert "can be used again" in information.getMessage()


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


def test_a_file_that_is_locked_for_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees an error, nobody waits, and all is written once the lock is gone."""
    hold = opened(path)
    write, writes = HoldFile.write, []

    def counted(file: HoldFile, changes: Changes) -> None:
        writes.append(changes)
        write(file, changes)

    for number in range(1, 5):
        hold.hold(A, unserialisable(number) if number == 2 else held(number))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    [busy_timeout] = file_of(hold).execute("PRAGMA busy_timeout").fetchone()
    assert busy_timeout <= 5  # milliseconds
    monkeypatch.setattr(HoldFile, "write", counted)
    with captured_log() as records:
        first, second, third, fourth = take(hold)
        hold.done([row for row in (first.row, fourth.row) if row])
        hold.give_up(A, third)
        hold.put_back(A, second)
        hold.hold(A, held(5))
    assert len(writes) == 1
    [warning] = [one for one in records if one.levelname == "WARNING"]
    assert "database is locked" in warning.getMessage()
    assert ask(path, "SELECT count(*) FROM held") == 3
    other.execute("ROLLBACK")
    other.close()
    hold._writer._works()
    hold._writer._now()
    assert (
        ask(
            path,
            "SELECT group_concat(number || ':' || state) FROM (SELECT * FROM held ORDER BY id)",
        )
        == "3:2,5:0"
    )
    assert take_all(hold) == [2, 5]
    hold.close()


def test_a_disk_that_is_full(path: Path) -> None:
    """What can't be written is held in memory; what can, later, is written again."""
    hold = opened(path)
    file_of(hold).execute("PRAGMA max_page_count = 10")
    with captured_log() as records:
        for number in range(1, 51):
            hold.hold(A, held(number, meta={"filler": "x" * 1000}))
    assert count(hold, A) == 50
    assert len([one for one in records if one.levelname == "WARNING"]) == 1
    file_of(hold).execute("PRAGMA max_page_count = 100000")
    hold.hold(A, held(51))
    assert take_all(hold) == list(range(1, 52))
    hold.close()
