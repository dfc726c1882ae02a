"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: Redis servers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.held import origin_of
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

pytestmark = pytest.mark.loop

OTHERS = b"User-agent: *\nDisallow: /x\n"


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


@needs_server
async def test_a_server_that_goes_and_comes_back(sites: Sites, server: RedisServer) -> None:
    many = some(sites, 6)
    result = await visit(many, on(server), nothing, server.stop, nothing, nothing, server.start)
    said = warning(result)
    assert "RedisStorage" in said
    assert "ConnectionError" in said
    assert len(lines(result, "works again")) == 1
    assert_quiet(await visit(many[-1:], on(server), fetched=[0]))


@needs_server
async def test_a_server_that_goes_twice(sites: Sites, server: RedisServer) -> None:
    """Each outage is news."""
    between = (server.stop, nothing, server.start, nothing, server.stop, server.start)
    result = await visit(some(sites, 7), on(server), *between)
    assert len(warnings(result, without=EARNED)) == 2
    assert len(lines(result, "works again")) == 2


@needs_server
async def test_no_server_at_the_start(sites: Sites, server: RedisServer) -> None:
    server.stop()
    assert "ConnectionError" in warning(await visit(some(sites), on(server)))
    many = some(sites)
    result = await visit(many, on(server), nothing, server.start)
    assert "ConnectionError" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert_quiet(await visit(many[-1:], on(server), fetched=[0]))


@needs_server
async def test_a_server_that_hangs(
    sites: Sites, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrapy_rep.storages import redis

    # Each call of a server that hangs takes as long.
    monkeypatch.setattr(redis, "_TIMEOUT_SECONDS", 0.2)
    assert server._process is not None
    process = server._process.pid

    def hang() -> None:
        os.kill(process, signal.SIGSTOP)

    def go_on() -> None:
        os.kill(process, signal.SIGCONT)

    try:
        url = server.url.partition("?")[0]
        result = await visit(some(sites, 5), on(server, url), hang, go_on)
    finally:
        go_on()
    # More than one if the machine is slow. The last of those may come at the end.
    said, again = warnings(result, without=EARNED), len(lines(result, "works again"))
    assert all("Timeout" in one for one in said)
    assert again in (len(said), len(said) - 1)
    assert again > 0


@needs_server
async def test_a_server_that_is_full(sites: Sites, server: RedisServer) -> None:
    """What it has is read; what is new is not kept, and nobody waits for it."""
    import redis

    client = redis.Redis(port=server.port)
    known = some(sites, 2)
    await visit(known, on(server))
    client.config_set("maxmemory", "1")
    result = await visit([*known, *some(sites)], on(server), fetched=[0, 0, 1, 1, 1, 1])
    assert "maxmemory" in warning(result)
    assert lines(result, "works again") == []
    client.config_set("maxmemory", "0")
    client.close()
    assert_quiet(await visit(known, on(server), fetched=[0, 0]))


@needs_server
async def test_a_server_that_gets_full_and_free(sites: Sites, server: RedisServer) -> None:
    import redis

    client = redis.Redis(port=server.port)
    many = some(sites, 6)
    result = await visit(
        many,
        on(server),
        lambda: client.config_set("maxmemory", "1"),
        nothing,
        nothing,
        lambda: client.config_set("maxmemory", "0"),
    )
    client.close()
    assert "maxmemory" in warning(result)
    assert len(lines(result, "works again")) == 1


@needs_server
async def test_a_server_that_wants_a_password(sites: Sites, tmp_path: Path) -> None:
    with RedisServer(tmp_path, requirepass="s3cret") as server:
        assert "Authentication" in warning(await visit(some(sites), on(server)))
        wrong = server.url.replace("//", "//:wr0ng@")
        said = warning(await visit(some(sites), on(server, wrong)))
        assert "wr0ng" not in said
        right = server.url.replace("//", "//:s3cret@")
        known = some(sites)
        assert_quiet(await visit(known, on(server, right)))
        assert_quiet(await visit(known, on(server, right), fetched=[0] * 4))


@needs_server
async def test_a_server_that_lost_the_bodies(sites: Sites, redis_server: RedisServer) -> None:
    """As one does that may drop what it likes when it is full."""
    import redis

    client = redis.Redis(port=redis_server.port)
    known = some(sites, 2)
    await visit(known, on(redis_server))
    for key in client.scan_iter("scrapy-rep:body:*"):
        client.delete(key)
    client.close()
    # They had the same body.
    result = await visit(known, on(redis_server), fetched=[1, 0])
    assert len(warnings(result, without=EARNED)) <= 1
    assert_quiet(await visit(known, on(redis_server), fetched=[0, 0]))


@needs_server
async def test_a_server_whose_keys_are_somebody_elses(
    sites: Sites, redis_server: RedisServer
) -> None:
    """Another type under our name is as if there was nothing; the others have no trouble."""
    import redis

    client = redis.Redis(port=redis_server.port)
    many = some(sites, 3)
    client.lpush(f"scrapy-rep:entry:{origin_of(many[1])}", "a list")
    client.close()
    result = await visit(many, on(redis_server))
    assert "in the robots.txt cache, which is broken: it is not a string" in warning(result)
    assert_quiet(await visit(many, on(redis_server), fetched=[0, 0, 0]))


@needs_server
@pytest.mark.parametrize("dies", [False, True], ids=["demoted", "dead"])
async def test_a_failover_in_the_middle_of_a_crawl(
    sites: Sites, tmp_path: Path, dies: bool
) -> None:
    """The replica becomes the primary, and the address leads to it."""
    with replicated(tmp_path) as (old, new), Address(old) as address:
        known, others = some(sites, 2), some(sites, 4)
        await visit(known, on(address))
        catch_up(old, new)

        def fail_over() -> None:
            ask(new, "REPLICAOF", "NO", "ONE")
            address.server = new
            if dies:
                old.stop()
            else:
                ask(old, "REPLICAOF", "127.0.0.1", new.port)

        many = [*known, *others]
        result = await visit(many, on(address), nothing, fail_over, fetched=[0, 0, 1, 1, 1, 1])
        said = warnings(result, without=EARNED)
        assert len(said) == len(lines(result, "works again")) <= 1
        old.stop()
        assert_quiet(await visit(many, on(new), fetched=[0] * 6))
