"""What README.md and the manual show of crawls: each command is run, and each line of its log (or all
that it prints) is found."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.docs import PAGES, ROOT, Example, blocks, examples
from tests.helpers.examplesites import EXAMPLE, example_copy, example_proxy
from tests.helpers.process import environment
from tests.helpers.process.forked import Done, run_scrapy
from tests.helpers.servers import Sites

RUN = "python3 example_project/run.py"
EXAMPLES = [one for one in examples() if not one.command.startswith("scrapy robots")]
# One crawl for all examples of a command.
COMMANDS = list(
    dict.fromkeys(one.command for one in EXAMPLES if not one.command.startswith("grep"))
)


def lasting(text: str) -> list[str]:
    """Lines, without what differs each time: times of day, durations, who waited a little."""
    text = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE)
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "<time>", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "<seconds>", text)
    text = re.sub(r'(?<="crawl": )"\w+"|(?<="held_for": )[0-9.]+', "<other>", text)
    text = text.replace("(held)", "").replace("(no answer yet)", "(HTTP 503)")
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def counts_apart(line: str) -> str:
    """On a slow machine, more requests wait for a first answer."""
    return re.sub(r"\d+", "N", line) if line.startswith("Requests") else line


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return example_copy(tmp_path)


def run(command: str, project: Path, proxy: str) -> Done:
    if command.startswith(RUN):
        words = ["crawl", *(shlex.split(command)[2:] or ["all_sites"])]
    else:
        words = shlex.split(command)[1:]
    if words[0] == "crawl":
        # However slow this machine is, what recovers does so before it is given up.
        words += ["-s", "REP_RETRY_DELAY=0.2"]
    return run_scrapy(words, cwd=project, variables=environment(http_proxy=proxy))


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_a_crawl_logs_what_the_manual_shows(
    command: str, project: Path, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = example_proxy(sites, monkeypatch)
    done = run(command, project, proxy.url(""))
    assert "Traceback" not in done.err
    table = command == RUN
    there = {counts_apart(line) for line in lasting(done.out if table else done.out + done.err)}
    for path in project.glob("decisions.jsonl"):
        there |= set(lasting(path.read_text("utf-8")))
    for example in shown_with(command):
        expected = [counts_apart(line) for line in lasting(example.output)]
        assert [line for line in expected if line not in there] == []


def shown_with(command: str) -> list[Example]:
    """The examples of a command, and of those that look at the file that it has written."""
    found = [one for one in EXAMPLES if one.command == command]
    if "decisions.jsonl" in command:
        found += [one for one in EXAMPLES if one.command.startswith("grep")]
    return found


def test_every_command_can_be_typed() -> None:
    """They name spiders, files and options that are there."""
    spiders = {path.stem[4:] for path in EXAMPLE.glob("example/spiders/s??_*.py")} | {"serve"}
    for path in PAGES:
        text = path.read_text("utf-8")
        commands = [one.command for one in examples() if one.page == path]
        commands += "".join(blocks(text, "sh")).splitlines()
        commands += re.findall(rf"`({RUN} [^`\n]+)`", text)
        for command in commands:
            words = shlex.split(command)
            if words[:2] == RUN.split() and len(words) > 2 or words[:2] == ["scrapy", "crawl"]:
                assert words[2] in spiders, command
            elif words[0] in ("python", "python3") and words[1].endswith(".py"):
                assert (ROOT / words[1]).exists(), command
            for word in words:
                if word.startswith("files/"):
                    assert (EXAMPLE / word).exists(), command
                if word.startswith("http"):
                    assert word.startswith("http://127.0.0."), command
