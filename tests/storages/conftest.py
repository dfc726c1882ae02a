"""A file for a storage, one that uses it, and a client of a storage whose clocks are the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_rep.storages import SqliteStorage
from tests.helpers.storing import World


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "robots.sqlite"


@pytest.fixture
def storage(path: Path) -> Iterator[SqliteStorage]:
    made = SqliteStorage(path)
    yield made
    made.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)
