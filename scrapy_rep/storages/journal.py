"""How SQLite files are opened, here and in `sqlite.py`: a damaged one is set aside,
never deleted. And :class:`Journal`, which keeps what must survive the process in a file
under JOBDIR (held requests in holding/disk.py, pages from sitemaps in
seeding/spool.py)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from scrapy import Spider

from scrapy_rep.engine.log import Gauge, get_logger
from scrapy_rep.engine.timers import pause

logger = get_logger(__name__)

T = TypeVar("T")

# An error shows at most this many characters of the name of a table or index, which in
# a file that isn't ours may have any length.
_NAME_LENGTH = 80


def connect(path: Path | None, seconds: float) -> sqlite3.Connection:
    """Open *path* (None: a temporary file), for use in any thread. The connection waits
    *seconds* for a lock."""
    db = sqlite3.connect(
        path or "",
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    db.text_factory = _decode
    return db


def _decode(data: bytes) -> str:
    # sqlite3 decodes text like this by default, but without "replace". Then one row
    # with invalid text would fail every query that meets the row.
    return data.decode("utf-8", "replace")


def first_row(db: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> Any:
    """Return the first row of what *query* finds in *db*; None if it finds nothing.

    All rows are read: a statement that isn't read to its end goes on, and keeps the
    file locked, until its cursor is freed. PyPy frees it at some later time."""
    rows = db.execute(query, values).fetchall()
    return rows[0] if rows else None


def _schema_of(db: sqlite3.Connection) -> dict[str, str]:
    """Return the statement that made each table, index, view and trigger, by name."""
    rows = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
    )
    statements = {}
    for name, statement in rows:
        # Line breaks and indentation make no difference.
        words = str(statement).split()
        statements[name] = " ".join(words)
    return statements


def create_tables(db: sqlite3.Connection, schema: str) -> dict[str, list[Any]]:
    """Create the tables of *schema* if the file is new. Return the columns of each
    table, by its name: rows of SQLite's ``table_info``.

    A file that has other tables counts as damaged, and so does one with another index
    or constraint, which could make saving slow, or refuse it.
    """
    # What SQLite makes of the schema, in an example, is compared with the file.
    with closing(sqlite3.connect(":memory:")) as example:
        example.executescript(schema)
        ours = _schema_of(example)
    theirs = _schema_of(db)
    if not theirs:
        first_row(db, "PRAGMA journal_mode = WAL")  # kept in the file
        db.executescript(f"BEGIN IMMEDIATE; {schema} COMMIT;")
    elif theirs != ours:
        # ^ leaves the pairs of name and statement that only one of them has.
        different = {name for name, _ in ours.items() ^ theirs.items()}
        first = min(different)[:_NAME_LENGTH]
        message = f"its tables are not those of scrapy-rep: {first}"
        raise sqlite3.DatabaseError(message)
    columns = {}
    for name, statement in ours.items():
        if statement.startswith("CREATE TABLE"):
            query = "SELECT * FROM pragma_table_info(?)"
            columns[name] = db.execute(query, (name,)).fetchall()
    return columns


def is_damaged(error: Exception) -> bool:
    """Whether *error* says that the file itself is damaged, or isn't one of ours. Only
    then does it help to set the file aside, and not against other errors: a lock, a
    full disk, a read-only folder."""
    # Other errors are of subclasses of DatabaseError, mostly OperationalError.
    return type(error) is sqlite3.DatabaseError


def opened(
    path: Path | None,
    seconds: float,
    set_up: Callable[[sqlite3.Connection], T],
) -> tuple[sqlite3.Connection, T]:
    """Open *path*, see :func:`connect`, and call *set_up* with the connection; if
    *set_up* fails, close it. Return the connection, and what *set_up* returned."""
    db = connect(path, seconds)
    try:
        return db, set_up(db)
    except BaseException:
        db.close()
        raise


def set_aside(path: Path, error: Exception, spider: Spider | None = None) -> None:
    """Rename the SQLite file at *path*, or what is left of it, with a warning;
    ``OSError`` if that fails.

    Windows renames no file that a process has open. Then the files stay as they are,
    and the caller tries again later: the other process will find the file damaged as
    well, and close it.
    """
    moment = time.time_ns()
    aside = path.with_name(f"{path.name}.unreadable-{moment}")
    # The file itself comes first: if it can't be renamed, all files stay together. The
    # other files, which SQLite keeps beside it, must go, too, since SQLite would take
    # them for part of the next file of that name.
    for suffix in ("", "-wal", "-shm", "-journal"):
        part = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            part.rename(aside.with_name(aside.name + suffix))
    logger.warning(
        "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
        {
            "path": path,
            "error": error,
            "aside": aside.name,
        },
        extra={"spider": spider},
    )


# Seconds to wait for a lock in the event loop, which must not be blocked. (Nobody else
# should lock a journal.)
_LOOP_LOCK_SECONDS = 0.005
# Seconds to wait for a lock while a journal is opened or closed, where blocking is
# allowed.
_THREAD_LOCK_SECONDS = 1.0
# After a failure, so many changes are written in one transaction: few, since a change
# may be a request with a large body.
_CHANGES_AT_ONCE = 10
# The highest number that a row of the table has, or had before it was deleted. Others
# may have written anything to the file, so numbers near the end of SQLite's integers,
# or of another type, don't count.
_LAST_ID = """
SELECT max(coalesce((SELECT max(id) FROM {table} WHERE id <= 1 << 62), 0),
           coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = '{table}'
                     AND typeof(seq) = 'integer' AND seq BETWEEN 0 AND 1 << 62), 0))
"""
# Only when the last failure is so many seconds ago, the log says that the file can be
# used again. (On a full disk, deletions make room for a moment, over and over.)
_CALM_SECONDS = 10.0


# The values of a row, as SQLite has them. The first is the key.
_Row: TypeAlias = tuple[Any, ...]
# Table and key of a row.
_Place: TypeAlias = tuple[str, Any]


class Journal:
    """Tables in a file. Each has rows that are put and deleted by their primary keys.

    Changes are in the file when :meth:`put` and :meth:`delete` return, and survive a
    kill of the process, but not always a power cut. What can't be written now (the disk
    is full or read-only, the file locked, damaged or not open) is kept in memory, as
    the latest version of each row, until :meth:`flush` can write it. Callers see no
    error, and limit what they add while :attr:`failing_since` is set. The log says once
    that the file fails, and once that it works again.
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
        """*path*: None for a temporary file. *schema*: ``CREATE … IF NOT EXISTS``
        statements; the first column of a table is its key, and one table's key is
        AUTOINCREMENT. *meanwhile*: what the log says happens until the file works;
        *if_damaged*: what it says happens because the file is damaged. *gauge*: the
        stat that is 1 while the file can't be used."""
        self.path = path
        self.failing_since: float | None = None
        """Since when the file can't be used, in seconds of the monotonic clock."""
        self.damaged = False
        """Whether the open file was found to be damaged."""
        self._name = path or "a temporary file"
        self._schema = schema
        self._spider = spider
        self._meanwhile = meanwhile
        self._if_damaged = if_damaged
        crawler = getattr(spider, "crawler", None)  # a spider of a test may have none
        stats = crawler.stats if crawler is not None else None
        self._down_stat = Gauge(stats, gauge)
        self._db: sqlite3.Connection | None = None
        """None before :meth:`open`, after :meth:`close`, and if the file could not be
        opened."""
        self._pending: dict[_Place, _Row | None] = {}
        """Changes that the file doesn't have, in the order in which they came; None:
        the row is to be deleted."""
        self._writes_at_once = True
        """Whether changes are written at once. Within :meth:`in_one_transaction`, they
        aren't."""
        self._failed_at = 0.0
        """When the file failed last, by the monotonic clock."""
        self._failed_read: tuple[str, _Row] | None = None
        """A query that failed, and its values. The file counts as working again only
        once this query works."""
        self.has_logged_failure = False
        """Whether the last thing that the log says about the file is that it can't be
        used. Otherwise, :meth:`flush` has nothing to do."""
        self._last_ids: dict[str, int] = {}
        """The number of the newest row of each table that is numbered."""
        self._put_statements: dict[str, str] = {}
        self._delete_statements: dict[str, str] = {}
        """The statements that put and delete rows, by table."""

    def open(self, recover: Callable[[sqlite3.Connection], T]) -> T | None:
        """Open or create the file, and set a damaged one aside. Return what *recover*
        returns for the connection; None if the file can't be used now. Blocks."""
        set_up = partial(self._set_up, recover)
        try:
            try:
                self._db, recovered = opened(self.path, _THREAD_LOCK_SECONDS, set_up)
            except sqlite3.DatabaseError as error:
                if self.path is None or not is_damaged(error):
                    raise
                set_aside(self.path, error, self._spider)
                self._db, recovered = opened(self.path, _THREAD_LOCK_SECONDS, set_up)
        except (sqlite3.Error, OSError) as error:
            self._note_failure(error)
            return None
        self.failing_since = None
        self.damaged = False
        self._down_stat.set(False)
        self._log_if_usable_again()
        return recovered

    def _set_up(
        self,
        recover: Callable[[sqlite3.Connection], T],
        db: sqlite3.Connection,
    ) -> T:
        """Prepare the open file, and return what *recover* returns for it."""
        # The event loop writes, so no write may wait for the disk.
        journal_mode = "WAL" if self.path else "MEMORY"
        first_row(db, f"PRAGMA journal_mode = {journal_mode}")
        db.execute("PRAGMA synchronous = OFF")
        [state] = first_row(db, "PRAGMA quick_check(1)")
        if state != "ok":
            # The first line, if there are several, only names the database.
            problem = state.rpartition("\n")[2]
            raise sqlite3.DatabaseError(problem)
        for table, columns in create_tables(db, self._schema).items():
            _, key, *_ = columns[0]
            self._prepare_statements(table, key, len(columns))
            if key == "id":  # then the table's rows are numbered
                query = _LAST_ID.format(table=table)
                [self._last_ids[table]] = first_row(db, query)
        self._set_lock_seconds(db, _LOOP_LOCK_SECONDS)
        return recover(db)

    def _prepare_statements(
        self,
        table: str,
        key: str,
        columns: int,
    ) -> None:
        """Note how to write and delete rows of *table*. *key*: the column with the
        key."""
        # A placeholder for the value of each column.
        marks = ", ".join("?" for _ in range(columns))
        put = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608 (all ours)
        delete = f"DELETE FROM {table} WHERE {key} = ?"  # noqa: S608 (all ours)
        self._put_statements[table] = put
        self._delete_statements[table] = delete

    def _set_lock_seconds(self, db: sqlite3.Connection, seconds: float) -> None:
        first_row(db, f"PRAGMA busy_timeout = {1000 * seconds:.0f}")  # milliseconds

    # Rows

    def new_id(self, table: str) -> int:
        """Return the number of a new row of a table that is numbered: one that no row
        has had."""
        self._last_ids[table] += 1
        return self._last_ids[table]

    def put(self, table: str, *rows: _Row) -> None:
        """Write *rows*, in place of those with the same keys."""
        for row in rows:
            place = table, row[0]
            # An earlier version is removed first, so that the new one comes last, since
            # changes are written in this order.
            self._pending.pop(place, None)
            self._pending[place] = row
        self._write()

    def delete(self, table: str, *keys: object) -> None:
        """Delete the rows with these *keys*."""
        for key in keys:
            self._pending[table, key] = None  # no row any more
        self._write()

    @contextmanager
    def in_one_transaction(self) -> Iterator[None]:
        """Write all changes of the block in one transaction, at its end."""
        self._writes_at_once = False
        try:
            yield
        finally:
            self._writes_at_once = True
            self._write()

    def unwritten(self, table: str, key: object) -> _Row | None:
        """Return the row with this *key* if the file lacks it, or has another version
        of it; otherwise None."""
        return self._pending.get((table, key))

    def read(self, query: str, *values: object) -> list[_Row]:
        """Return the rows of *query*, which should be few: the event loop waits for
        them. ``sqlite3.Error`` if the file can't be read."""
        if self._db is None:
            raise sqlite3.OperationalError("it is not open")
        return self._db.execute(query, values).fetchall()

    def read_latest(self, query: str, *values: object) -> list[_Row]:
        """Like :meth:`read`, but raise while there are changes that the file doesn't
        have. A file that can't be read counts as failing."""
        if self._db is None or self.failing_since is not None:
            raise sqlite3.OperationalError("it can't be used now")
        try:
            return self.read(query, *values)
        except sqlite3.DatabaseError as error:
            self._failed_read = query, values
            self._note_failure(error)
            raise

    # Writing

    def _write(self) -> None:
        """Write what is pending. If writing fails at present, leave it to
        :meth:`flush`."""
        if (
            self._db is None
            or not self._writes_at_once
            or self.failing_since is not None
        ):
            return
        try:
            self._write_oldest(self._db, len(self._pending))
        except sqlite3.Error as error:
            self._note_failure(error)

    def _write_oldest(self, db: sqlite3.Connection, most: int) -> None:
        """Write up to *most* changes in one transaction, the oldest first."""
        changes = dict(islice(self._pending.items(), most))
        if not changes:
            return
        with db:
            db.execute("BEGIN IMMEDIATE")
            for (table, key), row in changes.items():
                if row is None:
                    db.execute(self._delete_statements[table], (key,))
                else:
                    db.execute(self._put_statements[table], row)
        for place in changes:
            del self._pending[place]

    async def flush(self) -> None:
        """Try again to write what couldn't be written. To be called every second, never
        twice at a time."""
        db = self._db
        if db is None:
            return
        if self.failing_since is None:  # so everything is written
            if time.monotonic() - self._failed_at >= _CALM_SECONDS:
                self._log_if_usable_again()
            return
        try:
            # Try the query again that failed, and then write.
            if self._failed_read is not None:
                query, values = self._failed_read
                db.execute(query, values).fetchall()
                self._failed_read = None
            # close() may be called during a pause.
            while self._pending and self._db is not None:
                self._write_oldest(db, _CHANGES_AT_ONCE)
                await pause()
            self.failing_since = None
            self._down_stat.set(False)
        except sqlite3.Error as error:
            self._note_failure(error)

    def close(self) -> None:
        """Try a last time to write everything, and close the file. Blocks."""
        if self._db is None:
            return
        if self._pending and self.path and not self.damaged:
            self._set_lock_seconds(self._db, _THREAD_LOCK_SECONDS)
            self.failing_since = None  # so that _write() tries
            self._write()
            if self._pending:
                logger.warning(
                    "Could not finish writing %(path)s: the next run may fetch some pages again",
                    {"path": self.path},
                    extra={"spider": self._spider},
                )
        if self.failing_since is None:
            self._down_stat.set(False)
            self._log_if_usable_again()
        self._db.close()
        self._db = None

    # What the log says

    def _note_failure(self, error: Exception) -> None:
        """Note that the file can't be used, because of *error*. Log this unless the log
        says so already."""
        self._failed_at = time.monotonic()
        self.failing_since = self.failing_since or self._failed_at
        self.damaged = self.damaged or is_damaged(error)
        self._down_stat.set(True)
        if self.has_logged_failure:
            return
        self.has_logged_failure = True
        consequence = self._if_damaged if self.damaged else self._meanwhile
        logger.warning(
            "Can't use %(path)s (%(error)s): %(consequence)s",
            {
                "path": self._name,
                "error": error,
                "consequence": consequence,
            },
            extra={"spider": self._spider},
        )

    def _log_if_usable_again(self) -> None:
        """Log that the file can be used again, if the last thing that the log says
        about it is that it can't, and it isn't damaged."""
        if not self.has_logged_failure or self.damaged:
            return
        self.has_logged_failure = False
        logger.info(
            "%(path)s can be used again",
            {"path": self._name},
            extra={"spider": self._spider},
        )
