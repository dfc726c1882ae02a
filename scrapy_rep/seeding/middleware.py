"""The part of the middleware that a crawl needs only where sitemaps seed it.

Scrapy spends as much on calling a middleware's method as robots.txt costs a request: so
``process_response`` is there only if it is of use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.seeding.seeding import SitemapSeeding

KindT = TypeVar("KindT", bound=type)


class SeedingMiddleware:
    """Reads the sitemaps that come back, and leaves everything else to the user's own class."""

    _seeding: SitemapSeeding

    def process_response(
        self, request: Request, response: Response
    ) -> Coroutine[Any, Any, Response] | Response:
        """See :meth:`~scrapy_rep.seeding.intake.Reading.process_response`."""
        return self._seeding.reading.process_response(request, response)

    def process_exception(self, request: Request, exception: Exception) -> None:
        """See :meth:`~scrapy_rep.seeding.intake.Reading.process_exception`."""
        self._seeding.reading.process_exception(request, exception)


def with_seeding(kind: KindT) -> KindT:
    """Return a subclass of *kind*, a middleware class, that reads sitemaps."""
    made: KindT = type(kind.__name__, (SeedingMiddleware, kind), {"__module__": kind.__module__})  # type: ignore[assignment]
    return made
