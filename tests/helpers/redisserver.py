"""Real Redis servers on loopback, which keep nothing on disk.

    with RedisServer(tmp_path, maxmemory="2mb") as server:
        server.url                  # redis://127.0.0.1:40123/?...
        server.stop()               # it is gone ...
        server.start()              # ... and back at the same port, with nothing in it

Mark what needs one with `needs_server`. What needs no server of its own asks for the fixture
`redis_server`, one for each worker of the test run.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SERVER = shutil.which("redis-server")

available = SERVER is not None and find_spec("redis") is not None
WHY_NOT = "needs redis-server, Debian's package redis-server, and redis, from PyPI"

needs_server = pytest.mark.needs_redis

# For what takes a tenth of a second: other tests may run on the same machine.
PATIENCE = 60.0

# For the query of a URL. RedisStorage gives a server two seconds, unless the URL says otherwise.
PATIENT = f"socket_timeout={PATIENCE}&socket_connect_timeout={PATIENCE}"


class RedisServer:
    """One server. Runs from `start()` to `stop()`, as often as that is wanted."""

    def __init__(self, folder: Path, **options: str) -> None:
        """:param options: of its configuration; `maxmemory_policy` is `maxmemory-policy` there"""
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/?{PATIENT}"
        self._log = folder / f"redis-{self.port}.log"
        values = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(folder),
            "save": "",
            "appendonly": "no",
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        pairs = ((f"--{key}", value) for key, value in values.items())
        self._line = [str(SERVER), *(part for pair in pairs for part in pair)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._line, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def flush(self) -> None:
        import redis

        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # there is nothing that it would have to save
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> RedisServer:  # noqa: PYI034 (Self came with Python 3.11)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


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
