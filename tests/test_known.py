"""What is known in memory: parsed those in use, compressed the others, and the least recently used
leave, as if it were one list."""

from __future__ import annotations

import gc
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_rep import known as module
from scrapy_rep.cache import RobotsCache
from scrapy_rep.known import Known, KnownOrigins
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, MemoryStorage
from tests.helpers.storing import NOW, missing, rules


def origin(number: int) -> Origin:
    return Origin("http", f"{number}.example", 80)


def of(number: int, version: int = 0) -> Any:
    """The entry of an origin; its body tells it from all others."""
    return rules(str(origin(number)), b"Disallow: /%d/%d" % (number, version))


class World:
    """Known origins as the middleware uses them: through the cache, and by spelling."""

    def __init__(self, max_origins: int) -> None:
        self.now = NOW
        self.known = KnownOrigins(max_origins, self.clock)
        unused: Any = None
        self.cache = RobotsCache(RepSettings(), self.known, unused, self.clock)

    def clock(self) -> float:
        """A microsecond later each time."""
        self.now += 1e-6
        return self.now

    def use(self, number: int) -> Known | None:
        """As for a request. What is known has the spelling that stands for it."""
        spelling = f"http://{number}.example/"
        known = self.known.by_spelling.get(spelling)
        if known is not None and (now := self.clock()) < known.usable_until:
            known.used_at = now
            return known
        known = self.cache.get(origin(number))
        if known is not None:
            self.known.spell(known, spelling)
        return known

    def in_memory(self) -> set[int]:
        """Those that are known, found without using them."""
        parsed = [*self.known._parsed, *self.known._pinned]
        packed = [one.origin for one in self.known._packed.entries()]  # type: ignore[union-attr]
        names = [str(one) for one in parsed] + packed
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


@given(steps, st.integers(1, 8), st.integers(1, 8))
@settings(deadline=None, max_examples=300)
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
                world.known.pin(origin(number))
                model.pin(number)
            else:
                world.known.unpin(origin(number))
                model.unpin(number)
            assert world.in_memory() == {*model.used, *model.pinned}
            assert len(world.known._parsed) <= min(parsed, max_origins)
            for spelling, one in world.known.by_spelling.items():
                assert spelling in one.spellings
                assert one in [*world.known._parsed.values(), *world.known._pinned.values()]


def test_a_known_origin_that_is_kept_is_updated_in_place() -> None:
    known = KnownOrigins(10)
    one = known.put(origin(1), of(1))
    old = one.robots
    assert known.put(origin(1), of(1, 2)) is one
    assert one.entry == of(1, 2)
    assert one.robots is not None
    assert one.robots is not old
    known.put(origin(1), missing(str(origin(1))))
    assert one.robots is None


def test_the_same_robots_until_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use is parsed once; what has left that is parsed again."""
    monkeypatch.setattr(module, "_PARSED", 2)
    world = World(10)
    for number in range(3):
        world.known.put(origin(number), of(number))
    first = world.use(2)
    assert first is not None
    robots = first.robots
    for _ in range(3):
        again = world.use(2)
        assert again is first
        assert again.robots is robots
    for number in (0, 1):
        assert world.use(number) is not None
    parsed_again = world.use(2)
    assert parsed_again is not None
    assert parsed_again is not first
    assert parsed_again.entry == first.entry
    # Who still has the old one is sent to ask for the new one.
    assert first.usable_until == 0.0


def test_spellings_are_few_and_leave_with_their_origin() -> None:
    """A few for each origin, and as long as it is in use."""
    world = World(2)
    known = world.known.put(origin(1), of(1))
    some = [f"HTTP://{number}/" for number in range(10)]
    for spelling in [some[0], *some]:  # one that is known already, too
        world.known.spell(known, spelling)
    assert 1 <= len(world.known.by_spelling) < 10
    assert all(one is known for one in world.known.by_spelling.values())
    world.known.put(origin(2), of(2))
    world.known.put(origin(3), of(3))
    assert world.known.by_spelling == {}
    world.known.spell(known, "http://too-late/")
    assert world.known.by_spelling == {}


def test_pins_outlast_everything() -> None:
    """Something waits for them: they are beyond the limit, and back in it at the end."""
    world = World(3)
    for number in range(3):
        world.known.put(origin(number), of(number))
    world.known.pin(origin(0))
    world.known.pin(origin(0))
    world.known.pin(origin(99))  # nothing is known of it: nothing to keep
    for number in range(10, 20):
        world.known.put(origin(number), of(number))
    assert world.in_memory() == {0, 17, 18, 19}
    world.known.unpin(origin(0))
    world.known.unpin(origin(0))
    world.known.unpin(origin(99))
    assert world.in_memory() == {0, 18, 19}
    world.known.put(origin(20), of(20))
    world.known.put(origin(21), of(21))
    assert world.in_memory() == {0, 20, 21}, "just unpinned is just used"
    world.known.put(origin(22), of(22))
    assert world.in_memory() == {20, 21, 22}


def test_an_origin_that_leaves_is_freed() -> None:
    """No list, no cycle, no spelling keeps it."""
    gc.collect()
    before = counted()
    world = World(5)
    for number in range(50):
        world.known.put(origin(number), of(number))
        world.use(number)
        if number % 7 == 0:
            world.known.pin(origin(number))
            world.known.unpin(origin(number))
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [5, 5]
    assert len(world.known.by_spelling) == 5


def counted() -> list[int]:
    """How many there are, without a collection of garbage."""
    objects = gc.get_objects()
    return [sum(type(one) is kind for one in objects) for kind in (Known, RobotsTxt)]


def test_compressed_beyond_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth as many parsed ones as there are origins: the rest are bytes."""
    monkeypatch.setattr(module, "_PARSED", 5)
    gc.collect()
    before = counted()
    world = World(50)
    for number in range(200):
        world.known.put(origin(number), of(number))
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [5, 5]
    assert world.in_memory() == set(range(150, 200))
    for number in range(150, 200):
        known = world.use(number)
        assert known is not None
        assert known.entry == of(number)


@pytest.mark.parametrize("max_origins", [1, 2, module._PARSED, module._PARSED + 1])
def test_the_most_recent_origins_are_kept_within_the_limit(max_origins: int) -> None:
    known = KnownOrigins(max_origins)
    for number in range(max_origins + 3):
        known.put(origin(number), missing(str(origin(number))))
    held = [number for number in range(max_origins + 3) if known.get(origin(number)) is not None]
    # Of those in use a few leave together.
    assert max_origins - max_origins // 50 <= len(held) <= max_origins
    assert held == list(range(max_origins + 3 - len(held), max_origins + 3))


def test_least_recently_used_leave_memory() -> None:
    """What was looked at, or kept anew, is used."""
    storage = MemoryStorage(3)
    for origin in ("a", "b", "c"):
        storage.save(missing(origin))
    assert storage.load("a") is not None
    storage.save(missing("b"))
    storage.save(missing("d"))
    assert [one.origin for one in storage.entries() if isinstance(one, Entry)] == ["a", "b", "d"]
    list(storage.entries())  # no use
    storage.save(missing("e"))
    assert [one.origin for one in storage.entries() if isinstance(one, Entry)] == ["b", "d", "e"]
    assert storage.take("b") == missing("b")
    assert storage.take("b") is None
    assert len(storage) == 2
