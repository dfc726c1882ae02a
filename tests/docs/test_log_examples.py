"""What README.md and the manual show of crawls: each line that they show is printed."""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from scrapy import Request
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader

from tests.helpers.crawling import captured_log
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
from tests.helpers.rows import every_row
from tests.helpers.scrapy_process import run_scrapy
from tests.helpers.servers import Site, Sites

RUN = "python3 example_project/run.py"
EXAMPLES = [one for one in examples() if not one.command.startswith("scrapy robots")]
RECORDED = " -s REP_DECISIONS=decisions.jsonl"
# However slow this machine is, what recovers does so before it is given up. What the manual shows of
# times is not compared.
QUICK = {"REP_RETRY_DELAY": 0.1, "REP_DEFER_MAX_WAIT": 6, "DOWNLOAD_DELAY": 0}


def lasting(text: str) -> list[str]:
    """Lines, without what differs each time: times of day, durations, who waited a little."""
    text = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE)
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "<time>", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "<seconds>", text)
    text = re.sub(r'(?<="crawl": )"\w+"|(?<="held_for": )[0-9.]+', "<other>", text)
    # How many wait for a first answer is a question of the machine.
    requests = re.compile(r"^(Requests.*?:) \d+ allowed, \d+ forbidden.*(\n    .*)*", re.MULTILINE)
    text = requests.sub(r"\1 allowed, forbidden", text)
    text = re.sub(r" \(asked \d+ times\)", "", text)
    text = text.replace("(held)", "").replace("(no answer yet)", "(HTTP 503)")
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def missing(printed: str, example: Example) -> list[str]:
    """What the manual shows, and nobody printed."""
    there = set(lasting(printed))
    return [line for line in lasting(example.output) if line not in there]


class Proxied:
    """Each crawl sees sites of its own, which nobody has asked before."""

    def __init__(self, crawler: Crawler) -> None:
        self.proxy = crawler.settings["PROXY"]

    from_crawler = classmethod(lambda cls, crawler: cls(crawler))

    def process_request(self, request: Request) -> None:
        request.meta["proxy"] = self.proxy


def settings_of(command: str, proxy: Site, record: Path) -> Settings:
    """Of the project, the test, and what is typed."""
    settings = Settings()
    settings.setmodule("example.settings", priority="project")
    settings.setdict({**QUICK, "REMOTE_CONTROL_ENABLED": False, "TELNETCONSOLE_ENABLED": False})
    settings.setdict({"PROXY": proxy.url(""), "DOWNLOADER_MIDDLEWARES": {Proxied: 50}})
    settings.setdict({"LOG_ENABLED": False, "REP_DECISIONS": str(record)})
    if "all_sites" not in command:  # where nothing waits for a first answer, however slow this is
        settings.set("REP_DEFER_GRACE", 30)
    options = re.findall(r"-s (\w+)=(\S+)", command.removesuffix(RECORDED))
    settings.setdict(dict(options), priority="cmdline")
    return settings


async def test_a_crawl_logs_what_the_manual_shows(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several crawls at once, since most of them wait for something."""
    shown = [one for one in EXAMPLES if one.command.startswith(f"{RUN} ")]
    commands = list(dict.fromkeys(one.command.removesuffix(RECORDED) for one in shown))
    crawlers, crawls, few = dict[str, Crawler](), [], asyncio.Semaphore(4)

    async def crawl(runner: AsyncCrawlerRunner, crawler: Crawler) -> None:
        async with few:
            await runner.crawl(crawler)

    with captured_log() as records:
        for number, command in enumerate(commands):
            proxy = example_proxy(sites, monkeypatch)
            settings = settings_of(command, proxy, tmp_path / f"{number}.jsonl")
            spider = get_spider_loader(settings).load(shlex.split(command)[2])
            runner = AsyncCrawlerRunner(settings)
            crawlers[command] = runner.create_crawler(spider)
            crawls.append(crawl(runner, crawlers[command]))
        await asyncio.gather(*crawls)
    printed = {
        command: "\n".join(
            f"[{one.name}] {one.levelname}: {one.getMessage()}"
            for one in records
            if getattr(one, "spider", None) is crawler.spider
        )
        for command, crawler in crawlers.items()
    }
    record = (tmp_path / f"{commands.index(f'{RUN} all_sites')}.jsonl").read_text("utf-8")
    with every_row() as row:
        for one in shown:
            with row(one.command):
                assert missing(printed[one.command.removesuffix(RECORDED)], one) == []
        for one in EXAMPLES:
            with row(one.command):
                assert not one.command.startswith("grep") or missing(record, one) == []


@pytest.mark.process
@pytest.mark.parametrize(
    "example",
    [one for one in EXAMPLES if one.command == RUN or one.command.startswith("scrapy")],
    ids=lambda example: example.command,
)
def test_a_command_prints_what_the_manual_shows(
    example: Example,
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    variables = environment(http_proxy=example_proxy(sites, monkeypatch).url(""))
    project = example_copy(tmp_path)
    with (project / "example/settings.py").open("a") as settings:
        settings.writelines(f"{name} = {value}\n" for name, value in QUICK.items())
    if example.command == RUN:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        run_the_program(project, monkeypatch)
        printed = "".join(capfd.readouterr())
    else:
        arguments = shlex.split(example.command)[1:]
        done = run_scrapy(arguments, cwd=project, variables=variables)
        printed = done.out + done.err
    assert "Traceback" not in printed
    assert missing(printed, example) == []


def run_the_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds everything installed, and its sites up."""
    program, there = importlib.import_module("run"), importlib.import_module("example.sites")
    usual = {name: there.address(name) for name in there.SITES}
    monkeypatch.setattr(program, "install", lambda: None)
    monkeypatch.setattr(program, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(program, "HERE", project)
    monkeypatch.setattr(program, "LOG", project / "crawl.log")
    monkeypatch.setattr(there, "serving", lambda **_: nullcontext(usual))
    program.main([])


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
