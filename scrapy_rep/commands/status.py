"""Exit statuses of ``scrapy robots``."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """What the process ends with. Of several the gravest counts, see :func:`gravest`."""

    GOOD = 0
    """All URLs are allowed; nothing was found."""
    FOUND = 1
    """Some URL is disallowed; something was found."""
    USAGE = 2
    """Wrong options, or input that can't be read. What could be read is answered all the same."""
    UNREACHABLE = 3
    """Some robots.txt was unreachable."""


_GRAVITY = (Status.GOOD, Status.FOUND, Status.UNREACHABLE, Status.USAGE)


def gravest(*statuses: Status) -> Status:
    """Return the gravest: a disallowed URL is an answer, an unreachable one is none, and a typing
    error comes first."""
    return max(statuses, key=_GRAVITY.index, default=Status.GOOD)
