"""The answers of Google's own matcher."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


SAMPLE = Path(__file__).with_name("golden_sample.jsonl")
"""379 files, chosen so that each sentence of REP.md sections 6 to 8 decides some of the verdicts."""

FOLDER = Path(os.environ.get("REP_GOLDEN") or Path(__file__).parents[3] / "shared" / "golden")
WHOLE_FILES = {"synthetic.jsonl.gz": 32_000, "corpus.jsonl.gz": 44_349}
Record = dict[str, Any]


def whole_file(name: str) -> Iterator[Record]:
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
