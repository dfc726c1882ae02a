"""SQLite files that can't be read are set aside: never deleted, never in the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def set_aside(path: Path) -> Path:
    """Rename the SQLite file at *path*. Return the new path.

    :raises OSError: if that is not allowed
    """
    stamp, number = f"{path.name}.unreadable-{int(time.time())}", 0
    aside = path.with_name(stamp)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{stamp}-{number}")
    # What SQLite keeps beside a file would be taken for a part of the next one of that name. It goes
    # first: as soon as the name is free, there may be a next one.
    for suffix in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + suffix)
        if suffix == "" or beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside
