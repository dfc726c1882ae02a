"""What monitoring sees while something that a crawl needs can't be used: docs/running.md."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.log import Gauge
from scrapy_rep.holding.disk import FILE_NAME as HELD
from scrapy_rep.seeding.spool import FILE_NAME as SITEMAPS
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import StepSpider, crawl
from tests.helpers.docs import page
from tests.helpers.files import impatient, impatient_storages
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset
from tests.helpers.storing import in_a_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]


@pytest.fixture(autouse=True)
def nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient_storages(monkeypatch)
    impatient(monkeypatch)
    monkeypatch.setattr("scrapy_rep.reporting.record_file._WRITE_SECONDS", 0.05)


async def test_a_crawl_in_which_all_works_has_none(
    sites: Sites, tmp_path: Path
) -> None:
    site = sites.add(robots=RULES)
    settings = {**in_a_file(tmp_path), "JOBDIR": str(tmp_path / "job"), "REP_SITEMAPS": True,
                "REP_DECISIONS": str(tmp_path / "d.jsonl")}  # fmt: skip
    result = await crawl(site.url("/x"), settings)
    assert [name for name in result.stats if name.startswith("rep/down/")] == []


async def test_a_cache_that_is_locked(sites: Sites, tmp_path: Path) -> None:
    """Locked by another program, which goes away."""
    await crawl(sites.add(robots=RULES).url("/x"), in_a_file(tmp_path))
    path = tmp_path / "robots.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    first, second = sites.add(robots=RULES), sites.add(robots=RULES)
    steps = [first.url("/x"), other.close, second.url("/x")]
    result = await crawl(StepSpider, in_a_file(tmp_path), steps=steps)
    assert result.stats["rep/down/cache"] == 0  # so it was 1 before
    assert set(result.responses) == {first.url("/x"), second.url("/x")}


@pytest.mark.parametrize(
    ("gauge", "name"), [("rep/down/held", HELD), ("rep/down/sitemaps", SITEMAPS)]
)
async def test_a_file_in_the_jobdir_that_cannot_be_opened(
    sites: Sites, tmp_path: Path, gauge: str, name: str
) -> None:
    """A folder in its place, which stays, or goes when the spider has had a page."""
    (tmp_path / name).mkdir()
    site = sites.add()
    site.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    site.set("/map.xml", urlset([site.url("/listed")]))
    settings = {"JOBDIR": str(tmp_path), "REP_SITEMAPS": True, "REP_HOLD_MAX_WAIT": 0.3}
    result = await crawl(StepSpider, settings, steps=[site.url("/1")])
    assert result.stats[gauge] == 1
    settings["REP_HOLD_MAX_WAIT"] = 30
    # Time for the next look at the file, of which only the gauge tells.
    slow = sites.add(pages={"/slow": after(0.5, "page")})
    steps = [site.url("/2"), (tmp_path / name).rmdir, slow.url("/slow")]
    result = await crawl(StepSpider, settings, steps=steps)
    assert result.stats[gauge] == 0


@pytest.mark.linux
async def test_a_record_that_fails(sites: Sites) -> None:
    result = await crawl(sites.add().url("/x"), {"REP_DECISIONS": "/dev/full"})
    assert result.stats["rep/down/record"] == 1


def test_a_gauge_is_set_when_something_changes() -> None:
    class Stats(StatsCollector):
        def __init__(self) -> None:
            self.told: list[tuple[str, int]] = []

        def set_value(self, key: str, value: int) -> None:  # type: ignore[override]
            self.told.append((key, value))

    stats = Stats()
    gauge = Gauge(stats, "rep/down/x")
    for is_down in (False, True, True, False, False):
        gauge.set(is_down)
    assert stats.told == [("rep/down/x", 1), ("rep/down/x", 0)]


def test_each_has_an_alert() -> None:
    text = page("running.md")
    for name in ("cache", "held", "sitemaps", "record"):
        assert f"| `rep/down/{name}` | gauge |" in text
        assert f'expr: scrapy_stat{{stat="rep/down/{name}"}} == 1' in text
