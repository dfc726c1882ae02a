"""How ``scrapy robots`` ends: its exit status, and one line for each error, without a traceback."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, TextIO

from scrapy.utils.log import configure_logging

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import clean

if TYPE_CHECKING:
    from scrapy.settings import Settings


class Status(IntEnum):
    """The exit status. If several apply, :func:`gravest` picks one."""

    GOOD = 0
    """All URLs are allowed; nothing was found."""
    FOUND = 1
    """A URL is disallowed; something was found."""
    USAGE = 2
    """Wrong options, or unreadable input. The rest of the input is answered all the same."""
    UNREACHABLE = 3
    """A robots.txt is unreachable."""


def gravest(*statuses: Status) -> Status:
    """Return the gravest: unreachable is worse than disallowed, and wrong usage the worst."""
    order = (Status.GOOD, Status.FOUND, Status.UNREACHABLE, Status.USAGE)
    return max(statuses, key=order.index, default=Status.GOOD)


class CommandError(Exception):
    """Ends the command, or the work on one URL. The message is for the user; empty: end silently."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


def complain(message: object) -> None:
    """Print one line to standard error, if that can be written to."""
    if sys.stderr is not None:  # print() would write to standard output instead
        try:
            print(f"scrapy robots: {clean(str(message))}", file=sys.stderr)
        except OSError:  # its disk is full, or nobody reads it
            give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Discard what *stream* still holds, and gets from now on.

    What is still in its buffer would fail again when Python ends, with an exit status of its own.
    """
    with suppress(OSError, ValueError):  # no file, as in a notebook; or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def set_up_logging(settings: Settings, *, configured: bool) -> None:
    """Print our own warnings to standard error if the log is off, as it is by default.

    :param configured: whether Scrapy has set logging up already
    """
    if not configured:
        configure_logging(settings)
    if not settings.getbool("LOG_ENABLED"):
        get_logger("scrapy_rep").addHandler(_Complainer(logging.WARNING))


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())
