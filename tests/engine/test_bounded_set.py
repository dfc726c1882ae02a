"""What was met of late is remembered, and no more than that."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_rep.engine import log
from scrapy_rep.engine.log import BoundedSet
from scrapy_rep.protocol import Origin


def test_what_is_remembered_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth here of what it is in a crawl: of the 100,000 that are remembered, and of 2 MB."""
    monkeypatch.setattr(log, "_REMEMBERED", log._REMEMBERED // 10)
    monkeypatch.setattr(log, "_UNSORTED", log._UNSORTED // 10)
    some = BoundedSet()
    assert all(some.add(f"http://{number}.example") for number in range(40_000))
    hashes = [*some._latest, *some._new, *some._old]
    assert len(hashes) == len(set(hashes)) == len(some) <= 20_000
    parts = [some._latest, some._new, some._old, *some._latest]
    assert sum(map(sys.getsizeof, parts)) < 250_000
    assert not any(some.add(f"http://{number}.example") for number in range(30_000, 40_000))
    assert some.add("http://0.example")


@given(st.lists(st.integers(0, 20)), st.integers(1, 5), st.integers(1, 5))
def test_the_last_ones_are_remembered(values: list[int], most: int, unsorted: int) -> None:
    """So many different ones at least, and at most twice as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_REMEMBERED", most)
        patch.setattr(log, "_UNSORTED", unsorted)
        some = BoundedSet()
        for at, value in enumerate(values):
            before = list(dict.fromkeys(reversed(values[:at])))
            latest, oldest = before[:most], before[2 * most :]
            assert all(one in some for one in latest)
            assert not any(one in some for one in oldest)
            assert some.add(value) is (value not in latest) or value not in latest
            assert value in some


def test_equal_ones_are_one() -> None:
    some = BoundedSet()
    assert some.add(Origin("http", "a.example", 80))
    assert not some.add(Origin.from_url("HTTP://A.example:80/x"))
    assert Origin("https", "a.example", 443) not in some
