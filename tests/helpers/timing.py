"""Whether the event loop would feel some work, how the time of work grows with its size, how long a crawl
takes to close. Tests that measure take turns."""

from __future__ import annotations

import fcntl
import functools
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep, thread_time
from typing import Any, TypeVar

from tests.helpers.crawling import CrawlResult
from tests.helpers.held import DEFER

T = TypeVar("T")

LONGEST = 0.05
"""Seconds of processor time, on a machine that adds two numbers in :data:`_ADDITION`."""

ROUNDS = 8
"""What took too long once may have met the garbage collector, or another process."""

# Seconds, of an ordinary machine. Where processors are shared, they have half that speed at times.
_ADDITION = 40e-9
# Seconds. Before another round, what slows this process down may have ended.
_PAUSE = 0.1


def in_a_slice(work: Callable[[], T]) -> T:
    """Return what *work* returns, if that takes no longer than a slice of time may."""
    [result] = in_slices(lambda: (work() for _ in range(1)))
    return result


def in_slices(steps: Callable[[], Iterable[T]]) -> list[T]:
    """Return what *steps* yields, if each step takes no longer than a slice of time may. What it
    raises in time is raised."""
    slow: set[int] | None = None
    for number in range(ROUNDS):
        sleep(number * _PAUSE)
        _forget()
        results: list[T] = []
        times: list[float] = []
        raised: Exception | None = None
        began = thread_time()
        try:
            for result in steps():
                times.append(thread_time() - began)
                results.append(result)
                began = thread_time()
        except Exception as error:  # noqa: BLE001 (of any kind)
            raised = error
        times.append(thread_time() - began)
        longest = LONGEST if max(times) <= LONGEST else LONGEST * slowness()
        these = {at for at, time in enumerate(times) if time > longest}
        slow = these if slow is None else slow & these
        if not slow:
            if raised is not None:
                raise raised
            return results
    raise AssertionError(
        f"of {len(times)} steps, {slow} take too long: up to {max(times):.3f} s, where {longest:.3f} "
        "would do"
    )


def slowness() -> float:
    """How many times as long as on an ordinary machine things take, now."""
    total, additions = 0, 200_000
    began = thread_time()
    for number in range(additions):
        total += number
    return max(1.0, (thread_time() - began) / additions / _ADDITION)


def _forget() -> None:
    """A cache would make the second time quick."""
    for cache in _caches():
        cache.cache_clear()


@functools.cache
def _caches() -> list[Any]:
    """Those that URLs are read with."""
    modules = [module for name, module in sys.modules.items() if name.startswith("w3lib")]
    values = [value for module in (*modules, urllib.parse) for value in vars(module).values()]
    return [value for value in values if hasattr(value, "cache_clear")]


# The requirement is "about 2 seconds, whatever is in flight"; what is in flight takes 30.
SECONDS = 6.0


SLOW: dict[str, Any] = {**DEFER, "REP_DOWNLOAD_TIMEOUT": 30.0, "DOWNLOAD_TIMEOUT": 30.0}


def closing_took(result: CrawlResult) -> float:
    """Seconds between Scrapy's own two lines in the log."""
    at = {
        record.getMessage().split(" (")[0]: record.created
        for record in result.records
        if record.name == "scrapy.core.engine"
    }
    return at["Spider closed"] - at["Closing spider"]


TIMES = 8
"""How much larger the larger work is."""
MAX_GROWTH = 3.0 * TIMES
GROWTH_ROUNDS = 2
MOST_ROUNDS = 30
LEAST = 0.002
"""Seconds that a measurement takes at least, to be above the clock's noise."""


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    started = thread_time()
    for _ in range(repeat):
        work()
    return thread_time() - started


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """How many times the time of *small* the work of *large* takes."""
    repeat = max(1, int(LEAST / max(seconds(small), 1e-6)))
    least_small = least_large = float("inf")
    for number in range(1, MOST_ROUNDS + 1):
        least_small = min(least_small, seconds(small, repeat))
        least_large = min(least_large, seconds(large, repeat))
        if number >= GROWTH_ROUNDS and least_large < MAX_GROWTH * least_small:
            break
    return least_large / least_small


def assert_linear(small: Callable[[], object], large: Callable[[], object]) -> None:
    ratio = growth(small, large)
    assert ratio < MAX_GROWTH, f"{TIMES} times the size takes {ratio:.1f} times as long"


@contextmanager
def turn(root: Path, *, alone: bool) -> Iterator[None]:
    """Wait for a place among the tests of the checkout at *root*, and keep it meanwhile."""
    folder = root / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    with (folder / "door").open("a") as door, (folder / "room").open("a") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


class Turns:
    """The turns of one worker's tests, one after the other."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held = ExitStack()
        self._stays = False

    @contextmanager
    def turn(self, *, alone: bool, next_alone: bool) -> Iterator[None]:
        """Like :func:`turn`. Those that are to be alone one after the other keep the lock: the
        workers would stand still for each of them again."""
        if not self._stays:
            self._held.enter_context(turn(self._root, alone=alone))
        self._stays = alone and next_alone
        try:
            yield
        finally:
            if not self._stays:
                self._held.close()
