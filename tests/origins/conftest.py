"""Crawls on a clock that the test moves. Each knows of those before it only by what the storage keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.crawling import SLOW, Clock, CrawlResult, Step, StepSpider, crawl
from tests.helpers.held import assert_clean, origin_of
from tests.helpers.servers import Site
from tests.helpers.storing import in_a_file, open_


class Runs:
    result: CrawlResult

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock().install(monkeypatch)
        self.settings = {**SLOW, **in_a_file(folder)}

    async def next(self, *steps: Step, **settings: object) -> list[str]:
        every = self.settings | settings
        self.result = await crawl(
            StepSpider, every, steps=list(steps), clock=self.clock
        )
        assert_clean(self.result)
        return self.result.spider.outcomes  # type: ignore[attr-defined,no-any-return]

    async def both(self, site: Site, later: float = 0) -> tuple[list[str], int]:
        """So much later: what becomes of /private and /x, and robots.txt requests so far."""
        self.clock.now += later
        return await self.next(
            site.url("/private"), site.url("/x")
        ), site.robots_fetches

    def kept(self, site: Site) -> Any:
        storage = open_(self.settings)
        entry = storage.load(origin_of(site))
        storage.close()
        return entry


@pytest.fixture
def runs(in_time: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What is held would ask once more what is known, which counts again: so nothing is held."""
    return Runs(tmp_path, monkeypatch)
