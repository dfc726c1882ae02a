"""Choose the sample of golden verdicts that the tests carry along.

    python -m tests.protocol.make_golden_sample synthetic.jsonl.gz

writes ``golden_sample.jsonl`` beside this file: the same each time. For every sentence of
`leniencies.WITHOUT` it takes the first files with a verdict that needs it, some files for each
of `leniencies.OCCURS`, then files at even distances to fill up. A line is one of the golden
file with a key more, ``needs``: the sentences that its verdicts need.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.protocol.leniencies import OCCURS, WITHOUT
from tests.protocol.reference import Reference

SAMPLE = Path(__file__).with_name("golden_sample.jsonl")
FILES = 385
EACH = 5


def needs(record: dict[str, Any]) -> list[str]:
    body = record["robots"].encode("latin-1")

    def answers(matcher: Reference) -> list[tuple[bool, int]]:
        groups = matcher.groups(body)
        return [matcher.decide(groups, url, record["agent"]) for url, *_ in record["cases"]]

    golden = answers(Reference())
    return [name for name, matcher in WITHOUT.items() if answers(matcher) != golden]


def choose(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = Counter(dict.fromkeys([*WITHOUT, *OCCURS], EACH))
    chosen: dict[int, dict[str, Any]] = {}
    for number, record in enumerate(records):
        record["needs"] = needs(record)
        body = record["robots"].encode("latin-1")
        has = [*record["needs"], *(name for name, found in OCCURS.items() if found.match(body))]
        if any(wanted[name] > 0 for name in has):
            wanted.subtract(has)
            chosen[number] = record
    filler = range(0, len(records), max(1, len(records) // max(1, FILES - len(chosen))))
    for number in filler:
        if len(chosen) < FILES:
            chosen.setdefault(number, records[number])
    for name in WITHOUT:
        found = sum(name in record["needs"] for record in chosen.values())
        print(f"{found:4} {name}")
    return [chosen[number] for number in sorted(chosen)]


def main(path: str) -> None:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        sample = choose([json.loads(line) for line in file])
    with SAMPLE.open("w", encoding="ascii", newline="\n") as file:
        file.writelines(json.dumps(record) + "\n" for record in sample)
    verdicts = sum(len(record["cases"]) for record in sample)
    print(f"{len(sample)} files, {verdicts} verdicts, {SAMPLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
