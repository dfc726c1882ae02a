"""First requests of many origins: they wait beside the download slots, and go on from there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.waiting_room import WaitingRoom
from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import RULES, after, in_turn, silence
from tests.helpers.closing import SECONDS, closing_took
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import (
    DEFER,
    NEVER,
    Gate,
    Record,
    a_while,
    assert_clean,
    assert_no_errors,
    assert_nothing_dropped,
    later,
    silent_until_open,
)
from tests.helpers.servers import Site, Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api, pytest.mark.slow]

FEW: dict[str, Any] = {**DEFER, "CONCURRENT_REQUESTS": 4}
# With it there are 32 places, one for each origin.
MANY = 20


class AtATime:
    """How many pages were downloaded at a time, at most."""

    def __init__(self) -> None:
        self.most = self._now = 0

    @property
    def handlers(self) -> dict[Any, Any]:
        return {
            scrapy_signals.request_reached_downloader: self._reached,
            scrapy_signals.request_left_downloader: self._left,
        }

    def _reached(self, request: Request, spider: Spider) -> None:
        self._now += not request.url.endswith("/robots.txt")
        self.most = max(self.most, self._now)

    def _left(self, request: Request, spider: Spider) -> None:
        self._now -= not request.url.endswith("/robots.txt")


def pages(sites: Sites, count: int, robots: Any) -> tuple[list[Site], list[str]]:
    several = [sites.add(robots=robots, pages={"/x": after(0.01, "page")}) for _ in range(count)]
    return several, [site.url("/x") for site in several]


def assert_each_once(several: list[Site]) -> None:
    assert [site.count("/x") for site in several] == [1] * len(several)


async def test_answers_that_take_longer_than_grace_spare_the_scheduler(sites: Sites) -> None:
    """The requests are held, for all to see, but go on from where they are."""
    gate = silent_until_open()
    several, wanted = pages(sites, MANY, gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == MANY else None)
    most = AtATime()
    result = await crawl(
        wanted,
        {**FEW, "REP_DEFER_GRACE": 0.5},
        signal_handlers={**record.handlers, **most.handlers},
    )
    assert sorted(record.deferred) == sorted(record.released) == sorted(wanted)
    assert result.stat("rep/held/max") == MANY
    assert result.stat("rep/held") == 0
    assert result.stat("scheduler/dequeued") == MANY
    assert 1 < most.most <= 4
    assert await record.concurrency() == [4, 4]
    assert_each_once(several)
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_more_origins_than_places_wait_their_turn(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is held whose robots.txt takes no longer than REP_DEFER_GRACE."""
    # Places get free each 0.1 s, unless the machine is busy.
    monkeypatch.setattr("scrapy_rep.origins.waiting_room._QUEUE_SECONDS", NEVER)
    several, wanted = pages(sites, 100, after(0.1, RULES))
    record, most = Record(), AtATime()
    result = await crawl(
        wanted,
        {**FEW, "REP_DEFER_GRACE": 30},
        signal_handlers={**record.handlers, **most.handlers},
    )
    assert record.deferred == []
    assert result.stat("scheduler/dequeued") == 100
    assert most.most <= 4
    assert await record.concurrency() == [4, 4]
    assert_each_once(several)
    assert_clean(result)


class LinkSpider(ListSpider):
    """Schedules all links on its first page at once."""

    links: list[str]

    def parse(self, response: Any, **kwargs: Any) -> None:
        super().parse(response, **kwargs)
        assert self.crawler.engine is not None
        while self.links:
            self.crawler.engine.crawl(self.recorded(self.links.pop()))


async def test_no_request_waits_for_the_engine_to_look(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks when something ends. Else every 5 s, in tests more often, which would hide it."""
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
    # When a fetch is slow, another starts, and the engine looks.
    monkeypatch.setattr("scrapy_rep.origins.flights._SLOW_SECONDS", NEVER)
    gate = silent_until_open()
    _, links = pages(sites, MANY, gate)
    first = sites.add(robots=404, pages={"/": "page"})
    record = Record()
    dequeued: list[int] = []

    def look() -> None:
        dequeued.append(record.engine.crawler.stats.get_value("scheduler/dequeued"))
        if dequeued[-1] == 1 + MANY or len(dequeued) == 100:
            gate.open()
        else:
            later(0.05, look)

    record.on_resolved = lambda: later(0.05, look) if not dequeued else None
    result = await crawl(
        LinkSpider,
        {**FEW, "REP_DEFER_GRACE": NEVER},
        requests=[first.url("/")],
        links=list(links),
        signal_handlers=record.handlers,
    )
    assert dequeued[-1] == 1 + MANY
    assert sorted(result.responses) == sorted([first.url("/"), *links])
    assert_clean(result)


async def test_slow_answers_make_room_for_others(sites: Sites) -> None:
    """Requests leave when the log tells that their site is slow, and are released as ever."""
    gate = silent_until_open()
    several, wanted = pages(sites, MANY, gate)
    # 40 others come only if the places get free: they would be held, too.
    others, more = pages(sites, 40, gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == MANY + 40 else None)
    scheduled: list[str] = []
    handlers = {
        **record.handlers,
        scrapy_signals.request_scheduled: lambda request: scheduled.append(request.url),
    }
    result = await crawl(
        [*wanted, *more], {**FEW, "REP_DEFER_GRACE": 0.05}, signal_handlers=handlers
    )
    assert sorted(record.deferred) == sorted(record.released) == sorted([*wanted, *more])
    assert len(scheduled) > MANY + 40  # those that left twice
    assert await record.concurrency() == [4, 4]
    assert_each_once([*several, *others])
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_a_first_answer_that_fails_sends_them_away(sites: Sites) -> None:
    """They go on being held, without being announced twice."""
    gate = Gate(after(0.7, 503), RULES)
    several, wanted = pages(sites, MANY, gate)
    record = Record()
    record.on_resolved = lambda: gate.open() if len(record.resolved) == MANY else None
    result = await crawl(wanted, {**FEW, "REP_DEFER_GRACE": 0.3}, signal_handlers=record.handlers)
    assert sorted(record.deferred) == sorted(record.released) == sorted(wanted)
    assert result.stat("rep/deferred/unreachable") == MANY
    assert_each_once(several)
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_a_slow_retry_makes_room_for_others(sites: Sites) -> None:
    """As a slow first answer does."""
    gate = silent_until_open()
    site = sites.add(robots=in_turn(503, gate))
    scheduled: list[str] = []
    left: list[bool] = []

    class Later(ListSpider):
        async def start(self) -> AsyncIterator[Any]:
            yield self.recorded(site.url("/before"))
            while site.count("/robots.txt") < 2:
                await a_while(0.01)
            yield self.recorded(site.url("/after"))
            for _ in range(200):
                if scheduled.count(site.url("/after")) < 2:
                    await a_while(0.01)
            left.append(scheduled.count(site.url("/after")) == 2)
            gate.open()

    record = Record()
    handlers = {
        **record.handlers,
        scrapy_signals.request_scheduled: lambda request: scheduled.append(request.url),
    }
    result = await crawl(Later, {**FEW, "REP_DEFER_GRACE": 0.1}, signal_handlers=handlers)
    assert left == [True]
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_they_are_given_up_where_they_wait(sites: Sites) -> None:
    _, wanted = pages(sites, MANY, silence())
    record = Record()
    settings = {**FEW, "REP_DEFER_GRACE": 0.3, "REP_DEFER_MAX_WAIT": 0.2}
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert set(result.failures) == set(wanted)
    assert all(isinstance(error, RobotsUnreachable) for error in result.failures.values())
    assert result.stat("rep/given_up") == len(result.spider.errors) == MANY
    assert result.stat("scheduler/dequeued") == MANY
    assert await record.concurrency() == [4, 4]
    assert_no_errors(result)


async def test_a_crawl_that_ends_calls_their_errbacks_once(sites: Sites) -> None:
    _, wanted = pages(sites, MANY, silence())
    record = Record(on_deferred=lambda _, count: record.close() if count == MANY else None)
    settings = {**FEW, "REP_DEFER_GRACE": 0.3}
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    assert set(result.failures) == set(wanted)
    assert len(result.spider.errors) == MANY
    assert result.stats["rep/held"] == 0
    assert await record.concurrency() == [4, 4]
    assert_no_errors(result)


@pytest.mark.needs_reactor(reason="without one, pages come before more robots.txt are fetched")
@pytest.mark.parametrize("jobdir", [False, True])
async def test_a_crawl_that_ends_does_not_fetch_all_that_were_answered(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    """They wait for a slot, but have not begun: the next run with a JOBDIR fetches them."""
    gate = silent_until_open()
    several = [sites.add(robots=gate, pages={"/x": after(0.7, "page")}) for _ in range(MANY)]
    wanted = [site.url("/x") for site in several]
    record = Record()
    begun: list[int] = []

    def close() -> None:
        begun.append(sum(site.count("/x") for site in several))
        record.close()

    def resolved() -> None:
        if len(record.resolved) == MANY:
            later(0.1, close)

    record.on_resolved = resolved
    settings: dict[str, Any] = {**FEW, "REP_DEFER_GRACE": 5}
    if jobdir:
        settings["JOBDIR"] = str(tmp_path)

    def open_gate() -> None:
        if all(site.count("/robots.txt") for site in several):
            gate.open()
        else:
            later(0.05, open_gate)

    open_gate()
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert len(result.responses) <= begun[0] + 4  # those on their way to their sites
    rest = set(wanted) - set(result.responses)
    assert len(rest) > 4
    assert set(result.failures) == (set() if jobdir else rest)
    assert await record.concurrency() == [4, 4]
    assert_no_errors(result)
    if jobdir:
        result = await crawl([], settings)
        assert set(result.responses) == rest
        assert_each_once(several)


async def test_with_jobdir_what_is_held_leaves_the_room(sites: Sites, tmp_path: Path) -> None:
    """For the disk, at once: a kill must not lose it."""
    gate = silent_until_open()
    several, wanted = pages(sites, MANY, gate)
    seen: list[int] = []

    def deferred(spider: Spider, count: int) -> None:
        if count == MANY:
            downloader = spider.crawler.engine.downloader  # type: ignore[union-attr]
            seen.append(sum(not one.url.endswith("/robots.txt") for one in downloader.active))
            gate.open()

    record = Record(on_deferred=deferred)
    settings = {**FEW, "REP_DEFER_GRACE": 0.3, "JOBDIR": str(tmp_path)}
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert seen[0] <= 1
    assert_each_once(several)
    assert_nothing_dropped(result, record)
    assert_clean(result)


class Slotted(Scheduler):
    """Nobody can replace its methods."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "next_request":
            raise AttributeError(name)
        super().__setattr__(name, value)


async def test_without_a_view_of_the_scheduler_they_take_the_long_way(sites: Sites) -> None:
    """A direct download might be among them."""
    gate = silent_until_open()
    several, wanted = pages(sites, MANY, gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == MANY else None)
    settings = {**FEW, "REP_DEFER_GRACE": 0.3, "SCHEDULER": Slotted}
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert result.stat("scheduler/dequeued") == 2 * MANY
    assert_each_once(several)
    assert_nothing_dropped(result, record)
    assert_clean(result)


@pytest.mark.needs_reactor(reason="without one there are as few connections as fetches at a time")
async def test_silent_sites_leave_the_others_their_slots(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there are more of them than places, and than fetches at a time."""
    monkeypatch.setattr("scrapy_rep.origins.flights._SLOW_SECONDS", 0.2)
    _, silent = pages(sites, 50, silence())
    healthy = sites.add(robots=RULES)
    wanted = [healthy.url(f"/page{number}") for number in range(30)]

    class Closing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> None:
            super().parse(response, **kwargs)
            if len(self.responses) == len(wanted):
                raise CloseSpider("enough")

    record = Record()
    result = await crawl(
        Closing,
        {**FEW, "REP_DEFER_MAX_WAIT": NEVER},
        requests=[*silent, *wanted],
        signal_handlers=record.handlers,
    )
    assert set(result.responses) == set(wanted)
    assert await record.concurrency() == [4, 4]
    assert_no_errors(result)


def bare_room(slots: int = 1) -> WaitingRoom:
    """A room without a crawl: 64 places, for each of which *slots* are added."""
    engine = SimpleNamespace(add_slot=lambda: slots, remove_slot=lambda slots: None)
    crawler = get_crawler(settings_dict={"CONCURRENT_REQUESTS": 8})
    settings = SimpleNamespace(defer_grace=NEVER)
    context: Any = SimpleNamespace(crawler=crawler, engine=engine, settings=settings)
    return WaitingRoom(context)


def request_to(number: int) -> tuple[Request, Origin]:
    request = Request(f"http://h{number}.example/")
    return request, Origin.from_url(request.url)


async def test_however_many_may_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asyncio, one goes in and out while the one before it leaves."""
    monkeypatch.setattr("scrapy_rep.origins.waiting_room._QUEUE_SECONDS", NEVER)
    room = bare_room()
    inside = [await room.enter(*request_to(number)) for number in range(64)]

    async def visit(number: int) -> None:
        place = await room.enter(*request_to(number))
        assert place is not None
        room.leave(place)

    visits = [deferred_from_coro(visit(number)) for number in range(64, 1064)]
    await a_while(0)
    for place in inside:
        assert place is not None
        room.leave(place)
    for one in visits:
        await maybe_deferred_to_future(one)
    assert (room._count, room.in_slots, len(room._outside)) == (0, 0, 0)


async def test_who_is_cancelled_outside_gets_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_rep.origins.waiting_room._QUEUE_SECONDS", NEVER)
    room = bare_room()
    inside = [await room.enter(*request_to(number)) for number in range(64)]
    one = deferred_from_coro(room.enter(*request_to(64)))
    await a_while(0)
    assert room.in_slots == 1
    one.addErrback(lambda _: None)
    one.cancel()
    await a_while(0)
    assert room.in_slots == 0
    for place in inside:
        assert place is not None
        room.leave(place)
    assert room._count == 0


@pytest.mark.parametrize("slots", [0, 1])
async def test_a_request_cancelled_at_the_door_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """With asyncio, a coroutine goes on a moment after it gets a place. Until then it can be cancelled."""
    monkeypatch.setattr("scrapy_rep.origins.waiting_room._QUEUE_SECONDS", NEVER)
    room = bare_room(slots)
    inside = [await room.enter(*request_to(number)) for number in range(64)]
    one = deferred_from_coro(room.enter(*request_to(64)))
    await a_while(0)
    for place in inside:
        assert place is not None
        room.leave(place)
    one.addErrback(lambda _: None)
    one.cancel()
    place = await maybe_deferred_to_future(one)
    if place is not None:  # without asyncio, it is in already
        room.leave(place)
    assert (room._count, room.in_slots, len(room._outside)) == (0, 0, 0)
