"""What ``scrapy robots`` prints, and how it ends: an exit status, and one line for each error,
without a traceback. Lines aren't wrapped: terminals do that, and ``grep`` finds them whole."""

from __future__ import annotations

import csv
import errno
import json
import logging
import os
import shutil
import sys
import time
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TextIO

from scrapy.utils.log import configure_logging

from scrapy_rep.engine.log import get_logger
from scrapy_rep.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy.settings import Settings

    Cell = str | tuple[str, ...]
    """A text, or a text and its colours."""

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"

# Errors of a pipe that nobody reads any more. Windows has none of its own for that.
_READER_GONE = {errno.EPIPE, *([errno.EINVAL] if os.name == "nt" else [])}


class Status(IntEnum):
    """The exit status (docs/command.md). If several apply, :func:`gravest` picks one."""

    GOOD = 0
    FOUND = 1
    USAGE = 2
    UNREACHABLE = 3


def gravest(*statuses: Status) -> Status:
    """Return the gravest: unreachable is worse than disallowed, and wrong usage the worst."""
    order = (Status.GOOD, Status.FOUND, Status.UNREACHABLE, Status.USAGE)
    return max(statuses, key=order.index, default=Status.GOOD)


class Ending(Exception):
    """Ends the command. The message is for the user; empty: end silently."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


class CommandError(Ending):
    """Ends the command, or only the work on one URL or file."""


def complain(message: object) -> None:
    """Print one line to standard error, if that can be written to."""
    if sys.stderr is not None:  # print() would write to standard output instead
        try:
            print(f"scrapy robots: {clean(str(message))}", file=sys.stderr)
        except OSError:  # its disk is full, or nobody reads it
            _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Discard what *stream* still holds, and gets from now on: it would fail again when Python
    ends, with an exit status of its own."""
    with suppress(OSError, ValueError):  # no file, as in a notebook; or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def set_up_logging(settings: Settings, *, configured: bool) -> None:
    """Print our own warnings to standard error if the log is off, as it is by default.
    *configured*: whether Scrapy has set logging up already."""
    if not configured:
        configure_logging(settings)
    if not settings.getbool("LOG_ENABLED"):
        get_logger("scrapy_rep").addHandler(_Complainer(logging.WARNING))


def _takes_escapes(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Progress:
    """A line on standard error that says what goes on, if that is a terminal."""

    def __init__(self) -> None:
        self.on = _takes_escapes(sys.stderr)
        self._again_at = 0.0
        """When the next update is due; 0: nothing is shown."""

    def tell(self, text: str) -> None:
        """Show *text*, unless another one was shown just now."""
        if self.on and time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + 0.1
            # In ASCII each character takes one column.
            shown = clean(text.encode("ascii", "backslashreplace").decode())
            self._write(shown[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        if self._again_at:
            self._again_at = 0.0
            self._write("")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        except OSError:  # the terminal was closed
            self.on = False
            _give_up(sys.stderr)


class Output:
    """Standard output, coloured on a terminal unless ``NO_COLOR`` is set. Prints either what is for
    people or what is for programs (``--json``). Raises :class:`Ending` if nobody reads any more, or
    the disk is full."""

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        # None: it was closed before Python started, as by `>&-`.
        self._stream = stream = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
        # Characters that the encoding lacks are escaped.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        self._coloured = _takes_escapes(stream) and not os.environ.get("NO_COLOR")
        self._blocks = 0

    def paint(self, text: str, *colours: str) -> str:
        """Return *text*, cleaned, in these colours if the terminal has colours."""
        text, codes = clean(text), ";".join(filter(None, colours))
        return f"\x1b[{codes}m{text}\x1b[0m" if self._coloured and text and codes else text

    def line(self, text: str = "") -> None:
        """Print a line for people. Text from outside must be clean."""
        if not self._json:
            self._try(self._stream.write, text + "\n")

    def row(self, *cells: Cell) -> None:
        """Print a line of cells, for people."""
        texts = [self.paint(*((one,) if isinstance(one, str) else one)) for one in cells]
        self.line("  ".join(texts).rstrip())

    def block(self, title: Iterable[Cell], rows: Sequence[tuple[str, ...]]) -> None:
        """Print, for people, a row with others below it: labels, texts, and maybe their colours. An
        empty line precedes all blocks but the first."""
        if self._blocks:
            self.line()
        self._blocks += 1
        self.row(*title)
        columns = max(len(label) for label, *_ in rows)
        for label, *text in rows:
            self.row("", (label.ljust(columns), DIM), tuple(text))

    def note(self, text: str) -> None:
        """Print a line that is not an answer, for people."""
        self.row((f"# {text}", DIM))

    def json(self, data: Any) -> None:
        """Print an object on one line for programs, in ASCII: it survives every terminal and pipe."""
        if self._json:
            self._try(self._stream.write, json.dumps(data) + "\n")

    def csv(self, cells: Iterable[object]) -> None:
        texts = [clean(cell) if isinstance(cell, str) else cell for cell in cells]
        self._try(csv.writer(self._stream, lineterminator="\n").writerow, texts)

    def bytes(self, data: bytes) -> None:
        """Print *data* before anything else is printed."""
        self._try(self._stream.buffer.write, data)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, write: Callable[..., object], *data: object) -> None:
        try:
            write(*data)
        except OSError as error:
            _give_up(self._stream)
            if error.errno in _READER_GONE:  # it has seen enough, like `head`
                raise Ending("", Status.GOOD) from None
            raise Ending(f"standard output: {error.strerror}") from None
