from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep import RepMiddleware
from tests.helpers.invariant import watched
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


@pytest.fixture(autouse=True)
def nobody_is_stuck(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """In the crawls of this process, after each event, whoever waits has something to wait for."""
    broken: list[str] = []
    monkeypatch.setattr(RepMiddleware, "__init__", watched(broken.append))
    yield broken
    if request.node.get_closest_marker("xfail") is None:
        assert not broken, broken[0]
