"""Crawls in processes of their own, which a test can watch, stop and kill. Mark the tests `process`:
the reactor is the child's, so one mode of the test run has them."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import scrapy_rep
from tests.helpers.scrapy_process import PATIENCE, ScrapyProcess

ROOT = Path(__file__).resolve().parents[2]
SPIDER = ROOT / "tests/helpers/pages_spider.py"
REACTORS: dict[str, dict[str, Any]] = {
    "asyncio": {},
    "select": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    "none": {"TWISTED_REACTOR_ENABLED": False},
}
# What Scrapy downloads through when there is no reactor; it asks for aiohttp itself.
REACTORLESS_LIBRARY = (
    "aiohttp" if find_spec("scrapy.core.downloader.handlers._aiohttp") else "httpx"
)
needs_reactorless = pytest.mark.skipif(
    find_spec(REACTORLESS_LIBRARY) is None,
    reason=f"without a reactor this Scrapy downloads through {REACTORLESS_LIBRARY}, which is not installed",
)
on_every_reactor = pytest.mark.parametrize(
    "reactor", ["asyncio", "select", pytest.param("none", marks=needs_reactorless)]
)
SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_rep.Addon": 300},
    "EXTENSIONS": {"tests.helpers.pages_spider.Recorder": 0},
    "USER_AGENT": "testbot/1.0",
    "_REP_HOLD_GRACE": 0.05,
    "REP_RETRY_DELAY": 0.1,
    "REP_RETRY_MAX_DELAY": 0.2,
    "REP_DOWNLOAD_TIMEOUT": 30,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


class Event(NamedTuple):
    kind: str
    url: str
    detail: str


def arguments_of(
    *arguments: str, settings: Mapping[str, Any] | None = None
) -> list[str]:
    line = [*arguments]
    for name, value in (settings or {}).items():
        line += [
            "-s",
            f"{name}={json.dumps(value) if isinstance(value, dict) else value}",
        ]
    return line


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scrapy", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """The child imports this scrapy_rep and `tests`; its streams are buffered as users have them."""
    ours = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }
    paths = [
        str(ROOT),
        str(Path(scrapy_rep.__file__).parent.parent),
        ours.get("PYTHONPATH"),
    ]
    return {**ours, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


class Crawl:
    """Starts at once, leaves its files in *folder*.

    :param ends: a signal that it sends itself, see `tests.helpers.pages_spider`
    :param ahead: seconds by which its clock is ahead of ours: no test waits for a date to change
    """

    def __init__(
        self,
        folder: Path,
        urls: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
        *,
        reactor: str = "asyncio",
        ends: str = "",
        ahead: float = 0.0,
        spider: Path = SPIDER,
        **arguments: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        number = len(list(folder.glob("*.log")))
        self._events, self._log = folder / f"{number}.events", folder / f"{number}.log"
        self._events.touch()
        self._log.touch()
        wanted = folder / f"{number}.urls"
        wanted.write_text("\n".join(urls))
        pairs = {"urls": str(wanted), **arguments}.items()
        self._process = ScrapyProcess(
            arguments_of(
                *("runspider", str(spider)),
                *(part for item in pairs for part in ("-a", "=".join(item))),
                settings={**SETTINGS, **REACTORS[reactor], **(settings or {})},
            ),
            cwd=folder,
            variables=environment(
                CRAWL_EVENTS=str(self._events), CRAWL_ENDS=ends, CRAWL_AHEAD=str(ahead)
            ),
            output=self._log,
        )

    @property
    def events(self) -> list[Event]:
        lines = self._events.read_bytes().decode().split("\n")[:-1]
        return [Event(*line.split("\t")) for line in lines]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def urls(self, kind: str) -> list[str]:
        return [event.url for event in self.of(kind)]

    @property
    def stats(self) -> dict[str, str]:
        return {event.url: event.detail for event in self.of("stat")}

    @property
    def reason(self) -> str | None:
        """None if it was not closed, or not in order."""
        return next((event.detail for event in self.of("closed")), None)

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_clean(self) -> None:
        records = re.split(r"^(?=\d{4}-\d\d-\d\d \d\d:)", self.log, flags=re.MULTILINE)
        wrong = re.compile(r" (ERROR|CRITICAL): |^Traceback", re.MULTILINE)
        # A kill can leave Scrapy's own spider.state empty, which its extension logs.
        records = [
            record for record in records if "extensions/spiderstate.py" not in record
        ]
        errors = [record for record in records if wrong.search(record)]
        assert not errors, "\n".join(errors)[:3000]

    def wait_for(self, kind: str, count: int = 1) -> None:
        self.wait_until(lambda: len(self.of(kind)) >= count, f"{count} times {kind}")

    def wait_until(self, happened: Callable[[], object], what: str) -> None:
        """Return when `happened()` is true, or the process has ended."""
        until = time.monotonic() + PATIENCE
        while not happened() and self._process.exitcode is None:
            if time.monotonic() > until:
                self.kill()
                pytest.fail(f"waited {PATIENCE} s for {what}:\n{self.log}")
            time.sleep(0.01)

    def kill(self) -> None:
        """`kill -9`"""
        self._process.kill()
        self._process.wait()

    close = kill

    def interrupt(self) -> None:
        """Ctrl-C"""
        self._process.send_signal(signal.SIGINT)

    def join(self, timeout: float = PATIENCE) -> Crawl:
        try:
            self._process.wait(timeout)
        except TimeoutError:
            self.kill()
            pytest.fail(f"did not end within {timeout} s:\n{self.log}")
        return self
