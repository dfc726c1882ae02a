"""Disks that fail while requests are held: whatever fails, and when, each page is fetched in this run
or the next, one line says what is the matter, and nothing hangs. Which faults there are, and what each
does to the file, is the contract in `storages/test_journal.py`."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.holding.disk import FILE_NAME, SCHEMA
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, captured_log, crawl
from tests.helpers.files import (
    Corrupted,
    Disk,
    Fault,
    OnlyInMemory,
    ask,
    assert_no_tracebacks,
    change,
    impatient,
    some,
)
from tests.helpers.held import DEFER, Gate, Record, as_soon_as, assert_no_errors, later, urls
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.slow

COUNT = 40


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)


@pytest.fixture
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    with request.param(tmp_path / FILE_NAME).possible() as made:
        yield made


def when_held(count: int, *steps: tuple[float, Callable[[], object]]) -> Record:
    """Do something so many seconds after so many requests were held."""

    def look(_: Any, held: int) -> None:
        if held == count:
            for seconds, step in steps:
                later(seconds, step) if seconds else step()

    return Record(on_deferred=look)


def as_they_are_held(some: Callable[[], object], every: Callable[[], object]) -> Record:
    """Do something when some requests are held, and something else soon after all are."""

    def look(_: Any, held: int) -> None:
        if held == 5:
            some()
        elif held == COUNT:
            later(0.2, every)

    return Record(on_deferred=look)


async def run(
    wanted: Iterable[str | Request], tmp_path: Path, record: Record | None = None, **settings: Any
) -> CrawlResult:
    result = await crawl(
        wanted,
        {**DEFER, "JOBDIR": str(tmp_path), **settings},
        signal_handlers=record.handlers if record else None,
    )
    assert_no_errors(result)
    assert_no_tracebacks(result)
    return result


def told(result: CrawlResult, fault: Fault) -> None:
    """Once, and once that it is over if it is."""
    said = warnings(result, without="Could not finish writing")
    assert fault.words in said[0]
    assert len(said) == 1, result.log
    assert len(lines(result, "can be used again")) <= 1


async def the_rest(site: Site, tmp_path: Path, *before: CrawlResult) -> None:
    """What earlier runs did not fetch or give up, the next one does."""
    site.set("/robots.txt", RULES)
    last = await run([], tmp_path)
    fetched = [set(one.responses) for one in (*before, last)]
    assert set().union(*fetched) == set(urls(site, COUNT))
    assert not [line for line in warnings(last) if "rep-held" in line]


# Holding


async def run_while(
    sites: Sites,
    folder: Path,
    begin: Callable[[], object],
    end: Callable[[], object],
    **settings: Any,
) -> tuple[Site, CrawlResult]:
    """A crawl whose disk fails until all are held. All of them are on disk when it is over."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    on_disk: list[int] = []

    def let_go() -> None:
        on_disk.append(ask(folder / FILE_NAME, "SELECT count(*) FROM held"))
        gate.open()

    def over() -> None:
        end()
        as_soon_as(lambda: lines(log, "can be used again"), let_go)

    wanted = [Request(url, meta={"filler": "x" * 3000}) for url in urls(site, COUNT)]
    with captured_log() as log:
        result = await run(wanted, folder, as_they_are_held(begin, over), **settings)
    assert on_disk == [COUNT]
    assert set(result.responses) == set(urls(site, COUNT))
    assert len(lines(result, "can be used again")) == 1
    return site, result


@some("full", "locked")
async def test_holding_for_a_while(sites: Sites, tmp_path: Path, fault: Fault) -> None:
    site, result = await run_while(sites, tmp_path, fault.begin, fault.end)
    told(result, fault)
    await the_rest(site, tmp_path, result)


# Releasing


@some("locked")
async def test_releasing_for_good(sites: Sites, tmp_path: Path, fault: Fault) -> None:
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    record = when_held(COUNT, (0, fault.begin), (0.1, gate.open))
    result = await run(urls(site, COUNT), tmp_path, record)
    assert set(result.responses) == set(urls(site, COUNT))
    assert result.failures == {}
    assert result.reason == "finished"
    fault.end()
    await the_rest(site, tmp_path, result)


@pytest.mark.loop
async def test_releasing_what_is_damaged(sites: Sites, tmp_path: Path) -> None:
    """Those that can be read are fetched, the others are counted."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    fault = Corrupted(tmp_path / FILE_NAME)
    record = when_held(COUNT, (0.1, fault.begin), (0.2, gate.open))
    result = await run(urls(site, COUNT), tmp_path, record)
    assert result.reason == "finished"
    [count] = [
        int(line.split(" held request")[0].split()[-1])
        for line in warnings(result)
        if "can't be read from" in line
    ] or [0]
    assert len(result.responses) + count == COUNT


# Recovering


@some("locked")
async def test_recovering_when_it_works_again(sites: Sites, tmp_path: Path, fault: Fault) -> None:
    """The running time of earlier runs is known only then: it does not count for what is held
    already."""
    site = sites.add(robots=503)
    record = when_held(COUNT, (0.1, lambda: record.close()))
    await run(urls(site, COUNT), tmp_path, record)
    change(tmp_path / FILE_NAME, "INSERT OR REPLACE INTO clock VALUES (1, 10000.0)")
    change(tmp_path / FILE_NAME, "UPDATE held SET since = 10000.0")
    gate = Gate(503, RULES)
    other = sites.add(robots=gate)
    fault.begin()

    def recovered() -> bool:
        held = record.engine.crawler.stats.get_value("rep/held")
        return bool(held == COUNT + 5 and lines(log, "can be used again"))

    def let_go() -> None:
        gate.open()
        site.set("/robots.txt", RULES)

    def end() -> None:
        fault.end()
        as_soon_as(recovered, let_go)

    record = when_held(5, (0.3, end))
    with captured_log() as log:
        result = await run(urls(other, 5), tmp_path, record)
    assert set(result.responses) == {*urls(site, COUNT), *urls(other, 5)}
    assert result.failures == {}
    told(result, fault)
    assert len(lines(result, "can be used again")) == 1


@pytest.mark.loop
async def test_recovering_past_a_bad_row(sites: Sites, tmp_path: Path) -> None:
    """One origin that is none, one number that is text: those after them come all the same."""
    site = sites.add(robots=503)
    record = when_held(COUNT, (0.1, lambda: record.close()))
    await run(urls(site, COUNT), tmp_path, record)
    db = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    for number, origin, since in ((-2, "http://[", 0.0), (-1, "http://a.example", "long ago")):
        db.execute(
            "INSERT INTO held (origin, number, since, state, request) VALUES (?, ?, ?, 0, ?)",
            (origin, number, since, b"{}"),
        )
    db.close()
    site.set("/robots.txt", RULES)
    result = await run([], tmp_path)
    assert set(result.responses) == set(urls(site, COUNT))
    [line] = [line for line in warnings(result) if "can't be read" in line]
    assert "2 held requests" in line


# Closing


@some("full")
async def test_closing_what_was_never_written(sites: Sites, tmp_path: Path, fault: Fault) -> None:
    """Scrapy's own queue keeps what would end with the process."""
    site = sites.add(robots=503)
    record = as_they_are_held(fault.begin, lambda: record.close())
    first = await run(urls(site, COUNT), tmp_path, record)
    assert first.failures == first.responses == {}
    assert first.stat("rep/handed_back") > COUNT // 2
    told(first, fault)
    fault.end()
    await the_rest(site, tmp_path, first)


# A disk that is really full


@pytest.mark.process
async def test_a_file_system_that_is_full(sites: Sites, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", "600k")
    try:
        begin, end = disk.fill, disk.filler.unlink
        # Scrapy's own queues would be in the way.
        await run_while(sites, disk.folder, begin, end, SCHEDULER=OnlyInMemory)
    finally:
        disk.close()


# Many


@pytest.mark.loop
async def test_recovered_and_ended_in_slices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sites: Sites
) -> None:
    """However many origins are recovered, or given up at the end: others have the event loop in
    between."""
    count = 30
    db = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    db.executescript(SCHEMA)
    for number in range(count):
        origin = f"http://127.0.0.1:{number + 1}"
        data = pickle.dumps(Request(origin).to_dict())
        values = (origin, number + 1, 0.0, 0, data)
        db.execute(
            "INSERT INTO held (origin, number, since, state, request) VALUES (?, ?, ?, ?, ?)",
            values,
        )
    db.close()
    turns = []

    async def pause() -> None:
        turns.append(1)

    monkeypatch.setattr("scrapy_rep.engine.pause.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("scrapy_rep.holding.held_origins.pause", pause)
    monkeypatch.setattr("scrapy_rep.holding.handing_back.pause", pause)
    record = Record()
    # None is refused before all are recovered.
    record.on_resolved = lambda: len(record.resolved) == 1 and record.close()
    result = await run([], tmp_path, record, REP_DEFER_DEAD_HOST_TRIES=1000)
    assert result.stats["rep/held"] == count
    assert len(turns) >= 2 * count
