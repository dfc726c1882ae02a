"""Several Redis servers together."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from tests.helpers.redisserver import PATIENCE, PATIENT, RedisServer


@contextmanager
def cluster(folder: Path, prefix: str) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two nodes. The keys that begin with *prefix*, with braces, are on the second."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(_node(folder)) for _ in range(2))
        slot = ask(first, "CLUSTER KEYSLOT", prefix)
        ask(first, "CLUSTER ADDSLOTSRANGE", 0, slot - 1)
        ask(second, "CLUSTER ADDSLOTSRANGE", slot, 16383)
        ask(first, "CLUSTER MEET", "127.0.0.1", second.port)
        until = time.monotonic() + PATIENCE
        for node in (first, second):
            while ask(node, "CLUSTER INFO")["cluster_state"] != "ok":
                assert time.monotonic() < until, "the nodes don't find each other"
                time.sleep(0.02)
        yield first, second


def _node(folder: Path) -> RedisServer:
    while True:
        server = RedisServer(folder, cluster_enabled="yes")
        if server.port < 55_000:  # it needs the port 10,000 above, too
            server._line += ["--cluster-config-file", f"nodes-{server.port}.conf"]
            return server


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary, and a replica that has all that the primary has."""
    quick = {"repl_diskless_sync_delay": "0"}
    with RedisServer(folder, **quick) as primary, RedisServer(folder, **quick) as replica:
        ask(replica, "REPLICAOF", "127.0.0.1", primary.port)
        yield primary, replica


def catch_up(primary: RedisServer) -> None:
    """Wait until the replica has all."""
    import redis

    with redis.Redis(port=primary.port) as client:
        client.set("written", "last")  # the server waits for what the client itself has written
        assert client.wait(1, int(1000 * PATIENCE)) == 1


class Address:
    """An address that leads to `server`, which can change. Connections stay with the old one."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}/?{PATIENT}"

    def __enter__(self) -> Address:  # noqa: PYI034 (as above)
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listening, suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                Thread(target=self._relay, args=(client, self.server.port), daemon=True).start()

    def _relay(self, client: socket.socket, port: int) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
            back = Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def ask(server: RedisServer, *command: Any) -> Any:
    """The server's answer to a command."""
    import redis

    with redis.Redis(port=server.port) as client:
        return client.execute_command(*command)
