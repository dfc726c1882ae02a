"""What came of each origin and which lines decided, however many there are: the figures of the
summary and of the report.

Figures gather in memory and go to a temporary database, which SQLite keeps on disk beyond some
megabytes and deletes at the end. A crawl of a million origins has no more of them in memory than
one of a thousand.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.exceptions import RobotsDisallowed
    from scrapy_rep.protocol import Origin
    from scrapy_rep.protocol.availability import Outcome

logger = get_logger(__name__)

# This many figures gather in memory before they go to the database, which takes a few milliseconds
# of the event loop.
_PENDING = 100
# Characters of an example of a blocked URL, which may be a megabyte.
_URL_LENGTH = 2000

COUNTS = ("forbidden", "dropped", "held", "released", "given_up", "passed", "sitemaps")
"""What is counted for each origin: requests, and sitemaps that its robots.txt lists. ``dropped``
and ``passed``: at once, because there was nothing to decide by."""

ASKED = "asked"
"""What is counted of fetches of robots.txt that brought no answer; answers count themselves."""

_TABLES = f"""
CREATE TABLE origins (origin TEXT PRIMARY KEY, outcome TEXT, status INTEGER, hops INTEGER,
    asked INTEGER NOT NULL DEFAULT 0, error TEXT, delay REAL,
    {", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in COUNTS)}) WITHOUT ROWID;
CREATE TABLE rules (origin TEXT, line INTEGER, rule TEXT, token TEXT, count INTEGER, url TEXT,
    PRIMARY KEY (origin, line, token, rule)) WITHOUT ROWID;
CREATE TABLE spells (origin TEXT, began REAL, seen REAL, ended REAL, attempts INTEGER, error TEXT);
CREATE INDEX open_spells ON spells (origin) WHERE ended IS NULL;
"""

_ANSWER = """
INSERT INTO origins (origin, outcome, status, hops, asked, error, delay)
VALUES (:origin, :outcome, :status, :hops, :asked, :error, :delay)
ON CONFLICT DO UPDATE SET outcome = :outcome, status = :status, hops = :hops, asked = asked + :asked,
    error = coalesce(:error, error), delay = :delay
"""
_SPELL_GOES_ON = """
UPDATE spells SET attempts = :attempts, error = :error, seen = :now
WHERE origin = :origin AND ended IS NULL
"""
_SPELL_BEGINS = "INSERT INTO spells VALUES (:origin, :now, :now, NULL, :attempts, :error)"
_SPELL_ENDS = "UPDATE spells SET ended = :now WHERE origin = :origin AND ended IS NULL"

_RULE = """
INSERT INTO rules VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count
"""


class RuleCount(NamedTuple):
    """A line that decided, and how often."""

    origin: str
    line: int
    rule: str
    token: str
    times: int
    url: str
    """The first that it blocked."""


class Ledger:
    """Counts without end in bounded memory. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._opened: sqlite3.Connection | None = None
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._rules: dict[tuple[str, int, str, str], list[Any]] = {}
        self._answers: list[dict[str, Any]] = []
        self.broken = False
        """Whether something could not be written down."""

    @property
    def _db(self) -> sqlite3.Connection:
        if self._opened is None:
            # An empty name: a file of SQLite's own that is gone when it is closed. The report
            # reads it in a thread, when nobody writes any more.
            self._opened = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._opened.executescript(_TABLES)
        return self._opened

    def count(self, origin: Origin, what: str) -> None:
        """Count one more of :data:`COUNTS`, or :data:`ASKED`."""
        self._counts[str(origin), what] += 1
        self._maybe_flush()

    def forbidden(self, error: RobotsDisallowed, url: str) -> None:
        """Count a request, for *url*, that a line forbids."""
        rule, token = error.decision.rule, error.decision.agent
        assert rule is not None
        key = (str(error.origin), rule.line, str(rule), token or "")
        known = self._rules.get(key)
        if known is None:
            self._rules[key] = [1, clean(url[:_URL_LENGTH])]
        else:
            known[0] += 1
        self.count(error.origin, "forbidden")

    def answered(
        self,
        origin: Origin,
        outcome: Outcome,
        *,
        asked: bool,
        status: int | None,
        hops: int,
        error: str | None,
        attempts: int,
        now: float,
        delay: float = 0.0,
    ) -> None:
        """Write down what came of asking for a robots.txt.

        :param asked: whether by us; else it was found in the storage
        :param attempts: failures in a row, 0 if this was none
        :param delay: seconds between requests, as far as ``REP_CRAWL_DELAY`` grants it
        """
        self._answers.append(
            {
                "origin": str(origin),
                "outcome": outcome.value,
                "asked": int(asked),
                "status": status,
                "hops": hops,
                "error": clean(error) if error is not None else None,
                "attempts": attempts,
                "now": now,
                "delay": delay or None,
            }
        )
        self._maybe_flush()

    def _maybe_flush(self) -> None:
        if len(self._counts) + len(self._rules) + len(self._answers) >= _PENDING:
            self.flush()

    def flush(self) -> None:
        """Write everything to the database."""
        try:
            self._db.execute("BEGIN")
            for answer in self._answers:
                self._db.execute(_ANSWER, answer)
                if not answer["attempts"]:
                    self._db.execute(_SPELL_ENDS, answer)
                elif not self._db.execute(_SPELL_GOES_ON, answer).rowcount:
                    self._db.execute(_SPELL_BEGINS, answer)
            for name in (*COUNTS, ASKED):
                self._db.executemany(
                    f"INSERT INTO origins (origin, {name}) VALUES (?, ?) "  # noqa: S608 (of COUNTS)
                    f"ON CONFLICT DO UPDATE SET {name} = {name} + excluded.{name}",
                    [(origin, n) for (origin, what), n in self._counts.items() if what == name],
                )
            self._db.executemany(_RULE, [(*key, *value) for key, value in self._rules.items()])
            self._db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (a full disk, or a number that SQLite can't take)
            if not self.broken:
                logger.warning(
                    "Figures about robots.txt can't be written to a temporary file, so those of "
                    "the summary and the report are too low: %(error)s",
                    {"error": error},
                )
            self.broken = True
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        self._answers.clear()
        self._counts.clear()
        self._rules.clear()

    def rows(
        self, query: str, values: tuple[Any, ...] | dict[str, Any] = ()
    ) -> Iterable[tuple[Any, ...]]:
        """Return what *query* finds in what has been flushed."""
        return self._db.execute(query, values)

    def outcomes(self) -> dict[str | None, int]:
        """Return how many origins there are of each outcome; None: no answer has come."""
        return dict(self.rows("SELECT outcome, count(*) FROM origins GROUP BY outcome"))

    def total(self, what: str) -> int:
        """Return the sum of one of :data:`COUNTS` over all origins."""
        query = f"SELECT coalesce(sum({what}), 0) FROM origins"  # noqa: S608 (of COUNTS)
        [(total,)] = self.rows(query)
        return int(total)

    def size(self, table: str) -> int:
        """Return how many rows a table has."""
        [(size,)] = self.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 (of ours)
        return int(size)

    def top_rules(self, limit: int) -> list[RuleCount]:
        """Return the lines that decided most often."""
        found = self.rows(
            "SELECT origin, line, rule, token, count, url FROM rules "
            "ORDER BY count DESC, origin, line LIMIT ?",
            (limit,),
        )
        return [RuleCount(*row) for row in found]

    def top_of_all(self, limit: int) -> list[tuple[RuleCount, int]]:
        """Return the rules that decided most often, whatever origins have them: each with the first
        of its origins, and how many these are."""
        found = self.rows(
            "SELECT min(origin), line, rule, token, sum(count) AS times, url, count(DISTINCT origin) "
            "FROM rules GROUP BY rule, token ORDER BY times DESC, min(origin), line LIMIT ?",
            (limit,),
        )
        return [(RuleCount(*row[:6]), row[6]) for row in found]

    def close(self) -> None:
        """Forget everything."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
