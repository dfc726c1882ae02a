"""`scrapy robots --held JOBDIR`: what a crawl holds, while it runs, after it was killed, and after it
was stopped. Nothing there is changed."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.process import PATIENCE, arguments_of, environment
from tests.helpers.process.forked import ScrapyProcess
from tests.helpers.robots_command import make_project, robots, robots_here
from tests.helpers.servers import Site, Sites

SPIDER = """
import scrapy

class ShopSpider(scrapy.Spider):
    name = "shop"

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split(",")

    def parse(self, response):
        pass
"""

KEPT: dict[str, Any] = {
    "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
    "REP_CACHE_PATH": "robots.sqlite",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    lines = ["REP_DEFER_GRACE = 0.1", "REP_RETRY_DELAY = 60", "TELNETCONSOLE_ENABLED = False"]
    make_project(tmp_path, [*lines, "REMOTE_CONTROL_ENABLED = False"])
    (tmp_path / "shop" / "spiders" / "shop.py").write_text(SPIDER)
    return tmp_path


def crawl(project: Path, sites: list[Site]) -> ScrapyProcess:
    urls = ",".join(
        site.url(f"/{number}") for at, site in enumerate(sites) for number in range(at + 1)
    )
    settings = {**KEPT, "JOBDIR": "job"}
    process = ScrapyProcess(
        arguments_of("crawl", "shop", "-a", f"start={urls}", settings=settings),
        cwd=project, variables=environment(), output=project / "out", errors=project / "log",
    )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while not (project / "job").exists() or len(held(project)) < len(sites):
        assert process.poll() is None, (project / "log").read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


def held(project: Path) -> list[dict[str, Any]]:
    return robots_here(project, "--held", str(project / "job"), "--json").json


def stamps(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Of each file but SQLite's index of its log, which readers lock."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.process
def test_what_a_crawl_holds_while_it_runs_and_after_it_was_killed(
    sites: Sites, project: Path
) -> None:
    down, slow = sites.add(robots=503), sites.add(robots=502)
    process = crawl(project, [down, slow])
    try:
        assert [(one["origin"], one["requests"]) for one in held(project)] == [
            (slow.url(""), 2),
            (down.url(""), 1),
        ]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    before = stamps(project / "job")
    done = robots(project, "--held", "job", settings=KEPT)
    assert (done.status, done.err) == (0, "")
    first, second, total = done.out.splitlines()
    assert first.startswith(f"2 requests  {slow.url('')}  held for ")
    assert "  robots.txt unreachable since 20" in first
    assert "Z (HTTP 502), next attempt not before 20" in first
    assert second.startswith(f"1 request  {down.url('')}  held for ")
    assert total == "# 3 requests of 2 origins held"
    (one, _) = robots(project, "--held", "job", "--json", settings=KEPT).json
    assert list(one) == [
        *("origin", "requests", "held_seconds", "unreachable_since", "error", "attempts"),
        "next_attempt_at",
    ]
    assert (one["error"], one["attempts"]) == ("HTTP 502", 1)
    assert one["next_attempt_at"] > one["unreachable_since"]
    assert stamps(project / "job") == before


@pytest.mark.process
def test_what_a_stopped_crawl_holds(sites: Sites, project: Path) -> None:
    """Why is not known where the project keeps nothing."""
    site = sites.add(robots=503)
    process = crawl(project, [site])
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    before = stamps(project / "job")
    names = {path.name for path in (project / "job").iterdir()}
    done = robots(project, "--held", "job")
    assert done.out.splitlines()[0].endswith(
        "  reason unknown: REP_CACHE_STORAGE has no entry for it"
    )
    # No file that the next run would take for the trace of a kill.
    assert {path.name for path in (project / "job").iterdir()} == names
    assert stamps(project / "job") == before


def test_a_folder_with_nothing_held(tmp_path: Path) -> None:
    done = robots_here(tmp_path, "--held", str(tmp_path))
    assert (done.status, done.out, done.err) == (0, "# 0 requests of 0 origins held\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("none", 2, "scrapy robots: 'none' is no folder"),
        ("broken", 3, "rep-held.sqlite can't be read: DatabaseError: file is not a database"),
        ("other", 3, "rep-held.sqlite can't be read: OperationalError: no such table: held"),
    ],
)
def test_a_folder_that_is_none_or_damaged(
    tmp_path: Path, path: str, status: int, error: str
) -> None:
    for name, content in {"broken": b"x" * 5000, "other": b""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rep-held.sqlite").write_bytes(content)
    done = robots_here(tmp_path, "--held", path)
    assert (done.status, done.out) == (status, "")
    assert done.errors[-1].endswith(error)
