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
        self._crawler = crawler
        self._on_caught = on_caught
        self._returned: WeakKeyDictionary[Request, bool] = WeakKeyDictionary()

    def hand_over(self, request: Request) -> Request:
        """Return *request* as `process_request` has to return it, to have it held."""
        self._returned[request] = request.dont_filter
        # It has passed the offsite and the dupe filter, which shall not see it again.
        request.dont_filter = True
        self._listen()
        return request

    def came_back(self, request: Request) -> bool:
        """Whether *request*, returned to be held, is here again: it is a direct download."""
        dont_filter = self._returned.pop(request, None) if self._returned else None
        if dont_filter is None:
            return False
        request.dont_filter = dont_filter
        self._listen()
        return True

    def _listen(self) -> None:
        """Hear of scheduled requests only while one may be ours: a handler costs each request of
        a crawl some microseconds."""
        crawler_signals = self._crawler.signals
        change = crawler_signals.connect if self._returned else crawler_signals.disconnect
        change(self._request_scheduled, scrapy_signals.request_scheduled)

    def _request_scheduled(self, request: Request, **_: Any) -> None:
        dont_filter = self._returned.pop(request, None)
        self._listen()
        if dont_filter is None:
            return
        request.dont_filter = dont_filter
        if self._on_caught(request):
            raise IgnoreRequest("held until its robots.txt is had")
