"""Rules that the tests themselves keep."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import timing as slices
from tests.helpers.timing import Turns, turn

TESTS = Path(__file__).resolve().parent


def test_nothing_imports_from_a_test_module() -> None:
    """What two of them need is in tests/helpers."""
    pattern = re.compile(r"^\s*(?:from|import) \S*\btest_.*", re.MULTILINE)
    assert [
        found
        for path in sorted(TESTS.rglob("*.py"))
        for found in pattern.findall(path.read_text("utf-8"))
    ] == []


def test_names_of_tests_say_the_behaviour() -> None:
    """Three words at least, and no name twice in a file: the second would hide the first."""
    short, twice = [], []
    for path in sorted(TESTS.rglob("test_*.py")):
        tests = re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
        short += [f"{path.name}: {test}" for test in tests if len(test.split("_")) < 4]
        twice += [f"{path.name}: {test}" for test in set(tests) if tests.count(test) > 1]
    assert short == []
    assert twice == []


def test_one_that_is_to_be_alone_waits_and_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []
    begun, free = threading.Event(), threading.Event()

    def started(name: str, alone: bool, wait: bool) -> threading.Thread:
        def run() -> None:
            if not wait:
                begun.set()
            with turn(tmp_path, alone=alone):
                if wait:
                    begun.set()
                    free.wait(60)
                order.append(name)

        begun.clear()
        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        return thread

    for first, second in ((True, False), (False, True), (True, True)):
        order.clear()
        free.clear()
        threads = [started("first", first, wait=True), started("second", second, wait=False)]
        threads[1].join(0.05)
        assert order == []
        free.set()
        for thread in threads:
            thread.join(60)
        assert order == ["first", "second"]


def test_two_that_are_not_to_be_alone_run_at_once(tmp_path: Path) -> None:
    met = threading.Barrier(2)

    def run() -> None:
        with turn(tmp_path, alone=False):
            met.wait(60)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not met.broken


def test_between_two_that_are_to_be_alone_no_other_has_a_turn(tmp_path: Path) -> None:
    order: list[str] = []
    begun = threading.Event()

    def run() -> None:
        begun.set()
        with turn(tmp_path, alone=False):
            order.append("other")

    thread = threading.Thread(target=run)
    turns = Turns(tmp_path)
    with turns.turn(alone=True, next_alone=True):
        thread.start()
        assert begun.wait(60)
        order.append("first")
    thread.join(0.05)
    with turns.turn(alone=True, next_alone=False):
        order.append("second")
    thread.join(60)
    assert order == ["first", "second", "other"]
    with turns.turn(alone=False, next_alone=True), turn(tmp_path, alone=False):
        pass  # at once


def test_what_takes_longer_than_a_slice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LONGEST", 0.0005)
    monkeypatch.setattr(slices, "_PAUSE", 0.0)
    assert slices.in_slices(lambda: iter("abc")) == ["a", "b", "c"]

    def steps() -> Iterator[int]:
        yield 1
        yield sum(range(1_000_000))

    with pytest.raises(AssertionError, match=r"of 3 steps, \{1\} take too long: up to "):
        slices.in_slices(steps)
