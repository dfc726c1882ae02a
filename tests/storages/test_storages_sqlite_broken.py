"""SqliteStorage with a file that is broken, somebody else's, or can't be written."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_rep.storages import SqliteStorage, sqlite
from scrapy_rep.storages.journal import set_aside
from tests.helpers.crawling import captured_log
from tests.helpers.files import BROKEN, aside, ask, change
from tests.helpers.log import warnings
from tests.helpers.rows import every_row
from tests.helpers.storing import NOW, A, B, missing, rules

HOUR = 3600.0


FIRST: tuple[Callable[[SqliteStorage], object], ...] = (
    lambda storage: storage.load("http://7:80"),
    lambda storage: storage.save(missing()),
    lambda storage: storage.lease(A, "me", HOUR),
    lambda storage: list(storage.entries()),
    lambda storage: storage.purge(NOW),
)


def test_broken_files_are_set_aside_and_new_ones_begun(path: Path) -> None:
    """Whatever meets it first. Nothing is deleted, of those of one second neither."""
    contents = []
    with every_row() as row:
        for number, (name, broken) in enumerate(BROKEN.items()):
            with row(name):
                path.unlink(missing_ok=True)
                broken(path)
                contents.append(path.read_bytes())
                storage = SqliteStorage(path)
                with captured_log() as records:
                    FIRST[number % len(FIRST)](storage)
                    storage.save(rules())
                    assert storage.load(A) == rules()
                    assert storage.lease(A, "me", HOUR)
                assert sorted(one.read_bytes() for one in aside(path)) == sorted(contents)
                [warning] = warnings(records)
                assert str(path) in warning
                assert "was set aside as robots.sqlite.unreadable-" in warning
                storage.close()
                assert ask(path, "PRAGMA integrity_check") == "ok"


@pytest.fixture
def open_elsewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files that another process has open: Windows renames none."""
    files = {path}
    rename = Path.rename

    def as_on_windows(self: Path, target: Path) -> Path:
        if self in files:
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", as_on_windows)
    return files


def test_a_broken_file_that_another_process_has_open_is_set_aside_later(
    path: Path, open_elsewhere: set[Path]
) -> None:
    """The access, which is told, keeps what there is to save, and tries again."""
    path.write_bytes(b"no database" * 100)
    storage = SqliteStorage(path)
    for _ in range(2):
        with pytest.raises(PermissionError):
            storage.save(rules())
        assert path.read_bytes().startswith(b"no database")
        assert aside(path) == []
    open_elsewhere.clear()
    storage.save(rules())
    assert storage.load(A) == rules()
    [kept] = aside(path)
    assert kept.read_bytes().startswith(b"no database")
    storage.close()


def test_a_file_stays_with_its_log_until_both_can_be_renamed(
    path: Path, open_elsewhere: set[Path]
) -> None:
    log = path.with_name(path.name + "-wal")
    path.write_bytes(b"file")
    log.write_bytes(b"log")
    with pytest.raises(PermissionError):
        set_aside(path, OSError())
    assert (path.read_bytes(), log.read_bytes()) == (b"file", b"log")
    open_elsewhere.clear()
    set_aside(path, OSError())
    [kept] = aside(path)
    kept_log = kept.with_name(kept.name + "-wal")
    assert (kept.read_bytes(), kept_log.read_bytes()) == (b"file", b"log")
    assert not (path.exists() or log.exists())


def test_a_newer_version_is_left_alone(storage: SqliteStorage, path: Path) -> None:
    """It is neither used nor set aside."""
    storage.save(rules())
    storage.close()
    change(path, "PRAGMA user_version = 99")
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(sqlite3.NotSupportedError, match="newer version of scrapy-rep"):
            storage.load(A)
        with pytest.raises(sqlite3.NotSupportedError):
            storage.save(missing())
    assert path.read_bytes() == content
    assert aside(path) == []
    change(path, "PRAGMA user_version = 1")
    assert storage.load(A) == rules()


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_garbage_of_a_killed_process(storage: SqliteStorage, path: Path, suffix: str) -> None:
    """Beside a file, and alone."""
    storage.save(rules())
    for kept in (rules(), None):
        storage.close()
        if kept is None:
            path.write_bytes(b"")
        path.with_name(path.name + suffix).write_bytes(b"\xaa" * 40_000)
        with captured_log() as records:
            assert storage.load(A) == kept
            storage.save(missing(B))
            assert storage.load(B) == missing(B)
        assert warnings(records) == aside(path) == []


@pytest.mark.parametrize("file", ["as it was", "written over"])
def test_what_a_killed_process_left_is_used(path: Path, tmp_path: Path, file: str) -> None:
    """Its log has everything, which is worth more than a file that somebody wrote over."""
    storage = SqliteStorage(path)
    storage.save(rules())
    copy = tmp_path / "copy"
    copy.mkdir()
    for one in path.parent.glob(f"{path.name}*"):
        shutil.copy(one, copy)
    storage.close()
    left = SqliteStorage(copy / path.name)
    if file == "written over":
        (copy / path.name).write_bytes(b"broken" * 1000)
    with captured_log() as records:
        assert left.load(A) == rules()
    assert aside(copy / path.name) == warnings(records) == []
    left.close()


def test_a_leftover_log_goes_with_the_broken_file(path: Path) -> None:
    """It is not taken for a part of the new one."""
    path.write_bytes(b"broken" * 1000)
    beside = {suffix: suffix.encode() * 1000 for suffix in ("-wal", "-shm")}
    for suffix, content in beside.items():
        path.with_name(path.name + suffix).write_bytes(content)
    storage = SqliteStorage(path)
    with captured_log() as records:
        storage.save(rules())
        assert storage.load(A) == rules()
    [kept] = aside(path)
    assert kept.read_bytes() == b"broken" * 1000
    for suffix, content in beside.items():
        assert path.with_name(path.name + suffix).read_bytes() != content
    assert len(warnings(records)) == 1
    storage.close()
    assert ask(path, "PRAGMA integrity_check") == "ok"


# Where nothing can be written


def test_a_lock_file_of_somebody_else(path: Path) -> None:
    """What is beside the file under the name of its lock is not ours: it stays as it is, and it
    is named if it is in the way."""
    beside = path.with_name(path.name + ".lock")
    beside.write_text("12345\n")
    storage = SqliteStorage(path)
    try:
        storage.save(rules())
    except (OSError, sqlite3.Error) as error:
        assert str(beside) in str(error)
    storage.close()
    assert "12345\n" in [one.read_text() for one in path.parent.glob("*.lock*")]


def test_a_full_disk(storage: SqliteStorage, path: Path) -> None:
    """What does not fit is not kept; what is kept stays, and it works again when there is room."""
    storage.save(rules())
    storage._db.execute("PRAGMA max_page_count = 12")  # type: ignore[union-attr]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        for number in range(100):
            storage.save(rules(f"http://{number}:80", os.urandom(5000)))
    # The next call opens it anew, and so without this limit: as when there is room again.
    assert storage.load(A) == rules()
    storage.save(missing(B))
    assert storage.load(B) == missing(B)
    assert aside(path) == []
    assert ask(path, "PRAGMA integrity_check") == "ok"


def test_a_locked_file_refuses_writes_but_can_be_read(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than anybody should: what is written fails, what is read does not."""
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", 0.01)
    storage.save(rules())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for _ in range(2):
        for write in (
            lambda: storage.save(missing()),
            lambda: storage.lease(A, "me", HOUR),
            lambda: storage.drop(A),
            lambda: storage.purge(NOW),
        ):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                write()
        assert storage.load(A) == rules()
    other.execute("ROLLBACK")
    other.close()
    storage.save(missing())
    assert storage.load(A) == missing()
    assert aside(path) == []
