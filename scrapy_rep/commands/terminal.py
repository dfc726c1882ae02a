"""What commands print to standard output: aligned, and coloured on a terminal unless ``NO_COLOR``
is set."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn, TextIO
from unicodedata import category, east_asian_width

from scrapy_rep.commands.ending import CommandError, Status, give_up
from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"

_IN_ASCII = str.maketrans("├└│─…", "|`|-~")

# Between columns; and before a last cell that stands on a line of its own.
_GAP, _BELOW = "  ", "    "

# Errors of a pipe that nobody reads any more. Windows has none of its own for that.
_READER_GONE = {errno.EPIPE, *([errno.EINVAL] if os.name == "nt" else [])}

# Columns: no cell is cut down to fewer.
_NARROWEST = 8


def _takes_escapes(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Progress:
    """A progress line on standard error, if that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream = stream or sys.stderr or open(os.devnull, "w")  # noqa: SIM115
        self._on = _takes_escapes(stream)
        self._again_at = 0.0
        """When the next update is due; 0: nothing is shown."""

    def tell(self, text: str) -> None:
        """Show *text*, unless another one was shown just now."""
        if self._on and time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + 0.1
            first, *_ = wrapped(clean(text), shutil.get_terminal_size().columns - 1)
            self._write(first)

    def clear(self) -> None:
        """Remove the line: something else will be printed."""
        if self._again_at:
            self._again_at = 0.0
            self._write("")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
        except OSError:  # the terminal was closed
            self._on = False
            give_up(self._stream)


class Output:
    """Standard output.

    What prints raises :class:`CommandError` if nobody reads any more, or if the disk is full.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        # None: it was closed before Python started, as by `>&-`.
        self._stream = stream = stream or sys.stdout or open(os.devnull, "w")  # noqa: SIM115
        # Characters that the encoding lacks are escaped.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        self._columns = shutil.get_terminal_size().columns if stream.isatty() else math.inf
        self.coloured = _takes_escapes(stream) and not os.environ.get("NO_COLOR")
        self._blocks = 0

    def paint(self, text: str, *colours: str) -> str:
        """Return *text* in these colours, if the terminal has colours."""
        codes = ";".join(filter(None, colours))
        if not self.coloured or not text or not codes:
            return text
        return f"\x1b[{codes}m{text}\x1b[0m"

    def fits(self, columns: int) -> bool:
        """Whether a line of this width fits on the terminal. If there is none, any does."""
        return columns <= self._columns

    def line(self, text: str = "") -> None:
        """Print a line."""
        try:
            self._stream.write(text + "\n")
        except OSError as error:
            self._close(error)

    def json(self, data: Any) -> None:
        """Print an object on one line, in ASCII: it survives every terminal and pipe."""
        self.line(json.dumps(data))

    def table(
        self, rows: Iterable[Sequence[str]], colours: Sequence[Sequence[str]] = (), indent: str = ""
    ) -> None:
        """Print rows of cells, aligned. If the terminal is too narrow, the last column is wrapped
        and the others are shortened. Each cell may have a colour (``""`` for none)."""
        rows = [[clean(cell) for cell in row] for row in rows]
        *widths, last = [max(map(width, column)) for column in zip(*rows, strict=True)]
        hanging = len(indent) + sum(widths) + len(_GAP) * len(widths)
        below = False  # whether the last cell has lines of its own
        if not self.fits(hanging + last):
            below = hanging > self._columns // 2
            widths = fitted(widths, int(self._columns) - hanging + sum(widths))
            hanging = len(indent) + len(_BELOW) if below else hanging
        for number, row in enumerate(rows):
            paints = colours[number] if colours else [""] * len(row)
            line = indent
            for cell, columns, colour in zip(row, widths, paints, strict=False):
                text = shortened(cell, columns, *self.signs("…"))
                line += self.paint(text, colour) + " " * (columns - width(text)) + _GAP
            if below:
                self.line(line.rstrip())
                line = " " * hanging
            self.hang(line, hanging, row[-1], paints[-1])

    def block(
        self, title: str, rows: Sequence[tuple[str, str]], colours: Sequence[str] = ()
    ) -> None:
        """Print a title with labels and texts below, and an empty line before all but the first.

        :param colours: of the texts
        """
        if self._blocks:
            self.line()
        self._blocks += 1
        self.line(title)
        self.table(rows, [(DIM, colour) for colour in colours or [""] * len(rows)], indent="  ")

    def hang(self, before: str, columns: int, text: str, colour: str = "") -> None:
        """Print *text* after *before*, which is *columns* wide; on a narrow terminal, wrap it."""
        room = max(self._columns - columns, 1)
        for piece in [text] if room == math.inf else wrapped(text, int(room)):
            self.line((before + self.paint(piece, colour)).rstrip())
            before = " " * columns

    def signs(self, *signs: str) -> tuple[str, ...]:
        """Return *signs*, in ASCII if the encoding lacks one."""
        try:
            "".join(signs).encode(getattr(self._stream, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            return tuple(sign.translate(_IN_ASCII) for sign in signs)
        return signs

    def flush(self) -> None:
        """Write what is still in the buffer."""
        try:
            self._stream.flush()
        except OSError as error:
            self._close(error)

    def _close(self, error: OSError) -> NoReturn:
        give_up(self._stream)
        if error.errno in _READER_GONE:  # it has seen enough, like `head`
            raise CommandError("", Status.GOOD) from None
        raise CommandError(f"standard output: {error.strerror}") from None


def width(text: str) -> int:
    """Return the columns of *text*, which is printable (:func:`~scrapy_rep.engine.words.clean`)."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(one: str) -> int:
    if category(one) in ("Mn", "Me"):
        return 0  # drawn over the character before it
    return 2 if east_asian_width(one) in "WF" else 1


def shortened(text: str, columns: int, sign: str = "…") -> str:
    """Return *text*, cut in the middle if it is too wide: rules and URLs differ at their ends."""
    if width(text) <= columns:
        return text
    tail = (columns - 1) // 3
    return _begin(text, columns - 1 - tail) + sign + _begin(text[::-1], tail)[::-1]


def _begin(text: str, columns: int) -> str:
    for at, one in enumerate(text):
        columns -= _columns_of(one)
        if columns < 0:
            return text[:at]
    return text


def wrapped(text: str, columns: int) -> list[str]:
    """Return *text* in lines, broken after spaces unless these are too far off."""
    lines = []
    begin = used = blank = 0
    for at, one in enumerate(text):
        size = _columns_of(one)
        if used + size > columns and at > begin:
            end = blank if blank > begin + columns // 2 else at
            lines.append(text[begin:end].rstrip())
            begin, used = end, width(text[end:at])
        if one == " ":
            blank = at + 1
        used += size
    return [*lines, text[begin:]]


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Return *widths* with the widest ones reduced until they fit into *room*."""
    found = [min(one, max(room, _NARROWEST)) for one in widths]
    while found and sum(found) > room and max(found) > _NARROWEST:
        found[found.index(max(found))] -= 1
    return found
