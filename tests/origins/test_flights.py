"""One flight an origin, some at a time: who waits for it, for how long, and what ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.origins.fetcher import CONFIGURATION_ERRORS
from scrapy_rep.origins.flights import CrawlEnding, Flight, Flights, StillWaiting
from scrapy_rep.protocol import Origin
from tests.helpers.crawling import captured_log
from tests.helpers.held import NEVER, a_while

pytestmark = pytest.mark.loop


@pytest.fixture(autouse=True)
def none_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("scrapy_rep.origins.flights._SLOW_SECONDS", NEVER)


class World:
    """Flights whose answers the test gives."""

    def __init__(self, concurrency: int = 1) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Deferred[Any]] = {}
        self.in_the_air = self.most = 0
        crawler: Any = SimpleNamespace(
            settings=Settings({"CONCURRENT_REQUESTS": concurrency}), spider=None
        )
        self.flights = Flights(crawler, self.ask)

    async def ask(self, flight: Flight) -> Any:
        self.asked.append(flight.origin.host)
        self.in_the_air += 1
        self.most = max(self.in_the_air, self.most)
        answer = self.answers[flight.origin.host] = Deferred()
        try:
            return await maybe_deferred_to_future(answer)
        finally:
            self.in_the_air -= 1

    async def end(self) -> None:
        """Leave nothing in the air for the next test."""
        self.flights.end()
        await a_while(0)
        assert self.in_the_air == 0

    def answer(self, host: str, what: Any = "known") -> None:
        self.answers[host].callback(what)


def origin(host: str) -> Origin:
    return Origin("http", host, 80)


async def until_asked(world: World, count: int) -> None:
    """And no more are, though those that fly are slow by then."""
    for _ in range(200):
        if len(world.asked) < count:
            await a_while(0.05)
    await a_while(0.2)
    assert len(world.asked) == count
    assert world.in_the_air == 16


async def outcome(coroutine: Any) -> Any:
    try:
        return await coroutine
    except Exception as error:  # noqa: BLE001
        return error


async def test_all_waiters_share_one_flight() -> None:
    world = World()
    request = Request("http://a/first")
    first = world.flights.to(origin("a"), request)
    assert world.flights.to(origin("a"), Request("http://a/second")) is first
    assert first.request is request
    assert origin("a") in world.flights
    assert world.flights.get(origin("a")) is first
    waiting = [deferred_from_coro(outcome(first.wait())) for _ in range(5)]
    await a_while(0.05)
    world.answer("a")
    assert [await maybe_deferred_to_future(one) for one in waiting] == ["known"] * 5
    assert world.asked == ["a"]
    assert origin("a") not in world.flights
    assert world.flights.get(origin("a")) is None
    assert world.in_the_air == 0
    # Who comes later begins another, but may still ask this one.
    assert await first.wait(0) == "known"
    assert world.flights.to(origin("a")) is not first
    await world.end()


async def test_time_counts_from_the_beginning_of_the_flight() -> None:
    """Not from when somebody begins to wait."""
    world = World()
    flight = world.flights.to(origin("a"))
    assert 0.9 < flight.left_of(1.0) <= 1.0
    await a_while(0.2)
    assert flight.left_of(0.2) <= 0
    assert isinstance(await outcome(flight.wait(flight.left_of(0.2))), StillWaiting)
    assert isinstance(await outcome(flight.wait(0)), StillWaiting)
    assert isinstance(await outcome(flight.wait(-1)), StillWaiting)
    assert flight.waiters == []
    await world.end()


async def test_a_waiter_that_times_out_does_not_end_the_flight() -> None:
    world = World()
    flight = world.flights.to(origin("a"))
    patient = deferred_from_coro(outcome(flight.wait()))
    assert isinstance(await outcome(flight.wait(0.05)), StillWaiting)
    assert len(flight.waiters) == 1
    await a_while(0.05)
    world.answer("a")
    assert await maybe_deferred_to_future(patient) == "known"


async def test_new_origins_fly_before_those_asked_again() -> None:
    """Four for each of CONCURRENT_REQUESTS; those asked in vain before come last."""
    world = World(concurrency=1)
    for number in range(3):
        world.flights.to(origin(f"a{number}"), again=True)
    for number in range(3):
        world.flights.to(origin(f"b{number}"), again=True)
        world.flights.to(origin(f"c{number}"))
    await a_while(0.05)
    assert world.asked == ["a0", "a1", "a2", "b0"]
    assert world.in_the_air == 4
    for host in ("a1", "a0", "b0", "a2", "c0", "c1", "c2", "b1", "b2"):
        world.answer(host)
        await a_while(0.01)
    assert world.asked == ["a0", "a1", "a2", "b0", "c0", "c1", "c2", "b1", "b2"]
    assert world.in_the_air == 0
    assert world.most == 4


@pytest.mark.parametrize(("concurrency", "cap"), [(1, 4), (16, 64), (0, 64)])
async def test_no_more_flights_than_the_cap_are_in_the_air(concurrency: int, cap: int) -> None:
    """With no limit to the pages there is one here all the same."""
    world = World(concurrency)
    for number in range(100):
        world.flights.to(origin(f"a{number}"))
    await a_while(0.05)
    assert len(world.asked) == world.in_the_air == cap
    await world.end()
    assert len(world.asked) == cap


async def test_slow_flights_let_others_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many fly then, and no more: sites may be silent without end."""
    monkeypatch.setattr("scrapy_rep.origins.flights._SLOW_SECONDS", 0.1)
    world = World(concurrency=1)
    for number in range(20):
        world.flights.to(origin(f"a{number}"))
    assert world.in_the_air <= 4
    await until_asked(world, 16)
    # Each answer lets one start: of a slow one, too.
    for number, count in ((0, 17), (15, 18)):
        world.answer(f"a{number}")
        await until_asked(world, count)
    await world.end()
    assert len(world.asked) == 18


@pytest.mark.parametrize("error", [one("why") for one in CONFIGURATION_ERRORS])
async def test_an_error_reaches_the_waiters(error: Exception) -> None:
    """Those that are the user's to mend, without a word in the log: that is for others to say."""
    world = World()
    flight = world.flights.to(origin("a"))
    waiting = deferred_from_coro(outcome(flight.wait()))
    await a_while(0.05)
    with captured_log() as records:
        world.answers["a"].errback(error)
        assert await maybe_deferred_to_future(waiting) is error
    assert await outcome(flight.wait()) is error
    assert records == []
    assert world.in_the_air == 0
    assert origin("a") not in world.flights


async def test_bugs_are_logged_and_leave_nobody_waiting() -> None:
    world = World()
    flight = world.flights.to(origin("a"))
    waiting = deferred_from_coro(outcome(flight.wait()))
    await a_while(0.05)
    with captured_log() as records:
        world.answers["a"].errback(ZeroDivisionError("a bug"))
        assert isinstance(await maybe_deferred_to_future(waiting), ZeroDivisionError)
    assert [one.levelname for one in records] == ["ERROR"]
    assert world.in_the_air == 0


async def test_an_abandoned_flight_ends_only_if_nobody_waits_for_it() -> None:
    """Only what nobody waits for is broken off; the next in the queue takes its place."""
    world = World()
    flights = [world.flights.to(origin(f"a{number}")) for number in range(6)]
    waiting = deferred_from_coro(outcome(flights[0].wait()))
    await a_while(0.05)
    assert world.asked == ["a0", "a1", "a2", "a3"]
    for host in ("a0", "a1", "a5", "unknown"):
        world.flights.abandon(origin(host))
    await a_while(0.05)
    assert world.asked == ["a0", "a1", "a2", "a3", "a4"]
    assert [origin(f"a{number}") in world.flights for number in range(6)] == [
        True, False, True, True, True, False,
    ]  # fmt: skip
    world.answer("a0")
    assert await maybe_deferred_to_future(waiting) == "known"
    assert world.in_the_air == 3
    await world.end()


@pytest.mark.parametrize("seconds", [None, 1000.0])
async def test_the_end_tells_everyone_who_waits_and_starts_nothing(seconds: float | None) -> None:
    """Nothing stays in the air either."""
    world = World()
    flights = [world.flights.to(origin(f"a{number}"), again=number > 4) for number in range(8)]
    waiting = [deferred_from_coro(outcome(one.wait(seconds))) for one in flights]
    await a_while(0.05)
    with captured_log() as records:
        world.flights.end()
        for one in waiting:
            assert isinstance(await maybe_deferred_to_future(one), CrawlEnding)
        await a_while(0.05)
    assert world.in_the_air == 0
    assert world.asked == ["a0", "a1", "a2", "a3"]
    assert records == []
    # Who comes too late is told at once.
    late = world.flights.to(origin("late"))
    assert isinstance(await outcome(late.wait(0.2)), CrawlEnding)
    assert world.asked == ["a0", "a1", "a2", "a3"]


async def test_nothing_is_kept_of_those_that_left_the_queue() -> None:
    """New origins go first, perhaps for the whole crawl: who is to be asked again may never fly."""
    world = World()
    for number in range(10):
        world.flights.to(origin(f"a{number}"))
    for number in range(100):
        world.flights.to(origin(f"b{number}"), again=True)
        world.flights.abandon(origin(f"b{number}"))
    world.flights.abandon(origin("a9"))
    assert len(world.flights._first) == 5
    assert not world.flights._again
    await world.end()
    assert not world.flights._first


async def test_flights_abandoned_at_once_leave_room_for_others() -> None:
    """With asyncio, they end before they begin."""
    world = World(concurrency=1)
    for number in range(20):
        world.flights.to(origin(f"a{number}"))
        world.flights.abandon(origin(f"a{number}"))
    world.flights.to(origin("b"))
    await a_while(0.05)
    assert "b" in world.asked
    assert world.in_the_air == 1
    await world.end()
    assert not world.flights._quick
