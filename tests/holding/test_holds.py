"""The order in which requests leave, and the file under JOBDIR, also when it can't be used."""

from __future__ import annotations

import pickle
import sqlite3
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from scrapy import FormRequest, Request
from twisted.internet.defer import Deferred, succeed

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.handing_back import HandingBack
from scrapy_rep.holding.hold import HeldRequests, Releases
from scrapy_rep.holding.holding import Holding
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.queue import Flight, Held, Queue, Step, Tally
from scrapy_rep.protocol import Origin
from tests.helpers.crawling import captured_log
from tests.helpers.files import ask, change
from tests.helpers.recorded import context_of
from tests.holding.holds import (
    SPIDER,
    A,
    B,
    file_of,
    held,
    hold_spider,
    let_wait,
    numbers,
    opened,
    ran,
    read_all,
    run,
    unserialisable,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def queue_with(*waiting: Held, holding: tuple[Held, ...] = ()) -> Queue:
    queue = Queue(Origin.from_url(A), Tally())
    for request in waiting:
        queue.arrive(request)
    queue.recover([request._replace(was_held=True) for request in holding])
    return queue


def leaving(queue: Queue) -> list[int]:
    return [held.number for held in sorted(queue.leaving)]


def staying(queue: Queue) -> list[int]:
    return [held.number for held in (*queue.waiting, *sorted(queue.held))]


def test_those_that_came_before_a_moment_leave() -> None:
    """One that was handed back has waited longer than those in front of it."""
    requests = held(1, 50.0), held(2, 10.0), held(3, 60.0), held(4, 20.0, priority=1)
    queue = queue_with(held(5, 30.0), holding=requests)
    assert queue.find_oldest() == 10.0
    queue.let_leave(Drop("too late"), 100.0, 30.0)
    assert queue.find_oldest() == 50.0
    assert leaving(queue) == [4, 2, 5]
    assert staying(queue) == [1, 3]


def test_an_answer_releases_those_about_to_fail() -> None:
    queue = queue_with(held(2, 1.0), held(3, 2.0), holding=(held(4, 1.0),))
    queue.let_leave(Drop("too late"), 3.0, 1.0)
    assert (queue.fails, staying(queue), len(leaving(queue))) == (True, [3], 2)
    queue.let_leave(None, 4.0)
    assert (queue.fails, staying(queue), len(leaving(queue))) == (False, [], 3)
    queue.recall_leaving(5.0)
    assert (leaving(queue), staying(queue)) == ([], [2, 3, 4])


@pytest.mark.parametrize("fails", [True, False])
def test_time_begins_anew_only_for_those_that_had_been_released(fails: bool) -> None:
    queue = queue_with(held(1, 1.0), holding=(held(2, 2.0),))
    queue.let_leave(Drop("too late") if fails else None, 50.0)
    queue.recall_leaving(60.0)
    assert queue.find_oldest() == (1.0 if fails else 60.0)


def test_time_stands_still_while_robots_txt_is_in_a_queue() -> None:
    queue = queue_with(held(1, 0.0))
    queue.begin_fetch(Flight(queue.origin, Request(A)), 10.0)
    assert queue.clock(500.0) == 10.0
    queue.run_clock(500.0, runs=True)
    assert (queue.clock(510.0), queue.clock(520.0)) == (20.0, 30.0)


def test_the_tally_is_the_sum_of_all_queues() -> None:
    tally, queues = Tally(), []
    for name in "ab":
        queue = Queue(Origin.from_url(f"http://{name}.example"), tally)
        for number in range(4):
            queue.arrive(held(number))
        queue.hold(3, lambda request: request._replace(was_held=True))
        queues.append(queue)
    assert (tally.waiting, tally.held, tally.counted) == (2, 6, 2)
    queues[0].let_leave(None, 1.0)
    assert (tally.waiting, tally.held) == (2, 6)
    for _ in range(4):
        queues[0].pop_first()
    assert queues[0].is_empty
    assert (tally.waiting, tally.held, tally.counted) == (1, 3, 1)
    assert queues[1].dismiss_waiting()
    queues[1].take(lambda _: True)
    assert (tally.waiting, tally.held, tally.counted) == (0, 0, 0)


@pytest.mark.parametrize("have_left", [True, False])
async def test_a_newcomer_fails_for_no_other_request(
    have_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of some is over, one stays held, and one has come since and only waits. When the crawl ends,
    that one goes back to the scheduler, whether the others have left or are about to."""
    scheduled: list[Request] = []
    failed: list[Request] = []

    def fail(_: EngineAccess, request: Request, error: Exception) -> Deferred[None]:
        failed.append(request)
        return succeed(None)

    scheduler = SimpleNamespace(enqueue_request=scheduled.append)
    monkeypatch.setattr(EngineAccess, "scheduler", scheduler)
    monkeypatch.setattr(EngineAccess, "scheduler_is_foreign", False)
    monkeypatch.setattr(EngineAccess, "fail", fail)
    context = context_of()
    table = HeldRequests(context, Origins(context))
    origin = Origin.from_url(A)
    queue = table.queues.setdefault(origin, Queue(origin, table.tally))
    queue.arrive(held(1, -70.0))
    over, stays = held(2, -65.0), held(3, -1.0)
    queue.recover([over._replace(was_held=True), stays._replace(was_held=True)])
    queue.let_leave(Drop("too late"), 0.0, -60.0)
    assert leaving(queue) == [1, 2]
    if have_left:
        queue.pop_first()
        queue.pop_first()
    queue.arrive(held(4, -1.0))
    await HandingBack(context, table).empty()
    failing = [3] if have_left else [1, 2, 3]
    assert [request.url for request in scheduled] == [f"{A}/4"]
    assert sorted(request.url for request in failed) == [f"{A}/{n}" for n in failing]


class Unordered(int):
    def __lt__(self, other: object) -> bool:
        raise AssertionError("comparing 100,000 takes long")

    __gt__ = __le__ = __ge__ = __lt__


def test_what_is_held_is_not_put_in_order_again(path: Path) -> None:
    """When all of an origin's requests leave, and when the crawl ends and they are on disk."""
    context = context_of()
    table = HeldRequests(context, Origins(context))
    table.disk = hold = opened(path)
    queue = queue_with()
    queue.held = [hold.hold(A, held(n))._replace(number=Unordered(n)) for n in range(3)]
    assert list(table.take_unsaved(queue)) == []
    queue.let_leave(None, 1.0)
    assert (len(queue.leaving), queue.held) == (3, [])
    hold.close()


class Colour(str, Enum):
    RED = "red"


@pytest.mark.scrapy_api
def test_a_request_on_disk_comes_back_as_it_was(path: Path) -> None:
    hold = opened(path)
    request = Request(
        "http://a.example/\u00e9?b=%ff",
        method="POST",
        body=b"\x00\xff{}",
        headers={"X-One": ["1", b"\xff"], "Accept": "*/*"},
        cookies={"a": "b"},
        meta={
            "a": [{"b": (1.5, None, b"c", Colour.RED)}],
            "\udc80": {1: "\ud83d" + "\ude00"},
        },
        cb_kwargs={"x": {1, 2}},
        encoding="latin-1",
        callback=SPIDER.parse,
        errback=SPIDER.failed,
    )
    form = FormRequest(
        "http://a.example/", formdata={"a": "b"}, dont_filter=True, priority=7
    )
    for one in (request, form):
        again = hold.load(hold.hold(A, Held(0, 1, 0.0, one)))
        assert type(again) is type(one)
        for name in one.attributes:
            assert getattr(again, name) == getattr(one, name)
        assert repr(again.meta) == repr(one.meta)
    hold.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_what_has_not_been_dealt_with_stays(path: Path, in_order: bool) -> None:
    """After a kill too: nobody knows whether what was released was fetched."""
    hold = opened(path)
    first, given_up, *_ = read_all(
        hold, [hold.hold(A, held(n, since=n)) for n in range(1, 6)]
    )
    hold.hold(B, held(6, since=60.0))
    hold.note_left(A, first, given_up=False)
    hold.note_left(A, given_up, given_up=True)
    ran(hold, 50.0)
    if in_order:
        hold.close()
    else:
        file_of(hold).close()
    hold, recovered = run(path)
    assert hold.ran_before == 60.0
    # What was given up waits anew.
    found = read_all(hold, recovered[A])
    assert numbers(found)[-4:] == [2, 3, 4, 5]
    assert len(found) == (4 if in_order else 5)
    assert [one.since for one in found[-4:]] == [0.0, -57.0, -56.0, -55.0]
    assert numbers(read_all(hold, recovered[B])) == [6]
    hold.close()


def test_one_that_has_waited_for_longer_than_runs_took_is_kept(path: Path) -> None:
    """It was handed back, by a process with another JOBDIR or none."""
    hold = opened(path)
    hold.hold(A, held(1, since=-300.0))
    hold.close()
    hold, recovered = run(path)
    assert numbers(read_all(hold, recovered[A])) == [1]
    hold.close()


async def test_those_of_an_earlier_run_come_before_what_is_held_so_far(
    path: Path,
) -> None:
    """The file can be opened only now: these stay in memory."""
    earlier = opened(path)
    for number in (1, 2):
        earlier.hold(A, held(number))
    ran(earlier, 50.0)
    earlier.close()
    context, origin = context_of(), Origin.from_url(A)
    table = HeldRequests(context, Origins(context))
    for number in (3, 4):
        table.hold_waiting(let_wait(table, origin, number))
    one = let_wait(table, origin, 5)
    async for _ in table.recover(hold := opened(path)):
        pass
    found = read_all(hold, one.held)
    assert numbers([*found, *one.waiting]) == [1, 2, 3, 4, 5]
    assert [one.since >= 0 for one in found] == [False, False, True, True]
    hold.close()


def test_behind_very_many_that_can_not_be_read_the_engine_looks_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at 50 origins, and may get no other event for a while."""
    context, wakes = context_of(), []
    monkeypatch.setattr(EngineAccess, "wake", lambda _: wakes.append(1))
    table = HeldRequests(context, Origins(context))
    table.disk = hold = opened(path)
    releases = Releases(context, table, Mock(), Mock())
    for number in range(60):
        origin = Origin.from_url(f"http://{number}.example")
        table.hold_waiting(one := let_wait(table, origin, number))
        releases.let_leave(one)
    change(path, "UPDATE held SET request = 5")
    wakes.clear()
    assert releases.next() is None
    assert wakes and releases
    hold.close()


def test_without_room_those_that_come_after_the_answer_is_very_late_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EngineAccess, "wake", lambda _: None)
    monkeypatch.setattr(EngineAccess, "scheduler_is_foreign", False)
    context = context_of()
    holding = Holding(context, Origins(context))
    holding.held.hold_at_most(1)
    queue = let_wait(holding.held, Origin.from_url(A), 1)
    holding.act(queue, Step.COUNT_VERY_LATE)
    assert (len(queue.held), len(holding.releases.ready)) == (1, 0)
    let_wait(holding.held, Origin.from_url(A), 2)
    holding.act(queue, Step.HOLD)
    assert (len(queue.held), queue.waiting) == (1, [])
    assert [request.url for request in holding.releases.ready] == [f"{A}/2"]


def test_unserialisable_among_others(path: Path) -> None:
    """In memory, in their places, with one warning."""
    hold = opened(path)
    some = [
        unserialisable(number) if number % 3 == 0 else held(number)
        for number in range(1, 10)
    ]
    some.append(held(10, meta={"lock": _Unpicklable()}))
    with captured_log() as records:
        entries = [hold.hold(A, one) for one in some]
    assert [one.number for one in entries if one.row is None] == [3, 6, 9, 10]
    [warning] = [one for one in records if one.levelname == "WARNING"]
    assert f"{A}/3" in warning.getMessage()
    assert numbers(read_all(hold, entries)) == list(range(1, 11))
    hold.close()


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("not even a pickle error")


def test_one_is_recognised_for_each_that_an_earlier_run_held(path: Path) -> None:
    hold = opened(path)
    for number in (1, 1, 2):
        hold.hold(A, held(number))
    again = [held(number).request for number in (1, 1, 1, 2, 3)]
    assert not any(hold.recognise_copy(A, one) for one in again), "of this run"
    hold.close()
    hold, _ = run(path)
    assert not any(hold.recognise_copy(B, one) for one in again)
    assert [hold.recognise_copy(A, one) for one in again] == [
        True,
        True,
        False,
        True,
        False,
    ]
    hold.close()
    hold, recovered = run(path)
    # A retry of it is a request of its own.
    hold.note_left(A, read_all(hold, recovered[A])[0], given_up=False)
    assert [hold.recognise_copy(A, one) for one in again] == [
        True,
        False,
        False,
        True,
        False,
    ]
    hold.close()


class ByUrl:
    def fingerprint(self, request: Request) -> bytes:
        return request.url.encode()


class FailingFingerprinter:
    def fingerprint(self, request: Request) -> bytes:
        raise KeyError("id")


@pytest.mark.parametrize(
    ("kind", "recognised"),
    [(ByUrl, [True, False]), (FailingFingerprinter, [False] * 2)],
)
def test_fingerprints_of_a_project(
    path: Path, kind: type, recognised: list[bool]
) -> None:
    spider = hold_spider(REQUEST_FINGERPRINTER_CLASS=kind)
    hold = opened(path, spider)
    hold.hold(A, held(1))
    hold.close()
    hold = opened(path, spider)
    assert [
        hold.recognise_copy(A, held(number).request) for number in (1, 2)
    ] == recognised
    hold.close()


GONE = pickle.dumps(
    Request(f"{A}/2").to_dict() | {"callback": "parse_that_is_gone"}
).hex()


@pytest.mark.parametrize(
    "query",
    [
        "UPDATE held SET id = 9000000000000000000 WHERE id = 2",
        "UPDATE held SET since = 1e300 WHERE id = 2",
        "UPDATE held SET since = x'00' WHERE id = 2",
        "UPDATE held SET origin = x'00' WHERE id = 2",
        "UPDATE held SET state = 'held' WHERE id = 2",
        "UPDATE held SET request = 5 WHERE id = 2",
        "UPDATE held SET request = x'6e6f' WHERE id = 2",
        f"UPDATE held SET request = x'{GONE}' WHERE id = 2",  # noqa: S608 (ours)
        "UPDATE held SET priority = 'high' WHERE id = 2",
        "UPDATE held SET priority = 1e300 WHERE id = 2",
        "UPDATE held SET fingerprint = x'00' WHERE id = 2",
        "UPDATE held SET request = CAST(x'fffe' AS TEXT) WHERE id = 2",
        "UPDATE clock SET ran = 'long'",
        "UPDATE clock SET ran = 9e99",
        "UPDATE sqlite_sequence SET seq = 'many'",
        "UPDATE sqlite_sequence SET seq = 9000000000000000000",
    ],
)
def test_values_that_can_not_be(path: Path, query: str) -> None:
    """One row is skipped, with a warning, and what is held then is as safe as ever."""
    hold = opened(path)
    for number in (1, 2, 3):
        hold.hold(A, held(number, callback=SPIDER.parse))
    ran(hold, 10.0)
    hold.close()
    change(path, query)
    with captured_log() as records:
        hold, recovered = run(path)
        assert 0 <= hold.ran_before < 100
        found = numbers(read_all(hold, [*recovered[A], hold.hold(A, held(4))]))
        hold.close()
    assert found == ([1, 3, 4] if "id = 2" in query else [1, 2, 3, 4])
    said = [one.getMessage() for one in records if one.levelname == "WARNING"]
    unread = [line for line in said if "1 held request could not be read" in line]
    assert unread == said and len(said) == 4 - len(found)
    assert ("parse_that_is_gone" in "".join(said)) is (GONE in query)
    assert ask(path, "SELECT count(*) FROM held") == 4


def test_what_can_not_be_written_waits_in_memory(path: Path) -> None:
    """It has no row when it leaves, and is on disk once that works."""
    hold = opened(path)
    entries = [hold.hold(A, held(number)) for number in range(1, 4)]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first, third, fourth = read_all(hold, entries)
    for one in (first, third, fourth):
        hold.note_left(A, one, given_up=one is third)
    assert ask(path, "SELECT count(*) FROM held") == 3
    entries = [hold.hold(A, held(number)) for number in (4, 5)]
    assert [hold.has(one.row) for one in entries if one.row] == [False, False]
    for one in read_all(hold, entries[:1]):
        hold.note_left(A, one, given_up=False)
    other.close()
    hold.close()
    query = (
        "SELECT group_concat(id || ':' || state) FROM (SELECT * FROM held ORDER BY id)"
    )
    assert ask(path, query) == "2:1,5:0"
