"""Where requests at the gate are: in which order an origin's requests leave, and what keeps them. What the
disk adds is tested in `test_holds_on_disk.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import Held, HeldOrigin, Hold
from scrapy_rep.protocol import Origin
from tests.helpers.held import INF, SPIDER, A, held, opened, read_all, run, unserialisable


def origin_with(*waiting: Held, holding: tuple[Held, ...] = ()) -> HeldOrigin:
    hold, one = Hold(), HeldOrigin(Origin.from_url(A), A)
    one.waiting += waiting
    one.heap = sorted(hold.hold(A, request) for request in holding)
    return one


def leaving(one: HeldOrigin) -> list[int]:
    """The requests of the first job, in the order in which they leave."""
    return [held.number for held in read_all(Hold(), one.jobs.popleft().heap)]


def staying(one: HeldOrigin) -> list[int]:
    return [held.number for held in [*one.waiting, *read_all(Hold(), one.heap)]]


def test_urgent_ones_leave_first_then_in_order_whether_held_or_not() -> None:
    one = origin_with(
        held(3), held(4, priority=5), holding=(held(1), held(2, priority=5), held(5, priority=-1))
    )
    one.begin(None, INF)
    one.waiting.append(held(6, priority=9))  # waits for the next answer
    assert leaving(one) == [2, 4, 1, 3, 5]
    assert staying(one) == [6]


def test_those_that_came_before_a_moment_leave() -> None:
    """One that was handed back and comes again has waited longer than those in front of it."""
    times = {1: 50.0, 2: 10.0, 3: 60.0, 4: 20.0}
    one = origin_with(held(5, 30.0), holding=tuple(held(*item) for item in times.items()))
    assert one.oldest() == 10.0
    one.begin(("too late", 1), 30.0)
    assert (one.oldest(), one.oldest(ready=True)) == (50.0, 10.0)
    assert leaving(one) == [2, 4, 5]
    assert staying(one) == [1, 3]


@pytest.mark.parametrize(("everything", "stay"), [(False, [1, 3]), (True, [1, 2, 3, 4])])
def test_those_about_to_leave_can_be_recalled(everything: bool, stay: list[int]) -> None:
    one = origin_with(held(2, 1.0), holding=(held(4, 1.0),))
    one.begin(("too late", 1), 1.0)
    one.waiting.append(held(1, 5.0))
    one.heap = [Hold().hold(A, held(3, 5.0))]
    one.begin(None, INF)
    [read] = read_all(Hold(), [one.jobs[1].heap[1]])
    one.jobs[1].heap[1] = read.as_read  # it is next, but has no download slot
    one.recall(everything=everything)
    assert sorted(staying(one)) == stay
    assert len(one.jobs) == (0 if everything else 1)


@pytest.mark.parametrize("kind", ["memory", "disk", "disk, but unserialisable", "an earlier run"])
def test_what_comes_out_is_what_went_in(kind: str, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    request = Request(
        f"{A}/1",
        method="POST",
        body=b"\x00\xff",
        headers={"X-One": ["1", "2"]},
        cookies={"a": "b"},
        meta={"thing": {1, 2}, "depth": 3},
        cb_kwargs={"x": (1, 2)},
        priority=10**30,
        encoding="latin-1",
        flags=["f"],
        callback=(lambda r: None) if "unserialisable" in kind else SPIDER.parse,
        errback=SPIDER.failed,
        dont_filter=True,
    )
    before = {name: getattr(request, name) for name in request.attributes}
    hold = Hold() if kind == "memory" else opened(path)
    entries = [hold.hold(A, one) for one in (Held(1, 2.5, request), held(2))]
    if "earlier" in kind:
        hold.close()
        hold, recovered = run(path)
        entries = recovered[A]
    taken, second = read_all(hold, entries)
    assert (taken.number, taken.since, taken.counts) == (1, 2.5, True)
    assert {name: getattr(taken.request, name) for name in request.attributes} == before
    assert (second.number, second.request.url) == (2, f"{A}/2")
    hold.close()


@pytest.mark.parametrize("make", [held, unserialisable])
def test_what_is_only_in_memory_ends_with_the_process(make: object, tmp_path: Path) -> None:
    hold = opened(tmp_path / FILE_NAME)
    assert hold.is_mortal(hold.hold(A, make(1))) is (make is unserialisable)  # type: ignore[operator]
    assert hold.is_mortal(held(2).as_read)
    hold.close()
