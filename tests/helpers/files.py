"""SQLite files as others see them, or change them; and what is tried again, soon."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


def aside(path: Path) -> list[Path]:
    """What was set aside, the parts of it that SQLite keeps beside a file apart."""
    found = path.parent.glob(f"{path.name}.unreadable-*")
    return sorted(one for one in found if not one.name.endswith(("-wal", "-shm")))


def ask(path: Path, query: str) -> Any:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchone()[0]


def change(path: Path, query: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(query, values)


def script(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(";".join(statements))


def connections_to(
    path: Path | None, monkeypatch: pytest.MonkeyPatch
) -> list[sqlite3.Connection]:
    """From now on, those that the package opens to this file (None: to a temporary one), as they come."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(database, *arguments, **options)
        if str(database) == str(path or ""):
            made.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", noted)
    return made


def impatient_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once, and a process that is locked out hardly waits."""
    monkeypatch.setattr("scrapy_rep.storages.client._RETRY_SECONDS", 0.001)
    monkeypatch.setattr("scrapy_rep.storages.sqlite._LOCK_SECONDS", 0.05)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be written is tried again soon."""
    monkeypatch.setattr("scrapy_rep.engine.timers._PERIOD_SECONDS", 0.1)
    for module in ("spool", "seeding"):
        monkeypatch.setattr(f"scrapy_rep.seeding.{module}.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.storages.journal._CALM_SECONDS", 0.3)
