"""What finds out whether other hosts list the sitemaps that their pages are from."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.selection import Reason, Verifier
from scrapy_rep.seeding.spool import NewPage
from tests.seeding.spools import new_spool

A, B = "http://a.example", "http://b.example"


class WaitingPage:
    """A page of B, from a sitemap of A, that waits."""

    def __init__(self) -> None:
        self.spool = new_spool()
        self.spool.add_sitemaps(A, {f"{A}/map.xml": A})
        number = self.spool.site_number(B, A)
        assert number is not None
        self.spool.add_pages(A, [NewPage(number, 1, f"{B}/", "{}")])
        self.site = self.spool.unproven.sites_of(A)[number]
        self.asked: list[str] = []
        self.refused: list[Reason] = []
        engine = SimpleNamespace(wake=lambda: None)
        settings = SimpleNamespace(hold_max_wait=600.0)
        log = SimpleNamespace(note_refused=self.refuse)
        origins = SimpleNamespace(
            cache=SimpleNamespace(get=lambda _: None),
            targets=SimpleNamespace(refuses=self.ask),
            flights=SimpleNamespace(abandon=lambda _: None),
        )
        crawl = SimpleNamespace(engine=engine, settings=settings, crawler=get_crawler())
        context: Any = SimpleNamespace(crawl=crawl, spool=self.spool, origins=origins)
        self.verifier = Verifier(context, log)  # type: ignore[arg-type]

    async def ask(self, target: Origin, by: Origin) -> bool:
        self.asked.append(str(target))
        return True

    def refuse(self, origin: str, sitemap: str, reason: Reason, count: int) -> None:
        self.refused.append(reason)


@pytest.mark.loop
@pytest.mark.parametrize(
    ("waited", "reason"), [(0, Reason.PRIVATE), (600, Reason.UNPROVEN)]
)
async def test_pages_wait_from_when_their_host_is_asked(
    waited: float, reason: Reason
) -> None:
    """Not from when they came: one that nobody has asked is not unreachable."""
    world = WaitingPage()
    assert world.site.asked_at is None
    if waited:
        world.site.asked_at = time.monotonic() - waited
    assert await world.verifier._try_to_settle(world.site)
    assert (world.asked, world.refused) == ([B] * (not waited), [reason])
    assert world.spool.waiting == 0


@pytest.mark.loop
async def test_a_row_that_is_damaged_does_not_keep_the_crawl_open() -> None:
    """The check of a file as it is opened looks at pages, not at what rows say."""
    world = WaitingPage()
    world.spool._read("UPDATE sitemaps SET chain = '['")
    assert await world.verifier._try_to_settle(world.site)
    assert world.spool.waiting == 0
