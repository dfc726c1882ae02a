from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scrapy_rep.storages import SqliteStorage
from tests.helpers.redisserver import RedisServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "robots.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., SqliteStorage]]:
    """Opens storages as other processes do; they are closed in the end."""
    made: list[SqliteStorage] = []

    def opened(other: Path = path) -> SqliteStorage:
        made.append(SqliteStorage(other))
        return made[-1]

    yield opened
    for one in made:
        one.close()


@pytest.fixture
def storage(opened: Callable[..., SqliteStorage]) -> SqliteStorage:
    return opened()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of the test's own, which it may stop or hang."""
    with RedisServer(tmp_path) as running:
        yield running
