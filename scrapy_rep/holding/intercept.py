"""Takes requests out of the downloader, using documented API only.

`process_request` returns the request, the engine passes it to `crawl()`, and the handler of
`request_scheduled` receives it here: outside the downloader, with no errback called. A direct download
(from a media pipeline, say) comes back to `process_request` instead. Nothing is written to the
request's meta, which users may copy.
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
        """:param hold: holds a request, or returns False to send it to the scheduler"""
        self._hold = hold
        self._listener = Listener(
            crawler, {scrapy_signals.request_scheduled: self._request_scheduled}
        )
        self._returned: WeakKeyDictionary[Request, bool] = WeakKeyDictionary()
        self.waiting = False
        """Whether any request is on its way: otherwise, skip :meth:`came_back`."""

    def hand_over(self, request: Request) -> Request:
        """Return *request*, for `process_request` to return, so that it will be held."""
        self._returned[request] = request.dont_filter
        self.waiting = True
        # It has already passed the offsite and dupe filters.
        request.dont_filter = True
        self._listener.begin()
        return request

    def _request_scheduled(self, request: Request, **_: Any) -> None:
        if self.came_back(request) and self._hold(request):
            raise IgnoreRequest("held until its robots.txt can be fetched")

    def came_back(self, request: Request) -> bool:
        """Return whether *request* was handed over, and restore it. If `process_request` sees it
        again, it is a direct download."""
        dont_filter = self._returned.pop(request, None)
        if not self._returned:
            self.waiting = False
            self._listener.end()
        if dont_filter is None:
            return False
        request.dont_filter = dont_filter
        return True
