"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: Redis servers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.log import lines, warnings
from tests.helpers.redisserver import (
    Address,
    RedisServer,
    ask,
    catch_up,
    needs_server,
    replicated,
)
from tests.helpers.servers import Sites
from tests.helpers.storing import (
    EARNED,
    assert_quiet,
    make_impatient,
    nothing,
    some,
    visit,
    warning,
)

pytestmark = needs_server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of the test's own, which it may stop, fill or hang."""
    with RedisServer(tmp_path) as running:
        yield running


def on(server: RedisServer | Address, url: str = "") -> dict[str, Any]:
    return {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_CACHE_REDIS_URL": url or server.url,
    }


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


async def test_a_server_that_is_full_is_read(sites: Sites, server: RedisServer) -> None:
    """What is new is not kept until there is room, and nobody waits for it."""
    known = some(sites, 1)
    await visit(known, on(server))
    many = [*some(sites, 2), *known, *some(sites, 2)]
    full, free = ("CONFIG SET", "maxmemory", "1"), ("CONFIG SET", "maxmemory", "0")
    between = (lambda: ask(server, *full), nothing, nothing, lambda: ask(server, *free))
    result = await visit(many, on(server), *between, fetched=[1, 1, 0, 1, 1])
    assert "maxmemory" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert_quiet(await visit(many[-1:], on(server), fetched=[0]))


async def test_a_failover_in_the_middle_of_a_crawl(sites: Sites, tmp_path: Path) -> None:
    """The replica becomes the primary, and the address leads to it."""
    with replicated(tmp_path) as (old, new), Address(old) as address:
        known, others = some(sites, 1), some(sites, 3)
        await visit(known, on(address))
        catch_up(old)

        def fail_over() -> None:
            ask(new, "REPLICAOF", "NO", "ONE")
            address.server = new
            ask(old, "REPLICAOF", "127.0.0.1", new.port)

        many = [*known, *others]
        result = await visit(many, on(address), nothing, fail_over, fetched=[0, 1, 1, 1])
        said = warnings(result, without=EARNED)
        assert len(said) == len(lines(result, "works again")) <= 1
        old.stop()
        assert_quiet(await visit(many, on(new), fetched=[0] * 4))
