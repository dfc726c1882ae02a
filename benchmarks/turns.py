"""Processes that take turns, each for a moment, so that whatever else the machine does hits all of
them alike. On machines that others use too, the same work takes 10 % more or less from one minute
to the next: what is run one after the other can't be compared more closely than that."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from crawls import started

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

# Seconds. What else the machine does comes and goes within a tenth of one: in turns of that length
# the same crawl differed by 2 % from itself, in turns of 5 to 20 ms by 0.7 to 0.9 %. That each begins
# with other things in the CPU's caches matters little: a page leaves nothing there for the next.
TURN = 0.01


class Turns(NamedTuple):
    """What a process has sent, and when it had its turns."""

    sent: Any
    spans: list[tuple[float, float]]

    def seconds(self, start: float, end: float) -> float:
        """How much of the time from *start* to *end* (of ``time.perf_counter()``, which is the
        same for all processes) was its turn."""
        return sum(
            max(0.0, min(end, stop) - max(start, begin)) for begin, stop in self.spans
        )


def take_turns(
    target: Callable[..., None], calls: Sequence[tuple[Any, ...]]
) -> list[Turns]:
    """Call *target* with the arguments of each call and a pipe, in a process each, until all have
    sent something. Needs signals that stop a process: Windows has none."""
    running = [_start(target, call) for call in calls]
    try:
        return _rotate(running)
    finally:
        for process, _ in running:
            process.kill()
            process.join()


def _start(
    target: Callable[..., None], arguments: tuple[Any, ...]
) -> tuple[BaseProcess, Connection]:
    process, pipe = started(target, *arguments)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    if hasattr(os, "sched_setaffinity"):  # where each CPU has neighbours of its own
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    return process, pipe


def _rotate(running: list[tuple[BaseProcess, Connection]]) -> list[Turns]:
    spans: list[list[tuple[float, float]]] = [[] for _ in running]
    sent: dict[int, Any] = {}
    while len(sent) < len(running):
        for number, (process, pipe) in enumerate(running):
            if number in sent:
                continue
            assert process.pid is not None
            began = time.perf_counter()
            os.kill(process.pid, signal.SIGCONT)
            if pipe.poll(TURN):
                try:
                    sent[number] = pipe.recv()
                except EOFError:
                    raise SystemExit(
                        f"{process.name} has ended without a result"
                    ) from None
            os.kill(process.pid, signal.SIGSTOP)
            spans[number].append((began, time.perf_counter()))
    return [Turns(sent[number], spans[number]) for number in range(len(running))]
