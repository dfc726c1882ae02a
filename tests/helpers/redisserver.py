"""Real Redis servers on loopback, which keep nothing on disk. Mark what needs one with `needs_server`. What
needs no server of its own asks for the fixture `redis_server`, one for each worker of the test run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SERVER = shutil.which("redis-server")
available = SERVER is not None and find_spec("redis") is not None
WHY_NOT = "needs redis-server, Debian's package redis-server, and redis, from PyPI"
needs_server = pytest.mark.needs_redis
needs_scrapy_redis = pytest.mark.skipif(
    find_spec("scrapy_redis") is None, reason="needs scrapy-redis, from PyPI"
)
# For what takes a tenth of a second: other tests may run on the same machine.
PATIENCE = 60.0
# For the query of a URL. RedisStorage gives a server two seconds, unless the URL says otherwise.
PATIENT = f"socket_timeout={PATIENCE}&socket_connect_timeout={PATIENCE}"


class RedisServer:
    """Can be started and stopped repeatedly: always empty, always at the same port."""

    def __init__(self, folder: Path, **options: str) -> None:
        """:param options: of its configuration; `maxmemory_policy` is `maxmemory-policy` there"""
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/?{PATIENT}"
        self._log = folder / f"redis-{self.port}.log"
        values = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(folder)}
        values |= {"save": "", "appendonly": "no", **options}
        self._line = [str(SERVER)]
        for key, value in values.items():
            self._line += [f"--{key.replace('_', '-')}", value]
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

    def ask(self, *command: Any) -> Any:
        """Send a command as another client does."""
        import redis

        with redis.Redis.from_url(self.url) as client:
            return client.execute_command(*command)

    def flush(self) -> None:
        self.ask("FLUSHALL")

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


def fleet_settings(server: RedisServer) -> dict[str, Any]:
    """One queue for all processes, as docs/cache.md has it. Mark tests with `needs_scrapy_redis`."""
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REDIS_URL": server.url,
    }
