"""Crawls with a storage that fails: one warning, the crawl goes on, decisions stay right."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES
from tests.helpers.crawling import NO, OK, CrawlResult, StepSpider, crawl
from tests.helpers.files import aside, change, impatient_storages
from tests.helpers.held import assert_clean, origin_of
from tests.helpers.log import lines, warnings
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import in_a_file, on_a_server, rules, users_class
from tests.storages.faults import Disk

EARNED = "refused every start"
"""Words of the one warning that such a crawl earns: its only start request is a forbidden one."""


@pytest.fixture(autouse=True)
def nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient_storages(monkeypatch)


def some(sites: Sites, count: int = 4) -> list[Site]:
    return [sites.add(robots=RULES) for _ in range(count)]


async def visit(
    some: list[Site],
    settings: dict[str, Any],
    *between: Callable[[], object] | None,
    fetched: list[int] | None = None,
) -> CrawlResult:
    """A crawl of two pages of each site, with what happens after each of the first sites. All
    decisions are right, and each robots.txt was asked for once (or *fetched* times)."""
    steps: list[Any] = []
    for site, then in zip(some, [*between, *[None] * len(some)], strict=False):
        steps += [site.url("/private"), site.url("/x"), *([then] if then else [])]
    before = [site.count("/robots.txt") for site in some]
    result = await crawl(StepSpider, settings, steps=steps)
    assert_clean(result)
    assert isinstance(result.spider, StepSpider)
    assert result.spider.outcomes == [NO, OK] * len(some)
    counts = [
        site.count("/robots.txt") - then
        for site, then in zip(some, before, strict=True)
    ]
    assert counts == (fetched or [1] * len(some))
    return result


def outages(result: CrawlResult) -> tuple[list[str], int]:
    """What warnings say of the storage, and how often it works again."""
    return warnings(result, without=EARNED), len(lines(result, "works again"))


def warning(result: CrawlResult) -> str:
    [found], _ = outages(result)
    return found


def assert_quiet(result: CrawlResult) -> None:
    assert outages(result) == ([], 0)


async def test_no_place_for_a_file(sites: Sites, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    settings = {
        **in_a_file(tmp_path),
        "REP_CACHE_PATH": tmp_path / "file/a/robots.sqlite",
    }
    said = warning(await visit(some(sites, 2), settings))
    assert all(
        words in said for words in ("SqliteStorage", "The crawl goes on", str(tmp_path))
    )
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.loop
async def test_a_locked_file_is_reported_and_used_again_when_free(
    sites: Sites, tmp_path: Path, path: Path
) -> None:
    """By a program that holds it while the crawl runs."""
    known, settings = some(sites, 1), in_a_file(tmp_path)
    await visit(known, settings)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    [said], again = outages(await visit(some(sites, 3), settings, None, other.close))
    assert "locked" in said
    assert again == 1
    assert aside(path) == []
    assert_quiet(await visit(known, settings, fetched=[0]))


async def test_what_is_broken_in_the_file_is_fetched_again(
    sites: Sites, tmp_path: Path, path: Path
) -> None:
    """Entries, and bodies: one warning for all, and it is mended by that."""
    known = [sites.add(robots=f"{RULES}# {number}") for number in range(5)]
    settings, origins = in_a_file(tmp_path), [*map(origin_of, known)]
    await visit(known, settings)
    too_large = json.dumps(
        {**json.loads(rules(origins[2]).header()), "fetched_at": 1e300}
    )
    headers = [
        '{"schema":99,"origin":{"like":"nobody knows"}}',
        too_large,
        b"\xff\xfe{}",
    ]
    for origin, header in zip(origins[1:], headers, strict=False):
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", header, origin)
    damage = "UPDATE bodies SET packed = x'aa' WHERE sha256 = (SELECT sha256 FROM entries WHERE origin = ?)"
    change(path, damage, origins[4])
    said = warning(await visit(known, settings, fetched=[0, 1, 1, 1, 1]))
    assert f"Ignoring the robots.txt cache's entry for {origins[1]}" in said
    assert_quiet(await visit(known, settings, fetched=[0] * 5))


@pytest.mark.process
async def test_a_read_only_disk(sites: Sites, tmp_path: Path) -> None:
    """The crawl works without its cache, before there is a file and afterwards."""
    disk = Disk(tmp_path / "disk", "600k")
    try:
        settings, known = in_a_file(disk.folder), some(sites, 2)
        disk.read_only()
        assert "SqliteStorage" in warning(await visit(known, settings))
        assert list(disk.folder.iterdir()) == []
        disk.read_only(False)
        assert_quiet(await visit(known, settings))
        disk.read_only()
        assert "SqliteStorage" in warning(await visit(some(sites, 2), settings))
        disk.read_only(False)
        assert_quiet(await visit(known, settings, fetched=[0, 0]))
    finally:
        disk.close()


@needs_server
@pytest.mark.loop
async def test_a_server_that_goes_twice(sites: Sites, server: RedisServer) -> None:
    """Each outage is news: the first began before the crawl."""
    server.stop()
    many, settings = some(sites, 5), on_a_server(server.url, "rep")
    between = server.start, None, server.stop, server.start
    said, again = outages(await visit(many, settings, *between))
    assert len(said) == again == 2
    assert all("RedisStorage" in one and "ConnectionError" in one for one in said)
    assert_quiet(await visit(many[-1:], settings, fetched=[0]))


@needs_server
async def test_a_server_that_hangs(
    sites: Sites, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each call of a server that hangs takes as long.
    monkeypatch.setattr("scrapy_rep.storages.redis._TIMEOUT_SECONDS", 0.1)
    assert server._process is not None
    process = server._process.pid

    def go_on() -> None:
        os.kill(process, signal.SIGCONT)

    try:
        settings = on_a_server(server.url.partition("?")[0], "rep")
        hang = lambda: os.kill(process, signal.SIGSTOP)
        said, again = outages(await visit(some(sites, 4), settings, hang, go_on))
    finally:
        go_on()
    # More than one if the machine is slow. The last of those may come at the end.
    assert all("Timeout" in one for one in said)
    assert again in (len(said), len(said) - 1)
    assert again > 0


@needs_server
async def test_a_cluster_that_is_gone(sites: Sites, tmp_path: Path) -> None:
    if int(pytest.importorskip("redis").__version__.split(".")[0]) < 8:
        pytest.skip("needs redis 8")
    settings = on_a_server(RedisServer(tmp_path).url, "rep")
    settings["REP_CACHE_STORAGE"] = users_class("RedisStorage")
    said = warning(await visit(some(sites, 2), settings))
    assert "can't be read: RedisClusterException" in said


async def test_a_missing_package_ends_the_crawl_before_a_fetch(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    [site] = some(sites, 1)
    settings = on_a_server("redis://localhost", "rep")
    result = await crawl(site.url("/x"), settings)
    assert result.reason == "rep_settings_error"
    [error] = lines(result, level="ERROR")
    assert error.startswith(
        "REP_CACHE_STORAGE is 'scrapy_rep.storages.RedisStorage', which can't"
    )
    assert "pip install scrapy-rep[redis]" in error
    assert "Traceback" not in result.log
    assert site.requests == []
