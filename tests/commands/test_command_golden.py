"""`scrapy robots --file … --json` names the line that Google's own matcher names."""

from __future__ import annotations

import io
import json
import os
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

import pytest
from scrapy.settings import Settings

from scrapy_rep.commands.output import Output, Status
from scrapy_rep.commands.robots import RobotsCommand
from scrapy_rep.commands.task import Task
from scrapy_rep.commands.verdicts import decide
from scrapy_rep.protocol.syntax import MAX_BYTES, MAX_LINE
from tests.protocol.golden import FOLDER, SAMPLE, Record, whole_file


class Command:
    """The command as Scrapy runs it for a file, without a process for each file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "robots.txt"
        self._command = RobotsCommand()
        self._command.settings = Settings()
        self._parser = ArgumentParser()
        self._command.add_options(self._parser)

    def wrong(self, record: Record) -> list[object]:
        """The cases of a golden record that the command decides otherwise than Google."""
        self._file.write_bytes(record["robots"].encode("latin-1"))
        urls = [url for url, _, _ in record["cases"]]
        given = ["--file", str(self._file), "--json", "--explain", "--agent", record["agent"]]
        opts, args = self._parser.parse_known_args([*given, *urls])
        self._command.process_options(args, opts)
        printed = io.StringIO()
        task = Task(self._command, args, opts, Output(printed))
        decide(task)
        lines = [json.loads(line) for line in printed.getvalue().splitlines()]
        allowed = all(allowed for _, allowed, _ in record["cases"])
        assert task.statuses == (set() if allowed else {Status.FOUND})
        return differences(record, lines)


def differences(record: Record, lines: list[dict[str, object]]) -> list[object]:
    assert len(lines) == len(record["cases"])
    wrong = []
    for (url, allowed, line), ours in zip(record["cases"], lines, strict=True):
        google = (url, record["agent"], bool(allowed), line or None)
        if google != (ours["url"], ours["agent"], ours["allowed"], ours["line"]):
            wrong.append((google, ours))
        if (ours["line"] is None) != (ours["rule"] is None):
            wrong.append(("line without rule", ours))
        # The rule that is said to win among those that match is the one that decided.
        matched = ours["matched"]
        assert isinstance(matched, list)
        if (matched[0]["line"] if matched else None) != ours["line"]:
            wrong.append(("explained otherwise", ours))
    return wrong


def check(records: Iterable[Record], folder: Path) -> int:
    command = Command(folder)
    cases = 0
    wrong: list[object] = []
    for record in records:
        wrong += command.wrong(record)
        cases += len(record["cases"])
    assert not wrong, f"{len(wrong)} of {cases}; the first: {wrong[0]}"
    return cases


@pytest.mark.slow
def test_the_command_agrees_with_google_on_the_sample(tmp_path: Path) -> None:
    sample = [json.loads(line) for line in SAMPLE.read_text(encoding="ascii").splitlines()]
    assert check(sample, tmp_path) == 3_032


def is_unusual(body: bytes) -> bool:
    """Nothing in the sample is empty, too long, or could steer a terminal."""
    too_long = len(body) > MAX_BYTES or max(map(len, body.split(b"\n"))) > MAX_LINE
    return not body or too_long or b"\x1b" in body


@pytest.mark.slow
@pytest.mark.skipif(
    "REP_GOLDEN" not in os.environ and not FOLDER.is_dir(),
    reason="the whole golden files are not here: set REP_GOLDEN to their folder",
)
def test_the_command_agrees_with_google_on_unusual_files(tmp_path: Path) -> None:
    """The cases of all files are checked in tests/protocol, by the matcher that the command asks."""
    records = whole_file("corpus.jsonl.gz")
    unusual = [one for one in records if is_unusual(one["robots"].encode("latin-1"))]
    assert check(unusual, tmp_path) == 256
