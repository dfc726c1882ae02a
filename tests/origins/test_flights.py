"""One flight an origin, some at a time: who waits for it, for how long, and what ends it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadFailedError
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.test import get_crawler
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import (
    Flights,
    ResolutionListener,
    WaitingRoom,
    is_ending_with_loop,
)
from scrapy_rep.origins.queue import (
    CrawlEnding,
    FetchAbandoned,
    Flight,
    Limits,
    Queue,
    Step,
    StillWaiting,
)
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import UNKNOWN, Status, Unreachable
from scrapy_rep.protocol import Origin
from tests.helpers.crawling import captured_log
from tests.helpers.held import NEVER, a_while
from tests.helpers.recorded import context_of
from tests.holding.holds import held


@pytest.fixture(autouse=True)
def none_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_rep.origins.queue.SLOW_SECONDS", NEVER)


class FlightsByHand(ResolutionListener):
    def __init__(
        self, concurrency: int = 1, status: Status = UNKNOWN, max_wait: float = NEVER
    ) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Deferred[Any]] = {}
        self.in_the_air = self.most = 0
        crawler: Any = SimpleNamespace(
            engine=SimpleNamespace(paused=False),
            settings=Settings({"CONCURRENT_REQUESTS": concurrency}),
            spider=None,
        )
        self.told: list[object] = []
        limits = Limits(grace=NEVER, max_wait=max_wait, fetch=NEVER)
        known = lambda origin: (status, None)
        self.flights = Flights(crawler, self.ask, known, time.monotonic, limits)
        self.flights.notify(self)

    async def ask(self, flight: Flight) -> Any:
        self.asked.append(flight.origin.host)
        self.in_the_air += 1
        self.most = max(self.in_the_air, self.most)
        answer = self.answers[flight.origin.host] = Deferred()
        try:
            return await maybe_deferred_to_future(answer)
        finally:
            self.in_the_air -= 1

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        self.told.append(state)

    def failed(self, origin: Origin, error: Exception) -> None:
        self.told.append(error)

    def begin(self, *hosts: str, again: bool = False) -> list[Flight]:
        return [self.flights.to(origin(host), again=again) for host in hosts]

    async def assert_places(self, count: int) -> None:
        """Nobody that has left keeps a place: of very many new origins, *count* are asked at a time."""
        for queue in list(self.flights.queues.values()):
            self.flights.abandon(queue.origin)
        while self.in_the_air:
            await a_while(0.01)
        self.begin(*(f"fresh{number}" for number in range(100)))
        while self.in_the_air < count:
            await a_while(0.01)
        await a_while(0.01)
        assert self.in_the_air == count

    async def end(self) -> None:
        self.flights.end()
        await a_while(0)
        assert self.in_the_air == 0

    async def answer(self, host: str, what: Any = "known") -> None:
        self.answers[host].callback(what)
        await a_while(0.01)


def origin(host: str) -> Origin:
    return Origin("http", host, 80)


def hosts(count: int) -> list[str]:
    return [f"a{number}" for number in range(count)]


async def outcome(coroutine: Any) -> Any:
    try:
        return await coroutine
    except Exception as error:  # noqa: BLE001
        return error


def waits(flight: Flight, seconds: float | None = None) -> Deferred[Any]:
    return deferred_from_coro(outcome(flight.wait(seconds)))


async def test_time_counts_from_the_beginning_of_the_flight() -> None:
    """Not from when somebody begins to wait. Who is late does not end it."""
    world = FlightsByHand()
    [flight] = world.begin("a")
    assert 0.9 < flight.remaining(1.0) <= 1.0
    patient = waits(flight)
    await a_while(0.05)
    assert flight.remaining(0.05) <= 0
    for seconds in (flight.remaining(0.05), 0, -1, 0.05):
        assert isinstance(await outcome(flight.wait(seconds)), StillWaiting)
    assert len(world.flights.queues[origin("a")].callers) == 1
    assert world.flights.to(origin("a")) is flight
    await world.answer("a")
    assert await maybe_deferred_to_future(patient) == "known"
    # Who comes later begins another, but may still ask this one.
    assert await flight.wait(0) == "known"
    assert world.flights.to(origin("a")) is not flight
    await world.end()


async def test_new_origins_fly_before_those_asked_again() -> None:
    """At most four times CONCURRENT_REQUESTS at a time, 64 if that is unlimited; retries come last."""
    world = FlightsByHand(0)
    world.begin(*hosts(100))
    await a_while(0.01)
    assert len(world.asked) == world.in_the_air == 64
    await world.end()
    assert len(world.asked) == 64
    world = FlightsByHand(concurrency=1)
    world.begin("a0", "a1", "a2", again=True)
    await a_while(0.01)
    for number in range(3):
        world.begin(f"b{number}", again=True)
        world.begin(f"c{number}")
    await a_while(0.01)
    assert world.asked == ["a0", "a1", "a2", "c0"]
    for host in ("a1", "a0", "c0", "a2", "c1", "c2", "b0", "b1", "b2"):
        await world.answer(host)
    assert world.asked == ["a0", "a1", "a2", "c0", "c1", "c2", "b0", "b1", "b2"]
    assert (world.in_the_air, world.most) == (0, 4)


async def test_slow_flights_let_others_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many fly then, and no more: sites may be silent without end."""
    monkeypatch.setattr("scrapy_rep.origins.queue.SLOW_SECONDS", 0.03)
    world = FlightsByHand(concurrency=1)
    world.begin(*hosts(20))
    assert world.in_the_air <= 4
    # Each answer lets one start: of a slow one, too.
    for count, answered in ((16, "a0"), (17, "a15"), (18, "")):
        for _ in range(200):
            if len(world.asked) < count:
                await a_while(0.02)
        await a_while(0.05)  # and no more are, though those that fly are slow by then
        assert (len(world.asked), world.in_the_air) == (count, 16)
        if answered:
            await world.answer(answered)
    await world.end()


async def test_an_abandoned_flight_ends_only_if_nobody_waits_for_it() -> None:
    world = FlightsByHand()
    flights = world.begin(*hosts(6))
    waiting = waits(flights[0])
    await a_while(0.01)
    for host in ("a0", "a1", "a5", "unknown"):
        world.flights.abandon(origin(host))
    await a_while(0.01)
    assert world.asked == ["a0", "a1", "a2", "a3", "a4"]
    assert [host for host in hosts(6) if world.flights.get(origin(host))] == [
        "a0",
        "a2",
        "a3",
        "a4",
    ]
    await world.answer("a0")
    assert await maybe_deferred_to_future(waiting) == "known"
    await world.end()


@pytest.mark.loop
@pytest.mark.parametrize("seconds", [None, 1000.0])
async def test_the_end_tells_everyone_who_waits_and_starts_nothing(
    seconds: float | None,
) -> None:
    world = FlightsByHand()
    flights = [*world.begin(*hosts(5)), *world.begin("b", "c", again=True)]
    waiting = [waits(one, seconds) for one in flights]
    await a_while(0.01)
    with captured_log() as records:
        world.flights.end()
        for one in waiting:
            assert isinstance(await maybe_deferred_to_future(one), CrawlEnding)
        await a_while(0.01)
    assert world.in_the_air == 0
    assert records == []
    # Who comes too late is told at once.
    [late] = world.begin("late")
    assert isinstance(await outcome(late.wait(0.2)), CrawlEnding)
    assert world.asked == ["a0", "a1", "a2", "a3"]


@pytest.mark.loop
async def test_nothing_is_kept_of_those_that_left_at_once() -> None:
    """With asyncio, some end before they begin; others leave the queue, and they leave room."""
    world = FlightsByHand()
    for host in hosts(20):
        world.begin(host)
        world.flights.abandon(origin(host))
    world.begin(*(f"b{number}" for number in range(10)))
    for host in hosts(20):
        world.begin(host, again=True)
        world.flights.abandon(origin(host))
    world.flights.abandon(origin("b9"))
    await a_while(0.01)
    assert world.asked[-4:] == ["b0", "b1", "b2", "b3"]
    assert world.in_the_air == 4
    for number in range(9):
        await world.answer(f"b{number}")
    assert world.asked[-9:] == [f"b{number}" for number in range(9)]
    await world.assert_places(4)
    await world.end()


async def test_what_one_step_makes_needless_is_not_done() -> None:
    """The event loop is late: the next attempt is due, and the time of those who wait is over. The attempt
    comes first, and they wait for it."""
    world = FlightsByHand(status=Unreachable(9e9, "", time.monotonic()), max_wait=0.0)
    acted: list[Step] = []

    class Room(WaitingRoom):
        def act(self, queue: Queue, step: Step) -> None:
            acted.append(step)

    world.flights.serve(Room())
    queue = world.flights.queue_of(origin("a"))
    queue.recover([held(1)._replace(was_held=True)])
    world.flights.set_alarm_or_forget(queue)
    await a_while(0.02)
    assert world.asked == ["a"]
    assert acted == [Step.ASK]
    await world.end()


@pytest.mark.loop
@pytest.mark.parametrize("error", [CancelledError(), asyncio.CancelledError()])
async def test_only_what_we_cancel_ourselves_is_told_as_abandoned(
    error: BaseException,
) -> None:
    """With asyncio, it is another error than with Twisted. Both come out of projects' own code, too."""
    world = FlightsByHand()
    _, foreign = world.begin("ours", "foreign")
    waiting = waits(foreign)
    await a_while(0.01)
    world.flights.abandon(origin("ours"))
    await a_while(0.01)
    assert [type(result) for result in world.told] == [FetchAbandoned]
    with captured_log() as records:
        world.answers["foreign"].errback(error)
        result = await maybe_deferred_to_future(waiting)
    assert isinstance(result, Exception) and not isinstance(result, CancelledError)
    assert [record.levelname for record in records] == ["ERROR"]
    assert foreign.result is result and not world.flights.queues
    await world.end()


class SmallPool(FlightsByHand):
    """Two fetches at a time, whose places are needed when they have been in flight for a moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scrapy_rep.origins.flights.has_small_pool", lambda _: True)
        monkeypatch.setattr("scrapy_rep.origins.queue.SLOW_SECONDS", 0.05)
        super().__init__(concurrency=4)


@pytest.mark.loop
async def test_slow_flights_give_way_to_those_that_were_never_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are asked again, last. Nobody is told, and whoever waits goes on waiting."""
    world = SmallPool(monkeypatch)
    silent = world.begin("s0", "s1", "s2")
    waiting = waits(silent[0])
    world.begin("again", again=True)
    world.begin("good")
    await a_while(0.08)
    assert world.asked == ["s0", "s1", "s2", "good"]
    assert (world.most, world.told) == (2, [])
    await world.answer("good")
    await world.answer("s2")
    await a_while(0.02)
    assert world.asked[4:] == ["again", "s0"]
    await world.answer("s0", "rules")
    assert await maybe_deferred_to_future(waiting) == "rules"
    assert world.told == ["known", "known", "rules"]
    await world.assert_places(2)
    await world.end()


@pytest.mark.loop
async def test_a_slow_flight_keeps_its_place_while_nobody_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retries don't. Each time it's put off, it may take twice as long before it is again."""
    world = SmallPool(monkeypatch)
    world.begin("s0", "s1")
    world.begin("again", again=True)
    await a_while(0.1)
    assert world.asked == ["s0", "s1"]
    world.begin("good")
    await a_while(0.01)
    assert world.asked == ["s0", "s1", "good"]
    await world.answer("good")
    await a_while(0.01)
    await world.answer("again")
    await a_while(0.01)
    assert world.asked[3:] == ["again", "s0"]
    queue = world.flights.queues[origin("s0")]
    assert queue.fetch is not None and queue.fetch.patience == 2
    await world.end()


@pytest.mark.loop
async def test_what_nobody_waits_for_is_not_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was cancelled, and may not have ended so far."""
    world = SmallPool(monkeypatch)
    world.begin("s0", "s1")
    await a_while(0.1)
    world.flights.abandon(origin("s0"))
    world.begin("good", "better", "best")
    world.flights._take_off()
    assert origin("s0") not in world.flights.queues
    await a_while(0.02)
    assert origin("s0") not in world.flights.queues
    await world.assert_places(2)
    await world.end()


@pytest.mark.loop
async def test_what_was_put_off_counts_against_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SmallPool(monkeypatch)
    world.begin("s0", "s1")
    await a_while(0.01)
    queue = world.flights.queues[origin("s0")]
    clock = queue.clock(queue.fetch.took_off_at)  # type: ignore[union-attr,arg-type]
    await a_while(0.1)
    assert queue.stopped_at is None
    world.begin("good")
    await a_while(0.03)
    assert queue.stopped_at is not None
    assert queue.clock(world.flights.clock()) == pytest.approx(clock)
    await world.end()


async def test_a_failed_fetch_frees_its_slot() -> None:
    """By a downloader of the project's own, too."""
    crawler: Any = get_crawler()

    async def download(request: Request) -> Response:
        assert downloader.total_concurrency == 17
        raise CancelledError

    downloader = SimpleNamespace(total_concurrency=16)
    crawler.engine = SimpleNamespace(
        downloader=downloader,
        download_async=download,
        _slot=None,
        pause=None,
        unpause=None,
    )
    answer = await Fetcher(context_of(crawler)).fetch(origin("a"), Request("http://a"))
    assert isinstance(answer.error, DownloadFailedError)
    assert downloader.total_concurrency == 16


def test_only_a_task_that_is_being_cancelled_ends_with_its_loop() -> None:
    """Then a fetch isn't a failed attempt. Whoever else raises CancelledError has failed."""
    seen: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError as error:
            seen.append(is_ending_with_loop(error))

    async def main() -> None:
        seen.append(is_ending_with_loop(asyncio.CancelledError()))
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await task

    # In a thread: this one may have a loop that runs.
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, main()).result(60)
    assert seen == [False, hasattr(asyncio.Task, "cancelling")]
