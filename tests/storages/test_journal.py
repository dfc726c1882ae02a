"""The file under JOBDIR, whatever happens to it: no caller sees an error or waits, one log line."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import journal as module
from scrapy_rep.storages.journal import Journal
from tests.helpers.crawling import captured_log
from tests.helpers.files import aside, ask, connections_to
from tests.helpers.log import lines, warnings
from tests.storages.faults import DAMAGES, FAULTS, Corrupted, Fault, Full

SCHEMA = """
CREATE TABLE IF NOT EXISTS held (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS named (name TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
"""
FILLER = "x" * 3000


def journal_of(path: Path | None) -> Journal:
    return Journal(
        path, SCHEMA, None, "it is tried again", "it is lost", gauge="rep/down/held"
    )


@pytest.fixture
def opened() -> Iterator[Callable[..., Journal]]:
    """Opens journals; what the test has not closed is closed in the end."""
    made: list[Journal] = []

    def opened(path: Path | None, rows: int = 0) -> Journal:
        made.append(journal_of(path))
        assert made[-1].open(lambda db: True)
        fill(made[-1], range(1, rows + 1))
        return made[-1]

    yield opened
    for one in made:
        one.close()


Opener = Callable[..., Journal]


def fill(journal: Journal, numbers: range) -> None:
    journal.put("held", *((number, FILLER) for number in numbers))


def ids(journal: Journal) -> list[int]:
    return [row for [row] in journal.read("SELECT id FROM held ORDER BY id")]


def stored(path: Path) -> list[int]:
    with sqlite3.connect(path) as db:
        found = [row for [row] in db.execute("SELECT id FROM held ORDER BY id")]
    db.close()
    return found


def said(records: Any) -> tuple[int, int]:
    return len(warnings(records)), len(lines(records, "can be used again"))


@pytest.mark.parametrize("temporary", [False, True])
def test_rows_are_put_replaced_and_deleted(
    path: Path, opened: Opener, temporary: bool
) -> None:
    journal = opened(None if temporary else path)
    journal.put("held", (1, "one"), (2, "two"), (3, "three"))
    journal.put("held", (2, "again"))
    journal.delete("held", 1, 7)
    assert journal.read("SELECT * FROM held ORDER BY id") == [
        (2, "again"),
        (3, "three"),
    ]
    journal.put("named", ("a", 1), ("b", 2), ("a", 3))
    assert journal.read("SELECT * FROM named ORDER BY name") == [("a", 3), ("b", 2)]
    assert journal.unwritten("held", 3) is None


def test_a_change_is_in_the_file_at_once_and_survives_a_kill(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No id is used again, though the highest was deleted: a request on its way may have it."""
    connections = connections_to(path, monkeypatch)
    journal = opened(path)
    for number in range(1, 4):
        journal.put("held", (journal.new_id("held"), "x"))
        assert stored(path) == list(range(1, number + 1))
    journal.delete("held", 3)
    connections[0].close()  # what a kill leaves: nothing is closed in order
    journal = opened(path)
    assert ids(journal) == [1, 2]
    assert journal.new_id("held") == 4


def test_changes_that_belong_together_are_written_together(
    path: Path, opened: Opener
) -> None:
    journal = opened(path)
    with journal.in_one_transaction():
        journal.put("held", (1, "x"))
        journal.put("named", ("a", 1))
        assert stored(path) == []
    assert stored(path) == [1]


def test_what_was_written_does_not_stay_in_the_log(path: Path, opened: Opener) -> None:
    """That would grow for as long as the crawl runs."""
    journal = opened(path)
    for _ in range(20):
        fill(journal, range(250))
    assert path.stat().st_size > 250 * len(FILLER)
    assert path.with_name(f"{path.name}-wal").stat().st_size < 5_000_000


@pytest.fixture(params=FAULTS.values(), ids=FAULTS)
def fault(
    request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fault]:
    monkeypatch.setattr(module, "_CALM_SECONDS", 0.0)
    with request.param(path).possible() as made:
        yield made


async def test_what_fails_is_kept_in_memory_and_written_once_that_works(
    path: Path, opened: Opener, fault: Fault
) -> None:
    journal = opened(path, rows=5)
    fault.begin()
    with captured_log() as records:
        fill(journal, range(6, 31))
        journal.delete("held", 2, 7)
        journal.put("held", (8, "again"))
        for _ in range(2):
            await journal.flush()
        assert ids(journal) == stored(path) == [1, 2, 3, 4, 5]
        assert list(journal._pending)[-1] == ("held", 8), "as they came"
        unwritten = [journal.unwritten("held", row) for row in (8, 7, 1)]
        assert unwritten == [(8, "again"), None, None]
        assert journal.failing_since is not None
        with pytest.raises(sqlite3.OperationalError):
            journal.read_latest("SELECT 1")
        fault.end()
        for _ in range(2):
            await journal.flush()
    assert stored(path) == [1, 3, 4, 5, 6, *range(8, 31)]
    assert ask(path, "SELECT text FROM held WHERE id = 8") == "again"
    assert journal.failing_since is None
    assert journal.read_latest("SELECT 1") == [(1,)]
    assert said(records) == (1, 1)
    [warning] = warnings(records)
    assert all(words in warning for words in (str(path), fault.words))
    assert warning.endswith("it is tried again")


@pytest.mark.parametrize("in_time", [True, False])
def test_closing_is_the_last_chance(
    path: Path, opened: Opener, fault: Fault, in_time: bool
) -> None:
    journal = opened(path, rows=1)
    fault.begin()
    fill(journal, range(2, 30))
    with captured_log() as records:
        if in_time:
            fault.end()
        journal.close()
    fault.end()
    assert stored(path) == (list(range(1, 30)) if in_time else [1])
    assert len(warnings(records)) == (not in_time)
    assert all("Could not finish writing" in one for one in warnings(records))


async def test_the_log_does_not_swing_back_and_forth(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted from a full disk makes room for a moment, over and over."""
    now = time.monotonic()
    with Full(path).possible() as fault, captured_log() as records:
        journal = opened(path)
        for _ in range(5):
            fault.begin()
            fill(journal, range(30))
            await journal.flush()
            fault.end()
            await journal.flush()
            assert journal.failing_since is None
        assert said(records) == (1, 0)
        monkeypatch.setattr(module.time, "monotonic", lambda: now + 100)
        await journal.flush()
    assert said(records) == (1, 1)


async def test_what_can_not_be_read_counts_as_failing_until_it_can(
    path: Path, opened: Opener
) -> None:
    """Though writing works."""
    journal = opened(path)
    with captured_log() as records:
        with pytest.raises(sqlite3.OperationalError):
            journal.read_latest("SELECT x FROM there_later")
        await journal.flush()
        assert journal.failing_since is not None
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE there_later (x)")
        other.close()
        await journal.flush()
    assert journal.read_latest("SELECT x FROM there_later") == []
    assert len(warnings(records)) == 1


async def test_what_is_put_between_slices_of_a_backlog_is_not_lost(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, meanwhile = (
        opened(path),
        [lambda: journal.put("held", (2, "new"), (999, "x"))],
    )
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fill(journal, range(250))
    other.close()

    async def pause() -> None:
        if meanwhile:
            meanwhile.pop()()
            journal.delete("held", 1, 240)

    monkeypatch.setattr(module, "pause", pause)
    await journal.flush()
    assert stored(path) == [*sorted({*range(250)} - {1, 240}), 999]
    assert ask(path, "SELECT text FROM held WHERE id = 2") == "new"
    assert journal.failing_since is None


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_set_aside(
    path: Path, opened: Opener, damage: Callable[[Path], object]
) -> None:
    opened(path, rows=40).close()
    damage(path)
    with captured_log() as records:
        journal = opened(path)
    kept = aside(path)
    assert len(kept) == len(warnings(records)) <= 1
    assert not kept or kept[0].name in warnings(records)[0]
    assert len(ids(journal)) in (0, 40)
    journal.put("held", (1, "x"))
    assert 1 in stored(path)


@pytest.mark.parametrize("how", ["a file for a folder", "locked"])
def test_what_can_not_be_opened_is_tried_again(
    path: Path, opened: Opener, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THREAD_LOCK_SECONDS", 0.01)
    if how == "locked":
        opened(path).close()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        end = other.close
    else:
        path = path.parent / "file" / path.name
        path.parent.write_text("")
        end = path.parent.unlink
    journal = journal_of(path)
    with captured_log() as records:
        for _ in range(2):
            assert journal.open(lambda db: True) is None
        assert journal.failing_since is not None
        with pytest.raises(sqlite3.OperationalError):
            journal.read("SELECT 1")
        end()
        path.parent.mkdir(exist_ok=True)
        assert journal.open(lambda db: True)
    assert journal.failing_since is None
    assert said(records) == (1, 1)
    assert aside(path) == []
    journal.close()


async def test_what_is_damaged_while_it_is_open(path: Path, opened: Opener) -> None:
    """What can't be read raises, what can't be written is not retried at the end. The next run sets
    the file aside."""
    with Corrupted(path).possible() as fault, captured_log() as records:
        journal = opened(path, rows=40)
        fault.begin()
        with pytest.raises(sqlite3.DatabaseError):
            journal.read_latest("SELECT * FROM held")
        journal.put("held", (50, FILLER))
        await journal.flush()
        journal.close()
    assert journal.damaged
    [warning] = warnings(records)
    assert warning.endswith("it is lost")
    opened(path)
    assert len(aside(path)) == 1


async def test_a_file_that_is_deleted_while_it_is_open(
    path: Path, opened: Opener
) -> None:
    """The run goes on with it, and the next one begins a new one."""
    journal = opened(path, rows=1)
    for one in path.parent.iterdir():
        one.unlink()
    with captured_log() as records:
        fill(journal, range(2, 300))
        await journal.flush()
        assert ids(journal) == [*range(1, 300)]
        journal.close()
    assert not path.exists()
    assert warnings(records) == []
