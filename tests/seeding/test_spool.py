"""The file of what sitemaps list: which pages are taken when; and which sites are visited."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler

from scrapy_rep.engine.access import Following
from scrapy_rep.seeding.seeding import Outstanding, SitemapSeeding
from scrapy_rep.seeding.spool import NewPage, Site, Sources, Spool

A = "http://a.example"


async def opened(folder: Path) -> Spool:
    spool = Spool(str(folder), 1.0, Spider(name="spool"))
    assert await spool.open_or_flush()
    return spool


def next_of(sources: Sources) -> Site | None:
    if not len(sources):
        return None
    return next(iter(sources.sites_of(sources.next_source()).values()))


def add(spool: Spool, *names: str) -> Site:
    number = spool.site_number(A, A, proven=True)
    assert number is not None
    spool.add_sitemaps(A, {f"{A}/map.xml": A})
    spool.add_pages(A, [NewPage(number, 1, name, "{}") for name in names])
    return spool.proven.sites_of(A)[number]


@pytest.mark.loop
@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_what_was_not_dealt_with_is_taken_by_the_next_run(
    tmp_path: Path, limit: int
) -> None:
    spool = await opened(tmp_path)
    site = add(spool, "1", "2", "3", "4", "5")
    first = list(spool.take_pages(site, 3))
    assert [page.url for page in first] == ["1", "2", "3"]
    spool.delete_pages([first[1].id])
    spool.close()
    spool = await opened(tmp_path)
    assert spool.waiting == 4
    found = []
    while (site := next_of(spool.proven)) is not None:
        found += [
            (page.url, page.id <= site.sent) for page in spool.take_pages(site, limit)
        ]
    assert found == [("1", True), ("3", True), ("4", False), ("5", False)]
    assert spool.waiting == 0
    # Those are still in the file.
    site = add(spool, "6")
    assert [
        (page.url, page.id <= site.sent) for page in spool.take_pages(site, 10)
    ] == [("6", False)]
    spool.close()


@pytest.mark.parametrize("held", [True, False])
def test_the_row_of_a_page_goes_once_the_page_is_done(held: bool) -> None:
    """The hold says once it has it on disk; a kill would empty a hold in memory."""
    following = Following(Crawler(Spider))
    outstanding = Outstanding(Spool(None, 1.0, None), following)
    request = Request(f"{A}/1")
    outstanding.add(request, 7, Site(1, A, A, True, 0, 0))
    for trail in following._trails:
        trail.note_scheduled(request)
    outstanding.note_sent(7)
    outstanding.note_held(request.replace(meta={}))
    assert outstanding.total == 1
    outstanding.note_held(request)
    assert outstanding.total == 0
    assert outstanding.finished == []
    if held:
        following.note_stored(request)
    else:
        for trail in following._trails:
            trail.note_taken(request)
            trail.note_ended(request)
    assert outstanding.finished == [7]


def test_each_spelling_of_an_origin_is_remembered() -> None:
    """For the fast path of the middleware."""
    seeding = SitemapSeeding.__new__(SitemapSeeding)
    seeding.visited_prefixes = set()
    seeding._discovery = SimpleNamespace(mode="all")  # type: ignore[assignment]
    seeding._cache = SimpleNamespace(get=lambda _: None)  # type: ignore[assignment]
    for url in (f"{A}:80/1", f"{A}:80", f"{A}/2"):
        assert seeding.look_at(Request(url), checked=True) is None
    assert seeding.visited_prefixes == {f"{A}/", f"{A}:80/"}
