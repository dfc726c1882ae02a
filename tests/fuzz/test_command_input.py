"""Whatever `scrapy robots` gets: a documented status, no traceback, nothing that steers a terminal."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy import Spider
from scrapy.crawler import Crawler

from scrapy_rep.commands.crawl import CrawlTask
from scrapy_rep.commands.output import CommandError, ExitStatus
from scrapy_rep.commands.task import Job
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.origins.agents import Agents
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, SqliteStorage
from tests.fuzz.strategies import SMALL_FILES, damaged
from tests.helpers.robots_command import files_here, robots_here
from tests.helpers.storing import KINDS
from tests.hostile.evil import EVERYTHING, IN_A_LINE, assert_clean_text
from tests.protocol.strategies import any_text

# Arguments and standard input are text by Python's rules, and argparse changes with each version.
pytestmark = [pytest.mark.slow, pytest.mark.python]
URLS = damaged(
    [b"http://a.example/p?q", b"https://ex\xc3\xa4mple.com:8443/", b"//x", b"-"],
    [b"http://", b"ftp://", b"s3://", b"/", b"@", b":", b"[", b"]", b"?", b"#", b"%", b" ", b"\n",
     b"\x1b[31m", b"\xff", b"\xc2\x9b", b"\xe2\x80\xae", b".", b"*", b"99999", b"\r", b"-", b"\0"],
    5_000,
)  # fmt: skip
# As Python makes them of the bytes that a shell hands over, which hold no NUL.
ANY = (URLS | any_text.map(lambda text: text.encode("utf-8", "surrogatepass"))).map(
    lambda data: os.fsdecode(data.replace(b"\0", b""))
)
WORD = ANY.filter(lambda text: not text.startswith("-"))
CACHE = ["-s", "REP_CACHE_STORAGE=scrapy_rep.storages.SqliteStorage"]
CACHE += ["-s", "REP_CACHE_PATH=FOLDER/c.sqlite", "--cache"]
ACTION = st.sampled_from(
    [
        *([], ["--explain"], ["--json"], ["--json", "--explain"]),
        *(["--file", "robots.txt"], ["--file", "robots.txt", "--explain"], ["--file", "-", "/x"]),
        *(["--csv"], ["--show"], ["--agents-of-file"], ["--file", "robots.txt", "--show"]),
        *(["--file", "robots.txt", "--agents-of-file", "--csv"], ["--held", "FOLDER"]),
        *(["--file", "robots.txt", "--agents-known"], ["--compare", "-", "robots.txt"]),
        *(["--compare", "robots.txt", "http://a.example/"], ["--compare", "c.sqlite", "robots.txt"]),
        *(["--lint"], ["--lint", "robots.txt"], ["--lint", "-", "--json"], ["--sitemaps"]),
        *(CACHE, [*CACHE, "--json"], [*CACHE, "--drop"], [*CACHE, "*.example"]),
    ]
)  # fmt: skip
AGENTS = st.lists(
    st.sampled_from(["--agent=foo", "--agent=FooBot,foo", "--agent=*"]), max_size=2
)
# None that may be short for one of Scrapy's own, which write files.
WRONG = st.one_of(
    ANY.map(lambda text: [f"--z{text}"]),
    ANY.map(lambda text: [f"--json={text}"]),
    ANY.map(lambda text: [f"--agent={text}"]),
    ANY.map(lambda text: ["-s", f"REP_CACHE_TTL={text}"]),
    ANY.map(lambda text: ["-s", f"REP_USER_AGENT={text}"]),
    WORD.map(lambda text: ["--file", text]),
    st.sampled_from(
        [
            ["--drop"],
            ["--file", "."],
            ["-"],
            ["--", "-x"],
            ["--cache"],
            ["--lint", "--json"],
        ]
    ),
)
ARGUMENTS = st.tuples(
    ACTION, AGENTS, st.lists(WORD, max_size=3), st.sampled_from([0, 0, 0, 1]), WRONG
).map(lambda parts: [one for part in (*parts[:3], parts[3] * parts[4]) for one in part])


class Answers:
    """Stands for a `Lookup`: what it knows of each origin is at hand, so that nothing waits."""

    def __init__(self, settings: Any, robots: RobotsFile) -> None:
        self.settings = RepSettings.from_settings(settings)
        self.origins = self
        self.agents = Agents(Crawler(Spider, settings), self.settings)
        self._robots = robots

    async def each(
        self, origins: Iterable[Origin]
    ) -> AsyncIterator[tuple[Origin, RobotsFile]]:
        for origin in origins:
            yield origin, self._robots

    async def now(self, origin: Origin) -> RobotsFile:
        if self._robots.outcome is Outcome.UNREACHABLE:
            raise CommandError(
                f"unreachable: {self._robots.facts.error}", ExitStatus.UNREACHABLE
            )
        facts = replace(self._robots.facts, file=origin.robots_url)
        return replace(self._robots, facts=facts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz")
    storage = SqliteStorage(path / "all.sqlite")
    for number, entry in enumerate(KINDS.values()):
        storage.save(replace(entry, origin=f"http://{number}.example"))
    storage.save(
        Entry(f"http://a.example/{IN_A_LINE}", url=EVERYTHING, error=EVERYTHING)
    )
    storage.save(Entry("", error="\x1b"))
    storage.close()
    return path


@settings(max_examples=settings.default.max_examples // 2)
@given(
    ARGUMENTS,
    st.lists(URLS, max_size=3).map(b"\n".join),
    SMALL_FILES,
    st.sampled_from(Outcome),
    any_text | st.just(EVERYTHING),
)
@example(["--agent=\x1f", "http://a.example/"], b"", b"", Outcome.RULES, "")
@example(["--z\x1b[31m"], b"", b"", Outcome.RULES, "")
@example(["--agent=--", "--file=--", "http://a.example/"], b"", b"", Outcome.RULES, "")
@example(["--lint", "http://a.example/", "--file", ""], b"", b"", Outcome.RULES, "")
def test_input_of_any_kind(
    folder: Path,
    arguments: list[str],
    stdin: bytes,
    body: bytes,
    outcome: Outcome,
    error: str,
) -> None:
    (folder / "robots.txt").write_bytes(body)
    (folder / "c.sqlite").write_bytes((folder / "all.sqlite").read_bytes())
    facts = Facts(
        "http://a.example", "http://a.example/robots.txt", status=200, error=error
    )

    def run(task: CrawlTask, job: Job) -> None:
        if "--sitemaps" in arguments:
            raise CommandError(error, ExitStatus.UNREACHABLE)
        lookup: Any = Answers(task.settings, RobotsFile(outcome, body, facts))
        try:
            job(lookup).__await__().send(None)
        except StopIteration:
            return
        raise AssertionError("it waits for something")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrawlTask, "crawl", run)
        done = robots_here(
            folder,
            *(one.replace("FOLDER", str(folder)) for one in arguments),
            stdin=stdin,
        )
    assert done.status in (0, 1, 2, 3)
    assert_clean_text(done.out + done.err)


@settings(max_examples=settings.default.max_examples // 2)
@given(ARGUMENTS, st.lists(URLS, max_size=3).map(b"\n".join), SMALL_FILES)
@example(["http://a.example/\x1b[31m"], b"", b"")
def test_input_of_any_kind_without_scrapy(
    folder: Path, arguments: list[str], stdin: bytes, body: bytes
) -> None:
    (folder / "robots.txt").write_bytes(body)
    for names in ([], ["robots.txt"]):
        done = files_here(folder, *names, *arguments, stdin=stdin)
        assert done.status in (0, 1, 2)
        assert_clean_text(done.out + done.err)
