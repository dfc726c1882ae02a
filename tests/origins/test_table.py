"""What is known in memory: parsed those in use, compressed the others, and the least recently used
leave, as if it were one list."""

from __future__ import annotations

import gc
from collections import OrderedDict
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import gatherResults

from scrapy_rep.origins import cache as cache_module
from scrapy_rep.origins import state as module
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, MemoryStorage, base
from tests.helpers.held import a_while
from tests.helpers.storing import NOW, missing, rules

ENOUGH = 1 << 30
"""Bytes."""


def origin(number: int) -> Origin:
    return Origin("http", f"{number}.example", 80)


def of(number: int, version: int = 0) -> Any:
    """The entry of an origin; its body tells it from all others."""
    return rules(str(origin(number)), b"Disallow: /%d/%d" % (number, version))


class World:
    """Known origins as the middleware uses them: through the cache, and by prefix."""

    def __init__(self, max_origins: int, max_bytes: int = ENOUGH) -> None:
        self.now = NOW
        self.table = OriginTable(max_origins, max_bytes, self.clock)
        unused: Any = None
        self.cache = RobotsCache(RepSettings(), self.table, unused, self.clock)

    def clock(self) -> float:
        """A microsecond later each time."""
        self.now += 1e-6
        return self.now

    def use(self, number: int) -> OriginState | None:
        """As for a request. What is known has the prefix that stands for it."""
        prefix = f"http://{number}.example/"
        known = self.table.by_prefix.get(prefix)
        if known is not None and (now := self.clock()) < known.usable_until:
            known.used_at = now
            return known
        known = self.cache.get(origin(number))
        if known is not None:
            self.table.add_prefix(known, prefix)
        return known

    def in_memory(self) -> set[int]:
        """Those that are known, found without using them."""
        packed = self.table._packed
        entries = packed.entries() if packed is not None else ()
        names = [*self.table._parsed, *self.table._pinned]
        names += [one.origin for one in entries]  # type: ignore[union-attr]
        assert len(names) == len(set(names)), "one is kept twice"
        return {int(name.split("//")[1].split(".")[0]) for name in names}


class Model:
    """The same by the simplest means there are."""

    def __init__(self, max_origins: int) -> None:
        self.max = max_origins
        self.used: OrderedDict[int, int] = OrderedDict()
        self.pinned: dict[int, int] = {}

    def use(self, number: int) -> int | None:
        if number in self.pinned:
            return self.pinned[number]
        if number in self.used:
            self.used.move_to_end(number)
        return self.used.get(number)

    def put(self, number: int, version: int) -> None:
        if number in self.pinned:
            self.pinned[number] = version
            return
        self.used[number] = version
        self.used.move_to_end(number)
        if len(self.used) > self.max:
            self.used.popitem(last=False)

    def pin(self, number: int) -> None:
        if number in self.used:
            self.pinned[number] = self.used.pop(number)

    def unpin(self, number: int) -> None:
        if number in self.pinned:
            self.put(number, self.pinned.pop(number))


numbers = st.integers(0, 11)
steps = st.lists(
    st.tuples(st.sampled_from(["use"] * 4 + ["put"] * 4 + ["pin", "unpin"]), numbers), max_size=60
)


@pytest.mark.slow
@given(steps, st.integers(1, 8), st.integers(1, 8))
@settings(deadline=None, max_examples=100)
def test_exactly_the_least_recently_used_leave(
    done: list[tuple[str, int]], max_origins: int, parsed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PARSED", parsed)
        world, model = World(max_origins), Model(max_origins)
        for version, (step, number) in enumerate(done):
            if step == "use":
                found, expected = world.use(number), model.use(number)
                assert (found is None) == (expected is None)
                if found is not None and expected is not None:
                    assert found.entry == of(number, expected)
                    assert found.robots is not None
                    assert found.standing is Standing.FRESH
            elif step == "put":
                put = world.cache._take(origin(number), of(number, version))
                assert put.entry == of(number, version)
                model.put(number, version)
            elif step == "pin":
                world.table.pin(origin(number))
                model.pin(number)
            else:
                world.table.unpin(origin(number))
                model.unpin(number)
            assert world.in_memory() == {*model.used, *model.pinned}
            assert len(world.table._parsed) <= min(parsed, max_origins)
            for prefix, one in world.table.by_prefix.items():
                assert prefix in one.prefixes
                assert one in [*world.table._parsed.values(), *world.table._pinned.values()]


def test_a_known_origin_that_is_kept_is_updated_in_place() -> None:
    known = OriginTable(10, ENOUGH)
    one = known.put(origin(1), of(1))
    old = one.robots
    assert known.put(origin(1), of(1, 2)) is one
    assert one.entry == of(1, 2)
    assert one.robots is not None
    assert one.robots is not old
    known.put(origin(1), missing(str(origin(1))))
    assert one.robots is None


def test_spellings_are_few_and_leave_with_their_origin() -> None:
    """A few for each origin, and as long as it is in use."""
    world = World(2)
    known = world.table.put(origin(1), of(1))
    some = [f"HTTP://{number}/" for number in range(10)]
    for prefix in [some[0], *some]:  # one that is known already, too
        world.table.add_prefix(known, prefix)
    assert 1 <= len(world.table.by_prefix) < 10
    assert all(one is known for one in world.table.by_prefix.values())
    world.table.put(origin(2), of(2))
    world.table.put(origin(3), of(3))
    assert world.table.by_prefix == {}
    world.table.add_prefix(known, "http://too-late/")
    assert world.table.by_prefix == {}


def counted() -> list[int]:
    """How many there are, without a collection of garbage."""
    objects = gc.get_objects()
    return [sum(type(one) is kind for one in objects) for kind in (OriginState, RobotsTxt)]


@pytest.mark.parametrize("size", [10, 50_000])
def test_what_leaves_those_in_use_is_freed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The rest are bytes; no list, no cycle, no prefix keeps more, nor what is large."""
    monkeypatch.setattr(module, "_PARSED", 5)
    gc.collect()
    before = counted()
    world, old = World(50, 200_000), None
    for number in range(200):
        world.table.put(origin(number), rules(str(origin(number)), noise(size)))
        world.use(number)
        if number % 7 == 0:
            world.table.pin(origin(number))
            world.table.unpin(origin(number))
        old = world.use(0) if number == 0 else old
    assert old is not None
    assert old.usable_until == 0.0, "who still has it has to ask again"
    del old
    parsed = len(world.table._parsed)
    assert parsed == (5 if size == 10 else 1)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [parsed, parsed]
    assert len(world.table.by_prefix) == parsed
    assert world.in_memory() == set(range(150 if size == 10 else 197, 200))


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


def check_bytes(known: OriginTable) -> int:
    """What is counted is the sum of what is there. Return the bytes of the packed ones."""
    assert known._parsed_bytes == sum(one.size for one in known._parsed.values())
    if (storage := known._packed) is None:
        return 0
    packed = storage._packed
    assert storage._bytes == sum(base._BYTES + len(one) for one in packed.values())
    assert {*storage._large} <= {*packed}
    return storage._bytes


byte_steps = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 5 + ["use", "read", "pin", "unpin"]),
        numbers,
        st.sampled_from([0, 500, 5_000, 60_000]),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(byte_steps, st.integers(1, 8), st.integers(1, 8), st.sampled_from([1, 20_000, 100_000]))
@settings(deadline=None, max_examples=60)
def test_no_more_bytes_than_the_limit(
    done: list[tuple[str, int, int]], max_origins: int, parsed: int, max_bytes: int
) -> None:
    """And one more, at the most: the last, of those in use and of the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PARSED", parsed)
        world = World(max_origins, max_bytes)
        pinned: set[int] = set()
        for step, number, size in done:
            if step == "put":
                entry = rules(str(origin(number)), noise(size))
                assert world.cache._take(origin(number), entry).entry == entry
            elif step == "use":
                world.use(number)
            elif step == "read" and (one := world.use(number)) and one.robots:
                one.robots.preload(b"Sitemap: /x\n" * (size // 100), "bot")
                world.table.weigh(one)
            elif step == "pin" and world.use(number):
                world.table.pin(origin(number))
                pinned.add(number)
            elif step == "unpin":
                world.table.unpin(origin(number))
                pinned.discard(number)
            packed, in_use = check_bytes(world.table), world.table._parsed
            if step in ("put", "use", "read") and number in world.in_memory() - pinned:
                assert str(origin(number)) in in_use, "the last one is at hand"
            assert world.table._parsed_bytes <= max_bytes // 2 or (
                world.table._parsed_bytes - max(one.size for one in in_use.values())
                <= max_bytes // 2
            )
            rest = max_bytes - min(world.table._parsed_bytes, max_bytes // 2)
            assert packed <= rest or len(world.in_memory()) == len(in_use) + len(pinned) + 1
            assert pinned <= world.in_memory()


def test_the_memory_storage_evicts_by_use_and_large_ones_first() -> None:
    storage = MemoryStorage(3, ENOUGH)
    for name in ("a", "b", "c"):
        storage.save(missing(name))
    assert storage.load("a") is not None
    storage.save(missing("b"))
    storage.save(missing("d"))
    assert [one.origin for one in storage.entries() if isinstance(one, Entry)] == ["a", "b", "d"]
    storage = MemoryStorage(100, 300_000)
    for name, size in (
        ("a", 10),
        ("large", 100_000),
        ("b", 10),
        ("larger", 150_000),
        ("c", 90_000),
    ):
        storage.save(rules(name, noise(size)))
    names = [one.origin for one in storage.entries() if isinstance(one, Entry)]
    assert names == ["a", "b", "larger", "c"]


@pytest.mark.loop
async def test_files_that_arrive_at_once_are_read_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A storage answers for hundreds of origins in one turn of the event loop."""
    monkeypatch.setattr(cache_module, "SLICE_SECONDS", 0.0)
    world = World(100)
    states = [world.table.put(origin(number), of(number)) for number in range(20)]

    def read() -> int:
        return sum(
            state.robots is not None and state.robots.is_read(("testbot",)) for state in states
        )

    readers = [deferred_from_coro(world.cache.read(state, ("testbot",))) for state in states]
    counts = [read()]
    while counts[-1] < len(states) and len(counts) < 100:
        await a_while(0)
        counts.append(read())
    await maybe_deferred_to_future(gatherResults(readers))
    assert counts[-1] == len(states)
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) <= 2
