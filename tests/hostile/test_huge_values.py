"""Values in a shared cache that are far too long aren't read, and the others are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import SqliteStorage, UnreadableEntry
from scrapy_rep.storages.base import MAX_BATCH, MAX_ENTRY_HEADER, MAX_PACKED
from tests.helpers.files import aside, change, script
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.storing import A, B, rules

HUGE = 12_000_000
BOUND = 1_500_000
"""Bytes of memory. One huge value takes eight times that."""
C = "http://c.example:80"


Write = Callable[[str, bytes], object]


@pytest.fixture(params=["file", pytest.param("server", marks=needs_server)])
def shared(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Any, Write]]:
    """A storage, and how somebody else writes into it."""
    storage: Any
    if request.param == "file":
        path = tmp_path / "robots.sqlite"
        storage = SqliteStorage(path)

        def write(name: str, value: bytes) -> None:
            query = "UPDATE bodies SET packed = ? WHERE sha256 = ?"
            if name == A:
                query = "UPDATE entries SET header = ? WHERE origin = ?"
            change(path, query, value, name)

    else:
        from scrapy_rep.storages.redis import RedisStorage

        server: RedisServer = request.getfixturevalue("redis_server")
        storage = RedisStorage(server.url, "huge", 3600)

        def write(name: str, value: bytes) -> None:
            kind = "entry" if name == A else "body"
            server.ask("SET", f"huge:{kind}:{name}", value)

    yield storage, write
    storage.close()


def test_huge_headers_and_bodies(shared: tuple[Any, Write]) -> None:
    storage, write = shared
    good, other = rules(B, b"User-agent: b"), rules(C, b"User-agent: c")
    storage.save_many([rules(A), good, other])
    write(A, b"x" * HUGE)
    write(other.sha256, b"x" * HUGE)
    tracemalloc.start()
    try:
        found = storage.load_many([A, B, C])
        listed = list(storage.entries())
        with suppress(UnreadableEntry):
            assert storage.body(other.sha256) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND
    assert found[B] == good
    assert isinstance(found[A], UnreadableEntry)
    # As if the body had been evicted: the file is fetched again.
    assert C not in found or not found[C].packed
    assert good in listed
    assert any(isinstance(one, UnreadableEntry) for one in listed)
    storage.save_many([rules(A), other])
    assert storage.load_many([A, C]) == {A: rules(A), C: other}


def test_what_is_as_long_as_it_may_be(shared: tuple[Any, Write]) -> None:
    storage, write = shared
    entry = rules(C)
    storage.save_many([entry])
    write(entry.sha256, b"x" * MAX_PACKED)
    assert len(storage.load_many([C])[C].packed) == MAX_PACKED
    storage.save_many([rules(A)])
    write(A, b" " * (MAX_ENTRY_HEADER - 2) + b"{}")
    assert "schema" in str(
        storage.load_many([A])[A]
    )  # read, and found to be without one


def test_a_batch_has_a_limit(
    shared: tuple[Any, Write], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond counts as missing, and is fetched."""
    storage, _ = shared
    module = type(storage).__module__
    monkeypatch.setattr(f"{module}.MAX_BATCH", 2_000)
    noise = [bytes(range(at, at + 200)) * 4 for at in range(20)]
    entries = [rules(f"http://{at}.example:80", body) for at, body in enumerate(noise)]
    storage.save_many(entries)
    found = storage.load_many([entry.origin for entry in entries])
    assert 1 < len(found) < len(entries)
    assert all(
        found[entry.origin] == entry for entry in entries if entry.origin in found
    )
    assert MAX_BATCH > 50 * MAX_PACKED


# What somebody else did to a file with our mark.
CHANGES = [
    "DROP TABLE bodies",
    "DROP TABLE leases; CREATE TABLE leases (a, b)",
    "ALTER TABLE entries ADD COLUMN more",
    "ALTER TABLE entries RENAME TO old; CREATE VIEW entries AS SELECT * FROM old",
    "CREATE TRIGGER no BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE TABLE more (a)",
]


@pytest.mark.parametrize("statements", CHANGES)
def test_a_cache_with_other_tables_is_set_aside(
    tmp_path: Path, statements: str
) -> None:
    path = tmp_path / "robots.sqlite"
    storage = SqliteStorage(path)
    storage.save(rules(A))
    storage.close()
    script(path, statements)
    storage.save(rules(B))
    assert storage.load(B) == rules(B)
    assert storage.load(A) is None
    storage.close()
    assert len(aside(path)) == 1
