"""Crawls in processes of their own that share a storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.process import Crawl


class Fleet:
    """Crawls that share a storage and go about the same sites."""

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
        """:param go: a name. The crawl begins when :meth:`go` says it"""
        settings = {"REP_DEFER_GRACE": 0.5, **self._storage, **settings}
        go = go and str(self._folder / go)
        folder = self._folder / "runs"
        self.crawls.append(Crawl(folder, urls, settings, reactor=reactor, ends=ends, go=go))
        return self.crawls[-1]

    def go(self, name: str = "go") -> None:
        """Let those begin that wait for it, when all are ready."""
        for crawl in self.crawls:
            crawl.wait_for("opened")
        (self._folder / name).touch()

    def join(self) -> None:
        for crawl in self.crawls:
            assert crawl.join().reason == "finished", crawl.log
            crawl.assert_clean()

    def sum(self, stat: str) -> int:
        return sum(int(crawl.stats.get(stat, 0)) for crawl in self.crawls)

    def close(self) -> None:
        for crawl in self.crawls:
            crawl.close()
