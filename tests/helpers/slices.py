"""Whether the event loop would feel some work."""

from __future__ import annotations

import functools
import sys
import urllib.parse
from collections.abc import Callable, Iterable
from time import sleep, thread_time
from typing import Any, TypeVar

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
