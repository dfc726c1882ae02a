"""How a request is taken out of the downloader, with documented API alone.

`process_request` returns it, the engine hands it to `crawl()`, and the handler of
`request_scheduled` here has it: out of the downloader, and no errback was called. What is returned
to a direct download (a media pipeline's, say) comes back to `process_request` instead: that is how
the two are told apart. Nothing is written into its meta, which a user may copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_rep.engine.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler


class Catcher:
    """Catches the requests that `process_request` returns."""

    def __init__(self, crawler: Crawler, on_caught: Callable[[Request], bool]) -> None:
        """:param on_caught: called with a request, as the user made it; returns whether the
        request is kept there, else it goes to the scheduler
        """
        self._on_caught = on_caught
        self._listener = Listener(
            crawler, {scrapy_signals.request_scheduled: self._request_scheduled}
        )
        self._returned: WeakKeyDictionary[Request, bool] = WeakKeyDictionary()
        self.waiting = False
        """Whether any request is on its way back: :meth:`came_back` need not be asked else."""

    def hand_over(self, request: Request) -> Request:
        """Return *request* as `process_request` has to return it, to have it held."""
        self._returned[request] = request.dont_filter
        self.waiting = True
        # It has passed the offsite and the dupe filter, which shall not see it again.
        request.dont_filter = True
        self._listener.begin()
        return request

    def _request_scheduled(self, request: Request, **_: Any) -> None:
        if self.came_back(request) and self._on_caught(request):
            raise IgnoreRequest("held until its robots.txt is had")

    def came_back(self, request: Request) -> bool:
        """Whether *request* was handed over; if so it is made what it was. Where `process_request`
        sees it again it is a direct download."""
        dont_filter = self._returned.pop(request, None)
        if not self._returned:
            self.waiting = False
            self._listener.end()
        if dont_filter is None:
            return False
        request.dont_filter = dont_filter
        return True
