"""What can happen to the file of a hold: it begins, and perhaps ends, while a crawl is running."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from scrapy.core.scheduler import Scheduler


class OnlyInMemory(Scheduler):
    """Scrapy's own, but nothing of it is on the disk."""

    def _dq(self) -> None:
        return None


class Fault:
    """Something that happens to a file: it begins, and perhaps ends."""

    words = ""
    """What the log says of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on = False
        self.connections: list[sqlite3.Connection] = []

    def connect(self, path: Path, lock_seconds: float, **options: Any) -> sqlite3.Connection:
        """As the hold's own, with the fault."""
        made = sqlite3.connect(
            path, timeout=lock_seconds, isolation_level=None, check_same_thread=False, **options
        )
        self.connections.append(made)
        if self.on:
            self.change(made)
        return made

    def begin(self) -> None:
        self.on = True
        self.change_all()

    def end(self) -> None:
        self.on = False
        self.change_all()

    def change_all(self) -> None:
        for connection in self.connections:
            try:
                self.change(connection)
            except sqlite3.ProgrammingError:
                continue  # it was closed

    def change(self, connection: sqlite3.Connection) -> None: ...


class Full(Fault):
    words = "database or disk is full"

    def change(self, connection: sqlite3.Connection) -> None:
        # No less than there are.
        connection.execute(f"PRAGMA max_page_count = {1 if self.on else 1_000_000}")


class ReadOnly(Fault):
    words = "readonly database"

    def change(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA query_only = {int(self.on)}")


class Locked(Fault):
    words = "database is locked"

    def begin(self) -> None:
        self.other = sqlite3.connect(self.path, isolation_level=None)
        self.other.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        self.other.close()


class Deleted(Fault):
    words = "it was deleted"

    def begin(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def end(self) -> None: ...


class Corrupted(Fault):
    words = ""

    def begin(self) -> None:
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        data = self.path.read_bytes()
        self.path.write_bytes(data[:4096] + b"\xaa" * (len(data) - 4096))

    def end(self) -> None: ...


class Slow(Fault):
    words = "writing takes long"

    def connect(self, path: Path, lock_seconds: float, **options: Any) -> sqlite3.Connection:
        fault = self

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                if fault.on and statement.startswith("COMMIT"):
                    time.sleep(0.03)
                return super().execute(statement, *values)

        return super().connect(path, lock_seconds, factory=Connection)
