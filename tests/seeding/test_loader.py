"""Which sitemaps are asked for when: the spool knows, and nothing in memory grows with their hosts."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol.entries import Kind
from scrapy_rep.seeding.discovery import SITEMAP_KEY, SpiderOptions
from scrapy_rep.seeding.loader import Loader
from scrapy_rep.seeding.selection import Reason, Selection
from scrapy_rep.seeding.since import Since
from scrapy_rep.seeding.spool import ASKED, DONE, SeedingContext
from scrapy_rep.settings import RepSettings
from tests.helpers.files import connections_to
from tests.seeding.spools import new_spool


class WaitingSitemaps:
    """Sitemaps that wait, and a scheduler that takes what is asked for."""

    def __init__(self, *, foreign: bool = False) -> None:
        self.spool = new_spool()
        self.scheduled: list[str] = []
        self.requests: dict[str, Request] = {}
        crawl = CrawlContext(get_crawler(), RepSettings(), time.time)
        self.following = crawl.engine.following
        engine: Any = SimpleNamespace(
            crawl=self.crawl, scheduler_is_foreign=foreign, following=self.following
        )
        crawl.engine = engine
        origins: Any = SimpleNamespace(
            targets=None, cache=SimpleNamespace(get=lambda _: None)
        )
        nothing: Any = None
        self.context = SeedingContext(
            crawl, origins, nothing, SpiderOptions(None), self.spool, Since(crawl, None)
        )
        self.loader = Loader(self.context, nothing)

    def crawl(self, request: Request) -> None:
        self.scheduled.append(request.meta[SITEMAP_KEY]["url"])
        self.requests[request.meta[SITEMAP_KEY]["url"]] = request
        for trail in self.following._trails:
            trail.note_scheduled(request)

    def add(self, *places: str, each: int = 1) -> list[str]:
        found = {
            f"{place}/{number}.xml": place for place in places for number in range(each)
        }
        for place in places:
            some = {url: host for url, host in found.items() if host == place}
            assert self.spool.add_sitemaps(place, some) == ([*some], [])
        return list(found)

    def request(self) -> None:
        """Request what may be: a slow machine takes several steps."""
        while self.loader.request_some():
            pass

    def come(self, url: str) -> None:
        sitemap = self.spool.unfinished_sitemap(url)
        assert sitemap is not None
        self.loader._mark(sitemap, DONE)

    @property
    def asked(self) -> list[str]:
        return [sitemap.url for sitemap in self.loader.places._asked.values()]


def hosts(count: int) -> list[str]:
    return [f"http://h{number}.example" for number in range(count)]


def host_of(url: str) -> str:
    return url.split("/")[2]


@pytest.mark.parametrize(("count", "each"), [(1, 7), (50, 3), (17, 2)])
def test_each_once_and_two_of_a_host_at_a_time(count: int, each: int) -> None:
    world = WaitingSitemaps()
    urls = world.add(*hosts(count), each=each)
    world.request()
    while world.asked:
        under_way = world.asked
        assert len(under_way) <= 33  # the last host may have two
        assert max(Counter(map(host_of, under_way)).values()) <= 2
        world.come(under_way[0])
        world.request()
    assert sorted(world.scheduled) == sorted(urls)


def test_all_hosts_have_turns() -> None:
    world = WaitingSitemaps()
    world.add(*hosts(40), each=50)
    for _ in range(80):
        world.request()
        world.come(world.asked[0])
    turns = Counter(map(host_of, world.scheduled))
    assert len(turns) == 40
    assert max(turns.values()) - min(turns.values()) <= 2
    new = {*world.add("http://a.example", "http://z.example")}
    for _ in range(80):
        world.request()
        world.come(world.asked[0])
    assert new <= {*world.scheduled}


def test_a_step_looks_at_few_of_very_many_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = connections_to(None, monkeypatch)
    world = WaitingSitemaps()
    world.add(*hosts(2000))
    statements: list[str] = []
    connections[-1].set_trace_callback(statements.append)
    for _ in range(3):
        world.request()
        world.come(world.asked[0])
    assert len(statements) < 3 * 32 * 4
    kept = [value for value in vars(world.spool).values() if hasattr(value, "__len__")]
    assert max(map(len, kept)) <= 33


def test_a_scheduler_that_others_share_gets_all_but_what_they_have_asked_for() -> None:
    world = WaitingSitemaps(foreign=True)
    urls = world.add(*hosts(100), each=5)
    theirs = world.spool.unfinished_sitemap(urls.pop())
    assert theirs is not None
    world.spool.mark(theirs, ASKED)
    while world.loader.request_some():
        pass
    assert sorted(world.scheduled) == sorted(urls)
    assert not world.asked


async def test_entries_that_are_written_once_more_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file failed after some of them."""
    monkeypatch.setattr("scrapy_rep.seeding.spool.RETRY_SECONDS", 0)
    world, failing = (
        WaitingSitemaps(),
        {"FROM sites": "http://b.example", "FROM origins": "http://a.example"},
    )
    sitemap = world.spool.unfinished_sitemap(*world.add("http://a.example"))
    assert sitemap is not None
    read = world.spool._read
    reader: Any = SimpleNamespace(kind=Kind.URLSET)
    selection = Selection(world.context, sitemap, reader)

    def failing_once(query: str, *values: object) -> Any:
        for table, value in list(failing.items()):
            if table in query and value in values:
                del failing[table]
                raise sqlite3.OperationalError("disk I/O error")
        return read(query, *values)

    monkeypatch.setattr(world.spool, "_read", failing_once)
    urls = ("/invalid", "http://a.example/", "http://b.example/")
    await selection.add([{"loc": url} for url in urls])
    assert not failing
    assert (selection.rejected[Reason.INVALID], selection.accepted) == (1, 2)
    assert (world.spool.waiting, world.spool.counts("http://a.example")) == (2, (1, 2))
