"""RedisStorage, with real servers: keys, expiry, leases; a server that is gone, refuses writes, or
wants a password; a cluster, as docs/cache.md shows it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.storages import UnreadableEntry
from tests.helpers.names import server_context
from tests.helpers.redisserver import PATIENT, RedisServer, needs_server
from tests.helpers.servers import Sites
from tests.helpers.storing import HOUR, A, B, missing, rules, users_class
from tests.storages.redis_servers import ask, cluster
from tests.storages.visits import make_impatient, some, visit, warning

redis = pytest.importorskip("redis", reason="needs redis, from PyPI")

from scrapy_rep.storages import RedisStorage

pytestmark = needs_server


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A client of the server, which is empty."""
    made = redis.Redis(port=redis_server.port)
    yield made
    made.close()


@pytest.fixture
def storage(redis_server: RedisServer, client: Any) -> Iterator[RedisStorage]:
    made = RedisStorage(redis_server.url, "rep", HOUR)
    yield made
    made.close()


# What is on the server


def test_each_entry_body_and_lease_has_its_own_key(storage: RedisStorage, client: Any) -> None:
    storage.save(rules())
    storage.save(missing(B))
    storage.lease(B, "me", HOUR)
    assert sorted(client.keys()) == sorted(
        [
            f"rep:entry:{A}".encode(),
            f"rep:body:{rules().sha256}".encode(),
            f"rep:entry:{B}".encode(),
            f"rep:lease:{B}".encode(),
        ]
    )
    assert json.loads(client.get(f"rep:entry:{A}"))["status"] == 200
    assert client.get(f"rep:body:{rules().sha256}") == rules().packed


def test_entries_and_bodies_expire_after_their_last_use(storage: RedisStorage, client: Any) -> None:
    """A body expires with the last entry that has it."""
    storage.save(rules())
    for key in client.scan_iter():
        assert HOUR - 60 < client.ttl(key) <= HOUR
        client.expire(key, 5)
    storage.save(rules(B))
    assert client.ttl(f"rep:entry:{A}") <= 5
    assert client.ttl(f"rep:body:{rules().sha256}") > HOUR - 60
    storage.save(rules())
    assert client.ttl(f"rep:entry:{A}") > HOUR - 60


def test_the_expiry_is_at_least_one_second(redis_server: RedisServer, client: Any) -> None:
    """Redis counts whole seconds here, and knows no expiry of none."""
    for expiry, seconds in ((0.2, 1), (7776000.0, 7776000), (1e9, 10**9)):
        storage = RedisStorage(redis_server.url, "rep", expiry)
        storage.save(missing())
        assert seconds - 60 < client.ttl(f"rep:entry:{A}") <= seconds
        storage.close()


def test_a_lease_lapses_after_its_seconds(storage: RedisStorage, client: Any) -> None:
    """A process that died with it delays nobody for longer."""
    assert storage.lease(A, "dead", 30)
    assert 25_000 < client.pttl(f"rep:lease:{A}") <= 30_000
    client.pexpire(f"rep:lease:{A}", 20_000)
    assert not storage.lease(A, "me", 30)
    assert client.pttl(f"rep:lease:{A}") <= 20_000, "another's is not lengthened"
    assert storage.lease(A, "dead", 30), "renewed"
    assert client.pttl(f"rep:lease:{A}") > 25_000
    client.persist(f"rep:lease:{A}")  # lost its end, in a restored dump
    assert storage.lease(A, "me", 30)
    client.pexpire(f"rep:lease:{A}", 1_000_000)
    assert storage.lease(A, "you", 30), "nobody's is as long"
    client.delete(f"rep:lease:{A}")
    assert storage.lease(A, "me", 0.0001)
    assert storage.lease(B, "me", 1e6)


def test_a_batch_takes_few_round_trips(
    storage: RedisStorage, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many origins are in it: headers, then bodies; all else at once."""
    entries = [rules(f"http://{n}:80", str(n).encode()) for n in range(300)]
    origins = [one.origin for one in entries]
    storage.lease(A, "me", HOUR)  # connected, and the server has the scripts
    storage.release(A, "me")
    sent: list[object] = []
    send = redis.connection.AbstractConnection.send_packed_command

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        sent.append(self)
        send(self, *args, **kwargs)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_packed_command", counted)
    for calls, most in (
        (lambda: storage.lease_many(origins, "me", HOUR), 1),
        (lambda: storage.save_many(entries), 1),
        (lambda: storage.release_many(origins, "me"), 1),
        # Lengths and values, of headers and of bodies.
        (lambda: storage.load_many(origins), 4),
    ):
        sent.clear()
        calls()
        assert len(sent) == most
    monkeypatch.undo()
    assert client.dbsize() == 600


def test_prefixes_are_apart(redis_server: RedisServer, client: Any) -> None:
    """One that is a pattern, or begins as another does, too."""
    prefixes = ["a", "a:b", "a*", "*", "a?", "[a-z]", "\\", "\u30c4"]
    storages = [RedisStorage(redis_server.url, prefix, HOUR) for prefix in prefixes]
    for number, one in enumerate(storages):
        one.save(missing(f"http://{number}:80"))
        assert one.lease(A, str(number), HOUR)
    for number, one in enumerate(storages):
        assert [getattr(found, "origin", found) for found in one.entries()] == [
            f"http://{number}:80"
        ]
        one.close()


def test_a_body_that_the_server_dropped(storage: RedisStorage, client: Any) -> None:
    """It is full, and was told to."""
    storage.save(rules())
    client.delete(f"rep:body:{rules().sha256}")
    assert storage.load(A) is None
    assert len(list(storage.entries())) == 1
    storage.save(rules())
    assert storage.load(A) == rules()


def test_a_value_that_is_no_string(storage: RedisStorage, client: Any) -> None:
    client.lpush(f"rep:entry:{A}", "a list")
    with pytest.raises(UnreadableEntry):
        storage.load(A)
    assert [type(one) for one in storage.entries()] == [UnreadableEntry]


# Servers that don't do what they should


def test_gone_and_back(tmp_path: Path) -> None:
    """With nothing in it, the scripts of the leases neither."""
    with RedisServer(tmp_path) as server:
        storage = RedisStorage(server.url, "rep", HOUR)
        storage.save(rules())
        assert storage.lease(A, "me", HOUR)
        server.stop()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                storage.load(A)
            with pytest.raises(redis.ConnectionError):
                storage.lease(A, "me", HOUR)
        server.start()
        assert storage.load(A) is None
        assert storage.lease(A, "you", HOUR)
        storage.release(A, "you")
        storage.save(rules())
        assert storage.load(A) == rules()
        server.stop()
        server.start()
        assert storage.load(A) is None, "not even one call is lost to the connection that is gone"
        storage.close()


def test_a_server_that_has_become_a_replica_is_left(tmp_path: Path) -> None:
    """A failover: the address leads to another server, but the connection to this one."""
    with RedisServer(tmp_path) as server:
        storage, client = RedisStorage(server.url, "rep", HOUR), redis.Redis(port=server.port)
        storage.save(rules())

        def connections() -> set[str]:
            return {one["id"] for one in client.client_list()} - {str(client.client_id())}

        for write in (
            lambda: storage.save(rules()),
            lambda: storage.lease(A, "me", 60.0),
            lambda: storage.release(A, "me"),
        ):
            client.replicaof("127.0.0.1", 1)  # nobody
            before = connections()
            with pytest.raises(redis.ReadOnlyError):
                write()
            assert storage.load(A) == rules()
            assert not before & connections()
            client.replicaof("NO", "ONE")
            write()
        storage.close()
        client.close()


def test_a_full_server_refuses_writes_with_an_error(tmp_path: Path) -> None:
    """Writes are refused, whole; what is there is read, and can be dropped."""
    with RedisServer(tmp_path) as server:
        client = redis.Redis(port=server.port)
        storage = RedisStorage(server.url, "rep", HOUR)
        storage.save(rules())
        assert storage.lease(A, "me", HOUR)
        client.config_set("maxmemory", "1")
        for write in (
            lambda: storage.save(rules(B, b"new")),
            lambda: storage.lease(B, "me", HOUR),
        ):
            with pytest.raises(redis.ResponseError):
                write()
        assert storage.load(A) == rules()
        assert storage.load(B) is None
        storage.release(A, "me")
        assert storage.drop(A)
        client.config_set("maxmemory", "0")
        storage.save(rules(B, b"new"))
        assert storage.load(B) == rules(B, b"new")
        storage.close()
        client.close()


def test_a_password_is_used_and_never_shown(tmp_path: Path) -> None:
    with RedisServer(tmp_path, requirepass="s3cret") as server:
        storage = RedisStorage(server.url, "rep", HOUR)
        with pytest.raises(redis.AuthenticationError):
            storage.load(A)
        wrong = RedisStorage(server.url.replace("//", "//:wr0ng@"), "rep", HOUR)
        with pytest.raises(redis.RedisError) as caught:
            wrong.load(A)
        assert "wr0ng" not in str(caught.value)
        right = RedisStorage(server.url.replace("//", "//:s3cret@"), "rep", HOUR)
        right.save(rules())
        assert right.load(A) == rules()
        right._client.execute_command("ACL SETUSER", "bot", "on", ">50%/@:", "~rep:*", "+@all")
        user = RedisStorage(server.url.replace("//", "//bot:50%25%2F%40%3A@"), "rep", HOUR)
        assert user.load(A) == rules()
        right._client.execute_command("ACL SETUSER", "bot", "-get")
        with pytest.raises(redis.RedisError):
            user.load(A)
        for one in (storage, wrong, right, user):
            one.close()


def test_connections_with_tls(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server_context(tmp_path)
    certificate = str(tmp_path / "loopback.pem")
    files = dict.fromkeys(("tls_cert_file", "tls_key_file", "tls_ca_cert_file"), certificate)
    with RedisServer(tmp_path, tls_port=str(port), tls_auth_clients="no", **files):
        url = f"rediss://127.0.0.1:{port}"
        ours = f"ssl_ca_certs={certificate}&ssl_check_hostname=false&{PATIENT}"
        right = RedisStorage(f"{url}?{ours}", "rep", HOUR)
        right.save(rules())
        assert right.load(A) == rules()
        unknown = RedisStorage(url, "rep", HOUR)  # by a certificate that nobody vouches for
        with pytest.raises(redis.ConnectionError, match="(?i)certificate"):
            unknown.load(A)
        for one in (right, unknown):
            one.close()


# Settings


def from_settings(**settings: Any) -> RedisStorage:
    return RedisStorage.from_crawler(get_crawler(settings_dict=settings))


def test_url_prefix_and_expiry_come_from_its_own_settings(
    redis_server: RedisServer, client: Any
) -> None:
    storage = from_settings(
        REP_CACHE_REDIS_URL=redis_server.url.replace("/?", "/3?"),
        REP_CACHE_REDIS_PREFIX="mine",
        REP_CACHE_EXPIRY=100,
        REDIS_URL="redis://nowhere.invalid",
    )
    storage.save(missing())
    other = redis.Redis(port=redis_server.port, db=3)
    assert other.keys() == [f"mine:entry:{A}".encode()]
    assert 50 < other.ttl(f"mine:entry:{A}") <= 100
    assert client.keys() == []
    other.close()
    storage.close()
    storage = from_settings(REDIS_URL=redis_server.url)  # that of scrapy-redis
    storage.save(missing())
    assert client.keys() == [f"scrapy-rep:entry:{A}".encode()]
    storage.close()


def test_a_missing_url_is_a_settings_error() -> None:
    for settings in ({}, {"REP_CACHE_REDIS_URL": "", "REDIS_URL": ""}):
        with pytest.raises(SettingsError, match="RedisStorage needs REP_CACHE_REDIS_URL"):
            from_settings(**settings)


def test_a_wrong_url_is_a_settings_error_without_its_password() -> None:
    """One sentence at the start. It does not give away what may be a password."""
    for url in (
        "localhost:6379",
        "http://localhost",
        "redis://localhost:99999",
        "redis://[::1",
        "redis://:s3cret/with/slash@localhost:6379",
        "redis://localhost:s3cret",
        "redis://localhost/0?socket_timeout=s3cret",
    ):
        with pytest.raises(SettingsError) as caught:
            from_settings(REP_CACHE_REDIS_URL=url)
        assert str(caught.value).startswith("REP_CACHE_REDIS_URL ")
        assert "s3cret" not in str(caught.value)


# A cluster

PREFIX = "{scrapy-rep}"

Nodes = tuple[RedisServer, RedisServer]

needs_redis_8 = pytest.mark.skipif(int(redis.__version__.split(".")[0]) < 8, reason="needs redis 8")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Of a cluster, which takes two seconds to start. At first the second one has all keys."""
    with cluster(tmp_path_factory.mktemp("cluster"), PREFIX) as both:
        yield both


@needs_redis_8
def test_any_node_of_a_cluster_leads_to_the_one_with_the_keys(nodes: Nodes) -> None:
    storage = users_class("RedisStorage")(nodes[1].url, PREFIX, HOUR)
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


@needs_redis_8
def test_keys_that_move_to_another_node_are_found(nodes: Nodes) -> None:
    """A reshard in the middle of a crawl, and back."""
    storage = users_class("RedisStorage")(nodes[0].url, PREFIX, HOUR)
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


@needs_redis_8
async def test_a_cluster_that_is_gone_does_not_end_the_crawl(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_impatient(monkeypatch)
    gone = {
        "REP_CACHE_STORAGE": users_class("RedisStorage"),
        "REP_CACHE_REDIS_URL": RedisServer(tmp_path).url,
    }
    assert "can't be read: RedisClusterException" in warning(await visit(some(sites, 2), gone))
