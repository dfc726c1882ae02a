"""For `scrapy runspider`: as `pages_spider`, but begins when a file appears, so that several
processes meet a site in the same moment."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.helpers.process.pages_spider import PagesSpider


class FleetSpider(PagesSpider):
    def __init__(self, go: str = "", **kwargs: Any) -> None:
        """:param go: the file; none: at once"""
        super().__init__(**kwargs)
        self.go = Path(go) if go else None

    async def start(self) -> AsyncIterator[Any]:
        while self.go is not None and not self.go.exists():
            time.sleep(0.005)  # noqa: ASYNC251 (nothing else goes on in this process yet)
        async for request in super().start():
            yield request


del PagesSpider  # `runspider` runs the only one that it finds
