"""The file under JOBDIR when it, or a part of it, can't be used: nobody loses more than that."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holds import FILE_NAME, DiskHold, MemoryHold, open_hold
from tests.helpers.crawling import captured_log
from tests.helpers.holds import INF, SPIDER, A, held, in_slices, run, take_all, unserialisable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.mark.parametrize(
    "garbage", [b"this is no database, it never was one" * 100, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_set_aside(path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    with captured_log() as records:
        hold = open_hold(str(path.parent), SPIDER)
    assert isinstance(hold, DiskHold)
    [warning] = [one for one in records if one.levelname == "WARNING"]
    [aside] = path.parent.glob(f"{FILE_NAME}.*unreadable*")
    assert aside.read_bytes() == garbage
    assert aside.name in warning.getMessage()
    hold.add(A, held(1))
    assert take_all(hold) == [1]
    hold.close()


def test_a_file_that_is_damaged_within_is_set_aside(path: Path) -> None:
    """Its beginning is good, so that opening it alone tells nothing."""
    hold = DiskHold(path, SPIDER)
    for number in range(1, 500):
        hold.add(A, held(number, meta={"filler": "x" * 500}))
    hold.close()
    data = path.read_bytes()
    damaged = data[:4096] + b"\xaa" * (len(data) - 4096)
    path.write_bytes(damaged)
    with captured_log() as records:
        opened = open_hold(str(path.parent), SPIDER)
        assert isinstance(opened, DiskHold)
        opened.last()
        opened.recover(0.0)
    assert [one for one in records if one.levelname == "WARNING"]
    [aside] = path.parent.glob(f"{FILE_NAME}.*unreadable*")
    assert aside.read_bytes() == damaged
    opened.close()


def test_a_folder_that_can_not_be_written_to(tmp_path: Path) -> None:
    """Tests may run as root, whom nothing is forbidden: there is a file where a folder should
    be."""
    (tmp_path / "file").write_text("")
    with captured_log() as records:
        hold = open_hold(str(tmp_path / "file" / "jobdir"), SPIDER)
    assert isinstance(hold, MemoryHold)
    [warning] = [one for one in records if one.levelname == "WARNING"]
    assert "held in memory" in warning.getMessage()


def test_a_row_that_can_not_be_read(path: Path) -> None:
    hold = DiskHold(path, SPIDER)
    for number in range(1, 6):
        hold.add(A, held(number, callback=SPIDER.parse))
    gone = Request(f"{A}/2").to_dict() | {"callback": "parse_that_is_gone"}
    hold._db.execute("UPDATE held SET request = ? WHERE number = 2", (pickle.dumps(gone),))
    hold._db.execute("UPDATE held SET request = ? WHERE number = 4", (b"no pickle",))
    hold.close()
    hold, _ = run(path)
    with captured_log() as records:
        assert take_all(hold) == [1, 3, 5]
    assert [one.levelname for one in records] == ["ERROR", "ERROR"]
    assert hold.count(A) == 0
    hold.close()


@pytest.mark.parametrize("method", ["take", "give_up", "done"])
def test_a_file_that_is_locked_for_a_while(path: Path, method: str) -> None:
    """It fails, and works when it is tried again; nothing is lost by the first attempt."""
    hold = DiskHold(path, SPIDER)
    for number in range(1, 5):
        hold.add(A, unserialisable(number) if number == 2 else held(number))
    rows: list[int] = []
    if method != "take":
        rows = [one.row for one in hold.take(A, 10, 10, INF) if one.row is not None]
    hold._db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def attempt() -> Any:
        return take_all(hold) if method == "take" else getattr(hold, method)(rows)

    with pytest.raises(sqlite3.OperationalError):
        attempt()
    other.execute("ROLLBACK")
    other.close()
    assert attempt() == ([1, 2, 3, 4] if method == "take" else None)
    hold.close()


def test_a_disk_that_is_full(path: Path) -> None:
    """What can't be written is held in memory; what can, later, is written again."""
    hold = DiskHold(path, SPIDER)
    hold._db.execute("PRAGMA max_page_count = 10")
    with captured_log() as records:
        for number in range(1, 51):
            hold.add(A, held(number, meta={"filler": "x" * 1000}))
    assert hold.count(A) == 50
    assert len([one for one in records if one.levelname == "WARNING"]) == 1
    hold._db.execute("PRAGMA max_page_count = 100000")
    hold.add(A, held(51))
    assert in_slices(hold, 7) == list(range(1, 52))
    hold.close()
