"""SQLite files: a damaged one is set aside, never deleted; and :class:`Journal`, what must survive the
process, under JOBDIR."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

from scrapy import Spider

from scrapy_rep.engine.log import Gauge, get_logger
from scrapy_rep.engine.timers import pause

logger = get_logger(__name__)

T = TypeVar("T")

# Characters of the name of a table or index that are shown.
_SHOWN = 80


def connect(path: Path | None, seconds: float) -> sqlite3.Connection:
    """Open *path* (None: a temporary file) for any thread. Waits *seconds* for a lock."""
    db = sqlite3.connect(
        path or "", timeout=seconds, isolation_level=None, check_same_thread=False
    )
    # Otherwise one row with invalid text fails every query that meets it.
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def _schema_of(db: sqlite3.Connection) -> dict[str, str]:
    """Return the statement that made each table, index, view and trigger, by name."""
    statements = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
    )
    return {name: " ".join(str(sql).split()) for name, sql in statements}


def create_tables(db: sqlite3.Connection, schema: str) -> dict[str, list[Any]]:
    """Create the tables of *schema* in a new file. A file with others counts as damaged, and so does one
    with another index or constraint: each could make saving slow, or refuse it. Return the columns of
    each table."""
    with closing(sqlite3.connect(":memory:")) as example:
        example.executescript(schema)
        ours = _schema_of(example)
    theirs = _schema_of(db)
    if not theirs:
        db.execute("PRAGMA journal_mode = WAL")  # as long as the file exists
        db.executescript(f"BEGIN IMMEDIATE; {schema} COMMIT;")
    elif theirs != ours:
        names = sorted(
            name for name in ours.keys() | theirs if ours.get(name) != theirs.get(name)
        )
        raise sqlite3.DatabaseError(
            f"its tables are not those of scrapy-rep: {names[0]:.{_SHOWN}}"
        )
    tables = [
        name for name, statement in ours.items() if statement.startswith("CREATE TABLE")
    ]
    columns = "SELECT * FROM pragma_table_info(?)"
    return {name: db.execute(columns, (name,)).fetchall() for name in tables}


def is_damaged(error: Exception) -> bool:
    """Whether *error* says that the file itself is damaged, or isn't the one that it should be.
    Setting it aside wouldn't help against others: a lock, a full disk, a read-only folder."""
    return type(error) is sqlite3.DatabaseError


def opened(
    path: Path | None, seconds: float, set_up: Callable[[sqlite3.Connection], T]
) -> tuple[sqlite3.Connection, T]:
    """:func:`connect`; return also what *set_up* returns."""
    db = connect(path, seconds)
    try:
        return db, set_up(db)
    except BaseException:
        db.close()
        raise


def set_aside(path: Path, error: Exception, spider: Spider | None = None) -> None:
    """Rename the SQLite file at *path*, or what is left of it, with a warning; ``OSError`` if that
    fails. Windows renames nothing that a process has open. Then all stays as it is, to be tried
    again: that process will find it broken, and close it."""
    aside = path.with_name(f"{path.name}.unreadable-{time.time_ns()}")
    # The file first: if it can't be renamed, all stays together. SQLite would take the others for
    # part of the next file of that name.
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(
                aside.with_name(aside.name + suffix)
            )
    logger.warning(
        "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
        {"path": path, "error": error, "aside": aside.name},
        extra={"spider": spider},
    )


# Seconds to wait for a lock: nobody else should lock such a file, or may block the event loop.
_LOCK_SECONDS, _THREAD_LOCK_SECONDS = 0.005, 1.0
# Changes in one transaction after a failure: few, since a request may have a large body.
_AT_ONCE = 10
_LAST_ID = """
SELECT max(coalesce((SELECT max(id) FROM {table} WHERE id <= 1 << 62), 0),
           coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = '{table}'
                     AND typeof(seq) = 'integer' AND seq BETWEEN 0 AND 1 << 62), 0))
"""
# Seconds since the last failure until the log says that all works again: on a full disk, deletions
# make room for a moment, over and over.
_CALM_SECONDS = 10.0


class Journal:
    """Tables in a file. Each has rows that are put and deleted by their primary keys.

    Changes are in the file when :meth:`put` and :meth:`delete` return, and survive a kill of the
    process, but not always a power cut. What can't be written now (the disk is full or read-only, the
    file locked, damaged or not open) is kept in memory, the latest version of each row, until
    :meth:`flush` can write it. Callers see no error, and limit what they add while
    :attr:`failing_since` is set. The log says once that the file fails, and once that it works again.
    """

    def __init__(
        self,
        path: Path | None,
        schema: str,
        spider: Spider | None,
        meanwhile: str,
        if_damaged: str,
        *,
        gauge: str,
    ) -> None:
        """*path*: None for a temporary file. *schema*: ``CREATE … IF NOT EXISTS`` statements; the
        first column of a table is its key, and one is AUTOINCREMENT. For the log, *meanwhile*: what
        happens until the file works; *if_damaged*: what happens because it is damaged. *gauge*: the
        stat that is 1 while the file can't be used."""
        self.path = path
        self.failing_since: float | None = None
        """Since when the file can't be used, in seconds of the monotonic clock."""
        self.damaged = False
        """Whether the open file was found to be damaged."""
        self._name = path or "a temporary file"
        self._schema = schema
        self._spider = spider
        self._then = meanwhile, if_damaged
        crawler = getattr(
            spider, "crawler", None
        )  # a spider that nobody crawls with has none
        self._gauge = Gauge(crawler.stats if crawler is not None else None, gauge)
        self._db: sqlite3.Connection | None = None
        self._pending: dict[tuple[str, Any], tuple[Any, ...] | None] = {}
        """Rows by table and key; None: to be deleted."""
        self._writes = True
        self._failed_at = 0.0
        self._failed_read: tuple[str, tuple[Any, ...]] | None = None
        self._told = False
        self._last_ids: dict[str, int] = {}
        self._statements: dict[tuple[str, bool], str] = {}
        """By table, and whether they delete."""

    def open(self, recover: Callable[[sqlite3.Connection], T]) -> T | None:
        """Open or create the file, setting a damaged one aside. Return what *recover* finds in it;
        None if it can't be used now. Blocks."""
        how = self.path, _THREAD_LOCK_SECONDS, partial(self._set_up, recover)
        try:
            try:
                self._db, found = opened(*how)
            except sqlite3.DatabaseError as error:
                if self.path is None or not is_damaged(error):
                    raise
                set_aside(self.path, error, self._spider)
                self._db, found = opened(*how)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return None
        self.failing_since, self.damaged = None, False
        self._gauge.set(False)
        self._tell_works()
        return found

    def _set_up(
        self, recover: Callable[[sqlite3.Connection], T], db: sqlite3.Connection
    ) -> T:
        # The event loop writes: nothing waits for the disk.
        db.execute(f"PRAGMA journal_mode = {'WAL' if self.path else 'MEMORY'}")
        db.execute("PRAGMA synchronous = OFF")
        [state] = db.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state.rpartition("\n")[2])
        for table, columns in create_tables(db, self._schema).items():
            key, marks = columns[0][1], ", ".join("?" * len(columns))
            self._statements[table, False] = (
                f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608
            )
            self._statements[table, True] = f"DELETE FROM {table} WHERE {key} = ?"  # noqa: S608
            if key == "id":
                [self._last_ids[table]] = db.execute(
                    _LAST_ID.format(table=table)
                ).fetchone()
        db.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS:.0f}")
        return recover(db)

    # Rows

    def new_id(self, table: str) -> int:
        """Return the number of a new row: of tables that are numbered, one that no row has had."""
        self._last_ids[table] += 1
        return self._last_ids[table]

    def put(self, table: str, *rows: tuple[Any, ...]) -> None:
        for row in rows:
            key = table, row[0]
            self._pending.pop(
                key, None
            )  # changes are written in the order in which they came
            self._pending[key] = row
        self._write()

    def delete(self, table: str, *keys: object) -> None:
        self._pending.update(dict.fromkeys((table, key) for key in keys))
        self._write()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all changes of the block in one transaction, at its end."""
        self._writes = False
        try:
            yield
        finally:
            self._writes = True
            self._write()

    def unwritten(self, table: str, key: object) -> tuple[Any, ...] | None:
        """Return the row with this *key* if the file doesn't have it, or not this version."""
        return self._pending.get((table, key))

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of *query*: a slice. ``sqlite3.Error`` if it can't be read."""
        if self._db is None:
            raise sqlite3.OperationalError("it is not open")
        return self._db.execute(query, values).fetchall()

    def read_latest(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Like :meth:`read`, but raise while there are changes that the file doesn't have. A file
        that can't be read counts as failing."""
        if self._db is None or self.failing_since is not None:
            raise sqlite3.OperationalError("it can't be used now")
        try:
            return self.read(query, *values)
        except sqlite3.DatabaseError as error:
            self._failed_read = query, values
            self._failed(error)
            raise

    # Writing

    def _write(self) -> None:
        """Write what there is, unless that fails at present: then :meth:`flush` will."""
        if self._db is None or not self._writes or self.failing_since is not None:
            return
        try:
            self._write_some(self._db, len(self._pending))
        except sqlite3.Error as error:
            self._failed(error)

    def _write_some(self, db: sqlite3.Connection, most: int) -> None:
        """Write up to *most* changes in one transaction, the oldest first."""
        changes = dict(islice(self._pending.items(), most))
        if not changes:
            return
        with db:
            db.execute("BEGIN IMMEDIATE")
            kinds = groupby(
                changes.items(), lambda change: (change[0][0], change[1] is None)
            )
            for kind, some in kinds:
                db.executemany(
                    self._statements[kind], (row or key[1:] for key, row in some)
                )
        for key in changes:
            del self._pending[key]

    async def flush(self) -> None:
        """Try again to write what couldn't be written. To be called every second, never twice at a
        time."""
        if (db := self._db) is None:
            return
        if self.failing_since is None:
            if time.monotonic() - self._failed_at >= _CALM_SECONDS:
                self._tell_works()
            return
        try:
            if self._failed_read is not None:
                db.execute(*self._failed_read).fetchall()
                self._failed_read = None
            while self._pending and self._db is not None:
                self._write_some(db, _AT_ONCE)
                await pause()
            self.failing_since = None
            self._gauge.set(False)
        except sqlite3.Error as error:
            self._failed(error)

    def close(self) -> None:
        """Try a last time to write everything, and close the file. Blocks."""
        if self._db is None:
            return
        if self._pending and self.path and not self.damaged:
            self._db.execute(f"PRAGMA busy_timeout = {1000 * _THREAD_LOCK_SECONDS:.0f}")
            self.failing_since = None
            self._write()
            if self._pending:
                message = "Could not finish writing %(path)s: the next run may fetch some pages again"
                logger.warning(
                    message, {"path": self.path}, extra={"spider": self._spider}
                )
        if self.failing_since is None:
            self._gauge.set(False)
            self._tell_works()
        self._db.close()
        self._db = None

    # What the log says

    def _failed(self, error: Exception) -> None:
        self._failed_at = time.monotonic()
        self.failing_since = self.failing_since or self._failed_at
        self.damaged = self.damaged or is_damaged(error)
        self._gauge.set(True)
        if not self._told:
            self._told = True
            logger.warning(
                "Can't use %(path)s (%(error)s): %(then)s",
                {"path": self._name, "error": error, "then": self._then[self.damaged]},
                extra={"spider": self._spider},
            )

    def _tell_works(self) -> None:
        if self._told and not self.damaged:
            self._told = False
            values = {"path": self._name}
            logger.info(
                "%(path)s can be used again", values, extra={"spider": self._spider}
            )
