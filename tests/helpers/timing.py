"""Whether the event loop would feel some work, how the time of work grows with its size, how long a crawl
takes to close. Tests that measure take turns."""

from __future__ import annotations

import functools
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import sleep, thread_time
from typing import Any, TypeVar

try:
    import fcntl
except ImportError:  # on Windows, where tests take no turns
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
LONGEST = 0.05
"""Seconds of processor time, on a machine that adds two numbers in :data:`_ADDITION`."""
ROUNDS = 8
"""What took too long once may have met the garbage collector, or another process."""
# Seconds, of an ordinary machine. Where processors are shared, they have half that speed at times.
_ADDITION = 40e-9


def in_a_slice(work: Callable[[], T]) -> T:
    """Return what *work* returns, if that takes no longer than a slice of time may."""
    [result] = in_slices(lambda: (work() for _ in range(1)))
    return result


def in_slices(steps: Callable[[], Iterable[T]]) -> list[T]:
    """Return what *steps* yields, if no step takes longer than a slice of time may in all rounds. What it
    raises in time is raised."""
    slow: set[int] | None = None
    for number in range(ROUNDS):
        sleep(number * 0.1)  # what slows this process down may have ended
        for cache in _caches():
            cache.cache_clear()  # they would make the second time quick
        times, results, raised = _timed(steps)
        longest = LONGEST if max(times) <= LONGEST else LONGEST * slowness()
        these = {at for at, time in enumerate(times) if time > longest}
        slow = these if slow is None else slow & these
        if not slow:
            if raised is not None:
                raise raised
            return results
    raise AssertionError(
        f"of {len(times)} steps, {slow} take too long: up to {max(times):.3f} s"
    )


def _timed(
    steps: Callable[[], Iterable[T]],
) -> tuple[list[float], list[T], Exception | None]:
    results, at, raised = [], [thread_time()], None
    try:
        for result in steps():
            at.append(thread_time())
            results.append(result)
    except Exception as error:  # noqa: BLE001 (of any kind)
        raised = error
    at.append(thread_time())
    return [later - earlier for earlier, later in pairwise(at)], results, raised


def slowness() -> float:
    """How many times as long as on an ordinary machine things take, now."""
    total, additions = 0, 200_000
    began = thread_time()
    for number in range(additions):
        total += number
    return max(1.0, (thread_time() - began) / additions / _ADDITION)


@functools.cache
def _caches() -> list[Any]:
    """Those that URLs are read with."""
    modules = [
        module for name, module in sys.modules.items() if name.startswith("w3lib")
    ]
    values = [
        value for module in (*modules, urllib.parse) for value in vars(module).values()
    ]
    return [value for value in values if hasattr(value, "cache_clear")]


TIMES = 8
"""How much larger the larger work is."""
_MAX_GROWTH = 3.0 * TIMES


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    began = thread_time()
    for _ in range(repeat):
        work()
    return thread_time() - began


def assert_linear(small: Callable[[], object], large: Callable[[], object]) -> None:
    repeat = max(1, int(0.002 / max(seconds(small), 1e-6)))  # above the clock's noise
    least_small = least_large = float("inf")
    for _ in range(30):
        least_small = min(least_small, seconds(small, repeat))
        least_large = min(least_large, seconds(large, repeat))
        if least_large < _MAX_GROWTH * least_small:
            return
    ratio = least_large / least_small
    raise AssertionError(f"{TIMES} times the size takes {ratio:.1f} times as long")


@contextmanager
def turn(root: Path, *, alone: bool) -> Iterator[None]:
    """Wait for a place among the tests of the checkout at *root*, and keep it meanwhile."""
    if fcntl is None:
        yield
        return
    folder = root / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    with (folder / "door").open("a") as door, (folder / "room").open("a") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
