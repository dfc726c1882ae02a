"""What ``scrapy robots`` prints, and how it ends: an exit status, and one line for each error,
without a traceback. On a terminal, lines break between words; elsewhere they stay whole, so that
``grep`` finds them. No Scrapy."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import sys
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import combining, east_asian_width

from scrapy_rep.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# Of words at the beginning of a line; and of severities.
_COLOURS = {"allowed": "32", "disallowed": "31", "unreachable": "33"}
_SEVERITIES = {"error": "31", "warning": "33", "note": "36"}

_WORD = re.compile(r"[^ ]+")

# By how much the rest of a line is indented that a terminal can't show in one.
_HANGING = 4


class Status(IntEnum):
    """The exit status (docs/command.md), the gravest last."""

    GOOD = 0
    FOUND = 1
    UNREACHABLE = 3
    USAGE = 2


def gravest(*statuses: Status) -> Status:
    return max(statuses, key=list(Status).index, default=Status.GOOD)


class Ending(Exception):
    """Ends the command. The message is for the user; empty: end silently."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


class CommandError(Ending):
    """Ends the command, or only the work on one URL or file."""


class WrongUsage(Exception):
    """Options or arguments that make no sense. The message is for the user."""


def complain(message: object) -> None:
    """Print one line to standard error, if that can be written to."""
    if sys.stderr is not None:  # print() would write to standard output instead
        try:
            print(
                fitted(f"scrapy robots: {clean(str(message))}", sys.stderr),
                file=sys.stderr,
            )
        except OSError:  # its disk is full, or nobody reads it
            _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Discard what *stream* still holds, and gets from now on: it would fail again when Python
    ends, with an exit status of its own."""
    with suppress(OSError, ValueError):  # no file, as in a notebook; or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fitted(text: str, stream: TextIO) -> str:
    """Return *text*, broken between words if *stream* is a terminal, and *text* wider than that."""
    if not stream.isatty():
        return text
    return "\n".join(wrapped(text, shutil.get_terminal_size().columns))


def usage_error(error: WrongUsage, program: str) -> str:
    """Return the message of *error* for ``argparse``, which prints it after *program*."""
    before = f"{program}: error: "
    message = f"{before}{clean(str(error))}"
    return (
        message if sys.stderr is None else fitted(message, sys.stderr)
    ).removeprefix(before)


def wrapped(text: str, columns: int) -> list[str]:
    """Return *text* as lines of at most so many *columns*, each but the first indented. A word that is
    longer stays whole."""
    own = len(text) - len(text.lstrip(" "))
    indent = " " * min(own + _HANGING, columns // 2)
    lines = [""]
    width = end = 0
    for match in _WORD.finditer(text):
        word = text[end : match.end()]  # with the blanks before it
        end = match.end()
        added = _columns_of(word)
        if width and width + added > columns:
            word = indent + match[0]
            lines.append("")
            width, added = 0, _columns_of(word)
        lines[-1] += word
        width += added
    return lines


def _columns_of(text: str) -> int:
    """Return how many columns *text* takes: none for accents on their own, two for Chinese."""
    if text.isascii():
        return len(text)
    columns = 0
    for character in text:
        if east_asian_width(character) in "WF":
            columns += 2
        elif not combining(character):
            columns += 1
    return columns


class Output:
    """Standard output: lines for people, or JSON or CSV for programs. Raises :class:`Ending` if
    nobody reads any more, or the disk is full."""

    def __init__(self, *, json: bool = False, csv: bool = False) -> None:
        self._json = json
        self._csv = csv
        # None: it was closed before Python started, as by `>&-`.
        self._stream = stream = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
        # Characters that the encoding lacks are escaped.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        takes_colours = os.environ.get("TERM", "dumb") != "dumb" and stream.isatty()
        self._coloured = takes_colours and not os.environ.get("NO_COLOR")

    @property
    def is_for_programs(self) -> bool:
        return self._json or self._csv

    def line(self, *cells: str, coloured: str = "") -> None:
        """Print a line for people. *coloured*: a severity in it, which stands before a colon."""
        if not (self._json or self._csv):
            word, *others = [clean(cell) for cell in cells]
            text = fitted("  ".join([word, *others]).rstrip(), self._stream)
            if self._coloured and (colour := _COLOURS.get(word.rstrip())):
                text = f"\x1b[{colour}m{word}\x1b[0m{text.removeprefix(word)}"
            if self._coloured and coloured:
                escape = f"\x1b[{_SEVERITIES[coloured]}m"
                text = text.replace(f" {coloured}:", f" {escape}{coloured}\x1b[0m:", 1)
            self._try(self._stream.write, text + "\n")

    def put(self, data: dict[str, Any], *cells: str) -> None:
        """Print *data* as a line for programs, in ASCII, which survives every terminal and pipe; or
        *cells* as a line for people."""
        if self._json:
            self._try(self._stream.write, json.dumps(data) + "\n")
        else:
            self.line(*cells)

    def put_all(self, data: dict[str, Any], *names: str, **words: list[str]) -> None:
        """Print *data* for programs; or the fields *names* as a line for people, and below it the
        rest of *data*, in which *words* take the place of values."""
        self.put(data, *(data[name] for name in names))
        shown = {
            name: words.get(name, data[name]) for name in data if name not in names
        }
        columns = max(map(len, shown))
        for name, value in shown.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None and one is not False:
                    self.line("", name.ljust(columns), _words(one))
        self.line("")

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
            if error.errno in (errno.EPIPE, errno.EINVAL if os.name == "nt" else None):
                # Nobody reads any more, like `head` when it has seen enough.
                raise Ending("", Status.GOOD) from None
            raise Ending(f"standard output: {error.strerror}") from None


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key}: {_words(one)}" for key, one in value.items() if one is not None
        )
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"
