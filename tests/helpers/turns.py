"""Tests that measure run while no other test does, whatever other workers there are.

A test takes part in a lock that it shares with the others; one that is to be alone takes that lock
for itself. The door before it keeps those that come later from passing one that waits.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(root: Path, *, alone: bool) -> Iterator[None]:
    """Wait for a place among the tests of the checkout at *root*, and keep it meanwhile."""
    folder = root / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    with (folder / "door").open("a") as door, (folder / "room").open("a") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
