"""The file of what sitemaps list: which pages are taken when, without a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request, Spider

from scrapy_rep.seeding.feeder import Outstanding
from scrapy_rep.seeding.spool import Spool

A = "http://a.example"

pytestmark = pytest.mark.loop


async def opened(tmp_path: Path) -> Spool:
    spool = Spool(str(tmp_path), 1.0, Spider(name="spool"))
    assert await spool.look() is not None
    return spool


def add(spool: Spool, *names: str) -> int:
    site = spool.site(A)
    spool.sitemaps.add(f"{A}/map.xml", A, A, ())
    spool.add_pages(A, [(site, 1, name, None, None) for name in names], [])
    return site


def taken(spool: Spool, site: int, limit: int = 10) -> list[tuple[str, bool]]:
    return [(page.url, page.again) for page in spool.take(site, limit)]


async def test_what_was_taken_is_not_taken_twice(tmp_path: Path) -> None:
    """Though its rows are there until the pages are dealt with."""
    spool = await opened(tmp_path)
    site = add(spool, "1", "2", "3")
    assert taken(spool, site, 2) == [("1", False), ("2", False)]
    assert taken(spool, site) == [("3", False)]
    assert spool.next_site() is None
    add(spool, "4")
    assert taken(spool, site) == [("4", False)]
    spool.close()


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
async def test_what_was_not_dealt_with_is_taken_by_the_next_run(tmp_path: Path, limit: int) -> None:
    spool = await opened(tmp_path)
    site = add(spool, "1", "2", "3", "4", "5")
    first = spool.take(site, 3)
    spool.forget([first[1].id])
    spool.close()
    spool = await opened(tmp_path)
    assert spool.waiting == 4
    found = []
    while spool.waiting:
        pages = taken(spool, site, limit)
        assert len({again for _, again in pages}) == 1
        found += pages
    assert found == [("1", True), ("3", True), ("4", False), ("5", False)]
    spool.close()


@pytest.mark.parametrize("again", [False, True])
async def test_what_is_put_back_is_taken_next(tmp_path: Path, again: bool) -> None:
    """The first of them may have passed the dupe filter."""
    spool = await opened(tmp_path)
    site = add(spool, "1", "2", "3")
    if again:
        spool.take(site, 10)
        spool.close()
        spool = await opened(tmp_path)
    pages = spool.take(site, 10)
    assert spool.waiting == 0
    spool.put_back(site, pages[1:])
    assert spool.waiting == 2
    add(spool, "4")
    expected = [("2", True), ("3", again), ("4", False)]
    assert [one for _ in range(3) for one in taken(spool, site, 1)] == expected
    assert spool.waiting == 0
    spool.close()


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_row_of_a_held_page_goes_once_it_is_safe(on_disk: bool) -> None:
    """A hold in memory, which has a copy of the request, would lose it in a kill."""
    outstanding = Outstanding(lambda: None)
    request = Request(f"{A}/1")
    outstanding.add(request, 7, 1)
    outstanding.held(request, on_disk=on_disk)
    assert outstanding.total == 0
    request = request.copy()
    assert outstanding.finished == ([7] if on_disk else [])
    outstanding.arrive(request)
    del request
    assert outstanding.finished == [7]
