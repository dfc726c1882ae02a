from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.process import Crawl


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    crawls: list[Crawl] = []

    def start(*args: Any, **kwargs: Any) -> Crawl:
        crawls.append(Crawl(tmp_path / "runs", *args, **kwargs))
        return crawls[-1]

    yield start
    for one in crawls:
        one.close()
