"""Which sitemaps are asked for when: the spool knows, and nothing in memory grows with their hosts."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.seeding import loader as module
from scrapy_rep.seeding.discovery import SITEMAP, SpiderOptions
from scrapy_rep.seeding.loader import SitemapRequester
from scrapy_rep.seeding.spool import ASKED, SeedingContext, Spool, _recover
from scrapy_rep.settings import RepSettings


class World:
    """Sitemaps that wait, and a scheduler that takes what is asked for."""

    def __init__(self, *, foreign: bool = False) -> None:
        self.spool = Spool(None, 1.0, None)
        assert self.spool._journal.open(_recover)
        self.scheduled: list[str] = []
        engine: Any = SimpleNamespace(crawl=self.crawl, scheduler_is_foreign=foreign)
        self.woken = 0
        crawl = CrawlContext(get_crawler(), RepSettings(), engine, time.time)
        context = SeedingContext(crawl, SpiderOptions(None), self.spool)
        self.asking = SitemapRequester(context, self.wake)
        self.asking.open()

    def crawl(self, request: Request) -> None:
        self.scheduled.append(request.meta[SITEMAP]["url"])

    def wake(self) -> None:
        self.woken += 1

    def add(self, hosts: int, each: int) -> list[str]:
        urls = []
        for host in range(hosts):
            place = f"http://h{host}.example"
            for number in range(each):
                urls.append(f"{place}/{number}.xml")
                assert self.spool.sitemaps.add(urls[-1], place, place, ())
                self.asking.added()
        return urls

    def come(self, url: str) -> None:
        sitemap = self.spool.sitemaps.get(url)
        assert sitemap is not None
        self.spool.sitemaps.done(sitemap)
        self.asking.finished(url)


def host_of(url: str) -> str:
    return url.split("/")[2]


@pytest.mark.parametrize(("hosts", "each"), [(1, 7), (3, 5), (100, 1), (50, 3), (16, 2), (17, 2)])
def test_each_once_and_two_of_a_host_at_a_time(hosts: int, each: int) -> None:
    world = World()
    assert not world.asking
    urls = world.add(hosts, each)
    assert world.asking
    assert world.woken == len(urls)
    while world.asking:
        assert world.asking.request_some() is False  # to go on when one has come
        under_way = world.asking.outstanding
        assert len(under_way) <= 33  # the last host may have two
        assert max(Counter(map(host_of, under_way)).values()) <= 2
        world.come(under_way[0])
    assert sorted(world.scheduled) == sorted(urls)


def test_all_hosts_have_turns() -> None:
    """A host that has many does not keep the others waiting."""
    world = World()
    world.add(40, 50)
    for _ in range(80):
        world.asking.request_some()
        world.come(world.asking.outstanding[0])
    turns = Counter(map(host_of, world.scheduled))
    assert len(turns) == 40
    assert max(turns.values()) - min(turns.values()) <= 2


def test_new_hosts_are_seen_wherever_the_turn_is() -> None:
    world = World()
    world.add(5, 1)
    world.asking.request_some()
    for place in ("http://a.example", "http://z.example"):
        world.spool.sitemaps.add(f"{place}/x.xml", place, place, ())
        world.asking.added()
    world.asking.request_some()
    assert {*world.asking.outstanding} >= {"http://a.example/x.xml", "http://z.example/x.xml"}


def test_a_step_looks_at_few_of_very_many_hosts() -> None:
    """Nor is any of them remembered."""
    world = World()
    world.add(3000, 1)
    statements: list[str] = []
    world.spool._journal._db.set_trace_callback(statements.append)
    for _ in range(3):
        world.asking.request_some()
        world.come(world.asking.outstanding[0])
    assert len(statements) < 3 * 32 * 4
    kept = [value for value in vars(world.asking).values() if hasattr(value, "__len__")]
    assert max(map(len, kept)) <= 33


@pytest.mark.parametrize("foreign", [False, True])
def test_everything_goes_at_the_end(foreign: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In slices, however short they are."""
    monkeypatch.setattr("scrapy_rep.engine.pause.SLICE_SECONDS", 0.0)
    world = World(foreign=foreign)
    urls = world.add(20, 60)
    steps = 1
    while world.asking.request_some(everything=True):
        steps += 1
    assert sorted(world.scheduled) == sorted(urls)
    assert steps >= 20


def test_a_scheduler_that_others_share_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(foreign=True)
    urls = world.add(100, 5)
    while world.asking.request_some():
        pass
    assert sorted(world.scheduled) == sorted(urls)
    assert not world.asking


def test_what_another_process_has_asked_for_is_not_asked_for_here() -> None:
    world = World(foreign=True)
    place = "http://h0.example"
    world.spool.sitemaps.add(f"{place}/theirs.xml", place, place, (), state=ASKED)
    [ours] = world.add(1, 1)
    while world.asking.request_some():
        pass
    assert world.scheduled == [ours]


def test_what_the_scheduler_did_not_take_is_asked_for_again() -> None:
    world = World()
    urls = world.add(3, 1)
    taken, world.crawl = world.crawl, failing  # type: ignore[method-assign]
    world.asking._engine.crawl = world.crawl
    with pytest.raises(ConnectionError):
        world.asking.request_some()
    assert world.asking
    world.asking._engine.crawl = taken
    world.asking.request_some()
    assert sorted(world.scheduled) == urls


def failing(request: Request) -> None:
    raise ConnectionError


def test_no_more_while_very_many_pages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGES_ENOUGH", 5)
    world = World()
    world.add(3, 1)
    world.spool.waiting = 5
    assert world.asking.request_some() is False
    assert world.scheduled == []
    assert world.asking
