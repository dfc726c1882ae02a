"""Complete lines or none: how a file grows whose disk may be full at any moment."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from contextlib import suppress
from typing import IO

# There may be room again.
_FULL = {errno.ENOSPC, errno.EDQUOT}


class DiskFull(OSError):
    """There is no room now. The file ends with a complete line."""


class LineFile:
    """Appends lines to a file that a feed storage has opened."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._raw = _raw(file)

    def write(self, lines: list[bytes]) -> None:
        """Append *lines*, and take those that were written out of the list.

        :raises DiskFull: if the others can be written later
        :raises OSError, ValueError: if nothing more can be written
        """
        data = b"".join(lines)
        raw = self._raw
        if raw is None:
            self.file.write(data)
            self.file.flush()
            lines.clear()
            return
        # Past the buffer, which would keep what finds no room and write it later.
        done = 0
        try:
            while done < len(data):
                done += raw.write(memoryview(data)[done:]) or 0
        except OSError as error:
            self._end_with_a_line(raw, lines, done)
            if error.errno in _FULL:
                raise DiskFull(error.errno, error.strerror) from None
            raise
        lines.clear()

    def _end_with_a_line(self, raw: io.FileIO, lines: list[bytes], done: int) -> None:
        """Of *done* bytes that were written, take back those of a line that is not complete."""
        while lines and len(lines[0]) <= done:
            done -= len(lines.pop(0))
        if done:
            end = os.fstat(raw.fileno()).st_size
            # Another process may have appended since: its lines are not ours to cut off.
            if end == raw.tell():
                raw.truncate(end - done)
                raw.seek(end - done)

    def close(self) -> None:
        """Give up."""
        if self.file is not getattr(sys.stdout, "buffer", None):
            with suppress(OSError):
                self.file.close()


def _raw(file: IO[bytes]) -> io.FileIO | None:
    """The file below the buffer, if it is one on a disk; what is neither is written as it comes."""
    try:
        if file is getattr(sys.stdout, "buffer", None):
            return None  # others write to it too
        file.flush()
        raw = getattr(file, "raw", None)
        if isinstance(raw, io.FileIO) and stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raw.seek(0, io.SEEK_END)
            return raw
    except (OSError, ValueError):
        pass
    return None
