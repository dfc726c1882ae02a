"""What commands print to standard output, and the progress line on standard error."""

from __future__ import annotations

import csv
import errno
import io
import os
from tempfile import TemporaryFile
from typing import Any

import pytest

from scrapy_rep.commands.output import Ending, Output, Progress, Status


class Terminal(io.StringIO):
    encoding: Any = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(
        "scrapy_rep.commands.output.shutil.get_terminal_size",
        lambda: os.terminal_size((80, 24)),
    )
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_progress_takes_one_line(terminal: Terminal) -> None:
    Progress(terminal).tell("é" * 100)
    assert terminal.getvalue() == "\r\x1b[K" + (r"\xe9" * 20)[:79]


def test_progress_is_removed_before_something_else_is_printed(terminal: Terminal) -> None:
    progress = Progress(terminal)
    progress.clear()
    assert terminal.getvalue() == ""
    progress.tell("waiting")
    progress.clear()
    assert terminal.getvalue().endswith("waiting\r\x1b[K")


def test_labels_are_aligned_and_texts_never_wrapped(terminal: Terminal) -> None:
    long = "a word " * 50 + "end"
    Output(terminal).block("title", [("a", long), ("label", "")])
    plain = terminal.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == f"title\n  a      {long}\n  label\n"


def test_cells_of_csv_are_quoted_where_they_must_be() -> None:
    stream = io.StringIO()
    cells = ['a "b", c', None, 3, "x\ny", "é"]
    Output(stream).csv(cells)
    assert list(csv.reader([stream.getvalue()])) == [['a "b", c', "", "3", "x\\x0ay", "é"]]


@pytest.mark.parametrize(
    ("error", "windows", "message", "status"),
    [
        (errno.EPIPE, False, "", Status.GOOD),
        (errno.EINVAL, True, "", Status.GOOD),
        (errno.EINVAL, False, "standard output: Invalid argument", Status.USAGE),
        (errno.ENOSPC, True, "standard output: No space left on device", Status.USAGE),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, error: int, windows: bool, message: str, status: Status
) -> None:
    """On Windows, writing to its pipe is an invalid argument."""
    if windows:
        gone = {errno.EPIPE, errno.EINVAL}
        monkeypatch.setattr("scrapy_rep.commands.output._READER_GONE", gone)
    with TemporaryFile("w") as file:

        class Pipe(io.StringIO):
            fileno = file.fileno

            def flush(self) -> None:
                raise OSError(error, os.strerror(error))

        with pytest.raises(Ending, match=f"^{message}$") as raised:
            Output(Pipe()).flush()
    assert raised.value.status is status
