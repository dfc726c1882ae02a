"""Several use one file of SqliteStorage, each with a connection of its own, and find it new, or broken,
at once."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import Entry, SqliteStorage, sqlite
from tests.helpers.crawling import captured_log
from tests.helpers.files import aside
from tests.helpers.log import warnings
from tests.helpers.storing import A, B, missing, rules

HOUR = 3600.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk, the process that opens a file first may take long."""
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", 60.0)


def overwrite(path: Path) -> None:
    """From the second page on, while it is open."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (path.stat().st_size - 4096))


def opened(path: Path) -> SqliteStorage:
    """On a large file, of which it remembers as little as it can."""
    storage = SqliteStorage(path)
    if not path.exists():
        for number in range(300):
            storage.save(rules(f"http://{number}:80", b"%d" % number * 100))
    storage.load(A)
    assert storage._db is not None
    storage._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    storage._db.execute("PRAGMA cache_size = 1")
    return storage


def use_all_of_it(storage: SqliteStorage) -> None:
    for number in range(300):
        storage.load(f"http://{number}:80")


def test_another_has_set_it_aside(path: Path) -> None:
    """Two have it open when it breaks; the second finds the new one that the first has begun."""
    first, second = opened(path), opened(path)
    overwrite(path)
    with captured_log() as records:
        use_all_of_it(first)
        first.save(missing(B))
        use_all_of_it(second)
        second.save(missing(A))
    assert first.load(A) == missing(A)
    assert second.load(B) == missing(B)
    assert len(aside(path)) == len(warnings(records)) == 1
    for one in (first, second):
        one.close()


def test_another_is_about_to_begin_a_new_one(path: Path) -> None:
    """It has set the broken one aside and not made another yet."""
    storage = opened(path)
    overwrite(path)
    path.rename(path.with_name(f"{path.name}.unreadable-1"))
    with captured_log() as records:
        use_all_of_it(storage)
        storage.save(rules())
    assert storage.load(A) == rules()
    assert warnings(records) == []
    assert len(aside(path)) == 1
    storage.close()


def at_once(path: Path, count: int) -> list[Any]:
    """So many storages are made and used in one moment. Return what they found, or raised."""
    barrier = threading.Barrier(count)
    results: list[Any] = []

    def use(number: int) -> None:
        storage = SqliteStorage(path)
        barrier.wait(60)
        try:
            storage.save(rules(f"http://{number}:80"))
            results.append(storage.lease(A, str(number), HOUR))
        except Exception as error:  # noqa: BLE001
            results.append(error)
        finally:
            storage.close()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return results


def kept(path: Path) -> list[str]:
    storage = SqliteStorage(path)
    try:
        return sorted(one.origin for one in storage.entries() if isinstance(one, Entry))
    finally:
        storage.close()


@pytest.mark.parametrize("broken", [b"", b"broken" * 1000], ids=["new", "broken"])
def test_many_find_a_new_or_broken_one_at_once(tmp_path: Path, broken: bytes) -> None:
    """A fleet is started. One makes the file; the others use it, and no answer is lost."""
    for turn in range(3):
        path = tmp_path / str(turn) / "robots.sqlite"
        if broken:
            path.parent.mkdir()
            path.write_bytes(broken)
        with captured_log() as records:
            results = at_once(path, 8)
        assert sorted(map(str, results)) == ["False"] * 7 + ["True"], results
        assert [one.read_bytes() for one in aside(path)] == [broken] * bool(broken)
        assert len(warnings(records)) == bool(broken)
        assert kept(path) == [f"http://{number}:80" for number in range(8)]


def test_one_at_a_time_opens_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one could set aside what another has just begun."""
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", 0.01)
    other = sqlite3.connect(f"{path}.lock", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    storage = SqliteStorage(path)
    with pytest.raises(sqlite3.OperationalError, match="lock"):
        storage.load(A)
    assert not path.exists()
    other.close()
    assert storage.load(A) is None
    storage.close()
