"""Which sitemaps a robots.txt lists, for :mod:`~scrapy_rep.seeding.proof` to look up. Hostile files
take a second to resolve, so that is done in slices, and the results are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.pause import work
from scrapy_rep.seeding.discovery import listed_sitemaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.origins.table import Known

# Listings that are kept, of the origins that entries were seen of last.
_KEPT = 100


class Listing:
    """The sitemaps of one robots.txt."""

    def __init__(self, robots_url: str, values: Iterable[str]) -> None:
        self._hashes: set[int] = set()  # URLs can be long
        self._steps = self._resolve(robots_url, values)

    def _resolve(self, robots_url: str, values: Iterable[str]) -> Iterator[None]:
        for _, found in listed_sitemaps(robots_url, values):
            if found is not None:
                self._hashes.add(hash(found.url.partition("#")[0]))
            yield

    def complete(self) -> bool:
        """Work on it, for one slice of time. Return whether it is complete."""
        return work(self._steps)

    def has_any(self, urls: Iterable[str]) -> bool:
        """Whether it lists one of these, once it is complete."""
        return not self._hashes.isdisjoint(map(hash, urls))


class Listings:
    """Makes listings, and keeps some."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[str, str | None], Listing]] = {}

    def of(self, known: Known) -> Listing:
        """Return the listing of an origin's robots.txt."""
        kept = self._kept.pop(known.name, None)
        url = known.entry.url or known.origin.robots_url
        file = url, known.entry.sha256  # not the entry, which holds the body
        if kept is None or kept[0] != file:
            values = known.robots.sitemaps if known.robots is not None else ()
            kept = file, Listing(url, values)
        self._kept[known.name] = kept  # the last one again
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return kept[1]
