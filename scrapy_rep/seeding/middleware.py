"""The part of the middleware that only crawls seeded from sitemaps need: each method of a middleware
costs every request, so the others do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_rep.seeding.discovery import SITEMAP

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.seeding.seeding import SitemapSeeding

KindT = TypeVar("KindT", bound=type)


class SeedingMiddleware:
    """Takes the responses for sitemaps, and leaves the others to a user's own class."""

    _seeding: SitemapSeeding

    def process_response(self, request: Request, response: Response) -> Any:
        """Read a sitemap, see :meth:`~scrapy_rep.seeding.intake.Intake.read`."""
        if SITEMAP in request.meta:
            return self._seeding.intake.read(request, response)
        theirs = getattr(super(), "process_response", None)
        return response if theirs is None else theirs(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Note a failure, see :meth:`~scrapy_rep.seeding.intake.Intake.failed`."""
        if SITEMAP in request.meta:
            return self._seeding.intake.failed(request, exception)
        theirs = getattr(super(), "process_exception", None)
        return None if theirs is None else theirs(request, exception)


def with_seeding(kind: KindT) -> KindT:
    """Return a subclass of *kind*, a middleware class, that reads sitemaps."""
    made: KindT = type(kind.__name__, (SeedingMiddleware, kind), {"__module__": kind.__module__})  # type: ignore[assignment]
    return made
