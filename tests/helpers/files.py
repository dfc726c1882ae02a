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


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_rep.engine.timers._PERIOD_SECONDS", 0.1)
    for module in ("spool", "seeding"):
        monkeypatch.setattr(f"scrapy_rep.seeding.{module}.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.storages.journal._CALM_SECONDS", 0.3)
