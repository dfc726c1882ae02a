"""Where held requests are: one suite for memory and disk. What the disk adds is tested in
`test_holds_on_disk.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, DiskHold
from scrapy_rep.holding.hold import Held, Hold
from tests.helpers.holds import INF, SPIDER, A, B, count, held, numbers, take_all, unserialisable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture(params=["memory", "disk", "disk, but unserialisable"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hold(kind: str, path: Path) -> Iterator[Hold]:
    some = Hold() if kind == "memory" else DiskHold(path, SPIDER)
    yield some
    some.close()


@pytest.fixture
def make(kind: str) -> Callable[..., Held]:
    return unserialisable if "unserialisable" in kind else held


# What both have to do


def test_first_in_first_out(hold: Hold, make: Callable[..., Held]) -> None:
    for number in range(1, 8):
        hold.add(A, make(number))
    assert numbers(hold.take(A, 3, 100, INF)) == [1, 2, 3]
    assert numbers(hold.take(A, 3, 100, INF)) == [4, 5, 6]
    assert numbers(hold.take(A, 3, 100, INF)) == [7]
    assert hold.take(A, 3, 100, INF) == []


def test_origins_have_nothing_to_do_with_each_other(hold: Hold, make: Callable[..., Held]) -> None:
    for number in range(1, 7):
        hold.add((A, B)[number % 2], make(number))
    assert (count(hold, A), count(hold, B), count(hold, "http://c.example")) == (3, 3, 0)
    assert take_all(hold, B) == [1, 3, 5]
    assert (count(hold, A), count(hold, B)) == (3, 0)
    assert take_all(hold, A) == [2, 4, 6]


def test_what_was_held_after_a_job_began_waits_for_the_next(
    hold: Hold, make: Callable[..., Held]
) -> None:
    """Whoever was held after a job was made waits for another."""
    for number in range(1, 6):
        hold.add(A, make(number))
    assert numbers(hold.take(A, 10, 3, INF)) == [1, 2, 3]
    assert hold.take(A, 10, 3, INF) == []
    assert count(hold, A) == 2
    assert take_all(hold) == [4, 5]


def test_only_what_was_held_before_a_moment_is_taken(hold: Hold, make: Callable[..., Held]) -> None:
    for number in range(1, 6):
        hold.add(A, make(number, since=10.0 * number))
    assert hold.take(A, 10, 100, 9.9) == []
    assert numbers(hold.take(A, 10, 100, 30.0)) == [1, 2, 3]
    assert hold.oldest(A) == 40.0


def test_before_looks_at_all(hold: Hold, make: Callable[..., Held]) -> None:
    """One that was held before, released and is held once more has waited longer than those that
    stand in front of it."""
    for number, since in ((1, 50.0), (2, 10.0), (3, 60.0), (4, 20.0)):
        hold.add(A, make(number, since=since))
    assert hold.oldest(A) == 10.0
    assert numbers(hold.take(A, 1, 100, 20.0)) == [2]
    assert numbers(hold.take(A, 10, 100, 20.0)) == [4]
    assert hold.oldest(A) == 50.0
    assert take_all(hold) == [1, 3]


def test_oldest_and_count(hold: Hold, make: Callable[..., Held]) -> None:
    assert hold.oldest(A) is None
    assert count(hold, A) == 0
    hold.add(A, make(1, since=5.0))
    hold.add(A, make(2, since=7.0))
    assert (hold.oldest(A), count(hold, A)) == (5.0, 2)
    hold.take(A, 1, 100, INF)
    assert (hold.oldest(A), count(hold, A)) == (7.0, 1)
    hold.take(A, 1, 100, INF)
    assert (hold.oldest(A), count(hold, A)) == (None, 0)


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
    names = [name for name in request.attributes if name != "dont_filter"]
    before = {name: getattr(request, name) for name in names}
    hold.add(A, Held(1, 2.5, False, request))
    [taken] = hold.take(A, 1, 1, INF)
    assert taken[:3] == (1, 2.5, False)
    assert {name: getattr(taken.request, name) for name in names} == before


def test_a_thousand_requests_are_taken_in_slices_in_order(
    hold: Hold, make: Callable[..., Held]
) -> None:
    for number in range(1, 1001):
        hold.add(A, make(number))
    taken = []
    while slice_ := hold.take(A, 50, 1000, INF):
        assert len(slice_) <= 50
        taken += numbers(slice_)
    assert taken == list(range(1, 1001))


def test_a_request_held_again_is_there_once_in_its_new_place(
    hold: Hold, make: Callable[..., Held]
) -> None:
    """With its row, where it has one: it is there once, at its new place."""
    hold.add(A, make(1, since=3.0))
    [first] = hold.take(A, 10, 10, INF)
    hold.add(A, make(2))
    hold.add(A, first._replace(number=3, request=make(3).request))
    assert count(hold, A) == 2
    again = hold.take(A, 10, 10, INF)
    assert numbers(again) == [2, 3]
    assert again[1].row == first.row
    assert again[1].since == 3.0


def test_what_is_put_back_comes_first_again(hold: Hold, make: Callable[..., Held]) -> None:
    """What the scheduler did not take is first again."""
    for number in range(1, 6):
        hold.add(A, make(number))
    taken = hold.take(A, 3, 100, INF)
    hold.put_back(A, taken[1:])
    hold.put_back(A, [])
    assert count(hold, A) == 4
    assert take_all(hold) == [2, 3, 4, 5]
