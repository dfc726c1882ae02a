"""Requests as bytes: what comes out is what went in, whichever way they took."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from enum import Enum
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.http import JsonRequest

from scrapy_rep.holding.hold import dumps, loads
from tests.helpers.held import SPIDER


class Colour(str, Enum):
    RED = "red"


def fields_of(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.attributes}


def both(request: Request) -> tuple[bytes, Request]:
    data = dumps(request, SPIDER)
    return data, loads(data, SPIDER)


IN_JSON: dict[str, dict[str, Any]] = {
    "plain": {},
    "all fields": {
        "method": "POST",
        "body": b"\x00\xff{}",
        "headers": {"X-One": ["1", b"\xff"], "Accept": "*/*"},
        "cookies": {"a": "b"},
        "priority": -5,
        "encoding": "latin-1",
        "flags": ["f"],
        "callback": SPIDER.parse,
        "errback": SPIDER.failed,
        "dont_filter": True,
    },
    "numbers": {"meta": {"int": 1, "float": 1.0, "bool": True, "none": None, "big": 10**30}},
    "nested": {"meta": {"a": [{"b": [1.5, "é\u2028\x00"]}]}, "cb_kwargs": {"x": []}},
}

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


@pytest.mark.parametrize("name", IN_JSON)
def test_what_json_carries_exactly(name: str) -> None:
    request = Request("http://a.example/é?b=%ff", **IN_JSON[name])
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


@pytest.mark.parametrize(
    "request_",
    [
        FormRequest("http://a.example/", formdata={"a": "b"}),
        JsonRequest("http://a.example/", data={"a": [1]}),
    ],
)
def test_other_classes_of_requests(request_: Request) -> None:
    _, again = both(request_)
    assert type(again) is type(request_)
    assert fields_of(again) == fields_of(request_)


def test_rows_of_earlier_versions() -> None:
    request = Request("http://a.example/", meta={"x": (1,)}, callback=SPIDER.parse)
    data = pickle.dumps(request.to_dict(spider=SPIDER), pickle.HIGHEST_PROTOCOL)
    assert fields_of(loads(data, SPIDER)) == fields_of(request)


def test_pickles_of_other_kinds_are_not_read() -> None:
    """Damage to the first byte of a row makes no pickle of it."""
    fields = Request("http://a.example/").to_dict(spider=SPIDER)
    with pytest.raises(ValueError, match="Expecting value"):
        loads(pickle.dumps(fields, 0), SPIDER)
