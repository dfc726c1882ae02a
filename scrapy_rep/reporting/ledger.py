"""The figures behind the summary and the report: what came of each origin, and which lines decided.

They are buffered in memory, then moved to a temporary database, which SQLite keeps on disk beyond
some megabytes: a million origins take no more memory than a thousand."""

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

# Figures buffered in memory. Moving them to the database blocks the event loop for milliseconds.
_PENDING = 100
# Characters kept of a blocked URL, which may be a megabyte.
_URL_LENGTH = 2000

COUNTS = ("forbidden", "dropped", "held", "released", "given_up", "passed", "sitemaps")
"""What is counted for each origin: requests, and sitemaps listed in its robots.txt. ``dropped`` and
``passed``: at once, because robots.txt was unreachable."""

ASKED = "asked"
"""Counts fetches that were broken off. Those with an answer are counted by :meth:`Ledger.answered`."""

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
    """A line that decided, and how often it did."""

    origin: str
    line: int
    rule: str
    token: str
    times: int
    url: str
    """The first URL it blocked."""


class Ledger:
    """Counts in bounded memory. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._opened: sqlite3.Connection | None = None
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._rules: dict[tuple[str, int, str, str], list[Any]] = {}
        self._answers: list[dict[str, Any]] = []
        self.broken = False
        """Whether figures have been lost."""

    @property
    def _db(self) -> sqlite3.Connection:
        if self._opened is None:
            # With an empty name SQLite makes a temporary file, and deletes it on close.
            self._opened = sqlite3.connect("", isolation_level=None)
            self._opened.executescript(_TABLES)
        return self._opened

    def count(self, origin: Origin, what: str) -> None:
        """Count one more of :data:`COUNTS`, or :data:`ASKED`."""
        self._counts[str(origin), what] += 1
        self._maybe_flush()

    def forbidden(self, error: RobotsDisallowed, url: str) -> None:
        """Count a request for *url* that a line forbids, or a setting."""
        rule, token = error.decision.rule, error.decision.agent
        if rule is None:
            self.count(error.origin, "forbidden")
            return
        key = (str(error.origin), rule.line, str(rule), token or "")
        if key not in self._rules:
            self._rules[key] = [0, clean(url[:_URL_LENGTH])]
        self._rules[key][0] += 1
        self.count(error.origin, "forbidden")

    def answered(
        self,
        origin: Origin,
        outcome: Outcome,
        *,
        asked: bool,
        error: str | None,
        delay: float = 0.0,
        **figures: float | None,
    ) -> None:
        """Record what came of asking for a robots.txt.

        :param asked: whether it was fetched, not found in the storage
        :param delay: seconds between requests, as far as ``REP_CRAWL_DELAY`` grants it
        :param figures: ``status``, ``hops``, ``attempts`` (failures in a row) and ``now``
        """
        row = {"origin": str(origin), "outcome": outcome.value, "asked": asked, **figures}
        self._answers.append({**row, "error": error and clean(error), "delay": delay or None})
        self._maybe_flush()

    def _maybe_flush(self) -> None:
        if len(self._counts) + len(self._rules) + len(self._answers) >= _PENDING:
            self.flush()

    def flush(self) -> None:
        """Move everything to the database."""
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
                    "Can't write figures about robots.txt to a temporary file, so the summary and "
                    "the report will be incomplete: %(error)s",
                    {"error": error},
                )
            self.broken = True
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        self._answers.clear()
        self._counts.clear()
        self._rules.clear()

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        """Run *query* on what has been flushed."""
        return self._db.execute(query, values)

    def outcomes(self) -> dict[str | None, int]:
        """Return the number of origins by outcome. None: no answer has come."""
        return dict(self.rows("SELECT outcome, count(*) FROM origins GROUP BY outcome"))

    def total(self, what: str) -> int:
        """Return the sum of one of :data:`COUNTS` over all origins."""
        query = f"SELECT coalesce(sum({what}), 0) FROM origins"  # noqa: S608 (of COUNTS)
        [(total,)] = self.rows(query)
        return int(total)

    def size(self, table: str) -> int:
        """Return the number of rows of a table."""
        [(size,)] = self.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 (of ours)
        return int(size)

    def top_rules(self, limit: int) -> list[RuleCount]:
        """Return the lines that decided most often."""
        query = (
            "SELECT origin, line, rule, token, count, url FROM rules "
            "ORDER BY count DESC, origin, line LIMIT ?"
        )
        return [RuleCount(*row) for row in self.rows(query, (limit,))]

    def top_of_all(self, limit: int) -> list[tuple[RuleCount, int]]:
        """Return the rules that decided most often over all origins, each with its first origin and
        the number of its origins."""
        query = (
            "SELECT min(origin), line, rule, token, sum(count) AS times, url, count(DISTINCT origin) "
            "FROM rules GROUP BY rule, token ORDER BY times DESC, min(origin), line LIMIT ?"
        )
        return [(RuleCount(*row[:6]), row[6]) for row in self.rows(query, (limit,))]

    def close(self) -> None:
        """Delete everything."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
