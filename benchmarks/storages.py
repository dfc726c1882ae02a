"""The storages that crawls are measured with: none but memory, SQLite, and Redis where redis-server is."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

MEMORY, SQLITE, REDIS = "memory", "SQLite", "Redis"


class Storages:
    """Gives empty storages, as settings of a crawl."""

    def __init__(self, folder: Path, redis_url: str | None) -> None:
        self._folder = folder
        self._redis_url = redis_url
        self._numbers = count()
        self.kinds = (MEMORY, SQLITE)
        if redis_url is not None:
            self.kinds += (REDIS,)

    @contextmanager
    def empty(self, kind: str) -> Iterator[dict[str, Any]]:
        if kind == MEMORY:
            yield {}
        elif kind == SQLITE:
            yield {
                "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
                "REP_CACHE_PATH": str(self._folder / f"{next(self._numbers)}.sqlite"),
            }
        else:
            import redis

            assert self._redis_url is not None
            with redis.Redis.from_url(self._redis_url) as client:
                client.flushall()
            yield {
                "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
                "REP_CACHE_REDIS_URL": self._redis_url,
            }


@contextmanager
def storages() -> Iterator[Storages]:
    """Run a Redis server, if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.which("redis-server")
        if program is None or find_spec("redis") is None:
            yield Storages(Path(folder), None)
            return
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        line = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            yield Storages(Path(folder), f"redis://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()
