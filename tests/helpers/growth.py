"""How the time of some work grows with its size.

Compared is growth, never seconds: eight times the size may take about eight times the time, where
quadratic work would take sixty-four times. What lies between is for steps that are the machine's:
larger strings may come from fresh pages of memory each time, smaller ones don't. The least of
several rounds counts, since whatever else the machine does can only add, and a suspicious ratio
is given more rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

TIMES = 8
"""How much larger the larger work is."""
MAX_GROWTH = 3.0 * TIMES
ROUNDS = 5
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
        if number >= ROUNDS and least_large < MAX_GROWTH * least_small:
            break
    return least_large / least_small


def assert_linear(small: Callable[[], object], large: Callable[[], object]) -> None:
    ratio = growth(small, large)
    assert ratio < MAX_GROWTH, f"{TIMES} times the size takes {ratio:.1f} times as long"
