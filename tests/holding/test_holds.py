"""Where requests at the gate are: in which order an origin's requests leave, and what keeps them; and requests
as bytes. What the disk adds is tested in `test_holds_on_disk.py`."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import Held, HeldOrigin, Hold, dumps, loads
from scrapy_rep.protocol import Origin
from tests.helpers.held import INF, SPIDER, A, held, opened, read_all, unserialisable


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


@pytest.mark.parametrize("make", [held, unserialisable])
def test_what_is_only_in_memory_ends_with_the_process(make: object, tmp_path: Path) -> None:
    hold = opened(tmp_path / FILE_NAME)
    assert hold.is_mortal(hold.hold(A, make(1))) is (make is unserialisable)  # type: ignore[operator]
    assert hold.is_mortal(held(2).as_read)
    hold.close()


class Colour(str, Enum):
    RED = "red"


def fields_of(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.attributes}


def both(request: Request) -> tuple[bytes, Request]:
    data = dumps(request, SPIDER)
    return data, loads(data, SPIDER)


PICKLED: dict[str, Any] = {
    "tuple": (1, 2),
    "nested tuple": [{"a": (1,)}],
    "keys": {1: "a", None: "b"},
    "set": {1, 2},
    "bytes": b"a",
    "ordered": OrderedDict(b=1, a=2),
    "enum": Colour.RED,
    "lone surrogate": "\ud800",
    "two halves": "\ud83d" + "\ude00",
    "surrogate key": {"\udc80": 1},
}


def test_what_json_carries_exactly() -> None:
    request = Request(
        "http://a.example/\u00e9?b=%ff",
        method="POST",
        body=b"\x00\xff{}",
        headers={"X-One": ["1", b"\xff"], "Accept": "*/*"},
        cookies={"a": "b"},
        meta={"a": [{"b": [1.5, 1.0, 10**30, True, None, "\u00e9\u2028\x00"]}]},
        cb_kwargs={"x": []},
        encoding="latin-1",
        callback=SPIDER.parse,
        errback=SPIDER.failed,
    )
    data, again = both(request)
    assert data.startswith(b"{")
    assert fields_of(again) == fields_of(request)
    assert repr(again.meta) == repr(request.meta)


@pytest.mark.parametrize("place", ["meta", "cb_kwargs"])
def test_what_json_would_change_is_pickled(place: str) -> None:
    for name, value in PICKLED.items():
        data, again = both(Request("http://a.example/", **{place: {"x": value}}))
        came = getattr(again, place)["x"]
        assert data.startswith(b"\x80"), name
        assert (came, type(came), repr(came)) == (value, type(value), repr(value)), name


def test_deeper_than_either_can_go() -> None:
    """It is for the caller to keep it."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        dumps(Request("http://a.example/", meta={"x": deep}), SPIDER)


def test_rows_of_earlier_versions() -> None:
    request = Request("http://a.example/", meta={"x": (1,)}, callback=SPIDER.parse)
    data = pickle.dumps(request.to_dict(spider=SPIDER), pickle.HIGHEST_PROTOCOL)
    assert fields_of(loads(data, SPIDER)) == fields_of(request)


def test_pickles_of_other_kinds_are_not_read() -> None:
    """Damage to the first byte of a row makes no pickle of it."""
    fields = Request("http://a.example/").to_dict(spider=SPIDER)
    with pytest.raises(ValueError, match="Expecting value"):
        loads(pickle.dumps(fields, 0), SPIDER)
