"""What can happen to one of our files, and to the disk that it is on."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tests.helpers.files import script


def _overwritten(path: Path) -> None:
    """Some pages; the first one, with the tables, is not among them."""
    chance, data = random.Random(9309), bytearray(path.read_bytes())
    for _ in range(4):
        start = 4096 * chance.randrange(1, len(data) // 4096)
        data[start : start + 4096] = chance.randbytes(4096)
    path.write_bytes(data)


def _other_columns(path: Path) -> None:
    for table in ("held", "pages"):
        columns = "(id INTEGER PRIMARY KEY AUTOINCREMENT, theirs)"
        script(path, f"DROP TABLE IF EXISTS {table}", f"CREATE TABLE {table} {columns}")


def _other_index(path: Path) -> None:
    """Something that nobody but us should change: on whichever table there is."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute(query)]
    script(path, *(f"CREATE INDEX theirs_{name} ON {name} (1)" for name in tables))


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
    "cut in two": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "some pages overwritten": _overwritten,
    "all pages overwritten": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + b"\xaa" * (path.stat().st_size - 4096)
    ),
    "header overwritten": lambda path: path.write_bytes(
        b"\xaa" * 4096 + path.read_bytes()[4096:]
    ),
    "no database": lambda path: path.write_bytes(b"this is no database" * 100),
    "other columns": _other_columns,
    "other index": _other_index,
    "another's journal": lambda path: _beside(path, "-journal", "DELETE"),
    "another's WAL": lambda path: _beside(path, "-wal", "WAL"),
}


class Disk:
    def __init__(self, folder: Path, size: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.filler = folder / "filler"
        self._mount(
            "-t", "tmpfs", "-o", f"size={size}", "scrapy-rep-tests", str(folder)
        )

    def _mount(self, *arguments: str) -> None:
        try:
            subprocess.run(["mount", *arguments], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("may not mount file systems: needs root")

    def read_only(self, on: bool = True) -> None:
        self._mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.folder))

    def fill(self) -> None:
        file = os.open(self.filler, os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(file, b"\0" * 512)
        except OSError:
            pass
        finally:
            os.close(file)

    def close(self) -> None:
        subprocess.run(
            ["umount", "-l", str(self.folder)], check=False, capture_output=True
        )


class SharedConnection(sqlite3.Connection):
    """Threads use it by turns: else one gets another's errors, or SQLite crashes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        lock = Lock()
        for name in ("execute", "executemany", "executescript", "close"):
            setattr(self, name, _by_turns(lock, getattr(self, name)))


def _by_turns(lock: Lock, method: Callable[..., Any]) -> Callable[..., Any]:
    def locked(*arguments: Any) -> Any:
        with lock:
            return method(*arguments)

    return locked


class Fault:
    words = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on = False
        self.connections: list[sqlite3.Connection] = []

    def connect(
        self, path: Path | None, seconds: float = 0, **options: Any
    ) -> sqlite3.Connection:
        """As the package's own, with the fault."""
        options = {"factory": SharedConnection, "isolation_level": None, **options}
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

    def connect(
        self, path: Path | None, seconds: float = 0, **options: Any
    ) -> sqlite3.Connection:
        made = super().connect(path, **options)
        made.execute("PRAGMA cache_size = 1")  # what is in memory would hide it
        return made

    def begin(self) -> None:
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        self.damage(self.path)

    def end(self) -> None: ...


FAULTS: dict[str, type[Fault]] = {"full": Full, "read-only": ReadOnly, "locked": Locked}
