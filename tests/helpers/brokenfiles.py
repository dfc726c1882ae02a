"""SQLite files that are not as they should be."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
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


# What can happen to a file of ours that holds something. Each leaves a file at the path, or a folder.


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _overwritten(path: Path) -> None:
    """Some pages; the first one, with the tables, is not among them."""
    chance, data = random.Random(9309), bytearray(path.read_bytes())
    for _ in range(4):
        start = 4096 * chance.randrange(1, len(data) // 4096)
        data[start : start + 4096] = chance.randbytes(4096)
    path.write_bytes(data)


def _other_columns(path: Path) -> None:
    db = sqlite3.connect(path)
    for table in ("held", "pages"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, theirs)")
    db.commit()
    db.close()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "theirs").write_text("precious")


def _beside(path: Path, suffix: str, mode: str) -> None:
    """What another database had beside it when its process was killed."""
    other = path.with_name(f"{path.name}-other")
    db = sqlite3.connect(other, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("CREATE TABLE theirs (x)")
    db.execute("PRAGMA cache_size = 1")  # what is changed goes to the disk at once
    db.execute("BEGIN")
    db.executemany("INSERT INTO theirs VALUES (?)", [("x" * 1000,)] * 100)
    if mode == "WAL":
        db.execute("COMMIT")
    data = Path(f"{other}{suffix}").read_bytes()
    db.close()
    assert data
    Path(f"{path}{suffix}").write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut in two": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "some pages overwritten": _overwritten,
    "all pages overwritten": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + b"\xaa" * (path.stat().st_size - 4096)
    ),
    "header overwritten": lambda path: path.write_bytes(b"\xaa" * 4096 + path.read_bytes()[4096:]),
    "no database": lambda path: path.write_bytes(b"this is no database" * 100),
    "other columns": _other_columns,
    "a folder": _folder,
    "another's journal": lambda path: _beside(path, "-journal", "DELETE"),
    "another's WAL": lambda path: _beside(path, "-wal", "WAL"),
}
