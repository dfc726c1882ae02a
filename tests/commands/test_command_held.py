"""`scrapy robots --held JOBDIR`: what a crawl holds, while it runs, after it was killed, and after it
was stopped. Nothing there is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep import signals
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER
from tests.helpers.process import Crawl
from tests.helpers.robots_command import robots_here
from tests.helpers.servers import Sites


def kept_in(folder: Path) -> dict[str, Any]:
    path = str(folder / "robots.sqlite")
    return {"REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage", "REP_CACHE_PATH": path}


def stamps(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Of each file but SQLite's index of its log, which readers lock."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.process
def test_what_a_crawl_holds_while_it_runs_and_after_it_was_killed(
    sites: Sites, tmp_path: Path
) -> None:
    down, slow, job = sites.add(robots=503), sites.add(robots=502), tmp_path / "job"
    urls = [down.url("/0"), slow.url("/0"), slow.url("/1")]
    settings = {
        **kept_in(tmp_path),
        "JOBDIR": job,
        "REP_RETRY_DELAY": 60,
        "REP_RETRY_MAX_DELAY": 600,
    }
    crawl = Crawl(tmp_path / "crawl", urls, settings)
    crawl.wait_for("deferred", 3)
    done = robots_here(tmp_path, "--held", str(job), "--json")
    held = [(one["origin"], one["requests"]) for one in done.json]
    assert held == [(slow.url(""), 2), (down.url(""), 1)]
    crawl.kill()
    before = stamps(job)
    done = robots_here(tmp_path, "--held", str(job), settings=kept_in(tmp_path))
    assert (done.status, done.err) == (0, "")
    first, second, total = done.out.splitlines()
    assert first.startswith(f"2 requests  {slow.url('')}  held for ")
    assert "  robots.txt unreachable since 20" in first
    assert "Z (HTTP 502), next attempt not before 20" in first
    assert second.startswith(f"1 request  {down.url('')}  held for ")
    assert total == "# 3 requests of 2 origins held"
    (one, _) = robots_here(tmp_path, "--held", "job", "--json", settings=kept_in(tmp_path)).json
    assert list(one) == [
        *("origin", "requests", "held_seconds", "unreachable_since", "error", "attempts"),
        "next_attempt_at",
    ]
    assert (one["error"], one["attempts"]) == ("HTTP 502", 1)
    assert one["next_attempt_at"] > one["unreachable_since"]
    assert stamps(job) == before


async def test_what_a_stopped_crawl_holds(sites: Sites, tmp_path: Path) -> None:
    """Why is not known where the project keeps nothing."""
    site, job = sites.add(robots=503), tmp_path / "job"

    def stop(spider: Spider) -> None:
        deferred_from_coro(spider.crawler.engine.close_spider_async(reason="stopped"))

    settings = {**DEFER, "JOBDIR": str(job), "REP_RETRY_DELAY": 60, "REP_RETRY_MAX_DELAY": 600}
    await crawl(site.url("/x"), settings, signal_handlers={signals.request_deferred: stop})
    before, names = stamps(job), {path.name for path in job.iterdir()}
    done = robots_here(tmp_path, "--held", "job")
    assert done.out.splitlines()[0].endswith(
        "  reason unknown: REP_CACHE_STORAGE has no entry for it"
    )
    # No file that the next run would take for the trace of a kill.
    assert {path.name for path in job.iterdir()} == names
    assert stamps(job) == before
    (tmp_path / "robots.sqlite").mkdir()
    done = robots_here(tmp_path, "--held", "job", settings=kept_in(tmp_path))
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("scrapy robots: the cache can't be used: ")


def test_a_folder_with_nothing_held(tmp_path: Path) -> None:
    done = robots_here(tmp_path, "--held", str(tmp_path))
    assert (done.status, done.out, done.err) == (0, "# 0 requests of 0 origins held\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_or_damaged(tmp_path: Path) -> None:
    for name, content in {"broken": b"x" * 5000, "other": b""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rep-held.sqlite").write_bytes(content)
    for path, status, error in (
        ("none", 2, "scrapy robots: 'none' is not a directory"),
        ("broken", 3, "rep-held.sqlite can't be read: DatabaseError: file is not a database"),
        ("other", 3, "rep-held.sqlite can't be read: OperationalError: no such table: held"),
    ):
        done = robots_here(tmp_path, "--held", path)
        assert (done.status, done.out) == (status, "")
        assert done.errors[-1].endswith(error)
