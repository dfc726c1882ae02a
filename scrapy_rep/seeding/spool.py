"""What sitemaps list and the crawl has not requested yet, in a SQLite file: under JOBDIR if there
is one, else in a temporary file, which SQLite deletes itself.

Once a page went to the scheduler, its row is below its site's cursor, and stays there until the page
is done. The next run requests it again: nothing is lost, and after a kill a few pages come twice.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.seeding.patience import Patience
from scrapy_rep.seeding.spool_file import FILE_NAME, SitemapTable, SpoolFile, entry_of
from scrapy_rep.storages.sqlite_file import open_or_set_aside, transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Spider

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.selection import SpiderOptions

logger = get_logger(__name__)

Row = tuple[int, int, str, "str | None", "str | None"]
"""Of a page: site, sitemap, url, lastmod (None: it is in the entry), entry (JSON; in older files a
list, its alternate URLs)."""

_LAST = 2**63 - 1  # the highest row number


class Page(NamedTuple):
    """A page to be requested."""

    id: int
    url: str
    entry: dict[str, Any]
    sitemap: str
    again: bool  # whether it went to the scheduler before, in a run that ended before it was done


@dataclass(slots=True)
class _Site:
    """A site with pages waiting."""

    waiting: int = 0
    sent: int = 0  # the last row that went to the scheduler before, and is taken again
    position: int | None = None  # the last row taken in this run


class Spool:
    """Sitemaps and pages that wait. Raises ``sqlite3.Error`` if the disk fails, and until the file
    is open."""

    def __init__(self, directory: str | None, seconds: float, spider: Spider | None) -> None:
        """:param directory: JOBDIR; None: a temporary file
        :param seconds: how long users retry what fails
        """
        self._path = Path(directory, FILE_NAME) if directory else None
        self._spider = spider
        self._file: SpoolFile | None = None
        self._usable = self.opened = False
        self.durable = directory is not None
        self.patience = Patience(self._path, seconds, spider)
        self.sitemaps = SitemapTable(lambda: self._db)
        self._sites: dict[int, _Site] = {}
        self.waiting = 0  # how many pages wait
        self.unproven = 0  # how many entries wait for the robots.txt of another host

    @property
    def _db(self) -> sqlite3.Connection:
        if self._file is None or not self._usable:
            raise sqlite3.OperationalError("it is not open")
        return self._file.db

    async def look(self) -> SpoolFile | None:
        """Open the file if it isn't, and return it then. If it was deleted, write it again."""
        try:
            if self._file is None:
                self._take_over(await run_in_thread(self._open))
                self.patience.worked("file")
                return self._file
            if self.durable and await run_in_thread(self._file.is_gone):
                self.patience.trouble.begins(FileNotFoundError("it was deleted"))
                await self._restore(self._file)
                self.patience.trouble.ends()
            self.patience.look()
        except (sqlite3.Error, OSError) as error:
            if self._file is None:
                self.patience.failed("file", error)
        return None

    def _open(self) -> SpoolFile:
        path = self._path
        return open_or_set_aside(path, SpoolFile, self._spider) if path else SpoolFile(None)

    def _take_over(self, file: SpoolFile) -> None:
        for site, count in file.waiting.items():
            self._sites[site] = _Site(count, file.sent.get(site, 0))
        self.waiting, self.unproven = sum(file.waiting.values()), file.unproven
        file.waiting.clear()  # there may be a million
        file.sent.clear()
        self._file, self._usable, self.opened = file, True, True
        if file.wrong:
            logger.warning(
                "%(rows)s of %(path)s can't be read and were deleted",
                {"rows": counted(file.wrong, "row"), "path": self._path},
                extra={"spider": self._spider},
            )

    async def _restore(self, file: SpoolFile) -> None:
        self._usable = False  # the copy could miss what is written meanwhile
        try:
            self._file = await run_in_thread(file.restored)
            await run_in_thread(file.close)
        finally:
            self._usable = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        began = time.perf_counter()
        with transaction(self._db):
            yield
        self.patience.took(time.perf_counter() - began)

    def close(self) -> None:
        """Close the file. With a JOBDIR its contents are for the next run."""
        self._usable = False
        if self._file is not None:
            self._file.close()

    def site(self, origin: str) -> int:
        """Return the number of a site."""
        self._db.execute("INSERT OR IGNORE INTO sites (origin, cursor) VALUES (?, 0)", (origin,))
        query = "SELECT id FROM sites WHERE origin = ?"
        return int(self._db.execute(query, (origin,)).fetchone()[0])

    def origin_of(self, site: int) -> str:
        """Return the origin with this number."""
        row = self._db.execute("SELECT origin FROM sites WHERE id = ?", (site,)).fetchone()
        return str(row[0]) if row else ""

    def add_pages(self, origin: str, pages: list[Row], unproven: list[Row]) -> None:
        """Add the entries of a sitemap that *origin* has brought in."""
        if not (pages or unproven):
            return
        with self._writing():
            self._insert("pages", pages)
            self._insert("unproven", unproven)
            query = "UPDATE origins SET urls = urls + ? WHERE origin = ?"
            self._db.execute(query, (len(pages) + len(unproven), origin))
        self._count(pages)
        self.unproven += len(unproven)

    def _insert(self, table: str, rows: list[Row]) -> None:
        columns = "(site, sitemap, url, lastmod, alternate)"
        query = f"INSERT INTO {table} {columns} VALUES (?, ?, ?, ?, ?)"  # noqa: S608 (one of two)
        self._db.executemany(query, rows)

    def _count(self, rows: list[Row]) -> None:
        for row in rows:
            self._sites.setdefault(row[0], _Site()).waiting += 1
        self.waiting += len(rows)

    def next_site(self) -> int | None:
        """Return a site that has pages waiting; sites take turns."""
        for site in self._sites:
            self._sites[site] = self._sites.pop(site)  # to the end
            return site
        return None

    @property
    def sites(self) -> int:
        """How many sites have pages waiting."""
        return len(self._sites)

    def take(self, number: int, limit: int) -> list[Page]:
        """Return the next pages of a site, which count as in the scheduler from now on."""
        site = self._sites[number]
        if site.position is None:
            query = "SELECT cursor FROM sites WHERE id = ?"
            site.position = 0 if site.sent else self._db.execute(query, (number,)).fetchone()[0]
        again = site.position < site.sent
        rows = self._db.execute(
            "SELECT pages.id, pages.url, lastmod, alternate, sitemaps.url "
            "FROM pages JOIN sitemaps ON sitemaps.id = sitemap "
            "WHERE site = ? AND pages.id > ? AND pages.id <= ? ORDER BY pages.id LIMIT ?",
            (number, site.position, site.sent if again else _LAST, limit),
        ).fetchall()
        if rows and not again:
            self._move(number, rows[-1][0])
        site.position = rows[-1][0] if rows else site.sent
        if not rows and again:
            return self.take(number, limit)
        count = len(rows) or site.waiting  # no rows: somebody has tampered with the file
        self.waiting -= count
        site.waiting -= count
        if site.waiting <= 0:
            del self._sites[number]
        return [
            Page(row, url, entry_of(lastmod, alternate), sitemap, again)
            for row, url, lastmod, alternate, sitemap in rows
        ]

    def _move(self, site: int, cursor: int) -> None:
        self._db.execute("UPDATE sites SET cursor = ? WHERE id = ?", (cursor, site))

    def put_back(self, number: int, pages: list[Page]) -> None:
        """Take back *pages*, the last of those taken: the scheduler failed on the first of them."""
        if not pages:
            return
        first, site = pages[0], self._sites.setdefault(number, _Site())
        site.position = first.id - 1
        # The first may have reached the dupe filter, which would drop it next time.
        site.sent = max(site.sent, pages[-1].id if first.again else first.id)
        if not first.again:
            with suppress(sqlite3.Error):  # else the next run takes them for sent
                self._move(number, first.id)
        site.waiting += len(pages)
        self.waiting += len(pages)

    def forget(self, pages: Iterable[int]) -> None:
        """Be done with these pages."""
        with self._writing():
            self._db.executemany("DELETE FROM pages WHERE id = ?", [(page,) for page in pages])

    def unproven_of(self, origin: str, limit: int) -> list[tuple[int, Row]]:
        """The first entries of *origin* that wait, with their numbers."""
        rows = self._db.execute(
            "SELECT id, site, sitemap, url, lastmod, alternate FROM unproven "
            "WHERE site = ? ORDER BY id LIMIT ?",
            (self.site(origin), limit),
        ).fetchall()
        return [(row[0], row[1:]) for row in rows]

    def settle(self, numbers: list[int], accepted: list[Row]) -> None:
        """Be done with waiting entries; those accepted become pages."""
        with self._writing():
            self._insert("pages", accepted)
            self._db.executemany("DELETE FROM unproven WHERE id = ?", [(one,) for one in numbers])
        self._count(accepted)
        self.unproven -= len(numbers)


@dataclass(frozen=True, slots=True)
class SeedingContext:
    """What the parts of seeding share."""

    crawl: CrawlContext
    options: SpiderOptions
    spool: Spool
