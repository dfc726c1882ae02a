"""Reads records: files of JSON lines, packed or not. Whoever wrote them, nothing in them makes this
fail, and memory is bounded."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Line: TypeAlias = "dict[str, Any]"

_MAX_LINE = 1 << 22
_MAX_TEXT = 2000
_MAX_NUMBER = 10**15


class LineReader:
    """Reads one file."""

    def __init__(self, file: IO[bytes]) -> None:
        """:param file: at its beginning, seekable"""
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._file: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
        self.unreadable = 0
        """How many lines are none of a record."""
        self.cut = False
        """Whether the file ends in the middle."""

    def __iter__(self) -> Iterator[Line]:
        while line := self._next():
            try:
                found = json.loads(line.decode())
            except (ValueError, RecursionError):
                self.unreadable += not line.isspace()
                continue
            if isinstance(found, dict) and isinstance(found.get("verdict"), str):
                yield found
            else:
                self.unreadable += 1

    def _next(self) -> bytes:
        try:
            line = self._file.readline(_MAX_LINE)
            while len(line) == _MAX_LINE and not line.endswith(b"\n"):
                self.unreadable += 1
                while (rest := self._file.readline(_MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
                line = self._file.readline(_MAX_LINE)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut = True
            return b""
        return line


def text(value: object) -> str:
    """Return *value* if it is text, cut to size, else nothing."""
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return *value* if it is a number that makes sense, else 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # noqa: PLR0124 (not a number)
        return 0
    return int(min(max(value, 0), _MAX_NUMBER))


def seconds(value: object) -> float | None:
    """Return the time in an ISO 8601 text."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value[:40].replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return *value* if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def texts(value: object, most: int) -> list[str]:
    """Return the first texts in a list."""
    return (
        [text(one) for one in value[:most] if isinstance(one, str)]
        if isinstance(value, list)
        else []
    )
