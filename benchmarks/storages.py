"""The storages that crawls are measured with: none but memory, SQLite, and Redis where redis-server is."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from typing import Any

MEMORY, SQLITE, REDIS = "memory", "SQLite", "Redis"


@contextmanager
def storages() -> Iterator[dict[str, Callable[[], dict[str, Any]]]]:
    """Give what there is: functions that return the settings of a crawl with an empty storage."""
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[[], dict[str, Any]]] = {
            MEMORY: dict,
            SQLITE: lambda: {
                "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
                "REP_CACHE_PATH": f"{folder}/{next(numbers)}.sqlite",
            },
        }
        program = shutil.which("redis-server")
        if program is None or find_spec("redis") is None:
            yield kinds
            return
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        kinds[REDIS] = lambda: {
            "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
            # Of its sixteen databases, another one each time.
            "REP_CACHE_REDIS_URL": f"redis://127.0.0.1:{port}/{next(numbers)}",
        }
        line = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            yield kinds
        finally:
            process.terminate()
            process.wait()
