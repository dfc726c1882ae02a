"""Each example of README.md and the manual is run: `scrapy robots` prints what they show (rewritten
with REP_UPDATE_DOCS=1 in the environment), and a log has the lines that they show."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.docs.examples import (
    EXAMPLE,
    PAGES,
    Example,
    example_copy,
    example_proxy,
    examples,
    section,
)
from tests.helpers.docs import ROOT, blocks, page
from tests.helpers.process import environment
from tests.helpers.robots_command import FIELDS, robots
from tests.helpers.rows import every_row
from tests.helpers.scrapy_process import Done, run_scrapy
from tests.helpers.servers import Site, Sites

COMMANDS = [one for one in examples() if one.command.startswith("scrapy robots")]
CRAWLS = [one for one in examples() if not one.command.startswith("scrapy robots")]
RUN = "python3 example_project/run.py"
RECORDED = " -s REP_DECISIONS=decisions.jsonl"
# However slow this machine is, what recovers does so before it is given up, and the slow site alone (see
# `SLOWER`) is waited for longer than the grace. What the manual shows of times is not compared.
SETTINGS = {"REP_RETRY_DELAY": 0.1, "REP_HOLD_MAX_WAIT": 12, "_REP_HOLD_GRACE": 0.6}
SETTINGS |= {"DOWNLOAD_DELAY": 0, "CLOSESPIDER_TIMEOUT": 0}


def lasting(text: str) -> list[str]:
    """Lines, without what differs each time: times of day, durations, who waited a little."""
    text = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE)
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "<time>", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "<seconds>", text)
    text = re.sub(r'(?<="crawl": )"\w+"|(?<="held_for": )[0-9.]+', "<other>", text)
    # How many wait for a first answer is a question of the machine.
    requests = re.compile(
        r"^(Requests.*?:) \d+ allowed, \d+ forbidden.*(\n    .*)*", re.MULTILINE
    )
    text = requests.sub(r"\1 allowed, forbidden", text)
    text = re.sub(r" \(asked \d+ times\)", "", text)
    text = text.replace("(held)", "").replace("(no answer yet)", "(HTTP 503)")
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def missing(printed: str, example: Example) -> list[str]:
    there = set(lasting(printed))
    return [line for line in lasting(example.output) if line not in there]


def project_in(folder: Path) -> Path:
    project = example_copy(folder)
    with (project / "example/settings.py").open("a") as settings:
        settings.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
    return project


@pytest.mark.process
def test_a_crawl_logs_what_the_manual_shows(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several at once, since most wait for something; each has fresh sites of its own."""
    shown = [
        one
        for one in CRAWLS
        if one.command != RUN and not one.command.startswith("grep")
    ]
    proxies = {one.command: example_proxy(sites, monkeypatch).url("") for one in shown}
    projects = {
        command: project_in(tmp_path / str(n)) for n, command in enumerate(proxies)
    }

    def crawl(command: str) -> str:
        words = shlex.split(command.replace("-s _REP_HOLD_GRACE=0.1", ""))
        words = ["crawl", *words[2:]] if words[0] == "python3" else words[1:]
        if (
            "all_sites" not in words or "REP_DRY_RUN=True" in words
        ):  # no first answer is late
            words += ["-s", "_REP_HOLD_GRACE=30"]
        variables = environment(http_proxy=proxies[command])
        done = run_scrapy(words, cwd=projects[command], variables=variables)
        return done.out + done.err

    with ThreadPoolExecutor(4) as pool:
        printed = dict(zip(proxies, pool.map(crawl, proxies), strict=True))
    record = (projects[f"{RUN} all_sites{RECORDED}"] / "decisions.jsonl").read_text(
        "utf-8"
    )
    with every_row() as row:
        for one in CRAWLS:
            with row(one.command):
                said = printed.get(one.command, record)
                if one.command != RUN:
                    assert missing(said, one) == []
                    assert "Traceback" not in said


@pytest.mark.process
def test_without_a_spider_it_prints_what_the_manual_shows(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It finds everything installed, and its sites up."""
    project = project_in(tmp_path / "ladder")
    monkeypatch.setenv("http_proxy", example_proxy(sites, monkeypatch).url(""))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    program, there = (
        importlib.import_module("run"),
        importlib.import_module("example.sites"),
    )
    usual = {name: there.address(name) for name in there.SITES}
    monkeypatch.setattr(program, "install", lambda: None)
    monkeypatch.setattr(program, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(program, "HERE", project)
    monkeypatch.setattr(program, "LOG", project / "crawl.log")
    monkeypatch.setattr(there, "serving", lambda **_: nullcontext(usual))
    program.main([])
    [example] = [one for one in CRAWLS if one.command == RUN]
    assert missing("".join(capfd.readouterr()), example) == []


@pytest.fixture
def proxy(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Site:
    return example_proxy(sites, monkeypatch)


def timeless(text: str) -> str:
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "20YY-MM-DDThh:mm:ssZ", text)
    return re.sub(r"\bheld for \d+ \w+", "held for N s", text)


def printed(folder: Path, proxy: Site, example: Example) -> str:
    """In a copy of the example project; check.md's without a project, with the files that it shows."""
    if example.page.name == "check.md":
        texts = blocks(page("check.md"), "text")
        for name, text in zip(
            ("robots.txt", "urls.txt", "new.txt"), texts, strict=True
        ):
            (folder / name).write_text(text)
    else:
        folder = example_copy(folder)
    # What a command above those examples leaves there.
    for option, begin in {"--cache": "scrapy robots", "--held": "scrapy crawl"}.items():
        if option in example.command:
            [above] = [
                text for text in blocks(page("command.md"), "sh") if begin in text
            ]
            run(folder, proxy, above)
    done = run(folder, proxy, example.command)
    assert done.err == ""
    return done.out


def run(folder: Path, proxy: Site, line: str) -> Done:
    line, _, given = line.partition(" < ")
    words = shlex.split(line)[1:]
    variables = {"http_proxy": proxy.url("")}
    if words[0] == "crawl":
        return run_scrapy(words, cwd=folder, variables=environment(**variables))
    stdin = (folder / given.strip()).read_bytes() if given else b""
    return robots(folder, *words[1:], stdin=stdin, variables=variables)


def test_the_fields_are_documented() -> None:
    fields = section(page("command.md"), "JSON").partition("`--json --explain`")[0]
    cells = re.findall("^- (`.+?): ", fields, re.MULTILINE)
    assert sorted(re.findall("`([a-z0-9_]+)`", " ".join(cells))) == sorted(FIELDS)


def test_there_are_examples_of_everything() -> None:
    words = " ".join(example.command for example in COMMANDS).split()
    names = "agent explain json csv file show compare agents-of-file agents-known held lint sitemaps cache page"
    assert {*(f"--{name}" for name in names.split()), "--header", "<"} <= {*words}


@pytest.mark.process
@pytest.mark.parametrize(
    "example",
    COMMANDS,
    ids=[f"{example.page.stem}: {example.command}" for example in COMMANDS],
)
def test_an_example_prints_what_the_manual_shows(
    tmp_path: Path, proxy: Site, example: Example
) -> None:
    out = printed(tmp_path, proxy, example)
    if not os.environ.get("REP_UPDATE_DOCS"):
        assert timeless(out) == timeless(example.output)
    elif timeless(out) != timeless(example.output):
        head, text = (
            f"```console\n$ {example.command}\n",
            example.page.read_text("utf-8"),
        )
        text = text.replace(f"{head}{example.output}```", f"{head}{out}```")
        example.page.write_text(text, "utf-8")


def test_every_command_can_be_typed() -> None:
    """They name spiders, files and options that are there."""
    spiders = {path.stem[4:] for path in EXAMPLE.glob("example/spiders/s??_*.py")} | {
        "serve"
    }
    for path in PAGES:
        text = path.read_text("utf-8")
        commands = [one.command for one in examples() if one.page == path]
        commands += "".join(blocks(text, "sh")).splitlines()
        commands += re.findall(rf"`({RUN} [^`\n]+)`", text)
        for command in commands:
            words = shlex.split(command)
            if (
                words[:2] == RUN.split()
                and len(words) > 2
                or words[:2] == ["scrapy", "crawl"]
            ):
                assert words[2] in spiders, command
            elif words[0] in ("python", "python3") and words[1].endswith(".py"):
                assert (ROOT / words[1]).exists(), command
            for word in words:
                if word.startswith("files/"):
                    assert (EXAMPLE / word).exists(), command
                if word.startswith("http"):
                    assert word.startswith("http://127.0.0."), command
