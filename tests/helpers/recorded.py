"""What a crawl has put on record (``REP_DECISIONS``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scrapy_rep.reporting.record import OTHERS


def lines_of(path: Path, *verdicts: str) -> list[dict[str, Any]]:
    """All lines, or those with one of these verdicts."""
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [one for one in found if not verdicts or one["verdict"] in verdicts]


def decisions(path: Path) -> list[dict[str, Any]]:
    """The decisions alone."""
    return [one for one in lines_of(path) if one["verdict"] not in OTHERS]
