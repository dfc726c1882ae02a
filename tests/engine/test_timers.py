"""One timer for any number of keys. Time stands still here, or goes where the test says."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_rep.engine.timers import Alarm
from tests.helpers.crawling import captured_log


class TimersByHand:
    def __init__(self) -> None:
        self.now, self.paused = 100.0, False
        self.timers: list[tuple[float, Callable[[], Any]]] = []
        self.due: list[tuple[float, str]] = []
        crawler: Any = SimpleNamespace(engine=self, spider=None)
        self.alarm = Alarm(crawler, self.ring)
        self.on_due: Callable[[str], object] = lambda key: None

    def call_later(self, seconds: float, function: Callable[[], Any]) -> Any:
        assert seconds >= 0
        timer = self.now + seconds, function
        self.timers.append(timer)
        return SimpleNamespace(
            cancel=lambda: timer in self.timers and self.timers.remove(timer)
        )

    def set(self, key: str, when: float) -> None:
        self.alarm.set(key, when - self.now)

    def ring(self, key: str) -> None:
        self.due.append((self.now, key))
        self.on_due(key)

    def go_to(self, time: float) -> None:
        while ready := [one for one in self.timers if one[0] <= time]:
            timer = min(ready, key=itemgetter(0))
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = time

    @property
    def keys(self) -> list[str]:
        return [key for _, key in self.due]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> TimersByHand:
    world = TimersByHand()
    monkeypatch.setattr("scrapy_rep.engine.timers.call_later", world.call_later)
    clock = SimpleNamespace(monotonic=lambda: world.now)
    monkeypatch.setattr("scrapy_rep.engine.timers.time", clock)
    return world


def test_a_thousand_at_the_same_moment_take_turns(world: TimersByHand) -> None:
    for number in range(1000):
        world.set(f"{number}", 101.0)
        assert len(world.timers) == 1
    world.now = 101.0
    turns = 0
    while world.timers:
        world.timers.pop(0)[1]()
        turns += 1
        assert len(world.due) <= 200 * turns
    assert len(world.due) == 1000


@pytest.mark.parametrize(
    ("first", "second"), [(105.0, 103.0), (105.0, 107.0), (105.0, 99.0)]
)
def test_an_alarm_set_again_rings_once_at_the_new_time(
    world: TimersByHand, first: float, second: float
) -> None:
    """Earlier, later, in the past: the last word counts, once."""
    world.set("a", first)
    world.set("a", second)
    assert world.due == []  # who sets it is in the middle of something
    world.go_to(200.0)
    assert world.due == [(max(second, 100.0), "a")]


def test_a_paused_alarm_rings_only_after_the_pause(world: TimersByHand) -> None:
    world.set("a", 105.0)
    world.set("b", 140.0)
    world.paused = True
    world.go_to(120.0)
    assert world.due == []
    world.paused = False
    world.go_to(131.0)
    assert world.keys == ["a"]
    world.go_to(141.0)
    assert world.keys == ["a", "b"]
    assert world.timers == []


@pytest.mark.parametrize("ringing", [False, True])
def test_a_stopped_alarm_rings_no_more(world: TimersByHand, ringing: bool) -> None:
    world.set("a", 105.0)
    world.set("b", 105.0)
    if ringing:
        world.on_due = lambda key: world.alarm.stop()
        world.go_to(105.0)
    else:
        world.alarm.stop()
    world.set("c", 106.0)
    world.go_to(200.0)
    assert world.keys == (["a"] if ringing else [])
    assert world.timers == []


def test_keys_that_came_and_went_take_no_memory(world: TimersByHand) -> None:
    world.set("last", 1e6)
    for number in range(10_000):
        world.set(f"{number}", 1e6 - number)
        world.alarm.set(f"{number - 5}", None)
    assert len(world.alarm._heap) < 1100
    world.go_to(1e6)
    assert world.keys == [*(f"{number}" for number in range(9999, 9994, -1)), "last"]
    assert not world.alarm._times and not world.alarm._heap


def test_one_that_fails_or_is_set_again_while_it_rings_is_due_again(
    world: TimersByHand,
) -> None:
    failures = iter([True, True])

    def ring(key: str) -> None:
        if key == "a" and next(failures, False):
            raise ZeroDivisionError
        if key == "b" and world.now < 130.0:
            world.set(key, world.now + 12)

    world.on_due = ring
    world.set("a", 105.0)
    world.set("b", 105.5)
    with captured_log() as records:
        world.go_to(200.0)
    due = [
        (105.0, "a"),
        (105.5, "b"),
        (106.0, "a"),
        (107.0, "a"),
        (117.5, "b"),
        (129.5, "b"),
    ]
    assert world.due == [*due, (141.5, "b")]
    assert [one.levelname for one in records] == ["ERROR"]
