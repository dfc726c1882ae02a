"""Several crawls in processes of their own that go about the same sites.

fleet = Fleet(tmp_path, {"REP_CACHE_STORAGE": ...})
first, second = fleet.add(urls, go="go"), fleet.add(urls, go="go")
fleet.go("go")
fleet.join()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.helpers.process import HERE, PATIENCE, Crawl
from tests.helpers.servers import Site


class Fleet:
    """Processes that share a storage."""

    def __init__(self, folder: Path, storage: Mapping[str, Any]) -> None:
        self._folder = folder
        self._storage = storage
        self.crawls: list[Crawl] = []

    def add(
        self,
        urls: list[str],
        *,
        go: str = "",
        reactor: str = "asyncio",
        ends: str = "",
        **settings: Any,
    ) -> Crawl:
        """:param go: the name of the signal that it waits for, see :meth:`go`
        :param ends: see `tests.helpers.process.recorder`
        """
        arguments = {"go": str(self._folder / go)} if go else {}
        crawl = Crawl(
            self._folder / "runs",
            urls,
            {"REP_DEFER_GRACE": 0.5, **self._storage, **settings},
            reactor=reactor,
            ends=ends,
            spider=HERE / "fleet_spider.py",
            **arguments,
        )
        self.crawls.append(crawl)
        return crawl

    def go(self, name: str = "go") -> None:
        """Let those begin that wait for it, when all are ready."""
        for crawl in self.crawls:
            crawl.wait_for("opened")
        (self._folder / name).touch()

    def join(self) -> None:
        for crawl in self.crawls:
            crawl.join()
            assert crawl.reason == "finished", crawl.log
            crawl.assert_clean()

    def sum(self, stat: str) -> int:
        return sum(int(crawl.stats.get(stat, 0)) for crawl in self.crawls)

    def close(self) -> None:
        for crawl in self.crawls:
            crawl.close()


def wait_until(happened: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, f"waited {PATIENCE} s for {what}"
        time.sleep(0.01)


def decided(crawl: Crawl, *sites: Site) -> dict[str, list[str]]:
    """What became of the pages of these sites."""
    places = tuple(site.url() for site in sites)
    return {
        kind: sorted(url for url in crawl.urls(kind) if url.startswith(places))
        for kind in ("page", "failed")
    }
