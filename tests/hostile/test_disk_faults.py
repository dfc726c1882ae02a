"""Failing disks, damaged files: no page is lost (faults: storages/test_journal.py)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.core.scheduler import Scheduler

from scrapy_rep.holding.disk import FILE_NAME as HELD
from scrapy_rep.holding.disk import SCHEMA
from scrapy_rep.seeding.spool import FILE_NAME as LISTED
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, captured_log
from tests.helpers.files import aside, ask, change, impatient, script
from tests.helpers.held import Gate, Record, as_soon_as, later, urls
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import in_the_scheduler, urlset
from tests.seeding.listed import Listed as ListedSite
from tests.storages.faults import Corrupted, Disk, Fault, Locked

pytestmark = pytest.mark.slow


class OnlyInMemory(Scheduler):
    def _dq(self) -> None:
        return None


COUNT = 40
INSERT = "INSERT INTO held (origin, since, state, request) VALUES (?, ?, 0, ?)"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    # So that most pages wait in the spool.
    in_the_scheduler(monkeypatch, 20)
    monkeypatch.setattr("scrapy_rep.seeding.seeding._GUARANTEED_PAGES", 5)


@pytest.fixture
def listed(sites: Sites) -> ListedSite:
    return ListedSite(sites, 0, count=25)


async def run(
    wanted: Any, tmp_path: Path, record: Record | None = None, **more: Any
) -> CrawlResult:
    result = await (record or Record()).crawl(wanted, JOBDIR=str(tmp_path), **more)
    for one in result.records:
        assert "Traceback" not in one.getMessage()
        assert not one.exc_info or one.levelname == "DEBUG", one.getMessage()
    return result


def when_held(count: int, then: Callable[[], object]) -> Record:
    return Record(on_held=lambda spider, held: held == count and later(0.1, then))


def assert_over(result: CrawlResult, fault: Fault) -> None:
    [said] = warnings(result, without="Could not finish writing")
    assert fault.words in said
    assert len(lines(result, "can be used again")) == 1


@pytest.mark.process
async def test_a_file_system_that_is_full(
    sites: Sites, listed: ListedSite, tmp_path: Path
) -> None:
    """What it could not take is in the files before any of it is requested."""
    gate = Gate(503, RULES)
    site, disk = sites.add(robots=gate), Disk(tmp_path / "disk", "3m")
    record = when_held(COUNT, lambda: as_soon_as(lambda: len(warnings(log)) == 2, over))
    record.handlers[signals.engine_started] = disk.fill

    def over() -> None:
        disk.filler.unlink()
        as_soon_as(lambda: len(lines(log, "can be used again")) == 2, let_go)

    def let_go() -> None:
        assert ask(disk.folder / HELD, "SELECT count(*) FROM held") == COUNT
        gate.open()

    wanted = [Request(url, meta={"filler": "x" * 3000}) for url in urls(site, COUNT)]
    try:
        with captured_log() as log:
            # Scrapy's own queues would be in the way.
            more = {"REP_SITEMAPS": True, "SCHEDULER": OnlyInMemory}
            start = listed.site.url("/start")
            result = await run([start, *wanted], disk.folder, record, **more)
    finally:
        disk.close()
    assert {start, *urls(site, COUNT)} <= set(result.responses)
    assert set(listed.asked) == set(listed.wanted)
    assert len(warnings(result)) == 2


@pytest.mark.loop
async def test_recovering_when_it_works_again(sites: Sites, tmp_path: Path) -> None:
    """Earlier runs' time is known only then: it does not count for what is held already."""
    gate = Gate(503, RULES)
    site, other = sites.add(robots=503), sites.add(robots=gate)
    record = when_held(COUNT, lambda: record.close())
    await run(urls(site, COUNT), tmp_path, record)
    change(tmp_path / HELD, "INSERT OR REPLACE INTO clock VALUES (1, 10000.0)")
    change(tmp_path / HELD, "UPDATE held SET since = 10000.0")
    fault = Locked(tmp_path / HELD)
    fault.begin()

    def recovered() -> bool:
        held = record.engine.crawler.stats.get_value("rep/held/now")
        return bool(held == COUNT + 5 and lines(log, "can be used again"))

    def let_go() -> None:
        gate.open()
        site.set("/robots.txt", RULES)

    def end() -> None:
        fault.end()
        as_soon_as(recovered, let_go)

    # Time for attempts to write that fail, of which nothing tells.
    record = when_held(5, lambda: later(0.2, end))
    with captured_log() as log, fault.possible():
        result = await run(urls(other, 5), tmp_path, record)
    assert set(result.responses) == {*urls(site, COUNT), *urls(other, 5)}
    assert result.failures == {}
    assert_over(result, fault)


async def test_recovered_and_ended_in_slices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The event loop runs in between. A name that is no origin doesn't stop those after it."""
    count, turns = 30, []
    script(tmp_path / HELD, SCHEMA)
    change(tmp_path / HELD, INSERT, "http://[", 0.0, b"{}")
    for number in range(1, count + 1):
        origin = f"http://127.0.0.1:{number}"
        packed = pickle.dumps(Request(origin).to_dict())
        change(tmp_path / HELD, INSERT, origin, 0.0, packed)

    async def pause() -> None:
        turns.append(1)

    monkeypatch.setattr("scrapy_rep.engine.timers.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("scrapy_rep.engine.timers.pause", pause)
    record = Record()
    # None is refused before all are recovered.
    record.on_resolved = lambda: len(record.resolved) == 1 and record.close()
    result = await run([], tmp_path, record, _REP_HOLD_DEAD_HOST_TRIES=1000)
    assert len(lines(result, "1 held request could not be read", level="WARNING")) == 1
    assert result.stats["rep/held/now"] == count
    assert len(turns) >= 2 * count


def when_got(words: str, count: int, then: Callable[[], object]) -> Record:
    record, got = Record(), []

    def downloaded(response: Any) -> None:
        if words in response.url:
            got.append(response)
            if len(got) == count:
                then()

    record.handlers[signals.response_downloaded] = downloaded
    return record


async def seed(
    listed: ListedSite, tmp_path: Path, moment: Record | None = None, **more: Any
) -> CrawlResult:
    more = {"REP_SITEMAPS": True, "CONCURRENT_REQUESTS": 4, **more}
    return await run([listed.site.url("/start")], tmp_path, moment, **more)


async def test_listing_what_stays_locked(listed: ListedSite, tmp_path: Path) -> None:
    """Seeding ends for this run. The next one, in which it can be opened after a while, has the rest."""
    fault = Locked(tmp_path / LISTED)
    moment = when_got("/index.xml", 1, fault.begin)
    with fault.possible():
        first = await seed(listed, tmp_path, moment, REP_HOLD_MAX_WAIT=1)
    assert first.reason == "finished"
    [warning] = warnings(first, without="Could not finish writing")
    assert fault.words in warning
    opened = Record()
    # Time for attempts to open the file that fail, of which nothing tells.
    opened.handlers[signals.spider_opened] = lambda: later(0.4, fault.end)
    with fault.possible():
        second = await seed(listed, tmp_path, opened)
    assert_over(second, fault)
    assert set(listed.asked) == set(listed.wanted)


async def test_damaged_between_two_runs(
    sites: Sites, listed: ListedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be read is set aside, and sitemaps are read again."""
    silent, start = sites.add(robots=503), listed.site.url("/start")
    more = {"REP_SITEMAPS": True}
    record = when_held(COUNT, lambda: record.close())
    with monkeypatch.context() as patch:
        patch.setattr(
            "scrapy_rep.seeding.seeding._PAGES_AT_A_TIME", 0
        )  # all pages wait in the file
        await run([start, *urls(silent, COUNT)], tmp_path, record, **more)
    for name in (HELD, LISTED):
        Corrupted.damage(tmp_path / name)
    second = when_held(1, lambda: second.close())
    said = warnings(
        await run([start, silent.url("/another")], tmp_path, second, **more)
    )
    for name in (HELD, LISTED):
        [kept] = aside(tmp_path / name)
        [line] = [line for line in said if f"{tmp_path / name} " in line]
        assert kept.name in line
    silent.set("/robots.txt", RULES)
    assert warnings(await run([start], tmp_path, **more)) == []
    assert silent.count("/another") == 1
    assert set(listed.asked) == set(listed.wanted)


async def test_damaged_in_mid_crawl(
    sites: Sites, listed: ListedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held is fetched or counted as lost; the next run reads the sitemaps again."""
    gate = Gate(503, RULES)
    silent, start = sites.add(robots=gate), listed.site.url("/start")
    faults = [Corrupted(tmp_path / name) for name in (HELD, LISTED)]

    def begin() -> None:  # when most pages wait in the file
        for fault in faults:
            fault.begin()
        later(0.3, gate.open)  # time for the pages to meet the faults

    monkeypatch.setattr("scrapy_rep.storages.journal.connect", faults[0].connect)
    wanted, more = (
        [start, *urls(silent, COUNT)],
        {"REP_SITEMAPS": True, "CONCURRENT_REQUESTS": 4},
    )
    first = await run(wanted, tmp_path, when_got("/page/", 10, begin), **more)
    assert first.reason == "finished"
    said = warnings(first)
    [listing] = [line for line in said if str(tmp_path / LISTED) in line]
    assert (
        "(database disk image is malformed): seeding from sitemaps ends for this run"
        in listing
    )
    lost = [int(line.split()[0]) for line in said if "could not be read from" in line]
    second = await run([start], tmp_path, **more)
    got = {*first.responses, *second.responses} & set(urls(silent, COUNT))
    assert len(got) + sum(lost) == COUNT
    assert all("was set aside" in line for line in warnings(second))
    assert set(listed.asked) == set(listed.wanted)


async def test_a_hold_that_can_not_be_opened(sites: Sites, tmp_path: Path) -> None:
    """The spool has its pages at the end; Scrapy's own queue doesn't."""
    gate = Gate(503, RULES)
    silent, site = sites.add(robots=gate), sites.add()
    wanted = urls(silent, 10)
    site.set("/map.xml", urlset(wanted))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    more = {"REP_SITEMAPS": True, "REP_SITEMAP_CROSS_HOST": "any"}
    fault = Locked(tmp_path / HELD)
    fault.begin()
    record = when_held(10, lambda: record.close())
    first = await run([site.url("/start")], tmp_path, record, **more)
    fault.end()
    assert first.reason == "enough"
    assert ask(tmp_path / LISTED, "SELECT count(*) FROM pages") == 10
    gate.open()
    await run([], tmp_path, **more)
    assert ask(tmp_path / LISTED, "SELECT count(*) FROM pages") == 0
    assert [silent.count(f"/page{number}") for number in range(10)] == [1] * 10
