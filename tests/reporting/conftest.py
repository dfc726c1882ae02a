"""Crawls, with what is on record of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.recorded import OTHERS

FIELDS = [
    "time", "url", "agent", "origin", "verdict", "rule", "line", "group", "sha256", "fetched",
    "status", "reason", "dry_run", "crawl",
]  # fmt: skip


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    found: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert [name for name in one if name in FIELDS] == FIELDS
        datetime.fromisoformat(one["time"].replace("Z", "+00:00"))
    return found


class Recorded(NamedTuple):
    result: CrawlResult
    lines: list[dict[str, Any]]

    def of(self, verdict: str) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["verdict"] == verdict]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["verdict"] not in OTHERS]

    def told(self, *fields: str) -> list[tuple[Any, ...]]:
        return [tuple(one[field] for field in fields) for one in self.decisions]


Record = Callable[..., Awaitable[Recorded]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d.jsonl"


@pytest.fixture
def record(path: Path) -> Record:
    async def crawled(what: Any, settings: Any = None, **more: Any) -> Recorded:
        result = await crawl(
            what, {"REP_DECISIONS": str(path), **(settings or {})}, **more
        )
        return Recorded(result, read(path) if path.is_file() else [])

    return crawled
