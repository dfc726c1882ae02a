"""Where requests at the gate are: one suite for memory and disk. What the disk adds is tested in
`test_holds_on_disk.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, DiskHold
from scrapy_rep.holding.hold import Entry, Held, Hold
from tests.helpers.held import (
    SPIDER,
    A,
    B,
    count,
    held,
    numbers,
    opened,
    run,
    take,
    take_all,
    unserialisable,
)

Make = Callable[..., Held]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture(params=["memory", "disk", "disk, but unserialisable", "disk, an earlier run"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hold(kind: str, path: Path) -> Iterator[Hold]:
    some = Hold() if kind == "memory" else opened(path)
    yield some
    some.close()


@pytest.fixture
def make(kind: str) -> Make:
    return unserialisable if "unserialisable" in kind else held


def holding(hold: Hold, kind: str, *some: Held) -> Hold:
    """Hold them, and return where they are: in a new run, if they are those of an earlier one."""
    for one in some:
        hold.hold(A, one)
    if "earlier" not in kind:
        return hold
    assert isinstance(hold, DiskHold)
    hold.close()
    return run(hold._journal.path)[0]  # type: ignore[arg-type]


# What all have to do


def test_urgent_ones_first_then_in_order(hold: Hold, kind: str, make: Make) -> None:
    priorities = [0, 5, -3, 5, 0, 10**30, -3, -(10**30)]
    some = [make(number, priority=one) for number, one in enumerate(priorities, 1)]
    there = holding(hold, kind, *some)
    assert there.urgency(A) is not None
    assert there.urgency(B) is None
    assert take_all(there) == [6, 2, 4, 1, 5, 3, 7, 8]
    assert there.urgency(A) is None
    there.close()


def test_those_that_only_wait_are_among_them(hold: Hold, make: Make) -> None:
    """Held or not makes no difference to the order."""
    hold.hold(A, make(1))
    hold.add(A, make(2, priority=1))
    hold.add(A, make(3))
    hold.hold(A, make(4, priority=1))
    assert hold.urgency(A) == 1
    assert take_all(hold) == [2, 4, 1, 3]


def test_origins_have_nothing_to_do_with_each_other(hold: Hold, make: Make) -> None:
    for number in range(1, 7):
        hold.hold((A, B)[number % 2], make(number))
    assert (count(hold, A), count(hold, B), count(hold, "http://c.example")) == (3, 3, 0)
    assert take_all(hold, B) == [1, 3, 5]
    assert (count(hold, A), count(hold, B)) == (3, 0)
    assert take_all(hold, A) == [2, 4, 6]


def test_what_was_held_after_a_job_began_waits_for_the_next(hold: Hold, make: Make) -> None:
    """However urgent it is."""
    for number in range(1, 6):
        hold.hold(A, make(number, priority=number))
    assert numbers(take(hold, upto=3)) == [3, 2, 1]
    assert take(hold, upto=3) == []
    assert count(hold) == 2
    assert take_all(hold) == [5, 4]


def test_only_what_was_held_before_a_moment_is_taken(hold: Hold, make: Make) -> None:
    for number in range(1, 6):
        hold.hold(A, make(number, since=10.0 * number))
    assert take(hold, before=9.9) == []
    assert numbers(take(hold, before=30.0)) == [1, 2, 3]
    assert hold.oldest(A) == 40.0


def test_before_looks_at_all(hold: Hold, make: Make) -> None:
    """One that was handed back and comes again has waited longer than those in front of it."""
    for number, since in ((1, 50.0), (2, 10.0), (3, 60.0), (4, 20.0)):
        hold.hold(A, make(number, since=since))
    assert hold.oldest(A) == 10.0
    assert numbers(take(hold, 1, before=20.0)) == [2]
    assert numbers(take(hold, before=20.0)) == [4]
    assert hold.oldest(A) == 50.0
    assert take_all(hold) == [1, 3]


def test_more_urgent_ones_that_stay_are_passed_over_once(
    hold: Hold, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each request that leaves: an origin may have 100,000. Whatever happens meanwhile, all
    keep their places."""
    whole, looks = Hold._whole, []

    def looked(self: Hold, origin: str) -> list[Entry]:
        looks.append(origin)
        return whole(self, origin)

    for number in range(1, 201):
        hold.hold(A, make(number, since=float(number), priority=number // 101))
    with monkeypatch.context() as patch:
        patch.setattr(Hold, "_whole", looked)
        assert numbers(take(hold, 50, before=100.0)) == list(range(1, 51))
        assert hold.urgency(A) == 1
        [last] = take(hold, 1, before=100.0)
        hold.put_back(A, last)
        hold.hold(A, make(201, since=201.0, priority=2))
        assert numbers(take(hold, 10, before=100.0)) == list(range(51, 61))
        assert hold.urgency(A) == 2
        assert len(looks) == 1
    assert count(hold) == 141
    assert (hold.oldest(A), hold.oldest(B)) == (61.0, None)
    assert numbers(take(hold, 2, upto=199)) == [101, 102]
    assert numbers(take(hold, 2, before=100.0)) == [61, 62]
    assert take_all(hold) == [201, *range(103, 201), *range(63, 101)]
    assert count(hold) == 0
    assert hold._heaps == hold._ready == {}


def test_oldest_and_count(hold: Hold, make: Make) -> None:
    assert hold.oldest(A) is None
    assert count(hold) == 0
    hold.add(A, make(1, since=5.0))
    hold.hold(A, make(2, since=7.0))
    assert (hold.oldest(A), count(hold)) == (5.0, 2)
    take(hold, 1)
    assert (hold.oldest(A), count(hold)) == (7.0, 1)
    take(hold, 1)
    assert (hold.oldest(A), count(hold)) == (None, 0)


def test_what_comes_out_is_what_went_in(hold: Hold, kind: str) -> None:
    request = Request(
        f"{A}/1",
        method="POST",
        body=b"\x00\xff",
        headers={"X-One": ["1", "2"]},
        cookies={"a": "b"},
        meta={"thing": {1, 2}, "depth": 3},
        cb_kwargs={"x": (1, 2)},
        priority=-5,
        encoding="latin-1",
        flags=["f"],
        callback=(lambda r: None) if "unserialisable" in kind else SPIDER.parse,
        errback=SPIDER.failed,
        dont_filter=True,
    )
    before = {name: getattr(request, name) for name in request.attributes}
    there = holding(hold, kind, Held(1, 2.5, request))
    [taken] = take(there)
    assert taken[:2] == (1, 2.5)
    assert {name: getattr(taken.request, name) for name in request.attributes} == before
    there.close()


def test_what_only_waits_is_the_spiders_own_request(hold: Hold, make: Make) -> None:
    """A handler may know it by its identity."""
    waiting = make(1)
    hold.add(A, waiting)
    assert hold.peek(A) is waiting.request
    [taken] = take(hold)
    assert taken.request is waiting.request
    assert taken.row is None


def test_a_thousand_requests_are_taken_in_order(hold: Hold, make: Make) -> None:
    for number in range(1, 1001):
        hold.hold(A, make(number))
    assert take_all(hold) == list(range(1, 1001))


def test_what_is_put_back_has_its_old_place(hold: Hold, make: Make) -> None:
    """No slot was free for it."""
    for number in range(1, 6):
        hold.hold(A, make(number, since=float(number)))
    first = take(hold, 3)
    for one in first[1:]:
        hold.put_back(A, one)
    assert count(hold) == 4
    again = take(hold)
    assert numbers(again) == [2, 3, 4, 5]
    assert again[0][:2] == first[1][:2]
    assert again[0].row == first[1].row
