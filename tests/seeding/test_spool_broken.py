"""The file of what sitemaps list, when rows in it are not as they should be, without a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Spider

from scrapy_rep.seeding.spool import FILE_NAME, Spool
from tests.helpers.crawling import captured_log
from tests.helpers.files import change

A = "http://a.example"
MAP = f"{A}/map.xml"


async def opened(tmp_path: Path) -> Spool:
    spool = Spool(str(tmp_path), 1.0, Spider(name="spool"))
    assert await spool.look() is not None
    return spool


async def filled(tmp_path: Path) -> Path:
    """Three pages are listed, one of them has alternates; three more wait for proof."""
    spool = await opened(tmp_path)
    spool.sitemaps.add(MAP, A, A, ())
    sitemap = spool.sitemaps.next(A)
    assert sitemap is not None
    rows = [
        (spool.site(A), sitemap.id, f"{A}/{number}", "2026-01-01", f'["{A}/de/{number}"]')
        for number in range(3)
    ]
    spool.add_pages(A, list(rows), list(rows))
    spool.close()
    return tmp_path / FILE_NAME


WRONG = {
    "UPDATE pages SET url = x'00' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET lastmod = 5.5, alternate = 7 WHERE id = 2": (0, 3, 3),
    "UPDATE pages SET lastmod = x'00' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET site = 'none' WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET site = 7 WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET sitemap = 7 WHERE id = 2": (1, 2, 3),
    "UPDATE pages SET alternate = '{' WHERE id = 2": (0, 3, 3),
    "UPDATE pages SET alternate = '{}' WHERE id = 2": (0, 3, 3),
    "UPDATE pages SET url = CAST(x'fffe' AS TEXT) WHERE id = 2": (0, 3, 3),
    "UPDATE unproven SET url = x'00' WHERE id = 2": (1, 3, 2),
    "UPDATE sites SET cursor = 'high'": (7, 0, 0),
    "UPDATE sites SET origin = x'00'": (7, 0, 0),
    "UPDATE sitemaps SET chain = '['": (0, 3, 3),
    "UPDATE sitemaps SET chain = x'00'": (7, 0, 0),
    "UPDATE sitemaps SET state = 'done'": (7, 0, 0),
    "UPDATE origins SET files = 'many'": (1, 3, 3),
}


@pytest.mark.loop
@pytest.mark.parametrize(("query", "expected"), WRONG.items())
async def test_wrong_rows_are_deleted(
    tmp_path: Path, query: str, expected: tuple[int, int, int]
) -> None:
    """With a line that counts them; the others are as ever."""
    wrong, pages, unproven = expected
    change(await filled(tmp_path), query)
    with captured_log() as records:
        spool = await opened(tmp_path)
    said = [one.getMessage() for one in records if one.levelname == "WARNING"]
    assert [line.partition(" of ")[0] for line in said] == (
        [f"{wrong} row{'s' * (wrong > 1)}"] if wrong else []
    )
    assert (spool.waiting, spool.unproven) == (pages, unproven)
    site = spool.next_site()
    assert (site is not None) == bool(pages)
    if site is not None:
        assert len(spool.take(site, 10)) == pages
    assert spool.waiting == 0
    assert spool.sitemaps.counts(A)[0] in (0, 1)
    assert len(spool.unproven_of(A, 10)) == unproven
    spool.close()
