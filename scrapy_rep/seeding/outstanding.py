"""The pages that the scheduler has, and their rows in the spool until the crawl is done with them.
Their requests carry a mark in their meta from :meth:`Outstanding.add` to :meth:`Outstanding.arrive`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from weakref import ref

from scrapy import Request

from scrapy_rep.seeding.discovery import FED

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS = 20  # deleted at a time


class _Sent(ref["Request"]):
    """Reports when a page's request is freed: after its callback."""

    __slots__ = ("arrived", "row", "site")

    row: int
    site: int
    arrived: bool


class Outstanding:
    """Pages on their way."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """:param wake: called when the scheduler has room, or there are rows to delete"""
        self._wake = wake
        self.total = 0  # how many pages the scheduler has
        self.by_site: Counter[int] = Counter()  # how many of them each site has
        self.gone: list[int] = []  # rows to delete: of pages that the crawl is done with
        self.stopped = False
        """Whether the crawl is closing: pages dropped from now on are for the next run."""
        self._sent: dict[int, _Sent] = {}
        self._only_held: set[int] = set()
        """Rows of pages that would end with the process but for these: a hold in memory has them."""

    def add(self, request: Request, row: int, site: int) -> None:
        """*request*, for the page of *row*, is about to go to the scheduler."""
        request.meta[FED] = row
        sent = _Sent(request, self._released)
        sent.row, sent.site, sent.arrived = row, site, False
        self._sent[row] = sent
        self.by_site[site] += 1
        self.total += 1

    def take_back(self, row: int) -> None:
        """The scheduler raised."""
        self._leave(self._sent.pop(row, None))

    def arrive(self, request: Request) -> None:
        """A page has left the gate: from here on its request is like any other."""
        row = request.meta.pop(FED)
        sent = self._sent.get(row)
        request.dont_filter = False
        if row in self._only_held:
            self._only_held.remove(row)
            sent = self._sent[row] = _Sent(request, self._released)
            sent.row, sent.site, sent.arrived = row, 0, True
        elif sent is not None and sent() is request:
            self._leave(sent)

    def held(self, request: Request, *, on_disk: bool) -> None:
        """The hold has the page now. Unless it is *on_disk*, its row stays until the page is done."""
        row = self._pop(request)
        if row is not None:
            (self.gone.append if on_disk else self._only_held.add)(row)

    def handed_back(self, request: Request) -> None:
        """The scheduler has the page again, and keeps it for the next run."""
        row = self._pop(request)
        if row is None and (row := request.meta.get(FED)) not in self._only_held:
            return
        self._only_held.discard(row)
        self.gone.append(row)

    def _pop(self, request: Request) -> int | None:
        """Forget the page of *request*. Return its row, None if it is none."""
        sent = self._sent.get(request.meta.get(FED, -1))
        if sent is None or sent() is not request:
            return None
        del self._sent[sent.row]
        self._leave(sent)
        return sent.row

    def dropped(self, request: Request) -> None:
        """The dupe filter has dropped a page."""
        self._leave(self._sent.get(request.meta[FED]))

    def close(self) -> None:
        """End an orderly run: arrived pages are done, the rest is for the next run."""
        self.gone += [row for row, sent in self._sent.items() if sent.arrived]

    def _released(self, sent: ref[Request]) -> None:
        assert isinstance(sent, _Sent)
        if self._sent.get(sent.row) is not sent or (self.stopped and not sent.arrived):
            return
        del self._sent[sent.row]
        self.gone.append(sent.row)
        self._leave(sent)  # a filter may have dropped it

    def _leave(self, sent: _Sent | None) -> None:
        """A page has left the scheduler."""
        if sent is None or sent.arrived:
            return
        sent.arrived = True
        self.total -= 1
        self.by_site[sent.site] -= 1
        if self.by_site[sent.site] <= 0:
            del self.by_site[sent.site]
        if len(self.gone) >= _ROWS:
            self._wake()
