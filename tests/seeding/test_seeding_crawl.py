"""REP.md section 9, whole: what sitemaps list is what is fetched."""

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
from scrapy.utils.asyncio import call_later

from scrapy_rep.seeding.spool import FILE_NAME
from tests.helpers.behaviours import RULES, after, answer, gzipped
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import (
    SeededSpider,
    atom,
    index,
    pages,
    rss,
    urlset,
)

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

ON = {"REP_SITEMAPS": True}


def some(site: Site, name: str, count: int = 5) -> list[str]:
    return [site.url(f"/{name}/{number}") for number in range(count)]


@pytest.mark.loop
async def test_what_is_fetched_is_what_is_listed(sites: Sites) -> None:
    """Nested indexes, gz, text, RSS, Atom, two hosts; rules forbid some pages and one sitemap."""
    one = sites.add(name="one.test")
    two = sites.add(name="two.test")
    maps = sites.add(name="maps.test")
    xml = {"type": "application/xml"}
    wanted: list[str] = []
    files: dict[Site, dict[str, Any]] = {one: {}, two: {}, maps: {}}

    def listed(site: Site, name: str, count: int = 5) -> list[str]:
        urls = some(site, name, count)
        wanted.extend(urls)
        return urls

    forbidden = some(one, "private/pages")
    files[one] = {
        "/index.xml": answer(
            index([one.url("/deep.xml?x=1"), one.url("/plain.txt"), one.url("/private/map.xml")]),
            **xml,
        ),
        "/deep.xml": answer(
            index([one.url("/urlset.gz"), one.url("/feed"), one.url("/news"), two.url("/s.xml")]),
            type="text/plain",
        ),
        # gzip that no header and no name tells of
        "/urlset.gz": answer(
            gzip.compress(urlset(listed(one, "gz") + forbidden).encode()),
            type="application/octet-stream",
        ),
        "/plain.txt": "\n".join(listed(one, "text")),
        "/feed": answer(rss(listed(one, "rss")), type="application/rss+xml"),
        "/news": answer(atom(listed(one, "atom")), type="text/html"),
        "/private/map.xml": urlset(some(one, "never")),
    }
    files[two] = {
        # gzip once for the way, and once more because it is a .gz
        "/s.xml": gzipped(gzip.compress(urlset(listed(two, "two") + wanted[:3]).encode())),
    }
    files[maps] = {"/of-one.xml": gzipped(urlset(listed(one, "elsewhere")).encode())}
    for site, behaviours in files.items():
        for path, behaviour in behaviours.items():
            site.set(path, behaviour)
    one.set(
        "/robots.txt",
        RULES + f"Sitemap: {one.url('/index.xml')}\nSitemap: {maps.url('/of-one.xml')}\n",
    )
    # Both list the index, so both may be in what it leads to.
    two.set("/robots.txt", f"Sitemap: {one.url('/index.xml')}\n")

    result = await crawl(SeededSpider, ON, requests=[one.url("/start")])
    assert pages(result) == sorted(wanted)
    assert result.stat("robotstxt/forbidden") == len(forbidden) + 1
    assert result.stat("rep/sitemaps/found") == 9
    assert result.stat("rep/sitemaps/fetched") == 8
    assert result.stat("rep/sitemaps/failed") == 1
    assert result.stat("rep/sitemaps/waiting") == 0
    assert result.stat("rep/sitemaps/urls") == len(wanted) + len(forbidden) + 3 + 7
    assert len(lines(result, "accepted")) == 8
    for site in (one, two, maps):
        assert site.count("/robots.txt") == 1
        assert max([site.count(path) for path in files[site]] or [0]) <= 1
    result.assert_clean()


@pytest.mark.loop
@pytest.mark.slow
async def test_the_scheduler_has_few_at_a_time(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page requests go there as fast as it drains; the rest waits on disk."""
    monkeypatch.setattr("scrapy_rep.seeding.feeder._ALONE", 50)
    site = sites.add()
    wanted = some(site, "page", 400)
    site.set("/map.xml", urlset(wanted))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    sizes, waiting = [], []

    def scheduled(spider: Any) -> None:
        sizes.append(len(spider.crawler.engine._slot.scheduler))
        waiting.append(spider.crawler.stats.get_value("rep/sitemaps/waiting", 0))

    result = await crawl(
        SeededSpider,
        ON,
        requests=[site.url("/start")],
        signal_handlers={signals.request_scheduled: scheduled},
    )
    assert pages(result) == sorted(wanted)
    assert 25 < max(sizes) <= 51
    assert max(waiting) >= 200
    assert result.stat("rep/sitemaps/waiting") == 0
    assert result.stat("rep/sitemaps/emitted") == 400
    result.assert_clean()


@pytest.mark.loop
async def test_sites_have_turns(sites: Sites) -> None:
    """A slow site with many pages does not keep the others waiting."""
    slow, quick = sites.add(), sites.add()
    for site, count, seconds in ((slow, 2000, 0.5), (quick, 30, 0.0)):
        site.set("/map.xml", urlset(some(site, "page", count)))
        site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
        for url in some(site, "page", count):
            site.set(url.removeprefix(site.url("")), after(seconds, "a page"))

    def responded(response: Any, spider: Any) -> None:
        if quick.url("/page") in response.url:
            done.append(response.url)
            if len(done) == 30:
                stop(spider.crawler)

    def stop(crawler: Any) -> None:
        from scrapy.utils.defer import deferred_from_coro

        deferred_from_coro(crawler.engine.close_spider_async(reason="enough"))

    done: list[str] = []
    result = await crawl(
        SeededSpider,
        {**ON, "CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 4},
        requests=[slow.url("/start"), quick.url("/start")],
        signal_handlers={signals.response_received: responded},
    )
    assert result.reason == "enough"
    assert len([hit for hit in slow.requests if hit.path.startswith("/page")]) < 100


class FailingScheduler(Scheduler):
    """Its server is gone now and then."""

    asked = 0

    def enqueue_request(self, request: Request) -> bool:
        if "/start" not in request.url:
            FailingScheduler.asked += 1
            if FailingScheduler.asked % 7 == 3:
                raise ConnectionError("no scheduler today")
        return super().enqueue_request(request)


@pytest.mark.loop
async def test_a_scheduler_that_raises(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and nothing comes twice."""
    monkeypatch.setattr("scrapy_rep.seeding.feeder._RETRY_SECONDS", 0.01)
    FailingScheduler.asked = 0
    site = sites.add()
    wanted = some(site, "page", 40)
    site.set("/index.xml", index([site.url("/a.xml"), site.url("/b.xml")]))
    site.set("/a.xml", urlset(wanted[:20]))
    site.set("/b.xml", urlset(wanted[20:]))
    site.set("/robots.txt", f"Sitemap: {site.url('/index.xml')}\n")
    result = await crawl(
        SeededSpider, {**ON, "SCHEDULER": FailingScheduler}, requests=[site.url("/start")]
    )
    assert pages(result) == sorted(wanted)
    assert [site.count(path) for path in ("/index.xml", "/a.xml", "/b.xml")] == [1, 1, 1]
    assert lines(result, "Can't schedule pages from sitemaps", level="ERROR")
    assert result.reason == "finished"


class FailingDupeFilter(RFPDupeFilter):
    """Remembers what it can't write to its file, as Scrapy's own does when the disk is full."""

    asked = 0

    def request_seen(self, request: Request) -> bool:
        seen = super().request_seen(request)
        if "/start" not in request.url:
            FailingDupeFilter.asked += 1
            if FailingDupeFilter.asked % 7 == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
        return seen


@pytest.mark.loop
async def test_a_dupe_filter_that_raises(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the page already when that is handed over once more."""
    monkeypatch.setattr("scrapy_rep.seeding.feeder._RETRY_SECONDS", 0.01)
    FailingDupeFilter.asked = 0
    site = sites.add()
    wanted = some(site, "page", 40)
    site.set("/map.xml", urlset(wanted))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    result = await crawl(
        SeededSpider, {**ON, "DUPEFILTER_CLASS": FailingDupeFilter}, requests=[site.url("/start")]
    )
    assert pages(result) == sorted(wanted)
    assert lines(result, "Can't schedule pages from sitemaps", level="ERROR")
    assert not any(one.exc_info for one in result.records)
    assert result.reason == "finished"


class Failing(sqlite3.Connection):
    """The file's, from one of its calls on, for so many: those that read, or those that write."""

    verb, first, last = "", 0, 0
    calls = 0

    def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
        opening = Failing.calls < Failing.first and current_thread() is not main_thread()
        if query.startswith(Failing.verb) and not opening:
            Failing.calls += 1
            if Failing.first <= Failing.calls < Failing.last:
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(query, *values)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    for module in ("spool", "feeder", "loader"):
        monkeypatch.setattr(f"scrapy_rep.seeding.{module}.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("scrapy_rep.engine.timers._PERIOD_SECONDS", 0.05)

    def connected(path: Path | None, seconds: float) -> sqlite3.Connection:
        kind = Failing if path is None or path.name == FILE_NAME else sqlite3.Connection
        return sqlite3.connect(
            path or "", seconds, isolation_level=None, check_same_thread=False, factory=kind
        )

    monkeypatch.setattr("scrapy_rep.storages.journal.connect", connected)
    Failing.calls = 0
    return Failing


@pytest.mark.loop
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("verb", ["SELECT", "COMMIT"])
async def test_a_disk_that_fails(sites: Sites, failing: type[Failing], verb: str) -> None:
    """For good. The crawl ends all the same, with one warning when that begins and an error when
    the time to wait is over."""
    failing.verb, failing.first, failing.last = verb, 3, 10**9
    site = sites.add()
    site.set("/map.xml", urlset(some(site, "page")))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    settings = {**ON, "REP_DEFER_MAX_WAIT": 0.5}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert result.reason == "finished"
    assert result.status(site.url("/start")) == 200
    [error] = lines(result, level="ERROR")
    assert "has failed for 0.5 seconds" in error
    assert len(lines(result, "seeding waits", level="WARNING")) == 1
    assert all(one.exc_info is None for one in result.records)


@pytest.mark.parametrize("first", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("verb", ["SELECT", "COMMIT"])
async def test_a_disk_that_fails_for_a_while(
    sites: Sites, tmp_path: Path, failing: type[Failing], verb: str, first: int
) -> None:
    """Whatever fails: it is waited for, and nothing is lost, read twice or requested twice."""
    failing.verb, failing.first, failing.last = verb, first, first + 5
    site = sites.add()
    wanted = some(site, "page", 150)
    site.set("/index.xml", index([site.url("/a.xml"), site.url("/b.xml")]))
    site.set("/a.xml", urlset(wanted[:75]))
    site.set("/b.xml", urlset(wanted[75:]))
    site.set("/robots.txt", f"Sitemap: {site.url('/index.xml')}\n")
    settings = {**ON, "JOBDIR": str(tmp_path)}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert failing.calls >= failing.last
    assert pages(result) == sorted(wanted)
    assert [site.count(path) for path in ("/index.xml", "/a.xml", "/b.xml")] == [1, 1, 1]
    assert result.reason == "finished"
    assert lines(result, level="ERROR") == []
    assert len(lines(result, "Can't use", level="WARNING")) == 1
    assert all(one.exc_info is None for one in result.records)


@pytest.mark.loop
async def test_one_step_at_a_time(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wakes the feeder, and however often: the event loop has its turn after each step."""
    pending, most = 0, 0

    def counting(delay: float, function: Any, *arguments: Any) -> Any:
        nonlocal pending, most

        def run() -> None:
            nonlocal pending
            pending -= 1
            function(*arguments)

        pending += 1
        most = max(most, pending)
        return call_later(delay, run)

    monkeypatch.setattr("scrapy_rep.seeding.feeder.call_later", counting)
    site = sites.add()
    # Most are dropped by the dupe filter as soon as they are handed over.
    site.set("/map.xml", urlset(some(site, "page", 20) * 50))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    result = await crawl(SeededSpider, ON, requests=[site.url("/start")])
    assert pages(result) == sorted(some(site, "page", 20))
    assert result.stat("rep/sitemaps/emitted") == 1000
    assert most == 1
    result.assert_clean()
