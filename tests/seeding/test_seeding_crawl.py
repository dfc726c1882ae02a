"""REP.md section 9, whole: what sitemaps list is what is fetched, whatever fails meanwhile."""

from __future__ import annotations

import errno
import gzip
import sqlite3
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.core.scheduler import Scheduler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.seeding.spool import FILE_NAME
from tests.helpers.behaviours import RULES, answer, gzipped, in_turn, once
from tests.helpers.crawling import Clock, Step, StepSpider, crawl
from tests.helpers.files import impatient
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import (
    SeededSpider,
    atom,
    in_the_scheduler,
    index,
    listing,
    lists,
    pages,
    rss,
    seeded,
    urlset,
)

pytestmark = pytest.mark.slow
ON = {"REP_SITEMAPS": True}


def some(site: Site, name: str, count: int = 5) -> list[str]:
    return [site.url(f"/{name}/{number}") for number in range(count)]


def listed(site: Site, count: int) -> list[str]:
    lists(site, "/index.xml").set(
        "/index.xml", index([site.url("/a.xml"), site.url("/b.xml")])
    )
    wanted = some(site, "page", count)
    site.set("/a.xml", urlset(wanted[::2]))
    site.set("/b.xml", urlset(wanted[1::2]))
    return sorted(wanted)


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_what_is_fetched_is_what_is_listed(sites: Sites) -> None:
    one, two, maps = (sites.add(name=f"{name}.test") for name in ("one", "two", "maps"))
    names = ["gz", "text", "rss", "atom", "elsewhere"]
    urls = {name: some(one, name) for name in names} | {"two": some(two, "two")}
    wanted = [url for listed in urls.values() for url in listed]
    forbidden = some(one, "private/pages")
    xml = {"type": "application/xml"}
    top = ["/deep.xml?x=1", "/plain.txt", "/private/map.xml"]
    deep = [*map(one.url, ("/urlset.gz", "/feed", "/news")), two.url("/s.xml")]
    one.set("/index.xml", answer(index(map(one.url, top)), **xml))
    one.set("/deep.xml", answer(index(deep), type="text/plain"))
    # gzip that no header and no name tells of
    packed = gzip.compress(urlset(urls["gz"] + forbidden).encode())
    one.set("/urlset.gz", answer(packed, type="application/octet-stream"))
    one.set("/plain.txt", "\n".join(urls["text"]))
    one.set("/feed", answer(rss(urls["rss"]), type="application/rss+xml"))
    one.set("/news", answer(atom(urls["atom"]), type="text/html"))
    one.set("/private/map.xml", urlset(some(one, "never")))
    # gzip once for the way, and once more because it is a .gz
    two.set("/s.xml", gzipped(gzip.compress(urlset(urls["two"] + wanted[:3]).encode())))
    maps.set("/of-one.xml", gzipped(urlset(urls["elsewhere"]).encode()))
    there = [
        f"Sitemap: {url}\n" for url in (one.url("/index.xml"), maps.url("/of-one.xml"))
    ]
    one.set("/robots.txt", RULES + "".join(there))
    two.set("/robots.txt", there[0])  # so both may be in what the index leads to
    result = await seeded(one)
    assert pages(result) == sorted(wanted)
    assert result.stat("robotstxt/forbidden") == len(forbidden) + 1
    counts = [
        result.stat(f"rep/sitemaps/{name}")
        for name in ("found", "fetched", "failed", "urls")
    ]
    assert counts == [9, 8, 1, len(wanted) + len(forbidden) + 3 + 7]
    assert len(lines(result, "accepted")) == 8
    assert [site.count("/robots.txt") for site in (one, two, maps)] == [1, 1, 1]
    assert max(one.count(path) for path in one.pages if path.count("/") == 1) == 1


async def test_the_scheduler_has_few_at_a_time(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page requests go there as fast as it drains; the rest waits on disk."""
    in_the_scheduler(monkeypatch, 32)
    site, sizes, waiting = sites.add(), [0], [0]
    wanted = some(site, "page", 150)
    lists(site, "/map.xml").set("/map.xml", urlset(wanted))

    def scheduled(spider: Any) -> None:
        sizes.append(len(spider.crawler.engine._slot.scheduler))
        waiting.append(spider.crawler.stats.get_value("rep/sitemaps/waiting", 0))

    handlers = {signals.request_scheduled: scheduled}
    result = await crawl(
        SeededSpider, ON, requests=[site.url("/start")], signal_handlers=handlers
    )
    assert pages(result) == sorted(wanted)
    assert 16 < max(sizes) <= 33
    assert max(waiting) >= 75
    assert result.stat("rep/sitemaps/waiting") == 0
    assert result.stat("rep/sitemaps/emitted") == 150
    result.assert_clean()


async def test_sites_have_turns(sites: Sites) -> None:
    slow, quick, done = sites.add(), sites.add(), []
    for site, count in ((slow, 1000), (quick, 12)):
        lists(site, "/map.xml").set("/map.xml", urlset(some(site, "page", count)))
    when_the_other_is_done = once(lambda: len(done) >= 12)
    for url in some(slow, "page", 1000):
        slow.set(url.removeprefix(slow.url("")), when_the_other_is_done)

    def responded(response: Any, spider: Any) -> None:
        if quick.url("/page") in response.url:
            done.append(response.url)
            if len(done) == 12:
                deferred_from_coro(
                    spider.crawler.engine.close_spider_async(reason="enough")
                )

    settings = {**ON, "CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    handlers = {signals.response_received: responded}
    starts = [slow.url("/start"), quick.url("/start")]
    result = await crawl(
        SeededSpider, settings, requests=starts, signal_handlers=handlers
    )
    assert result.reason == "enough"


class SeventhFails:
    """Every seventh call fails."""

    asked = 0

    @classmethod
    def now_and_then(cls, request: Request, error: Exception) -> None:
        cls.asked += "/start" not in request.url
        if "/start" not in request.url and cls.asked % 7 == 3:
            raise error


class FailingScheduler(SeventhFails, Scheduler):
    def enqueue_request(self, request: Request) -> bool:
        self.now_and_then(request, ConnectionError("no scheduler today"))
        return super().enqueue_request(request)


class FailingDupeFilter(SeventhFails, RFPDupeFilter):
    """Like Scrapy's on a full disk: it raises, but knows the page when that comes once more."""

    def request_seen(self, request: Request) -> bool:
        seen = super().request_seen(request)
        self.now_and_then(request, OSError(errno.ENOSPC, "No space left on device"))
        return seen


@pytest.mark.parametrize(
    "settings",
    [{"SCHEDULER": FailingScheduler}, {"DUPEFILTER_CLASS": FailingDupeFilter}],
)
async def test_a_scheduler_that_raises(
    sites: Sites,
    settings: dict[str, type[SeventhFails]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scrapy_rep.seeding.seeding.RETRY_SECONDS", 0.01)
    for failing in settings.values():
        failing.asked = 0
    site = sites.add()
    wanted = listed(site, 40)
    result = await crawl(
        SeededSpider, {**ON, **settings}, requests=[site.url("/start")]
    )
    assert pages(result) == wanted
    assert [site.count(path) for path in ("/index.xml", "/a.xml", "/b.xml")] == [
        1,
        1,
        1,
    ]
    assert len(lines(result, "Can't schedule pages from sitemaps", level="ERROR")) >= 1
    assert result.reason == "finished"
    assert not any(one.exc_info for one in result.records)


class FailingFile(sqlite3.Connection):
    """Fails from one of its calls on, for so many: those that read, or those that write."""

    verb, first, last = "", 0, 0
    calls = 0

    def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
        self.fail(query)
        return super().execute(query, *values)

    def __exit__(self, *error: object) -> Any:
        try:
            self.fail("COMMIT")
        except sqlite3.Error:
            self.rollback()
            raise
        return super().__exit__(*error)

    def fail(self, query: str) -> None:
        kind = FailingFile
        opening = kind.calls < kind.first and current_thread() is not main_thread()
        if query.startswith(kind.verb) and not opening:
            kind.calls += 1
            if kind.first <= kind.calls < kind.last:
                raise sqlite3.OperationalError("disk I/O error")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[FailingFile]:
    impatient(monkeypatch)

    def connected(path: Path | None, seconds: float) -> sqlite3.Connection:
        ours = path is None or path.name == FILE_NAME
        kind = FailingFile if ours else sqlite3.Connection
        return sqlite3.connect(
            path or "",
            timeout=seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=kind,
        )

    monkeypatch.setattr("scrapy_rep.storages.journal.connect", connected)
    FailingFile.calls = 0
    return FailingFile


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("verb", ["SELECT", "COMMIT"])
async def test_a_disk_that_fails(
    sites: Sites, failing: type[FailingFile], verb: str
) -> None:
    """The crawl ends all the same, once the time to wait is over."""
    failing.verb, failing.first, failing.last = verb, 3, 10**9
    site = sites.add()
    lists(site, "/map.xml").set("/map.xml", urlset(some(site, "page")))
    settings = {**ON, "REP_HOLD_MAX_WAIT": 0.3}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert result.reason == "finished"
    assert result.status(site.url("/start")) == 200
    [warning] = lines(result, "Can't use", level="WARNING")
    assert "seeding waits up to 0.3 seconds for it, then ends for this run" in warning
    assert lines(result, level="ERROR") == []
    assert all(one.exc_info is None for one in result.records)


@pytest.mark.loop
@pytest.mark.parametrize(
    ("verb", "first"), [("SELECT", 1), ("SELECT", 8), ("COMMIT", 1), ("COMMIT", 4)]
)
async def test_a_disk_that_fails_for_a_while(
    sites: Sites, tmp_path: Path, failing: type[FailingFile], verb: str, first: int
) -> None:
    failing.verb, failing.first, failing.last = verb, first, first + 5
    site = sites.add()
    wanted = listed(site, 60)
    settings = {**ON, "JOBDIR": str(tmp_path)}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert failing.calls >= failing.last
    assert pages(result) == wanted
    assert [site.count(path) for path in ("/index.xml", "/a.xml", "/b.xml")] == [
        1,
        1,
        1,
    ]
    assert result.reason == "finished"
    assert lines(result, level="ERROR") == []
    assert len(lines(result, "Can't use", level="WARNING")) == 1
    assert all(one.exc_info is None for one in result.records)


async def test_a_new_robots_txt_lists_more_sitemaps(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its origin seeds already."""
    site, clock = sites.add(), Clock().install(monkeypatch)
    site.set("/a.xml", urlset([site.url("/1")]))
    site.set("/b.xml", urlset([site.url("/2")]))
    first = listing(site.url("/a.xml"))
    second = listing(site.url("/a.xml"), site.url("/b.xml"))
    site.set("/robots.txt", in_turn(first, second))
    steps: list[Step] = [site.url("/start"), 90_000, site.url("/again")]
    result = await crawl(StepSpider, {"REP_SITEMAPS": True}, steps=steps, clock=clock)
    assert site.count("/robots.txt") == 2
    assert site.url("/2") in pages(result)
