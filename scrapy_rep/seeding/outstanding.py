"""The pages that the scheduler has, and their rows in the spool until the crawl is done with them.

A page's request carries a mark in its meta from :meth:`Outstanding.add`, where `feeder.py` hands it
over, to :meth:`Outstanding.arrive`, where the middleware sees it next.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from scrapy import Request

from scrapy_rep.seeding.discovery import FED

if TYPE_CHECKING:
    from collections.abc import Callable

# As many rows are deleted at a time.
_ROWS = 20


class _Sent(ref["Request"]):
    """Reports when a page's request is freed, which is after its callback."""

    __slots__ = ("arrived", "row", "site")

    row: int
    site: int
    arrived: bool


class Outstanding:
    """Pages on their way."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """:param wake: called when the scheduler has room, or there are rows to be deleted"""
        self._wake = wake
        self.total = 0
        """How many pages the scheduler has."""
        self.by_site: Counter[int] = Counter()
        """Of these, how many each site has."""
        self.gone: list[int] = []
        """Rows of pages that the crawl is done with, to be deleted."""
        self.stopped = False
        """Whether the crawl ends. What is dropped from now on is for the next run."""
        self._sent: dict[int, _Sent] = {}
        self._arrived: WeakKeyDictionary[Request, _Sent] = WeakKeyDictionary()

    def add(self, request: Request, row: int, site: int) -> None:
        """*request*, for the page of *row*, is about to be handed to the scheduler."""
        request.meta[FED] = row
        sent = _Sent(request, self._released)
        sent.row, sent.site, sent.arrived = row, site, False
        self._sent[row] = sent
        self.by_site[site] += 1
        self.total += 1

    def take_back(self, row: int) -> None:
        """The scheduler raised."""
        sent = self._sent.pop(row, None)
        if sent is not None and not sent.arrived:
            self._leave(sent)

    def arrive(self, request: Request) -> None:
        """Take a page from the scheduler: from here on it is a request like any other."""
        sent = self._sent.get(request.meta.pop(FED))
        request.dont_filter = False
        if sent is not None and not sent.arrived:
            self._arrived[request] = sent
            self._leave(sent)

    def held(self, request: Request) -> None:
        """A page is held, on disk if there is a JOBDIR: it has another keeper from here on."""
        sent = self._arrived.pop(request, None)
        if sent is not None and self._sent.pop(sent.row, None) is not None:
            self.gone.append(sent.row)
            if len(self.gone) >= _ROWS:
                self._wake()

    def dropped(self, request: Request) -> None:
        """The dupe filter has dropped a page."""
        sent = self._sent.get(request.meta[FED])
        if sent is not None and not sent.arrived:
            self._leave(sent)

    def close(self) -> None:
        """End an orderly run: what has arrived was dealt with, the rest is for the next run."""
        self.gone += [row for row, sent in self._sent.items() if sent.arrived]

    def _released(self, sent: ref[Request]) -> None:
        assert isinstance(sent, _Sent)
        if self._sent.get(sent.row) is not sent or (self.stopped and not sent.arrived):
            return
        del self._sent[sent.row]
        self.gone.append(sent.row)
        if not sent.arrived:
            self._leave(sent)  # a filter has dropped it

    def _leave(self, sent: _Sent) -> None:
        """A page is not in the scheduler any more."""
        sent.arrived = True
        self.total -= 1
        self.by_site[sent.site] -= 1
        if self.by_site[sent.site] <= 0:
            del self.by_site[sent.site]
        if len(self.gone) >= _ROWS:
            self._wake()
