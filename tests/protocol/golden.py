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

GENERATED = Path(__file__).with_name("golden_synthetic.jsonl.gz")
"""4,000 generated files, full of the mistakes that people make, and 8 URLs for each: 32,000 verdicts.
CONTRIBUTING.md says how to make more."""

FOLDER = Path(
    os.environ.get("REP_GOLDEN") or Path(__file__).parents[3] / "shared" / "golden"
)
CORPUS = FOLDER / "corpus.jsonl.gz"
"""Files of real sites, which are not ours to publish."""

Record = dict[str, Any]


def records(path: Path) -> Iterator[Record]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
