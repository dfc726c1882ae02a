"""`scrapy robots` in processes of its own, inside a project and outside of any; and in this one."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import scrapy.cmdline
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

import scrapy_rep.__main__
from tests.helpers.process import arguments_of, environment
from tests.helpers.scrapy_process import PATIENCE, Done, run_scrapy

NOT_FOUND_FAST: dict[str, Any] = {"REP_DOWNLOAD_TIMEOUT": 10}
SHOPBOT = "Mozilla/5.0 (compatible; ShopBot/1.0; +x@y.z)"


def robots(
    folder: Path,
    *arguments: str,
    settings: dict[str, Any] | None = None,
    stdin: str | bytes = b"",
    variables: dict[str, str] | None = None,
) -> Done:
    line = arguments_of(
        "robots", *arguments, settings={**NOT_FOUND_FAST, **(settings or {})}
    )
    done = run_scrapy(
        line, cwd=folder, variables=environment(**(variables or {})), given=stdin
    )
    assert "Traceback" not in done.err, done.err
    return done


class CommandProcess:
    """`CrawlerProcess` for a thread that waits for the crawl in the test's event loop."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def create_crawler(self, spider: type[Spider]) -> Crawler:
        return AsyncCrawlerRunner(self.settings).create_crawler(spider)

    def crawl(self, crawler: Crawler, **arguments: Any) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(
            crawler.crawl_async(**arguments), self.loop
        )

    def start(self) -> None: ...


class Stream(TextIOWrapper):
    def __init__(
        self,
        content: bytes = b"",
        *,
        errors: str = "strict",
        encoding: str = "utf-8",
        terminal: bool = False,
    ) -> None:
        self._terminal = terminal
        super().__init__(
            BytesIO(content), encoding=encoding, errors=errors, write_through=True
        )

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined, no-any-return]


def robots_here(
    folder: Path,
    *arguments: str,
    settings: dict[str, Any] | None = None,
    stdin: str | bytes = b"",
    process: type = CommandProcess,
    **streams: Any,
) -> Done:
    """Run `scrapy robots` in this process, for what crawls nothing: all of it but Scrapy's
    `CrawlerProcess` and its logging.

    :param folder: must not be in a Scrapy project: this process would keep the project's modules
    :param streams: `stdout` or `stderr` in place of what is returned; `no_stdin`, as by `<&-`
    """
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = Stream(), Stream(errors="backslashreplace")
    settings = {**NOT_FOUND_FAST, **(settings or {})}
    line = ["scrapy", *arguments_of("robots", *arguments, settings=settings)]
    ours = logging.getLogger("scrapy_rep")
    with patch.dict(os.environ), pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", line)
        patched.setattr(
            sys, "stdin", None if streams.get("no_stdin") else Stream(given)
        )
        patched.setattr(sys, "stdout", streams.get("stdout", out))
        patched.setattr(sys, "stderr", streams.get("stderr", err))
        # Newer Pythons ask it for the program's name.
        patched.setitem(sys.modules, "__main__", ModuleType("__main__"))
        patched.setattr(ours, "handlers", [*ours.handlers])
        patched.setattr(scrapy.cmdline, "CrawlerProcess", process)
        patched.setattr(scrapy.cmdline, "AsyncCrawlerProcess", process)
        with pytest.raises(SystemExit) as ended:
            scrapy.cmdline.execute([*line])
    assert "Traceback" not in err.text, err.text
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.text, err.text)


def files_here(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    """Run `scrapy-rep` in this process."""
    out, err = Stream(), Stream(errors="backslashreplace")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for name, stream in (
            ("stdin", Stream(stdin)),
            ("stdout", out),
            ("stderr", err),
        ):
            patched.setattr(sys, name, stream)
        try:
            status = scrapy_rep.__main__.main(arguments)
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            status = ended.code
    return Done(status, out.text, err.text)


async def robots_crawls(
    folder: Path,
    *arguments: str,
    settings: dict[str, Any] | None = None,
    agent: str = SHOPBOT,
    **more: Any,
) -> Done:
    """The same for what crawls: the command runs in a thread, its crawl in this event loop.

    :param agent: `USER_AGENT`; empty: Scrapy's
    """
    if not (is_reactor_installed() and is_asyncio_reactor_installed()):
        pytest.skip(
            "the command chooses its reactor itself: run with --reactor=asyncio"
        )

    class ProcessOfThisLoop(CommandProcess):
        loop = asyncio.get_running_loop()

    more["settings"] = {**({"USER_AGENT": agent} if agent else {}), **(settings or {})}
    run = partial(robots_here, folder, *arguments, process=ProcessOfThisLoop, **more)
    return await asyncio.wait_for(asyncio.to_thread(run), PATIENCE)


def assert_wrong_usage(done: Done, error: str) -> None:
    assert (done.status, done.out) == (2, "")
    assert done.errors[-1].removeprefix("scrapy: ") == error


def make_project(folder: Path, settings: Sequence[str] = ()) -> Path:
    package = folder / "shop"
    for part in (package, package / "spiders"):
        part.mkdir(parents=True)
        (part / "__init__.py").touch()
    lines = ['BOT_NAME = "shop"', 'SPIDER_MODULES = ["shop.spiders"]']
    lines += ['ADDONS = {"scrapy_rep.Addon": 300}', *settings]
    (package / "settings.py").write_text("\n".join(lines))
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    return folder


def files_in(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


FIELDS = [
    *[
        "url",
        "agent",
        "allowed",
        "line",
        "rule",
        "group",
        "reason",
        "path",
        "outcome",
        "origin",
    ],
    *["robots_url", "file", "status", "hops", "final_url", "fetched_at", "fresh_until"],
    *["from_cache", "stale", "error", "setting", "sha256"],
    *["crawl_delay", "crawl_delay_line", "visit_time", "agent_in_words", "verdict"],
]
