"""Runs each crawl in a process of its own, several of them in turns if they are compared.

Whatever else the machine does hits all of those that take turns alike. On machines that others use too,
the same work takes 10 % more or less from one minute to the next.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from scrapy.crawler import CrawlerProcess

Values: TypeAlias = dict[str, Any]
TURN = 0.01
"""Seconds. What else the machine does comes and goes within a tenth of one: in turns of that length
the same crawl differed by 2 % from itself, in turns of 5 to 20 ms by 0.7 to 0.9 %."""


def started(
    function: Callable[..., None], *arguments: Any
) -> tuple[BaseProcess, Connection]:
    """Call *function* with *arguments* and a pipe in a process of its own. Return that, and the other
    end of the pipe."""
    context = multiprocessing.get_context("spawn")  # crawls share no state
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


@contextmanager
def child(function: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Call *function* in a process of its own, which ends with the context. Gives the pipe to it."""
    process, pipe = started(function, *arguments)
    try:
        yield pipe
    finally:
        process.terminate()
        process.join()


def crawl(spider: Any, settings: Values, arguments: Values, pipe: Connection) -> None:
    """Crawl in this process. Sends what *spider* sends to its ``pipe``."""
    process = CrawlerProcess(settings)
    process.crawl(spider, pipe=pipe, **arguments)
    process.start()


def result_of(function: Callable[..., None], *arguments: Any) -> Any:
    """Return what *function* sends from a process of its own."""
    with child(function, *arguments) as pipe:
        return pipe.recv()


def take_turns(
    function: Callable[..., None], calls: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Call *function* with the arguments of each of *calls* and a pipe, in a process each, until all
    have sent something. Needs signals that stop a process: Windows has none."""
    running = [_stopped(function, call) for call in calls]
    try:
        return _rotate(running)
    finally:
        for process, _ in running:
            process.kill()
            process.join()


def _stopped(
    function: Callable[..., None], arguments: tuple[Any, ...]
) -> tuple[BaseProcess, Connection]:
    process, pipe = started(function, *arguments)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    if hasattr(os, "sched_setaffinity"):  # where each CPU has neighbours of its own
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    return process, pipe


def _rotate(running: list[tuple[BaseProcess, Connection]]) -> list[Any]:
    sent: dict[int, Any] = {}
    while len(sent) < len(running):
        for number, (process, pipe) in enumerate(running):
            if number in sent:
                continue
            assert process.pid is not None
            os.kill(process.pid, signal.SIGCONT)
            if pipe.poll(TURN):
                sent[number] = pipe.recv()
            os.kill(process.pid, signal.SIGSTOP)
    return [sent[number] for number in range(len(running))]


def resident_bytes() -> int:
    """Return the memory that this process takes."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the most memory that this process has taken."""
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
