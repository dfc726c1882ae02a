"""Tests that measure run while no other test does, whatever other workers there are.

A test takes part in a lock that it shares with the others; one that is to be alone takes that lock
for itself. The door before it keeps those that come later from passing one that waits.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


class Turns:
    """The turns of one worker's tests, one after the other."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held = ExitStack()
        self._stays = False

    @contextmanager
    def turn(self, *, alone: bool, next_alone: bool) -> Iterator[None]:
        """Like :func:`turn`. Those that are to be alone one after the other keep the lock: the
        workers would stand still for each of them again."""
        if not self._stays:
            self._held.enter_context(turn(self._root, alone=alone))
        self._stays = alone and next_alone
        try:
            yield
        finally:
            if not self._stays:
                self._held.close()
