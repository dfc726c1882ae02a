"""What sitemaps list and the crawl has not requested yet, in a SQLite file: under JOBDIR if there
is one, else in a temporary file that SQLite deletes by itself.

A page's row is below its site's cursor once it went to the scheduler, and stays until the page was
dealt with: what a stop or a kill leaves below the cursor is requested again. So nothing is lost,
and what comes twice after a kill are the few whose rows were not deleted yet.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict, deque
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import pause
from scrapy_rep.engine.words import counted
from scrapy_rep.seeding.patience import Patience
from scrapy_rep.seeding.sitemap_table import SitemapTable, texts
from scrapy_rep.seeding.spool_file import FILE_NAME, SpoolFile
from scrapy_rep.storages.sqlite_file import open_or_set_aside, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy import Spider

logger = get_logger(__name__)

T = TypeVar("T")

Row = tuple[int, int, str, "str | None", "str | None"]
"""Of a page: site, sitemap, url, lastmod, alternate URLs (JSON)."""


class Page(NamedTuple):
    """A page that is to be requested."""

    id: int
    url: str
    lastmod: str | None
    alternate: list[str]
    sitemap: str
    again: bool
    """Whether it went to the scheduler before, in a run that ended before it was dealt with."""


class Spool:
    """Sitemaps and pages that wait. Raises ``sqlite3.Error`` if the disk does not take them, and as
    long as the file is not open."""

    def __init__(self, directory: str | None, seconds: float, spider: Spider | None) -> None:
        """:param directory: JOBDIR; None: a temporary file
        :param seconds: for how long its users are to try what fails
        """
        self._path = Path(directory, FILE_NAME) if directory else None
        self._spider = spider
        self._file: SpoolFile | None = None
        self._usable = False
        self.durable = directory is not None
        self.ending = False
        """Whether the crawl ends: what fails is not tried again."""
        self.patience = Patience(self._path, seconds, spider)
        self.sitemaps = SitemapTable(lambda: self._db)
        self._waiting: dict[int, int] = {}
        self.waiting = 0
        """How many pages are still to be requested."""
        self._again: defaultdict[int, deque[int]] = defaultdict(deque)
        self._cursors: dict[int, int] = {}
        self.unproven = 0
        """How many entries wait for the robots.txt of another host."""

    # The file

    @property
    def _db(self) -> sqlite3.Connection:
        if self._file is None or not self._usable:
            raise sqlite3.OperationalError("it is not open")
        return self._file.db

    @property
    def opened(self) -> bool:
        """Whether the file was opened."""
        return self._file is not None

    async def look(self) -> SpoolFile | None:
        """Open the file, if that has not worked so far, and return it then. If somebody has
        deleted it, put another one with the same contents in its place."""
        try:
            if self._file is None:
                self._take_over(await run_in_thread(self._open))
                self.patience.worked("file")
                return self._file
            if self.durable and await run_in_thread(self._file.is_gone):
                self.patience.trouble.begins(FileNotFoundError("it was deleted"))
                await self._restore(self._file)
                self.patience.trouble.ends()
        except (sqlite3.Error, OSError) as error:
            if self._file is None:
                self.patience.failed("file", error)
        return None

    def _open(self) -> SpoolFile:
        if self._path is None:
            return SpoolFile(None)
        return open_or_set_aside(self._path, SpoolFile, self._spider)

    def _take_over(self, file: SpoolFile) -> None:
        self._waiting, self._again, self.unproven = file.waiting, file.again, file.unproven
        self.waiting = sum(file.waiting.values())
        self._file, self._usable = file, True
        if file.wrong:
            logger.warning(
                "%(rows)s of %(path)s can't be read and were deleted",
                {"rows": counted(file.wrong, "row"), "path": self._path},
                extra={"spider": self._spider},
            )

    async def _restore(self, file: SpoolFile) -> None:
        self._usable = False  # what is written while it is being copied could be lost
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

    async def patiently(self, user: str, step: Callable[[], T]) -> T:
        """Do *step*, again and again while the disk fails and patience lasts.

        :raises sqlite3.Error: if that is over, or the crawl ends
        """
        while True:
            try:
                result = step()
            except sqlite3.Error as error:
                seconds = self.patience.failed(user, error)
                if seconds is None or self.ending:
                    raise
                await pause(seconds)
            else:
                self.patience.worked(user)
                return result

    def close(self) -> None:
        """Close the file. What is in it is for the next run, if it has a name."""
        self._usable = False
        if self._file is not None:
            self._file.close()

    # Pages

    def site(self, origin: str) -> int:
        """Return the number of a site."""
        self._db.execute("INSERT OR IGNORE INTO sites (origin, cursor) VALUES (?, 0)", (origin,))
        query = "SELECT id FROM sites WHERE origin = ?"
        (number,) = self._db.execute(query, (origin,)).fetchone()
        return int(number)

    def origin_of(self, site: int) -> str:
        """Return whose number this is."""
        rows = self._db.execute("SELECT origin FROM sites WHERE id = ?", (site,)).fetchall()
        return str(rows[0][0]) if rows else ""

    def add_pages(self, origin: str, pages: list[Row], unproven: list[Row]) -> None:
        """Take the entries of a sitemap that *origin* has brought in."""
        if not (pages or unproven):
            return
        with self._writing():
            self._insert("pages", pages)
            self._insert("unproven", unproven)
            self._db.execute(
                "UPDATE origins SET urls = urls + ? WHERE origin = ?",
                (len(pages) + len(unproven), origin),
            )
        self._count(pages)
        self.unproven += len(unproven)

    def _insert(self, table: str, rows: list[Row]) -> None:
        columns = "(site, sitemap, url, lastmod, alternate)"
        query = f"INSERT INTO {table} {columns} VALUES (?, ?, ?, ?, ?)"  # noqa: S608 (one of two)
        self._db.executemany(query, rows)

    def _count(self, rows: list[Row]) -> None:
        waiting = self._waiting
        for row in rows:
            waiting[row[0]] = waiting.get(row[0], 0) + 1
        self.waiting += len(rows)

    def next_site(self) -> int | None:
        """Return a site that has pages waiting: all have turns."""
        for site in self._waiting:
            self._waiting[site] = self._waiting.pop(site)  # to the end
            return site
        return None

    @property
    def sites(self) -> int:
        """How many sites have pages waiting."""
        return len(self._waiting)

    def take(self, site: int, limit: int) -> list[Page]:
        """Return the next pages of *site*. From now on they count as in the scheduler."""
        again = self._again.get(site)
        if again:
            numbers = list(islice(again, limit))
            pages = self._pages(
                f"pages.id IN ({','.join('?' * len(numbers))}) ORDER BY pages.id", numbers, True
            )
            for _ in numbers:  # not before they could be read
                again.popleft()
            if not again:
                del self._again[site]
            self._less(site, len(numbers))
            return pages
        pages = self._pages(
            "site = ? AND pages.id > ? ORDER BY pages.id LIMIT ?",
            [site, self._cursor(site), limit],
            False,
        )
        if pages:
            self._move(site, pages[-1].id)
            self._less(site, len(pages))
            if site not in self._waiting:
                del self._cursors[site]
        else:
            self._less(site, self._waiting[site])  # somebody has meddled with the file
        return pages

    def _pages(self, where: str, values: list[int], again: bool) -> list[Page]:
        rows = self._db.execute(
            "SELECT pages.id, pages.url, lastmod, alternate, sitemaps.url "  # noqa: S608 (ours)
            f"FROM pages JOIN sitemaps ON sitemaps.id = sitemap WHERE {where}",
            values,
        )
        return [
            Page(number, url, lastmod, texts(alternate), sitemap, again)
            for number, url, lastmod, alternate, sitemap in rows
        ]

    def _less(self, site: int, count: int) -> None:
        self.waiting -= count
        self._waiting[site] -= count
        if self._waiting[site] <= 0:
            del self._waiting[site]

    def _cursor(self, site: int) -> int:
        if site not in self._cursors:
            (cursor,) = self._db.execute(
                "SELECT cursor FROM sites WHERE id = ?", (site,)
            ).fetchone()
            self._cursors[site] = cursor
        return self._cursors[site]

    def _move(self, site: int, cursor: int) -> None:
        self._db.execute("UPDATE sites SET cursor = ? WHERE id = ?", (cursor, site))
        self._cursors[site] = cursor

    def put_back(self, site: int, pages: list[Page]) -> None:
        """Take back the last ones of what was taken: with the first, the scheduler failed."""
        if not pages:
            return
        if pages[0].again:
            self._again[site].extendleft(page.id for page in reversed(pages))
        else:
            # It may have gone as far as the dupe filter, which would drop it next time.
            self._again[site].appendleft(pages[0].id)
            cursor = self._cursors[site] = pages[0].id
            with suppress(sqlite3.Error):  # else the next run takes them for some that were taken
                self._move(site, cursor)
        self._waiting[site] = self._waiting.get(site, 0) + len(pages)
        self.waiting += len(pages)

    def forget(self, pages: Iterable[int]) -> None:
        """Be done with these pages."""
        with self._writing():
            self._db.executemany("DELETE FROM pages WHERE id = ?", [(page,) for page in pages])

    # Entries that wait for proof

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
