"""Disks that fail while sitemaps seed a crawl: whatever fails, and when, each page that they list is
requested in this run or the next, one line says what is the matter, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import signals

from scrapy_rep.holding.disk import FILE_NAME as HELD
from scrapy_rep.seeding.spool import FILE_NAME
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import CrawlResult, captured_log, crawl
from tests.helpers.files import (
    Corrupted,
    Disk,
    Fault,
    Full,
    Locked,
    ask,
    assert_no_tracebacks,
    impatient,
    some,
)
from tests.helpers.held import Gate, Record, as_soon_as, later
from tests.helpers.log import lines, warnings
from tests.helpers.process.seeded import Listed
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset

pytestmark = pytest.mark.slow

SHORT = {"REP_DEFER_MAX_WAIT": 1}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    # So that most pages wait in the spool.
    monkeypatch.setattr("scrapy_rep.seeding.feeder._ALONE", 20)
    monkeypatch.setattr("scrapy_rep.seeding.feeder._EACH", 5)


@pytest.fixture
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    with request.param(tmp_path / FILE_NAME).possible() as made:
        yield made


@pytest.fixture
def listed(sites: Sites) -> Listed:
    return Listed(sites, 0, count=40)


Steps = tuple[tuple[float, Callable[[], object]], ...]


class Moment(Record):
    """Does something so many seconds after a crawl has had so many responses whose path begins so,
    or, without a path, after it began."""

    def __init__(self, path: str | None, count: int, *steps: tuple[float, Any]) -> None:
        super().__init__()
        self._path, self._count, self._steps = path, count, steps
        self.handlers[signals.response_downloaded] = self._downloaded

    def _opened(self, spider: Any) -> None:
        super()._opened(spider)
        if self._path is None:
            self._begin()

    def _downloaded(self, response: Any) -> None:
        if self._path is not None and self._path in response.url:
            self._count -= 1
            if self._count == 0:
                self._begin()

    def _begin(self) -> None:
        for seconds, step in self._steps:
            later(seconds, step) if seconds else step()


async def run(
    listed: Listed, tmp_path: Path, moment: Moment | None = None, **settings: Any
) -> CrawlResult:
    result = await crawl(
        [listed.site.url("/start")],
        {
            "REP_SITEMAPS": True,
            "JOBDIR": str(tmp_path),
            "CONCURRENT_REQUESTS": 4,
            **settings,
        },
        signal_handlers=moment.handlers if moment else None,
    )
    assert_no_tracebacks(result)
    return result


def told(result: CrawlResult, fault: Fault, *, ended: bool = False) -> None:
    """Once, if it was noticed at all; once that it is over, or that it took too long."""
    said = lines(result, level="WARNING")
    said = [line for line in said if "Could not finish writing" not in line]
    assert len(said) <= 1, said
    assert all(fault.words in one for one in said)
    errors = lines(result, level="ERROR")
    assert all("Seeding from sitemaps ends for this run" in one for one in errors)
    over = lines(result, "can be used again")
    assert len(errors) + len(over) == len(said), said
    # Deleted rows leave room.
    assert len(errors) == ended or (ended and isinstance(fault, Full))


async def the_rest(listed: Listed, tmp_path: Path) -> None:
    """What earlier runs did not request, the next one does."""
    last = await run(listed, tmp_path)
    assert warnings(last) == []
    assert set(listed.asked) == set(listed.wanted)


MOMENTS = {"writing": ("/index.xml", 1), "feeding": ("/page", 10)}
moments = pytest.mark.parametrize("path_and_count", MOMENTS.values(), ids=MOMENTS)


@moments
@some("full")
async def test_what_fails_for_a_while(
    listed: Listed, tmp_path: Path, fault: Fault, path_and_count: tuple[str, int]
) -> None:
    moment = Moment(*path_and_count, (0, fault.begin), (0.5, fault.end))
    result = await run(listed, tmp_path, moment)
    assert result.reason == "finished"
    assert set(listed.asked) == set(listed.wanted)
    told(result, fault)
    await the_rest(listed, tmp_path)
    assert listed.asked.total() == len(listed.wanted)


@moments
@some("locked")
async def test_what_fails_for_good(
    listed: Listed, tmp_path: Path, fault: Fault, path_and_count: tuple[str, int]
) -> None:
    result = await run(listed, tmp_path, Moment(*path_and_count, (0, fault.begin)), **SHORT)
    assert result.reason == "finished"
    told(result, fault, ended=True)
    assert warnings(result) or path_and_count != MOMENTS["writing"]
    fault.end()
    await the_rest(listed, tmp_path)


@some("read-only", "locked")
async def test_recovering_while_it_fails(listed: Listed, tmp_path: Path, fault: Fault) -> None:
    first = Moment("/page", 10, (0, lambda: first.close()))
    await run(listed, tmp_path, first)
    fault.begin()
    second = await run(listed, tmp_path, **SHORT)
    told(second, fault, ended=True)
    again = Moment(None, 0, (0.4, fault.end))
    third = await run(listed, tmp_path, again)
    told(third, fault)
    assert set(listed.asked) == set(listed.wanted)


@moments
async def test_what_is_damaged_in_mid_crawl(
    listed: Listed, tmp_path: Path, path_and_count: tuple[str, int]
) -> None:
    """This run requests what it has taken so far, the next one reads the sitemaps again."""
    with Corrupted(tmp_path / FILE_NAME).possible() as fault:
        first = await run(listed, tmp_path, Moment(*path_and_count, (0, fault.begin)))
    assert first.reason == "finished"
    [error] = warnings(first)
    assert "(database disk image is malformed): seeding from sitemaps ends for this run" in error
    second = await run(listed, tmp_path)
    [warning] = warnings(second)
    assert "was set aside" in warning
    assert set(listed.asked) == set(listed.wanted)


@pytest.mark.parametrize(("seconds", "grace"), [(0, 0.5), (60, 1000)], ids=["held", "waiting"])
async def test_a_hold_that_can_not_be_opened(
    sites: Sites, tmp_path: Path, seconds: float, grace: float
) -> None:
    """At the end Scrapy's own queue has the pages that were held in memory, or waited for a first
    answer: the spool doesn't list them any more."""
    gate = Gate(after(seconds, 503), RULES)
    silent, site = sites.add(robots=gate), sites.add()
    wanted = [silent.url(f"/{number}") for number in range(10)]
    site.set("/map.xml", urlset(wanted))
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    settings = {
        "REP_SITEMAPS": True,
        "REP_SITEMAP_CROSS_HOST": "any",
        "REP_DEFER_GRACE": grace,
        "REP_UNREACHABLE": "defer",
        "JOBDIR": str(tmp_path),
    }
    fault = Locked(tmp_path / HELD)
    fault.begin()
    moment = Moment("/map.xml", 1, (0.5, lambda: moment.close()))
    first = await crawl([site.url("/start")], settings, signal_handlers=moment.handlers)
    fault.end()
    assert first.reason == "enough"
    assert ask(tmp_path / FILE_NAME, "SELECT count(*) FROM pages") == 0
    gate.open()
    await crawl([], settings)
    assert [silent.count(f"/{number}") for number in range(10)] == [1] * 10


@pytest.mark.process
@pytest.mark.scrapy_api
async def test_a_file_system_that_is_full(listed: Listed, tmp_path: Path) -> None:
    """Scrapy's dupe filter writes to it as well, and fails when it has seen a page."""
    disk = Disk(tmp_path / "disk", "2m")
    try:
        with captured_log() as log:
            make_room = lambda: disk.filler.unlink(missing_ok=True)
            noticed = lambda: as_soon_as(lambda: warnings(log), make_room)
            moment = Moment("/page", 10, (0, disk.fill), (0.6, noticed))
            # If nothing had to be written meanwhile, Scrapy's own files have to be when they are closed.
            moment.handlers[signals.spider_idle] = make_room
            result = await run(listed, disk.folder, moment)
        assert result.reason == "finished"
        assert set(listed.asked) == set(listed.wanted)
        assert len(warnings(result)) <= 2
    finally:
        disk.close()
