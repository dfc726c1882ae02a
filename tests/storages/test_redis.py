"""RedisStorage with real servers: gone, full, with a password; a cluster as in docs/cache.md."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.storages import UnreadableEntry
from tests.helpers.redisserver import PATIENCE, RedisServer, needs_server
from tests.helpers.rows import every_row
from tests.helpers.storing import HOUR, A, B, missing, rules, users_class

redis = pytest.importorskip("redis", reason="needs redis, from PyPI")
from scrapy_rep.storages import RedisStorage

pytestmark = needs_server
ENTRY, BODY, LEASE = f"rep:entry:{A}", f"rep:body:{rules().sha256}", f"rep:lease:{A}"
Opener = Callable[..., RedisStorage]


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    made = redis.Redis(port=redis_server.port)
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens storages, which are closed in the end."""
    made: list[RedisStorage] = []

    def opened(
        url: str, prefix: str = "rep", expiry: float = HOUR, kind: Any = RedisStorage
    ) -> RedisStorage:
        made.append(kind(url, prefix, expiry))
        return made[-1]

    yield opened
    for one in made:
        one.close()


@pytest.fixture
def storage(redis_server: RedisServer, client: Any, opened: Opener) -> RedisStorage:
    return opened(redis_server.url)


def test_each_entry_body_and_lease_has_its_own_key(
    storage: RedisStorage, client: Any
) -> None:
    storage.save(rules())
    storage.save(missing(B))
    storage.lease(A, "me", HOUR)
    keys = set(map(bytes.decode, client.keys()))
    assert keys == {ENTRY, BODY, LEASE, f"rep:entry:{B}"}
    assert json.loads(client.get(ENTRY))["status"] == 200
    assert client.get(BODY) == rules().packed


def test_entries_and_bodies_expire_after_their_last_use(
    storage: RedisStorage, client: Any, redis_server: RedisServer, opened: Opener
) -> None:
    """A body expires with the last entry that has it."""
    storage.save(rules())
    for key in (ENTRY, BODY):
        assert HOUR - 60 < client.ttl(key) <= HOUR
        client.expire(key, 5)
    storage.save(rules(B))
    assert client.ttl(ENTRY) <= 5
    assert client.ttl(BODY) > HOUR - 60
    storage.save(rules())
    assert client.ttl(ENTRY) > HOUR - 60
    # Redis counts whole seconds here, and knows no expiry of none.
    for expiry, seconds in ((0.2, 1), (7776000.0, 7776000), (1e9, 10**9)):
        opened(redis_server.url, expiry=expiry).save(missing())
        assert seconds - 60 < client.ttl(ENTRY) <= seconds


def test_a_lease_lapses_after_its_seconds(storage: RedisStorage, client: Any) -> None:
    """A process that died with it delays nobody for longer."""
    assert storage.lease(A, "dead", 30)
    assert 25_000 < client.pttl(LEASE) <= 30_000
    client.pexpire(LEASE, 20_000)
    assert not storage.lease(A, "me", 30)
    assert client.pttl(LEASE) <= 20_000, "another's is not lengthened"
    assert storage.lease(A, "dead", 30)
    assert client.pttl(LEASE) > 25_000, "renewed"
    client.persist(LEASE)  # lost its end, in a restored dump
    assert storage.lease(A, "me", 30)
    client.pexpire(LEASE, 1_000_000)
    assert storage.lease(A, "you", 30), "nobody's is as long"
    assert storage.lease(B, "me", 0.0001)


def test_a_batch_takes_few_round_trips(
    storage: RedisStorage, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many origins are in it: headers, then bodies; all else at once."""
    entries = [rules(f"http://{n}:80", str(n).encode()) for n in range(300)]
    origins = [one.origin for one in entries]
    storage.lease(A, "me", HOUR)  # connected, and the server has the scripts
    storage.release(A, "me")
    storage.load(A)
    sent: list[object] = []
    send = redis.connection.AbstractConnection.send_packed_command

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        sent.append(self)
        send(self, *args, **kwargs)

    monkeypatch.setattr(
        redis.connection.AbstractConnection, "send_packed_command", counted
    )
    for calls, most in (
        (lambda: storage.lease_many(origins, "me", HOUR), 1),
        (lambda: storage.save_many(entries), 1),
        (lambda: storage.release_many(origins, "me"), 1),
        (lambda: storage.load_many(origins), 2),
    ):
        sent.clear()
        calls()
        assert len(sent) == most
    assert client.dbsize() == 600


def test_prefixes_are_apart(
    redis_server: RedisServer, client: Any, opened: Opener
) -> None:
    """One that is a pattern, or begins as another does, too."""
    prefixes = ["a", "a:b", "a*", "*", "a?", "[a-z]", "\\", "\u30c4"]
    storages = [opened(redis_server.url, prefix) for prefix in prefixes]
    for number, one in enumerate(storages):
        one.save(missing(f"http://{number}:80"))
        assert one.lease(A, str(number), HOUR)
    for number, one in enumerate(storages):
        assert list(one.entries()) == [missing(f"http://{number}:80")]


def test_a_body_that_the_server_dropped(storage: RedisStorage, client: Any) -> None:
    """It is full, and was told to."""
    storage.save(rules())
    client.delete(BODY)
    assert storage.load(A) is None
    assert len(list(storage.entries())) == 1


def test_what_others_put_there(storage: RedisStorage, client: Any) -> None:
    """Values that are no strings, one of them under a key that is no text."""
    for key in (ENTRY, b"rep:entry:\xff"):
        client.lpush(key, "a list")
    assert [type(one) for one in storage.entries()] == [UnreadableEntry] * 2
    with pytest.raises(UnreadableEntry, match="broken: "):
        storage.load(A)


def test_gone_and_back(server: RedisServer, opened: Opener) -> None:
    """With nothing in it, the scripts of the leases neither."""
    storage = opened(server.url)
    storage.save(rules())
    assert storage.lease(A, "me", HOUR)
    server.stop()
    for call in (lambda: storage.load(A), lambda: storage.lease(A, "me", HOUR)) * 2:
        with pytest.raises(redis.ConnectionError):
            call()
    server.start()
    assert storage.load(A) is None
    assert storage.lease(A, "you", HOUR)
    storage.release(A, "you")
    storage.save(rules())
    assert storage.load(A) == rules()
    server.stop()
    server.start()
    assert storage.load(A) is None, (
        "not even one call is lost to the connection that is gone"
    )


def test_a_server_that_has_become_a_replica_is_left(
    server: RedisServer, opened: Opener
) -> None:
    """A failover: the address leads to another server, but the connection to this one."""
    storage, client = opened(server.url), redis.Redis(port=server.port)
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
    client.close()


def test_a_full_server_refuses_writes_but_is_read(
    server: RedisServer, opened: Opener
) -> None:
    """Writes are refused, whole; what is there can be dropped."""
    storage = opened(server.url)
    storage.save(rules())
    assert storage.lease(A, "me", HOUR)
    ask(server, "CONFIG SET", "maxmemory", "1")
    for write in (lambda: storage.save(rules(B)), lambda: storage.lease(B, "me", HOUR)):
        with pytest.raises(redis.ResponseError):
            write()
    assert storage.load_many([A, B]) == {A: rules()}
    storage.release(A, "me")
    assert storage.drop(A)
    ask(server, "CONFIG SET", "maxmemory", "0")
    storage.save(rules(B))
    assert storage.load(B) == rules(B)


def test_a_password_is_used_and_never_shown(tmp_path: Path, opened: Opener) -> None:
    with RedisServer(tmp_path, requirepass="s3cret") as server:
        with pytest.raises(redis.AuthenticationError):
            opened(server.url).load(A)
        with pytest.raises(redis.RedisError, match=r"^(?!.*wr0ng)"):
            opened(server.url.replace("//", "//:wr0ng@")).load(A)
        right_url = server.url.replace("//", "//:s3cret@")
        right = opened(right_url)
        right.save(rules())
        assert right.load(A) == rules()

        def set_user(*rights: str) -> None:
            with redis.Redis.from_url(right_url) as admin:
                admin.execute_command("ACL SETUSER", "bot", *rights)

        set_user("on", ">50%/@:", "~rep:*", "+@all")
        user = opened(server.url.replace("//", "//bot:50%25%2F%40%3A@"))
        assert user.load(A) == rules()
        for command in ("-get", "-strlen"):
            set_user(command)
            with pytest.raises(redis.RedisError):
                user.load(A)


def from_settings(**settings: Any) -> RedisStorage:
    return RedisStorage.from_crawler(get_crawler(settings_dict=settings))


WRONG_URLS = [
    *("localhost:6379", "http://localhost", "redis://localhost:99999", "redis://[::1"),
    "redis://:s3cret/with/slash@localhost:6379",
    "redis://localhost:s3cret",
    "redis://localhost/0?socket_timeout=s3cret",
]


def test_url_prefix_and_expiry_come_from_settings(
    redis_server: RedisServer, client: Any
) -> None:
    """The URL may be scrapy-redis's."""
    own = {
        "REP_CACHE_REDIS_URL": redis_server.url.replace("/?", "/3?"),
        "_REP_CACHE_REDIS_PREFIX": "mine",
        "_REP_CACHE_EXPIRY": 100,
        "REDIS_URL": "redis://nowhere.invalid",
    }
    for settings in (own, {"REDIS_URL": redis_server.url}):
        storage = from_settings(**settings)
        storage.save(missing())
        storage.close()
    with redis.Redis(port=redis_server.port, db=3) as other:
        assert other.keys() == [f"mine:entry:{A}".encode()]
        assert 50 < other.ttl(f"mine:entry:{A}") <= 100
    assert client.keys() == [f"{{scrapy-rep}}:entry:{A}".encode()]


def test_a_missing_or_wrong_url_is_a_settings_error_without_its_password() -> None:
    """One sentence at the start. It does not give away what may be a password."""
    for settings in ({}, {"REP_CACHE_REDIS_URL": "", "REDIS_URL": ""}):
        with pytest.raises(
            SettingsError, match="RedisStorage needs REP_CACHE_REDIS_URL"
        ):
            from_settings(**settings)
    with every_row() as row:
        for url in WRONG_URLS:
            error = pytest.raises(
                SettingsError, match=r"^REP_CACHE_REDIS_URL (?!.*s3cret)"
            )
            with row(url), error:
                from_settings(REP_CACHE_REDIS_URL=url)


PREFIX = "{scrapy-rep}"
needs_redis_8 = pytest.mark.skipif(
    int(redis.__version__.split(".")[0]) < 8, reason="needs redis 8"
)


def ask(server: RedisServer, *command: Any) -> Any:
    with redis.Redis(port=server.port) as client:
        return client.execute_command(*command)


def node(folder: Path) -> RedisServer:
    while True:
        server = RedisServer(folder, cluster_enabled="yes")
        if server.port < 55_000:  # it needs the port 10,000 above, too
            server._line += ["--cluster-config-file", f"nodes-{server.port}.conf"]
            return server


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """Of a cluster, which takes two seconds to start. At first the second one has all keys."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        first, second = both = [stack.enter_context(node(folder)) for _ in range(2)]
        slot = ask(first, "CLUSTER KEYSLOT", PREFIX)
        ask(first, "CLUSTER ADDSLOTSRANGE", 0, slot - 1)
        ask(second, "CLUSTER ADDSLOTSRANGE", slot, 16383)
        ask(first, "CLUSTER MEET", "127.0.0.1", second.port)
        until = time.monotonic() + PATIENCE
        for one in both:
            while ask(one, "CLUSTER INFO")["cluster_state"] != "ok":
                assert time.monotonic() < until, "the nodes don't find each other"
                time.sleep(0.02)
        yield both


@needs_redis_8
def test_any_node_of_a_cluster_leads_to_the_one_with_the_keys(
    nodes: list[RedisServer], opened: Opener
) -> None:
    """Each method of a storage: a step of one story."""
    storage = opened(nodes[1].url, PREFIX, kind=users_class("RedisStorage"))
    storage.save_many([rules(), missing(B)])
    assert storage.load_many([A, B]) == {A: rules(), B: missing(B)}
    for owner, leased in (("me", {A, B}), ("you", set())):
        assert storage.lease_many([A, B], owner, 60.0) == leased
    assert {one.origin for one in storage.entries()} == {A, B}
    assert storage.body(rules().sha256) == rules().body
    assert [storage.drop(one) for one in (A, B, B)] == [True, True, False]
    assert storage.lease_many([A, B], "you", 60.0) == {A, B}, "dropped with the entries"
    storage.release_many([A, B], "you")
    assert storage.lease_many([A, B], "me", 60.0) == {A, B}
    storage.release_many([A, B], "me")
    assert list(storage.entries()) == []


@needs_redis_8
def test_keys_that_move_to_another_node_are_found(
    nodes: list[RedisServer], opened: Opener
) -> None:
    """A reshard in the middle of a crawl, and back."""
    storage = opened(nodes[0].url, PREFIX, kind=users_class("RedisStorage"))
    slot = ask(nodes[0], "CLUSTER KEYSLOT", PREFIX)
    for mover, other in (nodes, reversed(nodes)):
        storage.save(rules())
        ask(other, "FLUSHALL")
        # The old owner first: while it claims the slot, it may get it back.
        for one in (other, mover):
            ask(one, "CLUSTER SETSLOT", slot, "NODE", ask(mover, "CLUSTER MYID"))
        assert storage.load(A) is None
        storage.save(rules())
        assert storage.load(A) == rules()
        assert storage.lease(A, "me", 60.0)
        assert ask(mover, "DBSIZE") == 3
        storage.release(A, "me")
