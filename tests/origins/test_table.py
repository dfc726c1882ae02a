"""What is in memory, parsed or compressed: both share one least-recently-used order."""

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
from scrapy_rep.origins.status import Expired, Fresh
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, MemoryStorage, base
from tests.helpers.held import a_while
from tests.helpers.storing import NOW, know, rules

ENOUGH = 1 << 30


def origin(number: int) -> Origin:
    return Origin("http", f"{number}.example", 80)


def of(number: int, version: int = 0, size: int = 0) -> Any:
    """The entry of an origin; its body tells it from all others."""
    return rules(
        str(origin(number)), b"Disallow: /%d/%d\n" % (number, version) + noise(size)
    )


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


def packed_of(table: OriginTable) -> MemoryStorage | None:
    return table._packed


class KnownOrigins:
    """Known origins as the middleware uses them: through the cache, and by prefix."""

    def __init__(self, max_origins: int, max_bytes: int = ENOUGH) -> None:
        self.now = NOW
        limits = RepSettings(cache_max_origins=max_origins, cache_max_bytes=max_bytes)
        unused: Any = None
        self.cache = RobotsCache(limits, unused, self.clock)
        self.table = self.cache.table

    def clock(self) -> float:
        """A microsecond later each time."""
        self.now += 1e-6
        return self.now

    def use(self, number: int) -> OriginState | None:
        prefix = f"http://{number}.example/"
        known = self.table.by_prefix.get(prefix)
        if known is not None and (now := self.clock()) < known.status.until:
            known.used_at = now
            return known
        known = self.cache.get(origin(number))
        if known is not None:
            self.table.add_prefix(known, prefix)
        return known

    def in_memory(self) -> set[int]:
        """Those that are known, found without using them."""
        packed = packed_of(self.table)
        entries = packed.entries() if packed is not None else ()
        names = [state.name for state in self.table.states()]
        names += [one.origin for one in entries]  # type: ignore[union-attr]
        assert len(names) == len(set(names)), "one is kept twice"
        return {int(name.split("//")[1].split(".")[0]) for name in names}


class Model:
    def __init__(self, max_origins: int) -> None:
        self.max = max_origins
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self.pinned: set[int] = set()

    def use(self, number: int, entry: Entry | None = None) -> Entry | None:
        if entry is not None:
            self.entries[number] = entry
        if number in self.entries:
            self.entries.move_to_end(number)
        free = [one for one in self.entries if one not in self.pinned]
        if len(free) > self.max:
            del self.entries[free[0]]
        return self.entries.get(number)

    def unpin(self, number: int) -> None:
        if number in self.pinned:
            self.pinned.discard(number)
            self.use(number)


WHAT = ["put"] * 5 + ["use"] * 3 + ["read", "pin", "unpin"]
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(WHAT),
        st.integers(0, 11),
        st.sampled_from([0, 500, 5_000, 60_000]),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(
    steps,
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([ENOUGH, ENOUGH, 1, 20_000, 100_000]),
)
@settings(deadline=None, max_examples=160)
def test_exactly_the_least_recently_used_leave(
    done: list[Step], max_origins: int, parsed: int, max_bytes: int
) -> None:
    """Or the large ones, if bytes are short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_PARSED", parsed)
        world, model = KnownOrigins(max_origins, max_bytes), Model(max_origins)
        pinned = model.pinned
        for version, (step, number, size) in enumerate(done):
            entry = of(number, version, size)
            if step == "put":
                assert know(world.cache, entry).entry == entry
                model.use(number, entry)
            elif step == "unpin":
                world.table.unpin(origin(number))
                model.unpin(number)
            else:
                found, expected = world.use(number), model.use(number)
                assert max_bytes < ENOUGH or (found and found.entry) == expected
                assert found is None or (
                    found.robots and isinstance(found.status, Fresh)
                )
                if step == "read" and found is not None and found.robots:
                    found.robots.preload(b"Sitemap: /x\n" * (size // 100), "bot")
                    world.table.weigh(found)
                elif step == "pin" and found is not None:
                    world.table.pin(origin(number))
                    pinned.add(number)
            known, table = world.in_memory(), world.table
            states, kept = table.states(), {str(origin(one)) for one in pinned}
            at_hand = [state for state in states if state.name not in kept]
            assert max_bytes < ENOUGH or known == {*model.entries}
            assert pinned <= known
            if number in known - pinned and step not in ("pin", "unpin"):
                assert str(origin(number)) in [state.name for state in at_hand]
            assert len(at_hand) <= min(parsed, max_origins)
            for prefix, one in table.by_prefix.items():
                assert prefix in one.prefixes
                assert one in states
            sizes = [state.size for state in at_hand]
            alone = len(known) == len(states) + 1
            check_bytes(table, sizes, max_bytes, alone=alone)


def check_bytes(
    table: OriginTable, sizes: list[int], most: int, *, alone: bool
) -> None:
    """What is counted is the sum of what is there, and no more than *most*, beside the last one of those in use
    and of the others. *sizes*: of those in use; *alone*: there is one of the others."""
    assert table._parsed_bytes == sum(sizes)
    assert sum(sizes) - max(sizes, default=0) <= most // 2
    if (storage := packed_of(table)) is not None:
        packed, size = storage._packed, storage._bytes
        assert size == sum(base._OVERHEAD_BYTES + len(one) for one in packed.values())
        assert {*storage._large} <= {*packed}
        assert size <= most - min(sum(sizes), most // 2) or alone


def test_spellings_are_few_and_leave_with_their_origin() -> None:
    """A few for each origin, and as long as it is in use."""
    world = KnownOrigins(2)
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
    return [
        sum(type(one) is kind for one in objects) for kind in (OriginState, RobotsTxt)
    ]


@pytest.mark.parametrize("size", [10, 50_000])
def test_what_leaves_those_in_use_is_freed(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The rest are bytes; no list, no cycle, no prefix keeps more, nor what is large."""
    monkeypatch.setattr(module, "_MAX_PARSED", 5)
    gc.collect()
    before = counted()
    world, old = KnownOrigins(50, 200_000), None
    for number in range(200):
        world.table.put(origin(number), rules(str(origin(number)), noise(size)))
        world.use(number)
        if number % 7 == 0:
            world.table.pin(origin(number))
            world.table.unpin(origin(number))
        old = world.use(0) if number == 0 else old
    assert old is not None
    assert isinstance(old.status, Expired), "who still has it has to ask again"
    del old
    parsed = len(world.table.states())
    assert parsed == (5 if size == 10 else 1)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [
        parsed,
        parsed,
    ]
    assert len(world.table.by_prefix) == parsed
    assert world.in_memory() == set(range(150 if size == 10 else 197, 200))


@pytest.mark.loop
async def test_files_that_arrive_at_once_are_read_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A storage answers for hundreds of origins in one turn of the event loop."""
    monkeypatch.setattr(cache_module, "SLICE_SECONDS", 0.0)
    world = KnownOrigins(100)
    states = [world.table.put(origin(number), of(number)) for number in range(20)]

    def read() -> int:
        return sum(
            state.robots is not None and state.robots.is_read(("testbot",))
            for state in states
        )

    readers = [
        deferred_from_coro(world.cache.read(state, ("testbot",))) for state in states
    ]
    counts = [read()]
    while counts[-1] < len(states) and len(counts) < 100:
        await a_while(0)
        counts.append(read())
    await maybe_deferred_to_future(gatherResults(readers))
    assert counts[-1] == len(states)
    assert (
        max(after - before for before, after in zip([0, *counts], counts, strict=False))
        <= 2
    )
