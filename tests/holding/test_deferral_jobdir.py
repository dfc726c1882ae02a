"""Held requests under JOBDIR, over several runs; paused crawls; and requests that come back from the hold
unchanged."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.http import Response

from scrapy_rep import RepMiddleware
from tests.helpers.behaviours import RULES, in_turn, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import (
    DEFER,
    NEVER,
    Gate,
    KeepingSpider,
    Record,
    as_soon_as,
    assert_clean,
    assert_no_errors,
    later,
    silent_until_open,
    urls,
    when_open,
)
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.slow


def rows(directory: Path) -> int:
    """How many requests an ended run left on disk."""
    db = sqlite3.connect(directory / "rep-held.sqlite")
    (count,) = db.execute("SELECT count(*) FROM held").fetchone()
    db.close()
    return int(count)


@pytest.mark.scrapy_api
async def test_on_disk_from_the_moment_they_are_held(sites: Sites, tmp_path: Path) -> None:
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    counts = []

    def look(_: Spider, count: int) -> None:
        counts.append(rows(tmp_path))
        if count == 20:
            gate.open()

    record = Record(on_deferred=look)
    settings = {**DEFER, "JOBDIR": str(tmp_path)}
    result = await record.crawl(urls(site, 20), **settings)
    # Those that waited together are written together.
    assert all(count >= number for number, count in enumerate(counts, 1)) and counts[-1] == 20
    assert len(result.responses) == 20
    assert rows(tmp_path) == 0
    assert_clean(result)


async def test_those_about_to_leave_are_on_disk_after_a_stop(sites: Sites, tmp_path: Path) -> None:
    """Also the one that is next, and has no download slot so far."""
    busy, robots = Gate("x", "x"), silent_until_open()
    busy.before = when_open(busy, "x")
    site = sites.add(robots=robots, pages={f"/page{number}": busy for number in range(10)})
    record = Record()

    def all_wait() -> bool:
        return record.engine.spider.crawler.stats.get_value("scheduler/dequeued", 0) == 10

    def stop() -> None:
        middleware: Any = record.engine.spider.crawler.get_downloader_middleware(RepMiddleware)
        record.close()
        as_soon_as(lambda: middleware._deferral.closing, busy.open)

    def reached(request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            as_soon_as(all_wait, robots.open)
        else:
            later(0.1, stop)

    record.handlers[scrapy_signals.request_reached_downloader] = reached
    settings = {**DEFER, "JOBDIR": str(tmp_path), "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    result = await record.crawl(urls(site, 10), **settings, REP_DEFER_GRACE=NEVER)
    assert len(result.responses) == 1
    assert "rep/handed_back" not in result.stats
    assert rows(tmp_path) == 9
    result = await crawl([], settings)
    assert len(result.responses) == 9
    assert_clean(result)


async def test_given_up_but_kept(sites: Sites, tmp_path: Path) -> None:
    """REP_DEFER_MAX_WAIT ends the wait in this run; the next one waits anew."""
    site = sites.add(robots=503)
    settings = {**DEFER, "JOBDIR": str(tmp_path), "REP_DEFER_MAX_WAIT": 0.2}
    for _ in range(2):
        result = await crawl([] if _ else urls(site, 5), settings)
        assert len(result.failures) == result.stat("rep/given_up") == 5
        assert rows(tmp_path) == 5
        assert_clean(result)
    site.set("/robots.txt", RULES)
    # That may be less than it takes to start and to ask.
    result = await crawl([], {**settings, "REP_DEFER_MAX_WAIT": NEVER})
    assert set(result.responses) == set(urls(site, 5))
    assert rows(tmp_path) == 0
    assert_clean(result)


async def test_waiting_goes_on_in_the_next_run(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 60 seconds in the first run, it is more than 50 in the second already; what lies
    between the runs does not count."""
    passed = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed, time=time.time)
    monkeypatch.setattr("scrapy_rep.holding.held_origins.time", clock)
    site = sites.add(robots=503)
    settings = {**DEFER, "JOBDIR": str(tmp_path), "REP_RETRY_MAX_DELAY": 0.1}
    record = Record()

    def wait_and_close() -> None:
        nonlocal passed
        passed += 60
        later(0.1, record.close)

    record.on_deferred = lambda _, count: later(0.1, wait_and_close) if count == 5 else None
    for limit, reason in ((1000, "enough"), (90, "enough"), (50, "finished")):
        result = await record.crawl(
            urls(site, 5) if limit == 1000 else [], **settings, REP_DEFER_MAX_WAIT=limit
        )
        assert result.reason == reason
        assert len(result.failures) == (5 if limit == 50 else 0)
        assert_no_errors(result)
        passed += 1000
        record = Record()
        # Enough to tell that nothing was given up at once.
        record.on_resolved = lambda r=record: r.close() if len(r.resolved) == 3 else None


class RenamedSpider(ListSpider):
    """Its callback has another name than in the run before."""

    def parse_renamed(self, response: Any) -> None:
        self.responses.append(response)

    def recorded(self, request: str | Request) -> Request:
        return super().recorded(request).replace(callback=self.parse_renamed)


async def test_some_can_not_be_read_any_more(sites: Sites, tmp_path: Path) -> None:
    """The spider has changed: one warning counts those whose callback is gone, the others are
    fetched."""
    site = sites.add(robots=503)
    settings = {**DEFER, "JOBDIR": str(tmp_path)}
    record = Record(on_deferred=lambda _, count: record.close() if count % 20 == 0 else None)
    for spider, paths in ((RenamedSpider, "/gone"), (ListSpider, "/there")):
        wanted = urls(site, 20, paths)
        await record.crawl(spider, requests=wanted, **settings)
    assert rows(tmp_path) == 40

    site.set("/robots.txt", RULES)
    result = await crawl([], settings)
    assert set(result.responses) == set(urls(site, 20, "/there"))
    [line] = lines(result, "parse_renamed", level="WARNING")
    assert "20 held requests could not be read" in line
    assert result.stats["rep/held"] == 0


async def test_no_robots_txt_is_asked_for_during_a_pause(sites: Sites, tmp_path: Path) -> None:
    gate = Gate(503, RULES)
    busy, silent = sites.add(robots=gate), sites.add(robots=silence())
    asked: list[str] = []
    counts: list[int] = []

    def reached(request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            asked.append(request.url)

    def look() -> None:
        if record.engine.downloader.active:  # a robots.txt that was asked for before
            later(0.05, look)
        else:
            counts.append(len(asked))
            later(0.4, unpause)

    def unpause() -> None:
        counts.append(len(asked))
        gate.open()
        silent.set("/robots.txt", RULES)
        record.engine.unpause()

    def pause(spider: Spider, count: int) -> None:
        if count == 30:
            record.engine.pause()
            later(0.05, look)

    record = Record(on_deferred=pause)
    record.handlers[scrapy_signals.request_reached_downloader] = reached
    settings = {
        **DEFER,
        "REP_RETRY_MAX_DELAY": 0.1,
        "REP_DEFER_GRACE": 0.1,
        "JOBDIR": str(tmp_path),
    }
    result = await crawl(
        [*urls(busy, 15), *urls(silent, 15)],
        # It times out during the pause.
        {**settings, "REP_DOWNLOAD_TIMEOUT": 0.25},
        signal_handlers=record.handlers,
    )
    assert counts[0] == counts[1]
    assert len(result.responses) == 30
    assert result.failures == {}
    assert record.dropped == []
    assert_clean(result)


async def test_objects_in_memory_are_the_same_objects(sites: Sites) -> None:
    """Without JOBDIR there is no copying: a request may carry what can't be copied."""
    site, things = sites.add(robots=in_turn(503, RULES)), [object(), lambda: None]
    request = Request(site.url("/x"), meta={"things": things}, cb_kwargs={"things": things})
    record = Record()
    result = await record.crawl(KeepingSpider, requests=[request])
    [response] = result.spider.responses
    assert response.meta["things"] is response.cb_kwargs["things"] is things
    assert record.deferred == [request.url]
    assert_clean(result)


@pytest.mark.scrapy_api
@pytest.mark.usefixtures("in_time")
async def test_a_request_held_on_disk_keeps_all_its_attributes(
    sites: Sites, tmp_path: Path
) -> None:
    """Two sites, one of which has its requests held: callbacks and servers see the same."""
    gate = Gate(503, RULES)
    healthy, down = sites.add(robots=RULES), sites.add(robots=gate)

    def requests_to(site: Site) -> list[Request]:
        common: dict[str, Any] = {
            "cb_kwargs": {"number": 1, "thing": (1, 2)},
            "meta": {"thing": {1, 2}, "list": [1, {"a": b"\xff"}], "rep_user_agent": "me"},
            "priority": 7,
            "headers": {"X-One": ["1", "2"], "User-Agent": "me/1.0"},
            "cookies": {"session": "abc"},
            "flags": ["flag"],
            "dont_filter": True,
        }
        return [
            Request(site.url("/caf%E9?q=1"), encoding="latin-1", **common),
            Request(site.url("/put"), method="PUT", body=b"\x00\xffbody", **common),
            FormRequest(site.url("/form"), formdata={"a": "b", "c": "d e"}, **common),
        ]

    record = Record(on_deferred=lambda _, count: gate.open() if count == 3 else None)
    wanted = [*requests_to(healthy), *requests_to(down)]
    result = await record.crawl(KeepingSpider, requests=wanted, JOBDIR=str(tmp_path))
    assert len(record.deferred) == 3
    seen: dict[Site, dict[str, Any]] = {healthy: {}, down: {}}
    for response in result.spider.responses:
        site = healthy if response.url.startswith(healthy.url("")) else down
        fields = response.request.to_dict(spider=result.spider)
        path = fields.pop("url").removeprefix(site.url(""))
        # What Scrapy itself adds on the way.
        for key in ("download_latency", "download_slot", "download_timeout"):
            fields["meta"].pop(key, None)
        [hit] = [one for one in site.requests if one.target == path]
        headers = sorted(one for one in hit.headers if one[0] != "Host")
        seen[site][path] = type(response.request), fields, hit.method, hit.body, headers
    assert seen[healthy] == seen[down]
    assert len(seen[down]) == 3
    assert_clean(result)


class DuplicatesSpider(KeepingSpider):
    """Asks for each page once more when it has it."""

    def more(self, response: Response) -> list[Any]:
        if response.meta.get("again"):
            return []
        return [self.ask(response.url, {"again": True})]


async def test_the_dupe_filter_sees_it_once(sites: Sites, tmp_path: Path) -> None:
    """Duplicates are dropped, whether they come while the request is held or afterwards."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    wanted = [Request(url) for url in urls(site, 10)]
    record = Record(on_deferred=lambda _, count: gate.open() if count == 12 else None)
    twice = [Request(site.url("/twice"), dont_filter=True, meta={"again": True})] * 2
    result = await record.crawl(
        DuplicatesSpider,
        requests=[*wanted, *wanted, *[one.copy() for one in twice]],
        JOBDIR=str(tmp_path),
    )
    assert len(result.spider.responses) == 12
    assert site.count("/twice") == 2
    assert all(site.count(f"/page{number}") == 1 for number in range(10))
    assert result.stat("dupefilter/filtered") == len(record.dropped) == 20
    assert result.stat("rep/deferred") == 12
    assert_clean(result)
