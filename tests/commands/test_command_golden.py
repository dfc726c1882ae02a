"""`scrapy robots --file … --json` names the line that Google's own matcher names."""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from scrapy.settings import Settings

from scrapy_rep.commands.output import Output, Status
from scrapy_rep.commands.robots import RobotsCommand
from scrapy_rep.commands.task import Task
from scrapy_rep.commands.verdicts import decide
from tests.protocol.golden import SAMPLE, Record


def answers(record: Record, file: Path, printed: io.StringIO) -> list[dict[str, object]]:
    """What the command prints, as Scrapy runs it for a file, without a process for each."""
    file.write_bytes(record["robots"].encode("latin-1"))
    command, parser = RobotsCommand(), ArgumentParser()
    printed.seek(0)
    printed.truncate()
    command.settings = Settings()
    command.add_options(parser)
    given = ["--file", str(file), "--json", "--explain", "--agent", record["agent"]]
    opts, args = parser.parse_known_args([*given, *(url for url, _, _ in record["cases"])])
    command.process_options(args, opts)
    task = Task(command, args, opts, Output(json=True))
    decide(task)
    allowed = all(allowed for _, allowed, _ in record["cases"])
    assert task.statuses == (set() if allowed else {Status.FOUND})
    return [json.loads(line) for line in printed.getvalue().splitlines()]


@pytest.mark.slow
def test_the_command_agrees_with_google_on_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases, printed = 0, io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    for text in SAMPLE.read_text(encoding="ascii").splitlines():
        record: Record = json.loads(text)
        lines = answers(record, tmp_path / "robots.txt", printed)
        for (url, allowed, line), ours in zip(record["cases"], lines, strict=True):
            cases += 1
            google = (url, record["agent"], bool(allowed), line or None)
            assert google == (ours["url"], ours["agent"], ours["allowed"], ours["line"])
            assert (ours["line"] is None) == (ours["rule"] is None)
            # The rule that is said to win among those that match is the one that decided.
            matched = ours["matched"]
            assert isinstance(matched, list)
            assert (matched[0]["line"] if matched else None) == ours["line"]
    assert cases == 3_032
