"""Reads records: files of JSON lines, packed or not. Whoever wrote them, nothing in them makes this
fail, and memory is bounded."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """How many lines are not records."""
        self.cut = False
        """Whether the file ends in the middle."""

    def __iter__(self) -> Iterator[Line]:
        try:
            while line := self._file.readline(_MAX_LINE):
                if len(line) == _MAX_LINE and not line.endswith(b"\n"):
                    self._skip()
                    continue
                try:
                    found = json.loads(line.decode())
                except (ValueError, RecursionError):
                    self.unreadable += not line.isspace()
                    continue
                if isinstance(found, dict) and isinstance(found.get("verdict"), str):
                    yield Line(found)
                else:
                    self.unreadable += 1
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut = True

    def _skip(self) -> None:
        self.unreadable += 1
        while (rest := self._file.readline(_MAX_LINE)) and not rest.endswith(b"\n"):
            pass


class Line:
    """A JSON object whose values may be anything."""

    __slots__ = ("fields",)

    def __init__(self, fields: object) -> None:
        self.fields: dict[str, Any] = fields if isinstance(fields, dict) else {}

    def text(self, name: str, most: int = _MAX_TEXT) -> str:
        """Return a text, cut to size; nothing for any other value."""
        value = self.fields.get(name)
        return value[:most] if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """Return a number that makes sense, 0 for any other value."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 (not a number)
            return 0
        return int(min(max(value, 0), _MAX_NUMBER))

    def seconds(self, name: str) -> float | None:
        """Return the time in an ISO 8601 text."""
        try:
            return datetime.fromisoformat(self.text(name, 40).replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            return None

    def flag(self, name: str) -> bool:
        """Return whether a value is true itself."""
        return self.fields.get(name) is True

    def part(self, name: str) -> Line:
        """Return an object, an empty one for any other value."""
        return Line(self.fields.get(name))

    def parts(self, name: str, most: int) -> list[Line]:
        """Return the first objects of a list, empty ones for other values."""
        return [Line(one) for one in self._items(name, most)]

    def texts(self, name: str, most: int) -> list[str]:
        """Return the texts among the first values of a list."""
        return [one[:_MAX_TEXT] for one in self._items(name, most) if isinstance(one, str)]

    def _items(self, name: str, most: int) -> list[Any]:
        found = self.fields.get(name)
        return found[:most] if isinstance(found, list) else []
