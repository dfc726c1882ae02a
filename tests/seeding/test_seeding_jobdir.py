"""With JOBDIR, what sitemaps list outlives a stop and a kill: after a stop in order each page is
fetched once, after `kill -9` at least once (DESIGN.md, "on disk the moment it is held").

Only a process can be killed, or gets a Ctrl-C of its own.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from scrapy_rep.seeding.spool import FILE_NAME
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.process import on_every_reactor
from tests.helpers.process.seeded import SETTINGS, Listed
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import SeededSpider, pages

pytestmark = [pytest.mark.loop, pytest.mark.slow]


def left(folder: Path) -> int:
    """How many pages the file under JOBDIR still has."""
    db = sqlite3.connect(folder / "job" / FILE_NAME)
    (count,) = db.execute("SELECT count(*) FROM pages").fetchone()
    db.close()
    return int(count)


def stopped_and_resumed(listed: Listed, tmp_path: Path, reactor: str) -> None:
    """Ctrl-C three times: nothing is lost, nothing is fetched twice."""
    runs = []
    for moment in ("page 1", "page 30", "page 20"):
        runs.append(listed.start(tmp_path, f"SIGINT {moment}", reactor).join())
        assert runs[-1].reason == "shutdown"
    runs.append(listed.start(tmp_path, reactor=reactor).join())
    assert runs[-1].reason == "finished"
    assert left(tmp_path) == 0
    listed.check(runs)
    assert listed.site.count("/index.xml") == 1
    assert {run.stats["rep/sitemaps/waiting"] for run in runs[-1:]} == {"0"}


@pytest.mark.process
@on_every_reactor
def test_after_stops_the_next_run_goes_on(sites: Sites, tmp_path: Path, reactor: str) -> None:
    stopped_and_resumed(Listed(sites), tmp_path, reactor)


@pytest.mark.process
@pytest.mark.parametrize("seconds", [0.04, 0.3])
def test_stops_where_pages_are_held_first(sites: Sites, tmp_path: Path, seconds: float) -> None:
    """Each run begins with pages that wait for robots.txt, of which most are held: the answer comes
    about when REP_DEFER_GRACE, 0.05, ends, or long after."""
    stopped_and_resumed(Listed(sites, robots_seconds=seconds), tmp_path, "asyncio")


@pytest.mark.process
@pytest.mark.parametrize(
    "moments",
    [
        ["page 1", "page 30", "page 100"],
        # While sitemaps are on their way: the index, one of the others.
        ["downloaded 2", "downloaded 3", "downloaded 5", "downloaded 40"],
        ["reached 3", "reached 4", "left 90", "page 20"],
    ],
    ids=["pages", "sitemaps", "others"],
)
def test_kills_lose_no_page_that_sitemaps_list(
    sites: Sites, tmp_path: Path, moments: list[str]
) -> None:
    listed = Listed(sites)
    runs = [listed.start(tmp_path, f"SIGKILL {moment}").join() for moment in moments]
    assert all(run.reason is None for run in runs)
    runs.append(listed.start(tmp_path).join())
    assert runs[-1].reason == "finished"
    listed.check(runs)
    assert left(tmp_path) == 0


@pytest.mark.process
@pytest.mark.scrapy_api
def test_a_kill_and_a_stop_by_turns_lose_no_page(sites: Sites, tmp_path: Path) -> None:
    listed = Listed(sites)
    runs = [
        listed.start(tmp_path, ends).join()
        for ends in ("SIGKILL page 40", "SIGINT page 40", "SIGKILL page 40", "")
    ]
    assert [run.reason for run in runs] == [None, "shutdown", None, "finished"]
    listed.check(runs)


async def test_what_was_done_is_not_done_again(sites: Sites, tmp_path: Path) -> None:
    """A second crawl with the JOBDIR of one that ended: the dupe filter and the spool know all."""
    listed = Listed(sites, 0)
    settings = {**SETTINGS, "JOBDIR": str(tmp_path / "job")}
    for _ in range(2):
        result = await crawl(SeededSpider, settings, requests=[listed.site.url("/start")])
        result.assert_clean()
        assert result.reason == "finished"
    assert set(listed.asked) == set(listed.wanted)
    assert listed.asked.total() == len(listed.wanted)
    assert listed.site.count("/0.xml") == 1


async def test_a_file_that_can_not_be_read_is_set_aside(sites: Sites, tmp_path: Path) -> None:
    listed = Listed(sites, 0)
    job = tmp_path / "job"
    job.mkdir()
    (job / FILE_NAME).write_bytes(b"this is no database" * 100)
    settings = {**SETTINGS, "JOBDIR": str(job)}
    result = await crawl(SeededSpider, settings, requests=[listed.site.url("/start")])
    assert pages(result) == sorted(listed.wanted)
    assert len(lines(result, "was set aside as", level="WARNING")) == 1
    result.assert_clean()


async def test_without_jobdir_nothing_is_left(sites: Sites, tmp_path: Path) -> None:
    listed = Listed(sites, 0)
    result = await crawl(
        SeededSpider,
        {**SETTINGS, "CLOSESPIDER_PAGECOUNT": 50},
        requests=[listed.site.url("/start")],
    )
    assert result.reason == "closespider_pagecount"
    assert len(lines(result, "not requested: ", "the crawl is closing")) == 1
