"""The pages from sitemaps that the scheduler has, and with which the crawl isn't done yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from scrapy import Request

from scrapy_rep.seeding.discovery import FED
from scrapy_rep.seeding.spool import Spool

# Rows of finished pages that are deleted at a time.
_ROWS = 20


class Outstanding:
    """The pages that are in the scheduler, and the rows of pages with which the crawl isn't done yet: a page
    is done when its request is freed, after its callback. :data:`FED` is in the meta of requests from
    :meth:`add` to :meth:`arrive`."""

    def __init__(self, spool: Spool, hold_is_durable: Callable[[], bool]) -> None:
        self._spool = spool
        self._hold_is_durable = hold_is_durable
        self._only_held: set[int] = set()
        """Rows of pages that would end with the process but for these: a hold in memory has them."""
        self.by_site: Counter[int] = Counter()  # pages in the scheduler, for each site
        self.finished: list[int] = []  # rows of finished pages, to be deleted
        self._requests: dict[int, ref[Request]] = {}  # by row
        self._sites: dict[int, int] = {}  # of the pages in the scheduler, by row

    @property
    def total(self) -> int:
        return len(self._sites)

    def add(self, request: Request, row: int, site: int) -> None:
        """Note that *request*, for the page of *row*, goes to the scheduler."""
        request.meta[FED] = row
        self._requests[row] = ref(request, partial(self._freed, row))
        self._sites[row] = site
        self.by_site[site] += 1

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`: the scheduler raised an exception."""
        self._requests.pop(row, None)
        self.leave(row)

    def arrive(self, request: Request) -> None:
        """Note that a page has left the gate. From here on its request is like any other."""
        row = request.meta.pop(FED)
        request.dont_filter = False
        if self._is(request, row):
            self.leave(row)
        elif row in self._only_held:
            self._only_held.remove(row)
            self._requests[row] = ref(request, partial(self._freed, row))

    def held(self, request: Request, **_: Any) -> None:
        """Note that the hold has the page. Its row stays if that is lost with the process."""
        row = request.meta.get(FED, -1)
        if self._is(request, row):
            self.take_back(row)
            lasts = self._hold_is_durable() or not self._spool.durable
            (self.finished.append if lasts else self._only_held.add)(row)

    def handed_back(self, request: Request) -> None:
        """Note that the scheduler has the page, and keeps it for the next run."""
        row = request.meta.get(FED, -1)
        if self._is(request, row) or row in self._only_held:
            self.take_back(row)
            self._only_held.discard(row)
            self.finished.append(row)

    def close(self) -> None:
        """End a run that was not killed: pages that arrived are finished, others are for the next run."""
        self.finished += [row for row in self._requests if row not in self._sites]

    def _is(self, request: Request, row: int) -> bool:
        """Whether *request* is the one that was added for *row*: not of another run, nor a copy."""
        known = self._requests.get(row)
        return known is not None and known() is request

    def _freed(self, row: int, request: ref[Request]) -> None:
        # If the crawl is closing, the page is for the next run.
        if self._requests.get(row) is request and not (self._spool.over and row in self._sites):
            del self._requests[row]
            self.finished.append(row)
            self.leave(row)  # it may never have arrived: a filter has dropped it

    def leave(self, row: int) -> None:
        """Note that a page is no longer in the scheduler."""
        site = self._sites.pop(row, None)
        if site is not None:
            self.by_site[site] -= 1
            if self.by_site[site] <= 0:
                del self.by_site[site]
            if len(self.finished) >= _ROWS:
                self._spool.wake()
