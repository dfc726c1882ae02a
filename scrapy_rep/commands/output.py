"""What ``scrapy robots`` prints, and how it ends: an exit status, and one line for each
error, without a traceback. On a terminal, lines break between words; elsewhere they
stay whole, so that ``grep`` finds them. Imports no Scrapy."""

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
    from collections.abc import Callable, Iterable, Mapping, Sequence


# Colours of terminals, by their numbers in escape sequences.
_GREEN = "32"
_RED = "31"
_YELLOW = "33"
_CYAN = "36"

# The colour of a verdict that begins a line.
_COLOUR_OF_VERDICT = {"allowed": _GREEN, "disallowed": _RED, "unreachable": _YELLOW}

# The colour of the severity of a finding (inspection/findings.py), within a line.
_COLOUR_OF_SEVERITY = {"error": _RED, "warning": _YELLOW, "note": _CYAN}

_WORD = re.compile(r"[^ ]+")

# If a line is broken, the rest of it is indented by this many columns more than the
# beginning.
_HANGING_INDENT = 4


class ExitStatus(IntEnum):
    """The exit status (docs/command.md). The statuses stand in the order of their
    gravity, the gravest last; their numbers don't tell it."""

    GOOD = 0
    """Nothing to report."""
    FOUND = 1
    """Something is disallowed, wrong, missing or changed, depending on what the command
    was asked."""
    UNREACHABLE = 3
    """Something could not be found out."""
    USAGE = 2
    """Options, arguments or files make no sense, or can't be read."""


def gravest(*statuses: ExitStatus) -> ExitStatus:
    """Return the gravest of *statuses*; ``GOOD`` for none."""
    by_gravity = list(ExitStatus)
    return max(statuses, key=by_gravity.index, default=ExitStatus.GOOD)


class Ending(Exception):
    """Ends the command. The message is for the user; empty: end silently."""

    def __init__(self, message: str, status: ExitStatus = ExitStatus.USAGE) -> None:
        super().__init__(message)
        self.status = status


class CommandError(Ending):
    """Ends the command, or only the work on one URL or file."""


class WrongUsage(Exception):
    """Options or arguments that make no sense. The message is for the user."""


def complain(message: object) -> None:
    """Print one line to standard error, if that can be written to."""
    # If standard error is closed, it is None, for which print() would write to standard
    # output.
    if sys.stderr is None:
        return
    text = clean(str(message))
    line = fitted(f"scrapy robots: {text}", sys.stderr)
    try:
        print(line, file=sys.stderr)
    except OSError:  # the disk is full, or nobody reads standard error
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard what *stream* still holds, and what it gets from now on. To write this
    would fail once more when Python ends, with an exit status of its own."""
    # The stream may be no file, as in a notebook, or be closed.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())


def fitted(text: str, stream: TextIO) -> str:
    """Return *text* as it is printed to *stream*: on a terminal, broken between words
    where the terminal is too narrow for it."""
    if not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(wrapped(text, columns))


def usage_error(error: WrongUsage, program: str) -> str:
    """Return the message of *error* for ``argparse``, which prints it after
    *program*."""
    start = f"{program}: error: "
    line = start + clean(str(error))
    # argparse puts the start before the message, so the whole line is broken, with the
    # start.
    if sys.stderr is not None:
        line = fitted(line, sys.stderr)
    return line.removeprefix(start)


def wrapped(text: str, columns: int) -> list[str]:
    """Return *text* as lines of at most this many *columns*, each but the first
    indented. A word that is longer than a line stays whole."""
    indent_of_text = len(text) - len(text.lstrip(" "))
    # On a narrow terminal, at least half of the columns are left for words.
    indent_width = min(indent_of_text + _HANGING_INDENT, columns // 2)
    indent = "".ljust(indent_width)
    lines = [""]
    width = 0  # columns of the last of the lines
    end = 0  # where the last word ends in *text*
    for match in _WORD.finditer(text):
        word = text[end : match.end()]  # with the blanks before it
        end = match.end()
        word_width = _columns_of(word)
        if width and width + word_width > columns:
            word = indent + match[0]
            word_width = _columns_of(word)
            lines.append("")
            width = 0
        lines[-1] += word
        width += word_width
    return lines


def _columns_of(text: str) -> int:
    """Return how many columns *text* takes: none for accents on their own, two for
    Chinese."""
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
    """Standard output: lines for people, or JSON or CSV for programs. Raises
    :class:`Ending` if nobody reads any more, or the disk is full."""

    def __init__(self, *, json: bool = False, csv: bool = False) -> None:
        self._json = json
        self._csv = csv
        stream = sys.stdout
        if stream is None:  # it was closed before Python started, as by `>&-`
            stream = open(os.devnull, "w")  # noqa: SIM115 (open until Python ends)
        # Characters that the encoding lacks are escaped.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        self._stream = stream
        self._has_colours = _takes_colours(stream)

    @property
    def is_for_programs(self) -> bool:
        return self._json or self._csv

    def line(self, *cells: str, severity: str = "") -> None:
        """Print a line for people; nothing if programs read the output.

        :param cells: stand side by side; a verdict in the first one is coloured
        :param severity: the severity that the line names before a colon, to colour it;
            "" for none
        """
        if self.is_for_programs:
            return
        cleaned = [clean(cell) for cell in cells]
        text = fitted("  ".join(cleaned).rstrip(), self._stream)
        if self._has_colours:
            first = cleaned[0]
            colour = _COLOUR_OF_VERDICT.get(first.rstrip())
            if colour is not None:
                text = _coloured(first, colour) + text.removeprefix(first)
            if severity:
                colour = _COLOUR_OF_SEVERITY[severity]
                coloured = _coloured(severity, colour)
                text = text.replace(f" {severity}:", f" {coloured}:", 1)
        self._write(self._stream.write, text + "\n")

    def put(self, data: dict[str, Any], *cells: str) -> None:
        """Print *data* as a line of JSON, in ASCII, which survives every terminal and
        pipe; without ``--json``, *cells* as a line for people."""
        if self._json:
            line = json.dumps(data)
            self._write(self._stream.write, line + "\n")
        else:
            self.line(*cells)

    def put_all(
        self,
        data: dict[str, Any],
        *,
        first_line: Sequence[str],
        lines: Mapping[str, list[str]],
    ) -> None:
        """Print *data* as a line of JSON; for people, as a block of lines.

        :param first_line: the names of the fields that make up the first line; each of
            the other fields has lines of its own
        :param lines: by the name of a field, the lines that people are shown in place
            of its value
        """
        first_cells = [data[name] for name in first_line]
        self.put(data, *first_cells)
        other_names = [name for name in data if name not in first_line]
        columns = max(map(len, other_names))
        for name in other_names:
            value = lines.get(name, data[name])
            values = value if isinstance(value, list) else [value]
            for item in values:
                if item is not None and item is not False:
                    self.line("", name.ljust(columns), _in_words(item))
        self.line("")

    def csv(self, cells: Iterable[object]) -> None:
        """Print a row of CSV."""
        row = []
        for cell in cells:
            row.append(clean(cell) if isinstance(cell, str) else cell)
        writer = csv.writer(self._stream, lineterminator="\n")
        self._write(writer.writerow, row)

    def bytes(self, data: bytes) -> None:
        """Print *data* as it is. To be called only before any line is printed, since
        *data* would overtake lines that still wait in the buffer for texts."""
        self._write(self._stream.buffer.write, data)

    def flush(self) -> None:
        self._write(self._stream.flush)

    def _write(self, write: Callable[..., object], *arguments: object) -> None:
        """Call *write*, which writes to standard output. If that fails, raise
        :class:`Ending`."""
        try:
            write(*arguments)
        except OSError as error:
            _discard(self._stream)
            if _is_reader_gone(error):
                raise Ending("", ExitStatus.GOOD) from None
            raise Ending(f"standard output: {error.strerror}") from None


def _is_reader_gone(error: OSError) -> bool:
    """Return whether writing failed because the program that reads the output has
    ended, like ``head`` when it has seen enough."""
    if error.errno == errno.EPIPE:
        return True
    # On Windows, the error has this number in place of EPIPE.
    return os.name == "nt" and error.errno == errno.EINVAL


def _takes_colours(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that knows colours, whose user has not
    declined them."""
    if os.environ.get("NO_COLOR"):
        return False
    terminal = os.environ.get("TERM", "dumb")
    return terminal != "dumb" and stream.isatty()


def _coloured(text: str, colour: str) -> str:
    """Return *text* between the escape sequences that switch a colour on and off."""
    return f"\x1b[{colour}m{text}\x1b[0m"


def _in_words(value: object) -> str:
    """Return a value of JSON for people."""
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            if item is not None:
                parts.append(f"{key}: {_in_words(item)}")
        return ", ".join(parts)
    if isinstance(value, list):
        return " ".join(map(_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
