"""A storage as the crawl uses it: in threads, one call at a time, with the event loop free."""

from __future__ import annotations

import threading

import pytest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_rep.storages import MemoryStorage
from scrapy_rep.storages.client import Claim
from tests.helpers.held import a_while
from tests.helpers.storing import LEASE, NOW, A, B, Hanging, World, always, missing, never, rules

# What a claim says


async def test_an_answer_that_comes_between_the_two(world: World) -> None:
    """Between the look and the lease: the lease is given back, and nobody asks once more."""
    other_has_answered = [lambda: MemoryStorage.save(world.storage, rules())]
    world.storage.before["lease"] = lambda: other_has_answered.pop()()
    assert await world.access.claim(A, always) == Claim(rules(), granted=False)
    assert world.storage.leases == {}


async def test_what_was_published_is_claimed_next(world: World) -> None:
    """In the order in which it was asked for."""
    for number in range(20):
        world.access.publish(missing(A, NOW + number))
        assert (await world.access.claim(A, always)).entry == missing(A, NOW + number)


async def test_a_claim_right_after_a_lease_was_given_back(world: World) -> None:
    """The lease goes on: it must not end under the second fetch."""
    await world.access.claim(A, never)
    slow = Hanging(world, "purge")
    world.access.purge()
    await slow.begins()
    world.access.give_back(A)
    again = deferred_from_coro(world.access.claim(A, never))
    slow.go_on()
    assert (await maybe_deferred_to_future(again)).granted
    await world.settle()
    assert world.storage.leases.keys() == {A}


# Threads


@pytest.mark.loop
async def test_in_threads_one_call_at_a_time(world: World) -> None:
    claims = [
        deferred_from_coro(world.access.claim(f"http://{number}:80", never)) for number in range(20)
    ]
    for number in range(20):
        world.access.publish(missing(f"http://{number}:80"))
    for one in claims:
        await maybe_deferred_to_future(one)
    world.access.purge()
    await world.access.close()
    assert threading.get_ident() not in world.storage.threads
    assert world.storage.overlaps == 0
    assert "purge" in world.storage.names()
    assert world.storage.names()[-1] == "close"


@pytest.mark.loop
async def test_the_event_loop_goes_on(world: World) -> None:
    """Each call waits until the event loop has turned some times meanwhile: it would wait for
    ever if it held the loop."""
    turns, stuck = 0, []
    go_on = threading.Event()

    def tick() -> None:
        nonlocal turns
        turns += 1
        if turns % 5 == 0:
            go_on.set()
        timers[0] = call_later(0.001, tick)

    def wait() -> None:
        go_on.clear()
        if not go_on.wait(10):
            stuck.append(world.storage.calls[-1])

    timers = [call_later(0.001, tick)]
    try:
        methods = ("load", "save", "lease", "release", "purge", "close")
        world.storage.before = dict.fromkeys(methods, wait)
        world.storage.threads.clear()
        assert (await world.access.claim(A, never)).granted
        world.access.publish(rules())
        world.access.give_back(A)
        world.access.purge()
        await world.access.close()
    finally:
        timers[0].cancel()
    assert stuck == []
    assert set(world.storage.names()) == set(methods)


# Cancelling


@pytest.mark.loop
@pytest.mark.parametrize("queued", [False, True], ids=["under way", "queued"])
async def test_a_claim_that_is_given_up_leaves_no_lease(world: World, queued: bool) -> None:
    """Others would wait for it, for as long as it lasts."""
    slow = Hanging(world, "lease")
    first = deferred_from_coro(world.access.claim(A, always))
    given_up = deferred_from_coro(world.access.claim(B, always)) if queued else first
    given_up.addErrback(lambda _: None)
    await slow.begins()
    given_up.cancel()
    await a_while(0)
    slow.go_on()
    if queued:
        assert (await maybe_deferred_to_future(first)).granted
    await world.settle()
    del world.storage.before["lease"]
    origin = B if queued else A
    assert origin not in world.storage.leases
    assert (await world.new().claim(origin, always)).granted
    # And who stays can go on.
    assert (await world.access.claim("http://c:80", always)).granted


# Leases


def ring(world: World) -> float:
    """Let the only timer ring. Return what its seconds were."""
    [timer] = [one for one in world.timers if not one.cancelled]
    world.timers.clear()
    timer.function()
    return timer.seconds  # type: ignore[no-any-return]


async def test_leases_are_renewed_in_time(world: World) -> None:
    """As long as the answer is not there: a redirect takes its own time."""
    assert world.timers == []
    for origin in (A, B):
        await world.access.claim(origin, always)
    for expected in ({A, B}, {B}, set()):
        world.storage.calls.clear()
        assert 0 < ring(world) <= LEASE / 2
        await world.settle()
        renewed = [one[1:] for one in world.storage.calls]
        assert set(renewed) == {(origin, LEASE) for origin in expected}
        assert len(renewed) == len(expected)
        if expected == {A, B}:
            world.access.publish(missing(A))
        else:
            world.access.give_back(B)
        await world.settle()
    assert world.timers == [], "nothing is left to be renewed"
    await world.access.claim(A, never)
    assert len(world.timers) == 1


async def test_closing_finishes_the_queue_and_leaves_no_lease_or_timer(world: World) -> None:
    """Everything that was queued is done, no lease and no timer is left."""
    for origin in (A, B):
        await world.access.claim(origin, always)
    world.access.publish(rules(A))
    await world.access.close()
    assert world.storage.leases == {}
    assert world.storage.load(A) == rules()
    assert all(one.cancelled for one in world.timers)
    assert world.storage.names().count("close") == 1
    assert world.storage.names()[-2] == "close"  # and the look of this test


async def test_what_comes_too_late_asks_nothing_of_the_storage(world: World) -> None:
    """A user's extension may still download while the storage is closed."""
    await world.access.claim(A, always)
    slow = Hanging(world, "close")
    closed = deferred_from_coro(world.access.close())
    await slow.begins()
    calls = world.storage.names()
    assert await world.access.claim(B, always) == Claim(None, granted=True)
    world.access.publish(rules(B))
    world.access.purge()
    slow.go_on()
    await maybe_deferred_to_future(closed)
    await world.settle()
    assert world.storage.names() == calls
