"""What every storage does: one set of tests against all of them (REP.md section 5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import (
    Entry,
    MemoryStorage,
    SqliteStorage,
    Storage,
    Turn,
    UnreadableEntry,
)
from tests.helpers.files import change
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.rows import every_row
from tests.helpers.storing import (
    HOUR,
    KINDS,
    NOW,
    A,
    B,
    FolderStorage,
    missing,
    rules,
    together,
)


class Kind:
    def __init__(
        self, name: str, make: Callable[[], Storage], put: Callable[..., object]
    ) -> None:
        """:param put: writes into the store as somebody else would: a query and its values; for Redis, a command, a kind, a name and
        values"""
        self.name = name
        self.put = put
        self._make = make
        self._made: list[Storage] = []
        # Whether several may use one store at a time, and bodies are kept apart from entries.
        self.shared = name in ("sqlite", "redis")
        self.persistent = name != "memory"

    def new(self) -> Storage:
        """Another storage that keeps its entries where the others do: another process, say."""
        self._made.append(self._make())
        return self._made[-1]

    def write(self, what: str, name: str | None, value: Any) -> None:
        """Put something beside what the storage wrote: a header of an origin, or a packed body of a hash."""
        if self.name == "redis":
            kind = "entry" if what == "header" else "body"
            self.put("SET", kind, name, value)
            return
        table, key = ("entries", "origin") if what == "header" else ("bodies", "sha256")
        query = f"UPDATE {table} SET {what} = ? WHERE {key} = ?"  # noqa: S608 (all ours)
        self.put(query, value, name)

    def close(self) -> None:
        for one in self._made:
            one.close()


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("redis", marks=needs_server), "users"]
)
def kind(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kind]:
    path = tmp_path / "new" / "robots.sqlite"
    makers: dict[str, Callable[[], Storage]] = {
        "memory": lambda: MemoryStorage(10000, 1 << 30),
        "sqlite": lambda: SqliteStorage(path),
        "users": FolderStorage,
    }
    put: Callable[..., object] = partial(change, path)
    if request.param == "redis":
        from scrapy_rep.storages import RedisStorage

        server: RedisServer = request.getfixturevalue("redis_server")
        # A prefix of its own for each test; it is not meant as a pattern.
        prefix = f"*[{tmp_path.name}]?"
        makers["redis"] = lambda: RedisStorage(server.url, prefix, HOUR)

        def put(command: str, kind: str, name: str, *values: Any) -> None:
            server.ask(command, f"{prefix}:{kind}:{name}", *values)

    monkeypatch.chdir(tmp_path)
    kind = Kind(request.param, makers[request.param], put)
    yield kind
    kind.close()


@pytest.fixture
def storage(kind: Kind) -> Storage:
    return kind.new()


if_shared = pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("redis", marks=needs_server)], indirect=True
)


def all_of(storage: Storage) -> dict[str, Entry]:
    entries = list(storage.entries())
    found = {one.origin: one for one in entries if isinstance(one, Entry)}
    assert len(found) == len(entries)
    return found


def test_a_new_storage_has_nothing_and_can_be_closed_at_any_time(kind: Kind) -> None:
    """What was kept is there for the next."""
    kind.new().close()
    storage = kind.new()
    assert storage.load(A) is storage.body("0" * 64) is None
    assert storage.drop(A) is False
    assert all_of(storage) == {}
    storage.save(rules())
    for _ in range(2):
        storage.close()
    if kind.persistent:
        assert kind.new().load(A) == rules()


def test_the_last_one_comes_back_as_it_was(kind: Kind) -> None:
    """All of it: nothing of the one before shines through."""
    storage = kind.new()
    storage.save(rules(B, b"User-agent: b"))
    for new in KINDS.values():
        for old in ("rules", "missing", "unreachable, with a copy"):
            storage.save(KINDS[old])
            storage.save(new)
        for one in (storage, kind.new()) if kind.persistent else (storage,):
            loaded = one.load(A)
            assert loaded == new
            assert loaded.check(A).body == new.body
            assert all_of(one) == {A: new, B: rules(B, b"User-agent: b")}


def test_dropping_an_entry_leaves_others_with_the_same_body(storage: Storage) -> None:
    storage.save(rules(A))
    storage.save(rules(B))
    assert [storage.drop(A), storage.drop(A)] == [True, False]
    assert storage.load(A) is None
    assert all_of(storage) == {B: rules(B)}
    storage.save(missing(A))
    assert storage.load(A) == missing(A)


ORIGINS = [
    *(A, B, "http://a.example:81", "https://a.example:80", "http://a.example:8"),
    *("http://[::1]:8080", "http://xn--exmple-cua.example:80", "ftp://a.example:21"),
    # None of these is an origin that Origin makes, but a storage need not know that.
    *("http://a*:80", "http://a?[b]\\:80", "http://\u30c4:80"),
    "http://" + "a." * 110 + "example:80",
]


def test_origins_are_told_apart_and_listed_once(storage: Storage) -> None:
    """More than are asked for at a time."""
    origins = [*ORIGINS, *map("http://{}:80".format, range(1201))]
    entries = {origin: rules(origin, origin.encode()) for origin in origins}
    storage.save_many([*entries.values()])
    assert all_of(storage) == entries
    assert {origin: storage.load(origin) for origin in ORIGINS} == {
        origin: entries[origin] for origin in ORIGINS
    }
    assert storage.drop("http://a*:80")
    assert len(all_of(storage)) == len(entries) - 1
    for number, one in enumerate(
        storage.entries()
    ):  # as `scrapy robots --cache --drop` does
        if number % 100 == 0:
            storage.drop(one.origin)  # type: ignore[union-attr]
    assert len(all_of(storage)) == len(entries) - 1 - 13


def test_bodies_are_found_by_their_hash(kind: Kind) -> None:
    """Also those that are no longer in use, where several share a storage."""
    storage = kind.new()
    first, second = rules(body=b"first"), rules(body=b"second", at=NOW + 1)
    for entry in (first, rules(B, b"first"), second):
        storage.save(entry)
    assert storage.body(str(second.sha256)) == b"second"
    assert storage.body(str(first.sha256)) == b"first"
    storage.drop(B)
    assert storage.body(str(first.sha256)) == (b"first" if kind.shared else None)
    assert storage.body("first") is None


@if_shared
def test_a_lease_is_one_owners(kind: Kind) -> None:
    """Only its owner ends it; who drops an origin by hand wants to see it asked for."""
    storage, other = kind.new(), kind.new()
    assert storage.lease(A, "me", HOUR)
    assert not other.lease(A, "you", HOUR)
    assert not other.lease(A, "M\u00c9", HOUR)
    assert other.lease(B, "you", HOUR), "another origin"
    assert storage.lease(A, "me", HOUR), "who has it gets it anew"
    assert storage.load(A) is None, "a lease is no entry"
    other.release(A, "you")
    assert not other.lease(A, "you", HOUR)
    storage.release(A, "me")
    assert other.lease(A, "you", HOUR)
    storage.release(A, "me")
    assert not storage.lease(A, "me", HOUR)
    storage.save(rules())
    assert storage.drop(A)
    assert storage.lease(A, "me", HOUR)


@if_shared
def test_one_of_many_gets_the_lease(kind: Kind) -> None:
    kind.new().save(missing(B))  # the file is there
    storages = [kind.new() for _ in range(8)]
    for turn in range(20):
        got = together(
            lambda n, turn=turn: storages[n].lease(f"http://{turn}:80", str(n), HOUR), 8
        )
        assert sorted(got) == [False] * 7 + [True]


@if_shared
def test_batches_do_what_single_calls_do(storage: Storage) -> None:
    many = [f"http://{number}.test:80" for number in range(300)]
    entries = [rules(A), missing(B), *map(missing, many)]
    storage.save_many(entries)
    found = storage.load_many([entry.origin for entry in entries])
    assert found == {entry.origin: entry for entry in entries}
    assert storage.load_many([A, "http://unknown:80"]) == {A: storage.load(A)}
    assert storage.lease(A, "other", 60.0)
    assert storage.lease_many([A, *many], "me", 60.0) == set(many)
    assert storage.lease_many([A, *many[:2]], "other", 60.0) == {A}
    storage.release_many([A, many[0]], "me")
    assert storage.lease_many([A, *many[:2]], "third", 60.0) == {many[0]}


HEADERS = [b"", b"no json", b"\xff\xfe", b'{"schema":99}', b"[" * 100_000, 7]
BODIES = [b"damaged", b"text", rules(B, b"other").packed, 7]


@if_shared
def test_what_nobody_can_read(kind: Kind) -> None:
    """That entry and no other; saved anew, it is whole again."""
    storage, other = kind.new(), rules(B, b"other")
    with every_row() as row:
        for number, value in enumerate([*HEADERS, *BODIES]):
            header = number < len(HEADERS)
            with row(number):
                storage.save_many([rules(), other])
                if header:
                    kind.write("header", A, value)
                else:
                    kind.write("packed", rules().sha256, value)
                with pytest.raises(UnreadableEntry):
                    storage.load(A).check(A)  # type: ignore[union-attr]
                assert storage.load(B) == other
                kinds = [type(one) for one in storage.entries()]
                assert len(kinds) == 2
                assert UnreadableEntry in kinds or not header
                storage.save(rules())
                assert storage.load(A) == rules()


def test_memory_forgets_large_ones_first_then_the_least_recently_used() -> None:
    storage = MemoryStorage(3, 4_000)
    small = [rules(f"http://{n}:80") for n in range(4)]
    storage.save_many(small[:3])
    storage.load(small[0].origin)
    storage.save(small[3])
    assert all_of(storage).keys() == {small[n].origin for n in (0, 2, 3)}
    # Of the large ones, too.
    storage = MemoryStorage(10, 4_000)
    large = [rules(origin, os.urandom(1_200)) for origin in (A, B, "http://c:80")]
    storage.save_many([missing("http://small:80"), *large[:2]])
    storage.load(A)
    storage.save(large[2])
    assert all_of(storage).keys() == {"http://small:80", A, "http://c:80"}


def test_turns_of_an_origin_are_a_delay_apart(kind: Kind) -> None:
    """Whoever asks: one at once, the next after the delay, and none before its own wait is over."""
    one, other = kind.new(), kind.new()
    waits = one.turn_many([Turn(A, 10.0, 0.0), Turn(B, 5.0, 2.0)])
    waits += other.turn_many(
        [Turn(A, 10.0, 3.0), Turn(A, 10.0, 0.0), Turn(B, 5.0, 20.0)]
    )
    waits += one.turn_many([Turn(A, 30.0, 0.5), Turn(A, 10.0, 0.0)])
    expected = (
        [0.0, 2.0, 10.0, 20.0, 20.0, 30.0, 60.0]
        if kind.shared
        else [0, 2, 3, 0, 20, 0.5, 0]
    )
    # What is asked for later has less to wait.
    assert waits == pytest.approx(expected, abs=1.0)
    assert one.turn_many([]) == []
    assert one.load(A) is None
    assert one.lease(A, "me", 5.0)


@if_shared
@pytest.mark.parametrize("value", ["", "soon", "1e999", "-5", "nan", "99999999999999"])
def test_what_others_wrote_in_place_of_a_turn_delays_nothing(
    kind: Kind, value: str
) -> None:
    storage: Any = kind.new()
    storage.turn_many([Turn(A, 10.0, 0.0)])
    if kind.name == "redis":
        kind.put("SET", "turn", A, value)
    else:
        kind.put("UPDATE leases SET until = ?", value)
    assert storage.turn_many([Turn(A, 10.0, 1.0)]) == pytest.approx([1.0], abs=0.5)
    assert storage.turn_many([Turn(A, 10.0, 1.0)]) == pytest.approx([11.0], abs=1.0)


def test_a_value_stays_until_it_is_replaced(kind: Kind) -> None:
    """Whatever its name is, and whatever becomes of entries. What belongs to origins isn't touched."""
    one, other = kind.new(), kind.new()
    names = ["last", "a spider", A, "\u4e2d\n%'*", "x" * 500]
    one.save(rules())
    assert one.lease(A, "me", 5.0)
    for number, name in enumerate(names):
        assert one.load_value(name) is None
        one.save_value(name, "before")
        one.save_value(name, f"value {number}: \u4e2d")
    one.drop(A)
    one.save_many([rules(B, at=NOW * 3), rules(A, at=NOW * 3)])  # others expire
    assert all_of(one).keys() == {A, B}
    expected = [f"value {number}: \u4e2d" for number in range(len(names))]
    for storage in (one, other, kind.new()):
        values = [storage.load_value(name) for name in names]
        assert values == (expected if kind.shared else [None] * len(names))


@if_shared
def test_what_others_wrote_in_place_of_a_value_is_read_in_part(kind: Kind) -> None:
    """And never raises: too long, no text, not even a string."""
    storage: Any = kind.new()
    storage.save_value("name", "x")
    for value in ("x" * 5_000_000, b"\xff\xfe", "", 5, "\0"):
        if kind.name == "redis":
            kind.put("SET", "value", "name", value)
        else:
            kind.put("UPDATE leases SET owner = ?", value)
        assert len(storage.load_value("name")) <= 1001
    if kind.name == "redis":
        kind.put("DEL", "value", "name")
        kind.put("LPUSH", "value", "name", "a list")
        assert storage.load_value("name") == ""
        storage.save_value("name", "x")
        assert storage.load_value("name") == "x"
