"""What a crawl was seen to do: its signals, its record (``REP_DECISIONS``)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from scrapy_rep import signals
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol import Origin
from scrapy_rep.settings import RepSettings

# Verdicts of lines that are about something other than a decision.
OTHERS = (
    "allowed_count",
    "answer",
    "changed",
    "sitemap",
    "crawl_started",
    "crawl_ended",
)


class Resolved:
    signal = signals.robots_resolved

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.handlers = {self.signal: lambda **kwargs: self.all.append(kwargs)}

    def of(self, url: str) -> list[dict[str, Any]]:
        return [one for one in self.all if one["origin"] == Origin.from_url(url)]


class Discovered(Resolved):
    signal = signals.sitemap_discovered

    @property
    def urls(self) -> list[str]:
        return [one["url"] for one in self.all]


def lines_of(path: Path, *verdicts: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [one for one in found if not verdicts or one["verdict"] in verdicts]


def decisions(path: Path) -> list[dict[str, Any]]:
    return [one for one in lines_of(path) if one["verdict"] not in OTHERS]


def context_of(crawler: Crawler | None = None) -> CrawlContext:
    """The context of *crawler*, or of one that has the default settings."""
    crawler = crawler or get_crawler()
    settings = RepSettings.from_settings(crawler.settings)
    return CrawlContext(crawler, settings, time.time)
