"""RedisStorage on a real cluster, as docs/cache.md shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.redisserver import RedisServer, ask, cluster, needs_server
from tests.helpers.servers import Sites
from tests.helpers.storing import (
    A,
    B,
    make_impatient,
    missing,
    rules,
    some,
    users_class,
    visit,
    warning,
)

pytest.importorskip("redis", minversion="8", reason="needs redis 8, from PyPI")

pytestmark = needs_server

PREFIX = "{scrapy-rep}"

Nodes = tuple[RedisServer, RedisServer]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Of a cluster, which takes two seconds to start. At first the second one has all keys."""
    with cluster(tmp_path_factory.mktemp("cluster"), PREFIX) as both:
        yield both


def test_any_node_of_a_cluster_leads_to_the_one_with_the_keys(nodes: Nodes) -> None:
    storage = users_class("RedisStorage")(nodes[1].url, PREFIX, 3600.0)
    storage.save_many([rules(), missing(B)])
    assert storage.load_many([A, B]) == {A: rules(), B: missing(B)}
    assert storage.lease_many([A, B], "me", 60.0) == {A, B}
    assert storage.lease_many([A, B], "you", 60.0) == set()
    storage.release_many([A, B], "me")
    assert storage.lease_many([A, B], "you", 60.0) == {A, B}
    assert {one.origin for one in storage.entries()} == {A, B}
    assert storage.body(rules().sha256) == rules().body
    assert [storage.drop(one) for one in (A, B, B)] == [True, True, False]
    assert storage.lease_many([A, B], "me", 60.0) == {A, B}, "dropped with the entries"
    storage.release_many([A, B], "me")
    assert list(storage.entries()) == []
    storage.close()


def test_keys_that_move_to_another_node_are_found(nodes: Nodes) -> None:
    """A reshard in the middle of a crawl, and back."""
    storage = users_class("RedisStorage")(nodes[0].url, PREFIX, 3600.0)
    slot = ask(nodes[0], "CLUSTER KEYSLOT", PREFIX)
    for mover, other in (nodes, reversed(nodes)):
        storage.save(rules())
        ask(other, "FLUSHALL")
        # The old owner first: while it claims the slot, it may get it back.
        for node in (other, mover):
            ask(node, "CLUSTER SETSLOT", slot, "NODE", ask(mover, "CLUSTER MYID"))
        assert storage.load(A) is None
        storage.save(rules())
        assert storage.load(A) == rules()
        assert storage.lease(A, "me", 60.0)
        assert ask(mover, "DBSIZE") == 3
        storage.release(A, "me")
    storage.close()


async def test_a_cluster_that_is_gone_does_not_end_the_crawl(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_impatient(monkeypatch)
    gone = {
        "REP_CACHE_STORAGE": users_class("RedisStorage"),
        "REP_CACHE_REDIS_URL": RedisServer(tmp_path).url,
    }
    assert "can't be read: RedisClusterException" in warning(await visit(some(sites, 2), gone))
