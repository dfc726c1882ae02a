"""Takes requests out of the downloader, with documented API alone.

`process_request` returns the request, the engine passes it to `crawl()`, and the handler of
`request_scheduled` gets it here: outside the downloader, with no errback called. A direct download
(a media pipeline's, say) comes back to `process_request` instead, which tells the two apart. Nothing
is written into the request's meta, which a user may copy.
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


class Interceptor:
    """Intercepts the requests that `process_request` returns."""

    def __init__(self, crawler: Crawler, hold: Callable[[Request], bool]) -> None:
        """:param hold: called with a request, as the user made it; returns whether it is held, else
        it goes to the scheduler
        """
        self._hold = hold
        self._listener = Listener(
            crawler, {scrapy_signals.request_scheduled: self._request_scheduled}
        )
        self._returned: WeakKeyDictionary[Request, bool] = WeakKeyDictionary()
        self.waiting = False
        """Whether any request is on its way back; if not, there is no need for :meth:`came_back`."""

    def hand_over(self, request: Request) -> Request:
        """Return *request* as `process_request` has to return it, to have it held."""
        self._returned[request] = request.dont_filter
        self.waiting = True
        # It has passed the offsite and the dupe filter already.
        request.dont_filter = True
        self._listener.begin()
        return request

    def _request_scheduled(self, request: Request, **_: Any) -> None:
        if self.came_back(request) and self._hold(request):
            raise IgnoreRequest("held until its robots.txt is had")

    def came_back(self, request: Request) -> bool:
        """Whether *request* was handed over; if so it is restored. One that `process_request` sees
        again is a direct download."""
        dont_filter = self._returned.pop(request, None)
        if not self._returned:
            self.waiting = False
            self._listener.end()
        if dont_filter is None:
            return False
        request.dont_filter = dont_filter
        return True
