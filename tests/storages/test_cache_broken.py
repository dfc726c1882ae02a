"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Files of SqliteStorage, disks, Redis servers, classes of the user's."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import Entry, SqliteStorage, Storage
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.files import aside, ask, change
from tests.helpers.held import origin_of
from tests.helpers.log import lines, warnings
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file, on_a_server, rules
from tests.storages.faults import Disk
from tests.storages.redis_servers import Address, catch_up, replicated
from tests.storages.redis_servers import ask as ask_server
from tests.storages.visits import (
    EARNED,
    assert_quiet,
    make_impatient,
    nothing,
    some,
    visit,
    warning,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)


@pytest.fixture
def in_file(tmp_path: Path) -> dict[str, Any]:
    return in_a_file(tmp_path)


# Files


async def test_no_place_for_a_file(sites: Sites, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    settings = {**in_a_file(tmp_path), "REP_CACHE_PATH": tmp_path / "file/a/robots.sqlite"}
    said = warning(await visit(some(sites, 2), settings))
    assert "SqliteStorage" in said
    assert "The crawl goes on" in said
    assert str(tmp_path / "file") in said
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.loop
async def test_overwritten_in_the_middle(sites: Sites, path: Path, in_file: dict[str, Any]) -> None:
    filled = SqliteStorage(path)
    filled.save_many([rules(f"http://{n}.example:80", b"%d" % n * 100) for n in range(1000)])
    filled.close()
    # Different bodies: their hashes are all over the file.
    many = [sites.add(robots=f"{RULES}# {number}") for number in range(4)]

    def overwrite() -> None:
        with path.open("r+b") as file:
            file.write(b"\xaa" * path.stat().st_size)

    said = warning(await visit(many, in_file, nothing, nothing, overwrite))
    [kept] = aside(path)
    assert kept.name in said
    # What came after that is kept, at the latest what came last.
    assert_quiet(await visit(many[-1:], in_file, fetched=[0]))
    assert ask(path, "PRAGMA integrity_check") == "ok"


@pytest.mark.loop
async def test_a_locked_file_is_reported_and_used_again_when_free(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    """By a program that holds it while the crawl runs."""
    known = some(sites, 1)
    await visit(known, in_file)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    result = await visit(some(sites, 3), in_file, nothing, other.close)
    assert "locked" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert aside(path) == []
    assert_quiet(await visit(known, in_file, fetched=[0]))


async def test_what_is_broken_in_the_file_is_fetched_again(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    """Entries, and bodies: one warning for all, and it is mended by that."""
    known = [sites.add(robots=f"{RULES}# {number}") for number in range(5)]
    await visit(known, in_file)
    too_large = json.dumps({**json.loads(rules(origin_of(known[2])).header()), "fetched_at": 1e300})
    headers = ['{"schema":99,"origin":{"like":"nobody knows"}}', too_large, b"\xff\xfe{}"]
    for site, header in zip(known[1:], headers, strict=False):
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", header, origin_of(site))
    damage = "UPDATE bodies SET packed = x'aa' WHERE sha256 = (SELECT sha256 FROM entries WHERE origin = ?)"
    change(path, damage, origin_of(known[4]))
    said = warning(await visit(known, in_file, fetched=[0, 1, 1, 1, 1]))
    assert f"Ignoring the robots.txt cache's entry for {origin_of(known[1])}" in said
    assert_quiet(await visit(known, in_file, fetched=[0] * 5))


# Disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", "600k")
    yield made
    made.close()


@pytest.mark.process
async def test_a_read_only_disk(sites: Sites, disk: Disk) -> None:
    """The crawl works without its cache, before there is a file and afterwards."""
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


# Servers


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of the test's own, which it may stop, fill or hang."""
    with RedisServer(tmp_path) as running:
        yield running


def on(server: RedisServer | Address, url: str = "") -> dict[str, Any]:
    return on_a_server(url or server.url, "rep")


@needs_server
@pytest.mark.loop
async def test_a_server_that_goes_twice(sites: Sites, server: RedisServer) -> None:
    """Each outage is news: the first began before the crawl."""
    server.stop()
    many = some(sites, 5)
    result = await visit(many, on(server), server.start, nothing, server.stop, server.start)
    said = warnings(result, without=EARNED)
    assert len(said) == len(lines(result, "works again")) == 2
    assert all("RedisStorage" in one and "ConnectionError" in one for one in said)
    assert_quiet(await visit(many[-1:], on(server), fetched=[0]))


@needs_server
async def test_a_server_that_hangs(
    sites: Sites, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy_rep.storages import redis

    # Each call of a server that hangs takes as long.
    monkeypatch.setattr(redis, "_TIMEOUT_SECONDS", 0.1)
    assert server._process is not None
    process = server._process.pid

    def hang() -> None:
        os.kill(process, signal.SIGSTOP)

    def go_on() -> None:
        os.kill(process, signal.SIGCONT)

    try:
        url = server.url.partition("?")[0]
        result = await visit(some(sites, 4), on(server, url), hang, go_on)
    finally:
        go_on()
    # More than one if the machine is slow. The last of those may come at the end.
    said, again = warnings(result, without=EARNED), len(lines(result, "works again"))
    assert all("Timeout" in one for one in said)
    assert again in (len(said), len(said) - 1)
    assert again > 0


@needs_server
async def test_a_server_that_is_full_is_read(sites: Sites, server: RedisServer) -> None:
    """What is new is not kept until there is room, and nobody waits for it."""
    known = some(sites, 1)
    await visit(known, on(server))
    many = [*some(sites, 2), *known, *some(sites, 2)]
    full, free = ("CONFIG SET", "maxmemory", "1"), ("CONFIG SET", "maxmemory", "0")
    between = (
        lambda: ask_server(server, *full),
        nothing,
        nothing,
        lambda: ask_server(server, *free),
    )
    result = await visit(many, on(server), *between, fetched=[1, 1, 0, 1, 1])
    assert "maxmemory" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert_quiet(await visit(many[-1:], on(server), fetched=[0]))


@needs_server
async def test_a_failover_in_the_middle_of_a_crawl(sites: Sites, tmp_path: Path) -> None:
    """The replica becomes the primary, and the address leads to it."""
    with replicated(tmp_path) as (old, new), Address(old) as address:
        known, others = some(sites, 1), some(sites, 3)
        await visit(known, on(address))
        catch_up(old)

        def fail_over() -> None:
            catch_up(old)  # Redis loses what its replica doesn't have yet
            ask_server(new, "REPLICAOF", "NO", "ONE")
            address.server = new
            ask_server(old, "REPLICAOF", "127.0.0.1", new.port)

        many = [*known, *others]
        result = await visit(many, on(address), nothing, fail_over, fetched=[0, 1, 1, 1])
        said = warnings(result, without=EARNED)
        assert len(said) == len(lines(result, "works again")) <= 1
        old.stop()
        assert_quiet(await visit(many, on(new), fetched=[0] * 4))


# Classes


class Fails(Storage):
    """Does nothing right."""

    def load(self, origin: str) -> Entry | None:
        raise ZeroDivisionError("a bug of the user's")

    save = lease = release = purge = load  # type: ignore[assignment]

    def close(self) -> None:
        raise ZeroDivisionError("a bug of the user's")


@pytest.mark.loop
async def test_a_class_that_raises(sites: Sites) -> None:
    result = await visit(some(sites), {"REP_CACHE_STORAGE": Fails})
    said = warning(result)
    assert "(Fails)" in said
    assert "ZeroDivisionError: a bug of the user's" in said
    assert result.stat("rep/cache/unsaved") == 4
    assert lines(result, "works again") == []


async def test_a_missing_package_ends_the_crawl_before_a_fetch(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "scrapy_rep.storages.redis", raising=False)
    [site] = some(sites, 1)
    settings = {"REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage"}
    result = await crawl(site.url("/x"), settings)
    assert result.reason == "rep_settings_error"
    [error] = lines(result, level="ERROR")
    assert error.startswith("REP_CACHE_STORAGE is 'scrapy_rep.storages.RedisStorage', which can't")
    assert "pip install scrapy-rep[redis]" in error
    assert "Traceback" not in result.log
    assert site.requests == []
