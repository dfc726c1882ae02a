"""SQLite files that are not as they should be, and what can happen to one under JOBDIR while a crawl is
running."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest


def aside(path: Path) -> list[Path]:
    """What was set aside, the parts of it that SQLite keeps beside a file apart."""
    found = path.parent.glob(f"{path.name}.unreadable-*")
    return sorted(one for one in found if not one.name.endswith(("-wal", "-shm")))


def ask(path: Path, query: str) -> Any:
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchone()[0]
    finally:
        db.close()


def change(path: Path, query: str, *values: Any) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(query, values)
    db.close()


def script(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(";".join(statements))
    db.close()


# What can happen to a file of ours that holds something. Each leaves a file at the path.


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr("scrapy_rep.engine.timers._PERIOD_SECONDS", 0.1)
    monkeypatch.setattr("scrapy_rep.holding.gate._RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.seeding.seeding._RETRY_SECONDS", 0.05)
    for module in ("spool", "seeding"):
        monkeypatch.setattr(f"scrapy_rep.seeding.{module}.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.storages.journal._CALM_SECONDS", 0.3)
