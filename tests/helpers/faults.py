"""What can happen to a SQLite file under JOBDIR: it begins, and perhaps ends, while a crawl is
running."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from scrapy.core.scheduler import Scheduler

from tests.helpers import crawling
from tests.helpers.brokenfiles import DAMAGES
from tests.helpers.crawling import CrawlResult


class OnlyInMemory(Scheduler):
    """Scrapy's own, but nothing of it is on the disk."""

    def _dq(self) -> None:
        return None


class Shared(sqlite3.Connection):
    """Threads use it by turns: else one gets another's errors, or SQLite crashes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lock = Lock()

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        with self.lock:
            return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        with self.lock:
            return super().executemany(*arguments)

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        with self.lock:
            return super().executescript(*arguments)

    def close(self) -> None:
        with self.lock:
            super().close()


class Fault:
    """Something that happens to a file: it begins, and perhaps ends."""

    words = ""
    """What the log says of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on = False
        self.connections: list[sqlite3.Connection] = []

    def connect(self, path: Path | None, seconds: float = 0, **options: Any) -> sqlite3.Connection:
        """As the package's own, with the fault."""
        options = {"factory": Shared, "isolation_level": None, **options}
        made: sqlite3.Connection = sqlite3.connect(
            path or "", timeout=0.2, check_same_thread=False, **options
        )
        if path == self.path:
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
            with suppress(sqlite3.ProgrammingError):  # it was closed
                self.change(connection)

    def change(self, connection: sqlite3.Connection) -> None: ...

    @contextmanager
    def possible(self) -> Iterator[Fault]:
        """Files that the package opens meanwhile have the fault, when it begins."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("scrapy_rep.storages.journal.connect", self.connect)
            yield self


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


class Corrupted(Fault):
    words = "malformed"
    damage = staticmethod(DAMAGES["all pages overwritten"])

    def connect(self, path: Path | None, seconds: float = 0, **options: Any) -> sqlite3.Connection:
        made = super().connect(path, **options)
        made.execute("PRAGMA cache_size = 1")  # what is in memory would hide it
        return made

    def begin(self) -> None:
        other = sqlite3.connect(self.path, isolation_level=None)
        while other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            pass  # a thread of the journal's is making one
        other.close()
        self.damage(self.path)

    def end(self) -> None: ...


FAULTS: dict[str, type[Fault]] = {"full": Full, "read-only": ReadOnly, "locked": Locked}


def some(*names: str) -> Any:
    """For tests of these faults, by the fixture `fault`, on each kind of event loop."""
    values = [pytest.param(FAULTS[name], id=name, marks=pytest.mark.loop) for name in names]
    return pytest.mark.parametrize("fault", values, indirect=True)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon, and what hangs fails soon."""
    monkeypatch.setattr(crawling, "CRAWL_TIMEOUT", 20.0)
    monkeypatch.setattr("scrapy_rep.engine.timers._PERIOD_SECONDS", 0.1)
    monkeypatch.setattr("scrapy_rep.holding.gate._RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.seeding.feeder._RETRY_SECONDS", 0.05)
    for module in ("spool", "feeder", "loader"):
        monkeypatch.setattr(f"scrapy_rep.seeding.{module}.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.storages.journal._CALM_SECONDS", 0.3)


def assert_no_tracebacks(result: CrawlResult) -> None:
    for one in result.records:
        assert "Traceback" not in one.getMessage()
        assert not one.exc_info or one.levelname == "DEBUG", one.getMessage()
