"""SQLite files that are not as they should be."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from scrapy_rep.storages import SqliteStorage
from tests.helpers.storing import rules


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


def foreign(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE entries (origin TEXT, theirs TEXT)")
    db.execute("INSERT INTO entries VALUES ('x', 'precious')")
    db.commit()
    db.close()


def marked(path: Path) -> None:
    """A database of a program that marks its files, still empty but for that."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 42")
    db.execute("CREATE TABLE theirs (x)")
    db.close()


def damaged(path: Path, start: int = 4096) -> None:
    """One of ours with garbage from its second page on."""
    storage = SqliteStorage(path)
    for number in range(300):
        storage.save(rules(f"http://{number}:80", b"%d" % number * 100))
    storage.close()
    data = path.read_bytes()
    assert len(data) > start + 4096
    path.write_bytes(data[:start] + b"\xaa" * (len(data) - start))


BROKEN = {
    "text": lambda path: path.write_text("User-agent: *\n" * 100),
    "short": lambda path: path.write_bytes(b"short"),
    "header alone": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "header and garbage": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xaa" * 8176),
    "another program's": foreign,
    "another program's, marked": marked,
    "damaged within": damaged,
    "header damaged": lambda path: damaged(path, 0),
}
