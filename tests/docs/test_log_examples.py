"""What README.md and the manual show of crawls: each command is run as it is typed, and each line that
they show of it is printed."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.helpers.docs import (
    EXAMPLE,
    PAGES,
    ROOT,
    Example,
    blocks,
    example_copy,
    example_proxy,
    examples,
)
from tests.helpers.process import environment
from tests.helpers.process.forked import run_scrapy
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
def typed(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Type a command in the example's folder. Returns what it prints."""
    proxy = example_proxy(sites, monkeypatch)
    project = example_copy(tmp_path)
    # However slow this machine is, what recovers does so before it is given up.
    with (project / "example/settings.py").open("a") as settings:
        settings.write("REP_RETRY_DELAY = 0.2\n")
    for name, value in environment(http_proxy=proxy.url("")).items():
        monkeypatch.setenv(name, value)

    def type_it(command: str) -> str:
        if not command.startswith(RUN):
            done = run_scrapy(shlex.split(command)[1:], cwd=project, variables=dict(os.environ))
            return done.out + done.err
        program = importlib.import_module("run")
        monkeypatch.setattr(program, "install", lambda: None)
        monkeypatch.setattr(program, "PYTHON", Path(sys.executable))
        monkeypatch.setattr(program, "HERE", project)
        monkeypatch.setattr(program, "LOG", project / "crawl.log")
        there = importlib.import_module("example.sites")
        usual = {name: there.address(name) for name in there.SITES}
        monkeypatch.setattr(there, "serving", lambda **_: nullcontext(usual))
        program.main(shlex.split(command)[2:])
        return "".join(capfd.readouterr())

    return type_it


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_the_manual_shows(
    command: str, typed: Callable[[str], str], tmp_path: Path
) -> None:
    printed = typed(command)
    assert "Traceback" not in printed
    there = {counts_apart(line) for line in lasting(printed)}
    for path in tmp_path.glob("example_project/decisions.jsonl"):
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
