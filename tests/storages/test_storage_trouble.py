"""A storage that fails: one warning, and the crawl goes on without it for a while."""

from __future__ import annotations

import pytest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_rep.storages.client import Claim
from tests.helpers.crawling import captured_log
from tests.helpers.held import a_while
from tests.helpers.log import lines
from tests.helpers.storing import A, B, Hanging, World, always, never, rules

FULL = OSError(28, "No space left on device")
ALL = ("load", "save", "lease", "release", "purge")


async def use(world: World, origin: str = A) -> Claim:
    """What the cache does with an origin that has to be asked for."""
    claim = await world.access.claim(origin, never)
    if claim.granted:
        world.access.publish(rules(origin))
    await world.settle()
    return claim


async def test_what_fails_is_not_called_for_a_while(world: World) -> None:
    """A server that hangs would delay each origin."""
    world.storage.fails = dict.fromkeys(ALL, FULL)
    await use(world)
    before = len(world.storage.calls)
    for number in range(20):
        claim = await use(world, f"http://{number}:80")
        assert claim == Claim(None, granted=True), "everybody may ask"
    assert len(world.storage.calls) == before
    world.now += 10.1
    await use(world)
    again = len(world.storage.calls) - before
    assert 1 <= again <= len(ALL), "it is tried again, once"
    for number in range(20):
        await use(world, f"http://{number}:80")
    assert len(world.storage.calls) == before + again


async def failed_and_hangs(world: World, call: str) -> Hanging:
    """A storage has failed and is tried again, when a *call* hangs."""
    world.storage.fails = dict.fromkeys(ALL, TimeoutError("no answer"))
    await use(world)
    world.now += 10.1
    return Hanging(world, call)


@pytest.mark.loop
@pytest.mark.parametrize("under_way", ["load", "save"])
async def test_nobody_waits_long_for_a_storage_that_hangs_and_fails(
    world: World, under_way: str
) -> None:
    """Its calls, reads and writes, take a timeout each. A claim doesn't wait for these."""
    slow = await failed_and_hangs(world, under_way)
    first = deferred_from_coro(world.access.claim(B, never))  # tries again
    if under_way == "save":
        world.access.publish(rules("http://c:80"))
    await slow.begins()
    second = deferred_from_coro(world.access.claim(A, never))
    await a_while(0)
    for timer in world.timers:
        if not timer.cancelled and timer.seconds < 1:
            timer.function()
    assert await maybe_deferred_to_future(first) == Claim(None, granted=True)
    assert await maybe_deferred_to_future(second) == Claim(rules(A), granted=True), "not yet saved"
    slow.go_on()
    await world.settle()


async def test_nothing_gathers_while_the_storage_hangs(world: World) -> None:
    """It failed once and hangs since: claims that were answered without it, and leases that it never
    gave, are forgotten."""
    slow = await failed_and_hangs(world, "load")
    first = deferred_from_coro(world.access.claim(B, never))
    await slow.begins()
    world.timers.clear()
    origins = [f"http://{number}:80" for number in range(50)]
    claims = [deferred_from_coro(world.access.claim(origin, never)) for origin in origins]
    await a_while(0)
    for timer in world.timers:
        timer.function()
    for origin, claim in zip(origins, claims, strict=True):
        assert (await maybe_deferred_to_future(claim)).granted
        world.access.publish(rules(origin))
    world.storage.calls.clear()
    world.storage.fails.clear()
    slow.go_on()
    assert (await maybe_deferred_to_future(first)).granted
    await world.settle()
    asked = {one[1] for one in world.storage.calls if one[0] in ("lease", "release")}
    assert asked.isdisjoint(origins)


async def test_writes_wait_for_claims_while_the_storage_fails(world: World) -> None:
    """Those who came while it failed first are answered next."""
    world.storage.fails = dict.fromkeys(ALL, TimeoutError("no answer"))
    slow = Hanging(world, "load")
    world.access.publish(rules("http://c:80"))
    first = deferred_from_coro(world.access.claim(A, never))
    await slow.begins()
    second = deferred_from_coro(world.access.claim(B, never))
    await a_while(0)
    order: list[str] = []
    second.addBoth(lambda _: order.append("claim"))
    world.storage.before["save"] = lambda: order.append("save")
    slow.go_on()
    await maybe_deferred_to_future(first)
    await maybe_deferred_to_future(second)
    await world.access.close()
    assert order[:2] == ["claim", "save"]


async def test_it_works_again(world: World) -> None:
    world.storage.fails = dict.fromkeys(ALL, FULL)
    with captured_log() as records:
        await use(world)
        world.storage.fails = {}
        world.now += 10.1
        await use(world)
        assert [world.storage.load(A), world.storage.leases] == [rules(), {}]
    assert len(lines(records, level="WARNING")) == 1
    [info] = lines(records)
    assert "works again" in info


@pytest.mark.parametrize("method", ["load", "save", "lease", "release"])
async def test_one_method_fails(world: World, method: str) -> None:
    """The others work: the outage is one all the same, until that one works again."""
    world.access.purge()
    world.storage.fails = {method: FULL}
    with captured_log() as records:
        for number in range(20):
            await use(world, f"http://{number}:80")
            world.now += 3.7
        assert len(lines(records, level="WARNING")) == 1
        assert lines(records) == []
        world.storage.fails = {}
        for number in range(20):
            await use(world, f"http://{number}:80")
            world.now += 3.7
        assert len(lines(records, level="WARNING")) == 1
        assert len(lines(records)) == 1


async def test_a_purge_that_fails_does_not_hide_what_comes_later(world: World) -> None:
    """There is one in a crawl: it is not waited for to work again."""
    world.storage.fails = {"purge": FULL}
    world.access.purge()
    world.now += 10.1
    with captured_log() as records:
        await use(world)
        world.storage.fails = dict.fromkeys(ALL, FULL)
        await use(world, B)
    assert len(lines(records, level="WARNING")) == 1


@pytest.mark.parametrize("error", [StopIteration(), MemoryError()])
async def test_whatever_is_raised(world: World, error: Exception) -> None:
    world.storage.fails = dict.fromkeys([*ALL, "close"], error)
    with captured_log() as records:
        assert (await use(world)).granted
        world.access.give_back(A)
        world.access.purge()
        await world.access.close()
    assert len(lines(records, level="WARNING")) == 1
    assert type(error).__name__ in lines(records, level="WARNING")[0]


# Entries that can't be read


@pytest.mark.parametrize("found", [rules(B), rules(packed=b"damaged"), "text", 7], ids=type)
async def test_what_is_not_the_entry_counts_as_nothing(world: World, found: object) -> None:
    """Another origin's, damaged, or not what a storage returns."""
    world.storage.load = lambda origin: found  # type: ignore
    with captured_log() as records:
        assert await world.access.claim(A, always) == Claim(None, granted=True)
    assert len(lines(records, level="WARNING")) == 1
