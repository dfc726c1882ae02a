"""SqliteStorage: where its file is, what is in it, and how leases lapse."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.storages import Entry, SqliteStorage, UnreadableEntry, sqlite
from tests.helpers.files import ask, change
from tests.helpers.storing import NOW, A, B, rules

HOUR = 3600.0


# Where it is


def test_relative_paths_are_in_the_projects_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "inner").mkdir(parents=True)
    (project / "scrapy.cfg").write_text("[settings]\ndefault = inner.settings\n")
    (project / "inner" / "__init__.py").touch()
    (project / "inner" / "settings.py").touch()
    for name in ("SCRAPY_SETTINGS_MODULE", "SCRAPY_PROJECT"):
        monkeypatch.delenv(name, raising=False)
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


def test_a_write_ahead_log(storage: SqliteStorage, path: Path) -> None:
    """Readers do not wait for writers."""
    storage.save(rules())
    assert ask(path, "PRAGMA journal_mode") == "wal"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert storage.load(A) == rules()
    other.close()
    storage.close()
    assert list(path.parent.glob("*-wal")) == list(path.parent.glob("*-shm")) == []


# Leases lapse


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


def test_purging_takes_bodies_after_their_entries(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes in slices, and in between no entry is without its body."""
    monkeypatch.setattr(sqlite, "_PURGED_AT_ONCE", 10)
    storage.save_many([rules(f"http://{number}:80", b"%d" % number, 5.0) for number in range(95)])
    storage.lease(A, "dead", -1.0)
    left = []
    while storage.purge_some(NOW):
        entries = ask(path, "SELECT count(*) FROM entries")
        left.append((entries, ask(path, "SELECT count(*) FROM bodies")))
        for entry in storage.entries():
            assert isinstance(entry, Entry)
            entry.check(entry.origin)
    assert [entries for entries, _ in left[:10]] == [85, 75, 65, 55, 45, 35, 25, 15, 5, 0]
    assert [bodies for _, bodies in left[10:]] == [85, 75, 65, 55, 45, 35, 25, 15, 5, 0, 0]
    assert ask(path, "SELECT count(*) FROM leases") == 0


# Batches


def test_a_batch_of_saves_or_leases_is_one_transaction(storage: SqliteStorage) -> None:
    """Each waits for the disk, and for the lock."""
    origins = [f"http://{number}:80" for number in range(300)]
    assert storage.load(A) is None
    statements: list[str] = []
    assert storage._db is not None
    storage._db.set_trace_callback(statements.append)

    def transactions() -> tuple[int, int]:
        found = statements.count("BEGIN IMMEDIATE"), statements.count("COMMIT")
        statements.clear()
        return found

    storage.save_many([rules(origin) for origin in origins])
    assert transactions() == (1, 1)
    assert storage.lease_many(origins, "me", HOUR) == set(origins)
    assert transactions() == (1, 1)
    storage.release_many(origins, "me")
    assert transactions() == (1, 1)
    assert len(storage.load_many(origins)) == 300
    assert len(statements) == 1


# What is kept


def test_the_same_body_is_kept_once(storage: SqliteStorage, path: Path) -> None:
    storage.save_many([rules(f"http://{number}:80") for number in range(100)])
    assert ask(path, "SELECT count(*) FROM bodies") == 1


def test_rows_that_can_not_be_read(storage: SqliteStorage, path: Path) -> None:
    """That row and no other."""
    storage.save(rules(B, b"other"))
    for header in ("no json", b"\xff\xfe", 7, '{"schema":99}', "[" * 100_000):
        storage.save(rules(A))
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", header, A)
        with pytest.raises(UnreadableEntry):
            storage.load(A)
        assert storage.load(B) == rules(B, b"other")
        kinds = sorted(type(one).__name__ for one in storage.entries())
        assert kinds == ["Entry", "UnreadableEntry"]
    assert storage.drop(A)


def test_bodies_that_can_not_be_read(storage: SqliteStorage, path: Path) -> None:
    """And once the file was fetched again, it is whole again."""
    other = rules(body=b"other").packed
    for value in (b"", b"damaged", "text", 7, other, None):
        storage.save(rules())
        if value is None:
            change(path, "DELETE FROM bodies")
        else:
            change(path, "UPDATE bodies SET packed = ?", value)
        with pytest.raises(UnreadableEntry):
            entry = storage.load(A)
            assert entry is not None
            entry.check(A)
    storage.save(rules())
    assert storage.load(A) == rules()
