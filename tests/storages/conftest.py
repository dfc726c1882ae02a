"""A file for a storage, and one that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_rep.storages import SqliteStorage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "robots.sqlite"


@pytest.fixture
def storage(path: Path) -> Iterator[SqliteStorage]:
    made = SqliteStorage(path)
    yield made
    made.close()
