"""One thing that was found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that the owner of a robots.txt would want to know."""

    line: int | None
    """From 1; None for the whole file."""
    code: str
    """The kind of finding, for filters: docs/command.md lists them."""
    message: str
    text: str = ""
    """The line as it stands in the file; bytes that are not UTF-8 as ``\\xNN``."""


def quoted(text: str) -> str:
    """Return *text* in quotes, cut to 60 characters."""
    return f'"{text if len(text) <= 60 else text[:60] + "…"}"'
