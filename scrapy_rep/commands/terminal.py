"""What commands print: data to standard output, the rest to standard error; aligned, and in
colour only on a terminal (``NO_COLOR`` is respected)."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from scrapy_rep.commands.columns import fitted, shortened, width, wrapped
from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"


def complain(message: str) -> None:
    """Print one line to standard error."""
    print(f"scrapy robots: {clean(message)}", file=sys.stderr)


_IN_ASCII = str.maketrans("├└│─…", "|`|-~")

# Between columns; and before what stands on a line of its own.
_GAP, _BELOW = "  ", "    "


class Progress:
    """One line on a terminal's standard error that says how far it is; nothing elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._on = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = False
        self._again_at = 0.0

    def tell(self, text: str) -> None:
        """Show *text*, if the last one was not shown just now."""
        if not self._on or time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + _PROGRESS_SECONDS
        self._shown = True
        first, *_ = wrapped(clean(text), shutil.get_terminal_size().columns - 1)
        self._stream.write(f"\r\x1b[K{first}")
        self._stream.flush()

    def clear(self) -> None:
        """Take away what was shown: something is to be printed."""
        if self._shown:
            self._shown = False
            self._again_at = 0.0
            self._stream.write("\r\x1b[K")
            self._stream.flush()


# How often progress is told, at most.
_PROGRESS_SECONDS = 0.1


class OutputClosed(Exception):
    """Nothing can be printed any more: there is no use in going on. Without a message, who read it
    has enough, as ``head`` has."""


class Output:
    """Standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        # None: it was closed before Python began, as by `>&-`.
        self._stream = stream = stream or sys.stdout or open(os.devnull, "w")  # noqa: SIM115
        # Better an escape than an error, where the terminal is not of this century.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        self._columns = shutil.get_terminal_size().columns if stream.isatty() else math.inf
        self.coloured = (
            stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
        )

    def paint(self, text: str, *colours: str) -> str:
        """Return *text* in these colours, if the terminal has colours."""
        codes = ";".join(filter(None, colours))
        if not self.coloured or not text or not codes:
            return text
        return f"\x1b[{codes}m{text}\x1b[0m"

    def fits(self, columns: int) -> bool:
        """Whether a line of this width fits on the terminal. Any fits elsewhere."""
        return columns <= self._columns

    def line(self, text: str = "") -> None:
        """Print a line.

        :raises OutputClosed: if nobody reads any more, or the disk is full
        """
        try:
            self._stream.write(text + "\n")
        except OSError as error:
            self._close(error)

    def json(self, data: Any) -> None:
        """Print an object on one line. ASCII alone, so it survives every terminal and pipe."""
        self.line(json.dumps(data))

    def table(
        self, rows: Iterable[Sequence[str]], colours: Sequence[Sequence[str]] = (), indent: str = ""
    ) -> None:
        """Print rows of cells, aligned. On a terminal that is too narrow for them the last column is
        wrapped, and the others are shortened.

        :param colours: for each row, a colour for each cell ('' for none)
        """
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

    def hang(self, before: str, columns: int, text: str, colour: str = "") -> None:
        """Print *text* after *before*, which is *columns* wide. Where a terminal is too narrow
        it goes on below itself."""
        room = max(self._columns - columns, 1)
        for piece in [text] if room == math.inf else wrapped(text, int(room)):
            self.line((before + self.paint(piece, colour)).rstrip())
            before = " " * columns

    def signs(self, *signs: str) -> tuple[str, ...]:
        """Return *signs*, or the same in ASCII where the others can't be printed."""
        try:
            "".join(signs).encode(getattr(self._stream, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            return tuple(sign.translate(_IN_ASCII) for sign in signs)
        return signs

    def flush(self) -> None:
        """Let go of what was printed.

        :raises OutputClosed: if nobody reads any more, or the disk is full
        """
        try:
            self._stream.flush()
        except OSError as error:
            self._close(error)

    def _close(self, error: OSError) -> NoReturn:
        # What is still in the buffer would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosed from None
        raise OutputClosed(f"standard output: {error.strerror}") from None
