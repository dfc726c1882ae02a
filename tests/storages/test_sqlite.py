"""SqliteStorage: its file, new, broken, somebody else's, or shared; and how leases lapse."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.storages import Entry, SqliteStorage, sqlite
from scrapy_rep.storages.journal import set_aside
from tests.helpers.crawling import captured_log
from tests.helpers.files import aside, ask, change, connections_to, script
from tests.helpers.log import warnings
from tests.helpers.rows import every_row
from tests.helpers.storing import HOUR, NOW, A, B, missing, rules, together
from tests.storages.faults import DAMAGES

Opener = Callable[..., SqliteStorage]


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def test_relative_paths_are_in_the_projects_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "inner").mkdir(parents=True)
    (project / "scrapy.cfg").write_text("[settings]\ndefault = inner.settings\n")
    for name in ("__init__.py", "settings.py"):
        (project / "inner" / name).touch()
    monkeypatch.delenv("SCRAPY_PROJECT", raising=False)
    monkeypatch.chdir(project / "inner")
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "inner.settings")
    absolute = tmp_path / "any" / "where" / "file"
    for settings, path in (
        ({}, project / ".scrapy" / "robots.sqlite"),
        ({"REP_CACHE_PATH": absolute}, absolute),
    ):
        storage = SqliteStorage.from_crawler(get_crawler(settings_dict=settings))
        assert not path.exists()
        storage.save(rules())
        storage.close()
        assert path.exists()


def test_a_lease_lapses_after_its_seconds(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died with it delays nobody for longer."""
    now = NOW
    monkeypatch.setattr(sqlite.time, "time", lambda: now)
    assert storage.lease(A, "dead", 30)
    now += 29.9
    assert not storage.lease(A, "me", 30)
    now += 0.2
    assert storage.lease(A, "me", 30)
    assert not storage.lease(A, "dead", 30), "it is another's now"
    now += 20
    assert storage.lease(A, "me", 30), "renewed"
    now += 20
    assert not storage.lease(A, "you", 30)
    now -= 86400  # the clock is set back
    assert storage.lease(A, "you", 30)
    assert not storage.lease(A, "me", 30)


def test_what_has_expired_goes_when_others_are_saved(path: Path) -> None:
    """In slices, so that others get the lock; bodies last, so that no entry is without its own."""
    storage, before = SqliteStorage(path, HOUR), NOW - HOUR - 1
    storage.save(rules(B, b"1"))
    storage.lease(A, "dead", -1.0)
    storage.save_many([rules(f"http://{n}:80", b"%d" % n, before) for n in range(1500)])
    left = []
    while len(left) < 5:
        entries = ask(path, "SELECT count(*) FROM entries")
        left.append((entries, ask(path, "SELECT count(*) FROM bodies")))
        for entry in storage.entries():
            assert isinstance(entry, Entry)
            entry.check(entry.origin)
        storage.save(rules(B, b"1"))
    assert left == [(1501, 1500), (501, 1500), (1, 500), (1, 1), (1, 1)]
    assert ask(path, "SELECT count(*) FROM leases") == 0
    storage.close()


def test_a_batch_of_saves_or_leases_is_one_transaction(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the disk, and for the lock. The same body is kept once."""
    origins = [f"http://{number}:80" for number in range(300)]
    connections = connections_to(path, monkeypatch)
    assert storage.load(A) is None
    statements: list[str] = []
    connections[-1].set_trace_callback(statements.append)
    for call in (
        lambda: storage.save_many([rules(origin) for origin in origins]),
        lambda: storage.lease_many(origins, "me", HOUR),
        lambda: storage.release_many(origins, "me"),
    ):
        call()
        assert (statements.count("BEGIN IMMEDIATE"), statements.count("COMMIT")) == (
            1,
            1,
        )
        statements.clear()
    assert len(storage.load_many(origins)) == 300
    assert len(statements) == 1
    assert ask(path, "SELECT count(*) FROM bodies") == 1


OTHER_LEASES = "DROP TABLE leases; CREATE TABLE leases (origin TEXT PRIMARY KEY"
BROKEN: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("User-agent: *\n" * 100),
    "short": lambda path: path.write_bytes(b"short"),
    "header alone": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "header and garbage": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xaa" * 8176),
    "another program's": lambda path: script(
        path,
        "CREATE TABLE entries (origin TEXT, theirs TEXT)",
        "INSERT INTO entries VALUES ('x', 'precious')",
    ),
    # Of a program that marks its files, still empty but for that.
    "another program's, marked": lambda path: script(
        path, "PRAGMA application_id = 42", "CREATE TABLE theirs (x)"
    ),
    # Ours, until this happened to them.
    **{
        how: lambda path, how=how: (enlarge(SqliteStorage(path)).close(), DAMAGES[how](path))
        for how in ("all pages overwritten", "header overwritten")
    },
    # Ours, with what somebody else added.
    **{
        statement: lambda path, statement=statement: (
            enlarge(SqliteStorage(path)).close(), script(path, statement)
        )
        for statement in (
            "CREATE INDEX theirs ON bodies (hex(packed) || hex(packed))",
            "CREATE UNIQUE INDEX theirs ON entries (sha256)",
            "CREATE INDEX theirs ON leases (owner)",
            "CREATE VIEW theirs AS SELECT * FROM entries",
            "CREATE TRIGGER theirs BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
            "DROP INDEX entries_by_age",
            f"{OTHER_LEASES} COLLATE NOCASE, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID",
            f"{OTHER_LEASES}, owner TEXT NOT NULL UNIQUE, until REAL NOT NULL) WITHOUT ROWID",
        )
    },
}  # fmt: skip


def test_broken_files_are_set_aside_and_new_ones_begun(path: Path) -> None:
    """Whatever meets it first. Nothing is deleted, of those of one second neither."""
    first: tuple[Callable[[SqliteStorage], object], ...] = (
        lambda storage: storage.load("http://7:80"),
        lambda storage: storage.save(missing()),
        lambda storage: storage.lease(A, "me", HOUR),
        lambda storage: list(storage.entries()),
        lambda storage: storage.drop(A),
    )
    contents = []
    with every_row() as row:
        for number, (name, broken) in enumerate(BROKEN.items()):
            with row(name):
                path.unlink(missing_ok=True)
                broken(path)
                contents.append(path.read_bytes())
                storage = SqliteStorage(path)
                with captured_log() as records:
                    first[number % len(first)](storage)
                    storage.save(rules())
                    assert storage.load(A) == rules()
                    assert storage.lease(A, "me", HOUR)
                assert sorted(one.read_bytes() for one in aside(path)) == sorted(
                    contents
                )
                [warning] = warnings(records)
                assert str(path) in warning
                assert "was set aside as robots.sqlite.unreadable-" in warning
                storage.close()
                assert ask(path, "PRAGMA integrity_check") == "ok"


@pytest.fixture
def open_elsewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Files that another process has open: Windows renames none."""
    files, rename = {path}, Path.rename

    def as_on_windows(self: Path, target: Path) -> Path:
        if self in files:
            raise PermissionError(
                errno.EACCES, "The process cannot access the file", str(self)
            )
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", as_on_windows)
    return files


def test_a_broken_file_that_another_process_has_open_is_set_aside_later(
    storage: SqliteStorage, path: Path, open_elsewhere: set[Path]
) -> None:
    """The client, which is told, keeps what there is to save, and tries again."""
    path.write_bytes(b"no database" * 100)
    for _ in range(2):
        with pytest.raises(PermissionError):
            storage.save(rules())
        assert path.read_bytes() == b"no database" * 100
        assert aside(path) == []
    open_elsewhere.clear()
    storage.save(rules())
    assert storage.load(A) == rules()
    assert [one.read_bytes() for one in aside(path)] == [b"no database" * 100]


def test_a_file_stays_with_its_log_until_both_can_be_renamed(
    path: Path, open_elsewhere: set[Path]
) -> None:
    log = beside(path, "-wal")
    path.write_bytes(b"file")
    log.write_bytes(b"log")
    with pytest.raises(PermissionError):
        set_aside(path, OSError())
    assert (path.read_bytes(), log.read_bytes()) == (b"file", b"log")
    open_elsewhere.clear()
    set_aside(path, OSError())
    [kept] = aside(path)
    assert (kept.read_bytes(), beside(kept, "-wal").read_bytes()) == (b"file", b"log")
    assert not (path.exists() or log.exists())


def test_a_newer_version_is_left_alone(storage: SqliteStorage, path: Path) -> None:
    """It is neither used nor set aside."""
    storage.save(rules())
    storage.close()
    change(path, "PRAGMA user_version = 99")
    content = path.read_bytes()
    for call in (lambda: storage.load(A), lambda: storage.save(missing())) * 2:
        with pytest.raises(
            sqlite3.NotSupportedError, match="newer version of scrapy-rep"
        ):
            call()
    assert path.read_bytes() == content
    assert aside(path) == []
    change(path, "PRAGMA user_version = 1")
    assert storage.load(A) == rules()


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_garbage_of_a_killed_process(
    storage: SqliteStorage, path: Path, suffix: str
) -> None:
    """Beside a file, and alone."""
    storage.save(rules())
    for kept in (rules(), None):
        storage.close()
        if kept is None:
            path.write_bytes(b"")
        beside(path, suffix).write_bytes(b"\xaa" * 40_000)
        with captured_log() as records:
            assert storage.load(A) == kept
            storage.save(missing(B))
        assert warnings(records) == aside(path) == []


@pytest.mark.parametrize("file", ["as it was", "written over"])
def test_what_a_killed_process_left_is_used(
    opened: Opener, path: Path, tmp_path: Path, file: str
) -> None:
    """Its log has everything, which is worth more than a file that somebody wrote over."""
    opened().save(rules())
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    for one in path.parent.glob(f"{path.name}*"):
        shutil.copy(one, copy.parent)
    if file == "written over":
        copy.write_bytes(b"broken" * 1000)
    with captured_log() as records:
        assert opened(copy).load(A) == rules()
    assert aside(copy) == warnings(records) == []


def lock_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How long a process waits for others, from now on."""
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", seconds)


def test_a_full_disk(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit is not kept; what is kept stays, and it works again when there is room."""
    connections = connections_to(path, monkeypatch)
    storage.save(rules())
    connections[-1].execute("PRAGMA max_page_count = 12")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        for number in range(100):
            storage.save(rules(f"http://{number}:80", os.urandom(5000)))
    # The next call opens it anew, and so without this limit: as when there is room again.
    assert storage.load(A) == rules()
    storage.save(missing(B))
    assert storage.load(B) == missing(B)
    assert aside(path) == []


def test_a_locked_file_refuses_writes_but_can_be_read(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than anybody should: what is written fails, what is read does not."""
    lock_seconds(monkeypatch, 0.01)
    storage.save(rules())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for write in (
        lambda: storage.save(missing()),
        lambda: storage.lease(A, "me", HOUR),
        lambda: storage.drop(A),
    ) * 2:
        with pytest.raises(sqlite3.OperationalError, match=f"{path}: .*locked"):
            write()
        assert storage.load(A) == rules()
    other.close()
    storage.save(missing())
    assert storage.load(A) == missing()
    assert aside(path) == []


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk, the process that opens a file first may take long."""
    lock_seconds(monkeypatch, 60.0)


def enlarge(storage: SqliteStorage) -> SqliteStorage:
    """Give it a large file, of which it remembers as little as it can."""
    if storage.load("http://0:80") is None:
        storage.save_many(
            [rules(f"http://{n}:80", b"%d" % n * 100) for n in range(300)]
        )
    connection = storage._db
    assert connection is not None
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA cache_size = 1")
    return storage


def use_all_of_it(storage: SqliteStorage) -> None:
    for number in range(300):
        storage.load(f"http://{number}:80")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("begun", [True, False])
def test_another_has_set_it_aside(opened: Opener, path: Path, begun: bool) -> None:
    """And begun a new one, or not yet."""
    first, second = enlarge(opened()), enlarge(opened())
    DAMAGES["all pages overwritten"](path)
    with captured_log() as records:
        if begun:
            use_all_of_it(first)
            first.save(missing(B))
        else:
            path.rename(f"{path}.unreadable-1")
        use_all_of_it(second)
        second.save(missing(A))
    assert first.load(A) == missing(A)
    assert second.load(B) == (missing(B) if begun else None)
    assert len(aside(path)) == 1
    assert len(warnings(records)) == begun


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("broken", [b"", b"broken" * 1000], ids=["new", "broken"])
def test_many_find_a_new_or_broken_one_at_once(
    opened: Opener, tmp_path: Path, broken: bytes
) -> None:
    """A fleet is started. One makes the file; the others use it, and no answer is lost."""
    for turn in range(3):
        path = tmp_path / str(turn) / "robots.sqlite"
        if broken:
            path.parent.mkdir()
            path.write_bytes(broken)
        storages = [opened(path) for _ in range(8)]
        origins = [f"http://{number}:80" for number in range(8)]

        def use(number: int, storages: Any = storages, origins: Any = origins) -> bool:
            storages[number].save(rules(origins[number]))
            return bool(storages[number].lease(A, str(number), HOUR))

        with captured_log() as records:
            assert sorted(together(use, 8)) == [False] * 7 + [True]
        assert [one.read_bytes() for one in aside(path)] == [broken] * bool(broken)
        assert len(warnings(records)) == bool(broken)
        assert all(storages[0].load(origin) == rules(origin) for origin in origins)


def test_one_at_a_time_opens_the_file(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one could set aside what another has just begun."""
    lock_seconds(monkeypatch, 0.01)
    lock = beside(path, ".lock")
    other = sqlite3.connect(lock, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="lock"):
        storage.load(A)
    assert not path.exists()
    other.close()
    assert storage.load(A) is None
    # Somebody else's file of that name stays as it is, and is named.
    storage.close()
    lock.write_text("12345\n")
    with pytest.raises(sqlite3.OperationalError, match=str(lock)):
        storage.save(rules())
    assert lock.read_text() == "12345\n"
