"""The files under JOBDIR, damaged between two runs or in mid-crawl, by a disk or by somebody: a crawl
goes on with what can be read, says so once, and ends. Nothing is deleted but rows that say nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.holding.disk import FILE_NAME as HELD
from scrapy_rep.seeding.spool import FILE_NAME as LISTED
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.files import DAMAGES, Corrupted, aside, assert_no_tracebacks, impatient
from tests.helpers.held import DEFER, Gate, Record, later, urls
from tests.helpers.log import warnings
from tests.helpers.process.seeded import Listed
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow

COUNT = 40


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    monkeypatch.setattr("scrapy_rep.seeding.feeder._ALONE", 20)
    monkeypatch.setattr("scrapy_rep.seeding.feeder._EACH", 5)


async def run(
    tmp_path: Path, wanted: list[str], record: Record | None = None, **settings: Any
) -> CrawlResult:
    result = await crawl(
        wanted,
        {
            **DEFER,
            "REP_SITEMAPS": True,
            "JOBDIR": str(tmp_path),
            **settings,
        },
        signal_handlers=record.handlers if record else None,
    )
    assert_no_tracebacks(result)
    return result


def damaged(*names: str) -> Any:
    """What each does to a file alone is in `storages/test_journal.py`."""
    return pytest.mark.parametrize("damage", [DAMAGES[name] for name in names], ids=names)


@damaged("empty", "all pages overwritten", "a folder")
async def test_damaged_between_two_runs(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object],
) -> None:
    """What can't be read is set aside, with a line for each file. Sitemaps are read again; what is
    held or listed from then on is as safe as ever."""
    silent, listed = sites.add(robots=503), Listed(sites, 0, count=25)
    start = listed.site.url("/start")
    record = Record(on_deferred=lambda spider, held: held == COUNT and later(0.1, record.close))
    with monkeypatch.context() as patch:
        patch.setattr("scrapy_rep.seeding.feeder._BATCH", 0)  # all pages wait in the file
        await run(tmp_path, [start, *urls(silent, COUNT)], record)
    for name in (HELD, LISTED):
        damage(tmp_path / name)
    second = Record(on_deferred=lambda spider, held: later(0.1, second.close))
    result = await run(tmp_path, [start, silent.url("/another")], second)
    said = warnings(result)
    for name in (HELD, LISTED):
        of_this = [line for line in said if f"{tmp_path / name} " in line]
        assert len(of_this) == len(aside(tmp_path / name))
    silent.set("/robots.txt", RULES)
    third = await run(tmp_path, [start])
    assert warnings(third) == []
    assert silent.count("/another") == 1
    lost = aside(tmp_path / HELD) or damage is DAMAGES["empty"]  # which looks like a new one
    assert lost or silent.count("/page1")
    assert set(listed.asked) == set(listed.wanted)


@damaged("cut in two", "some pages overwritten", "other columns")
async def test_damaged_in_mid_crawl(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object],
) -> None:
    """What was held is fetched, given up or counted as lost; what is listed is requested, now or by the next
    run."""
    gate = Gate(503, RULES)
    silent, listed = sites.add(robots=gate), Listed(sites, 0, count=25)
    start = listed.site.url("/start")

    faults = [Corrupted(tmp_path / name) for name in (HELD, LISTED)]

    def begin() -> None:
        for fault in faults:
            fault.damage = damage
            fault.begin()
        later(0.3, gate.open)

    monkeypatch.setattr("scrapy_rep.storages.journal.connect", faults[0].connect)
    record = Record(on_deferred=lambda spider, held: held == COUNT // 2 and begin())
    wanted = [start, *urls(silent, COUNT)]
    # What may be over soon is tried for so long.
    settings = {"REP_DEFER_MAX_WAIT": 4} if damage is DAMAGES["other columns"] else {}
    first = await run(tmp_path, wanted, record, **settings)
    assert first.reason == "finished"
    said = warnings(first)
    assert len([line for line in said if str(tmp_path / HELD) in line]) <= 3
    assert len([line for line in said if str(tmp_path / LISTED) in line]) <= 2
    lost = [int(line.split()[0]) for line in said if "can't be read from" in line]
    second = await run(tmp_path, [start])
    told = {*first.responses, *first.failures, *second.responses} & set(urls(silent, COUNT))
    assert len(told) + sum(lost) == COUNT
    assert all("was set aside" in line for line in warnings(second))
    assert set(listed.asked) == set(listed.wanted)
