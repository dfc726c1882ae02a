"""The file of what sitemaps list: which pages are taken when, and rows that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request, Spider

from scrapy_rep.seeding.seeding import Outstanding
from scrapy_rep.seeding.spool import FILE_NAME, Spool
from tests.helpers.crawling import captured_log
from tests.helpers.files import change
from tests.helpers.log import warnings
from tests.helpers.rows import every_row

A = "http://a.example"


async def opened(folder: Path) -> Spool:
    spool = Spool(str(folder), 1.0, Spider(name="spool"))
    assert await spool.look() is not None
    return spool


def add(spool: Spool, *names: str) -> int:
    site = spool.site(A)
    spool.sitemaps.add(A, {f"{A}/map.xml": A})
    spool.add_pages(A, [(site, 1, name, None) for name in names], [])
    return site


def taken(spool: Spool, site: int, limit: int = 10) -> list[tuple[str, bool]]:
    return [(page.url, page.again) for page in spool.take(site, limit)]


@pytest.mark.loop
@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_what_was_not_dealt_with_is_taken_by_the_next_run(tmp_path: Path, limit: int) -> None:
    spool = await opened(tmp_path)
    site = add(spool, "1", "2", "3", "4", "5")
    first = spool.take(site, 3)
    assert [page.url for page in first] == ["1", "2", "3"]
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


@pytest.mark.parametrize("held", [True, False])
def test_the_row_of_a_page_goes_once_the_page_is_done(held: bool) -> None:
    """The hold frees the request once that is on disk; a kill would empty a hold in memory."""
    outstanding = Outstanding(Spool(None, 1.0, None))
    request = Request(f"{A}/1")
    outstanding.add(request, 7, 1)
    outstanding.left(request.copy())
    assert outstanding.total == 1
    (outstanding.left if held else outstanding.arrive)(request)
    assert outstanding.total == 0
    assert outstanding.finished == []
    del request
    assert outstanding.finished == [7]


# For each change: how many rows are deleted, and how many pages, and entries that wait for proof, are left.
WRONG = {
    "UPDATE pages SET url = x'00' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET entry = 7 WHERE id = 2": (0, 3, 3),
    "UPDATE pages SET entry = x'00' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET site = 'none' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET site = 7 WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET sitemap = 7 WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET id = -1 WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET entry = '{' WHERE id = 2": (0, 3, 3),
    "UPDATE pages SET url = CAST(x'fffe' AS TEXT) WHERE id = 2": (0, 3, 3),
    "UPDATE unproven SET url = x'00' WHERE id = 2": (1, 3, 2),
    "UPDATE sites SET cursor = 'high'": (7, 0, 0),
    "UPDATE sites SET origin = x'00'": (7, 0, 0),
    "UPDATE sitemaps SET chain = '['": (0, 3, 3),
    "UPDATE sitemaps SET chain = x'00'": (7, 0, 0),
    "UPDATE sitemaps SET state = 'done'": (7, 0, 0),
    "UPDATE origins SET files = 'many'": (1, 3, 3),
}


async def test_wrong_rows_are_deleted(tmp_path: Path) -> None:
    with every_row() as row:
        for number, (query, (wrong, pages, unproven)) in enumerate(WRONG.items()):
            with row(query):
                folder = tmp_path / str(number)
                folder.mkdir()
                spool = await opened(folder)
                site = add(spool)
                rows = [(site, 1, f"{A}/{n}", '{"lastmod": "2026"}') for n in range(3)]
                spool.add_pages(A, list(rows), list(rows))
                spool.close()
                change(folder / FILE_NAME, query)
                with captured_log() as records:
                    spool = await opened(folder)
                said = [line.partition(" from ")[0] for line in warnings(records)]
                assert said == ([f"Deleted {wrong} row{'s' * (wrong > 1)}"] if wrong else [])
                assert (spool.waiting, spool.unproven) == (pages, unproven)
                assert spool.next_site() == (site if pages else None)
                if pages:
                    assert len(spool.take(site, 10)) == pages
                assert spool.waiting == 0
                assert spool.sitemaps.counts(A)[0] in (0, 1)
                assert len(spool.unproven_of(A, 10)) == unproven
                spool.close()
