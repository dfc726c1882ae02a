"""Crawls in processes of their own, which a test can watch, stop and kill.

    crawl = Crawl(tmp_path, urls, {"JOBDIR": jobdir}, reactor="select")
    crawl.wait_for("deferred", 60)
    crawl.kill()

What happens in the crawl is written to a file by `tests.helpers.pages_spider`; `crawl.urls("page")`
are the URLs of those events. The reactor is the child's, so these tests run in one mode of the test
run: mark them `process`.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import scrapy

import scrapy_rep
from tests.helpers.behaviours import RULES, after, answer, reset, silence
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.scrapy_process import PATIENCE, ScrapyProcess
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import index, urlset

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
    "REP_DEFER_GRACE": 0.05,
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


def arguments_of(*arguments: str, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Those of `scrapy`, with settings as `-s` gives them."""
    line = [*arguments]
    for name, value in (settings or {}).items():
        line += ["-s", f"{name}={json.dumps(value) if isinstance(value, dict) else value}"]
    return line


def command(*arguments: str) -> list[str]:
    """`scrapy ...` in this Python."""
    return [sys.executable, "-m", "scrapy", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """The child imports the same scrapy_rep as this process, and `tests`. Python's streams are
    buffered as users have them, whatever this process was told."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    paths = [str(ROOT), str(Path(scrapy_rep.__file__).parent.parent), ours.get("PYTHONPATH")]
    return {**ours, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


class Crawl:
    """One run of a spider. Starts at once; what it leaves goes into *folder*, under new names.

    :param ends: see `tests.helpers.pages_spider`
    :param arguments: the spider's
    """

    def __init__(
        self,
        folder: Path,
        urls: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
        *,
        reactor: str = "asyncio",
        ends: str = "",
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
            variables=environment(CRAWL_EVENTS=str(self._events), CRAWL_ENDS=ends),
            output=self._log,
        )

    @property
    def events(self) -> list[Event]:
        """All that happened so far."""
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
        """Why it was closed; None if it was not, or not in order."""
        return next((event.detail for event in self.of("closed")), None)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_clean(self) -> None:
        """Nothing in the log is an error."""
        records = re.split(r"^(?=\d{4}-\d\d-\d\d \d\d:)", self.log, flags=re.MULTILINE)
        wrong = re.compile(r" (ERROR|CRITICAL): |^Traceback", re.MULTILINE)
        errors = [record for record in records if wrong.search(record)]
        assert not errors, "\n".join(errors)[:3000]

    def wait_for(self, kind: str, count: int = 1) -> None:
        """Return when there were `count` events of that kind, or the process has ended."""
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
        """Wait until it has ended."""
        try:
            self._process.wait(timeout)
        except TimeoutError:
            self.kill()
            pytest.fail(f"did not end within {timeout} s:\n{self.log}")
        return self


class Fleet:
    """Crawls that share a storage and go about the same sites."""

    def __init__(self, folder: Path, storage: Mapping[str, Any]) -> None:
        self._folder = folder
        self._storage = storage
        self.crawls: list[Crawl] = []

    def add(
        self,
        urls: list[str],
        *,
        go: str = "",
        reactor: str = "asyncio",
        ends: str = "",
        **settings: Any,
    ) -> Crawl:
        """:param go: a name. The crawl begins when :meth:`go` says it"""
        settings = {"REP_DEFER_GRACE": 0.5, **self._storage, **settings}
        go = go and str(self._folder / go)
        folder = self._folder / "runs"
        self.crawls.append(Crawl(folder, urls, settings, reactor=reactor, ends=ends, go=go))
        return self.crawls[-1]

    def go(self, name: str = "go") -> None:
        """Let those begin that wait for it, when all are ready."""
        for crawl in self.crawls:
            crawl.wait_for("opened")
        (self._folder / name).touch()

    def join(self) -> None:
        for crawl in self.crawls:
            assert crawl.join().reason == "finished", crawl.log
            crawl.assert_clean()

    def sum(self, stat: str) -> int:
        return sum(int(crawl.stats.get(stat, 0)) for crawl in self.crawls)

    def close(self) -> None:
        for crawl in self.crawls:
            crawl.close()


def decided(crawl: Crawl, *sites: Site) -> dict[str, list[str]]:
    """What became of the pages of these sites."""
    places = tuple(site.url() for site in sites)
    return {
        kind: sorted(url for url in crawl.urls(kind) if url.startswith(places))
        for kind in ("page", "failed")
    }


class Town:
    """Sites whose robots.txt are down, each in another way, until they are up."""

    DOWN = (503, silence(), 503, reset())

    def __init__(self, sites: Sites, *, page_seconds: float = 0.02) -> None:
        self.sites: list[Site] = [sites.add() for _ in self.DOWN]
        self.page_seconds = page_seconds
        self.down()

    def down(self) -> None:
        for site, behaviour in zip(self.sites, self.DOWN, strict=True):
            site.set("/robots.txt", behaviour)

    def up(self) -> None:
        for site in self.sites:
            site.set("/robots.txt", RULES)

    def pages(self, count: int, name: str = "page") -> list[str]:
        """The URLs of pages, an equal share at each site, by turns. The pages are made anew."""
        urls = []
        for number in range(count):
            site = self.sites[number % len(self.sites)]
            path = f"/{name}-{number}"
            site.set(path, after(self.page_seconds, f"this is {path}"))
            urls.append(site.url(path))
        return urls

    @property
    def asked(self) -> Counter[str]:
        """How often each page was asked for."""
        return Counter(site.url(target) for site in self.sites for target in site.pages_asked)


class Listed:
    """A site whose pages are listed in an index of sitemaps; some are listed twice. By default they are
    slow: Scrapy hands a response to its callback 0.1 s after it came, and meanwhile come others."""

    SETTINGS = {"REP_SITEMAPS": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}

    def __init__(
        self, sites: Sites, seconds: float = 0.04, *, robots_seconds: float = 0, count: int = 60
    ) -> None:
        """:param count: pages of each of the four sitemaps"""
        self.site = site = sites.add()
        self.wanted: list[str] = []
        maps = [site.url(f"/{number}.xml") for number in range(4)]
        robots = f"Sitemap: {site.url('/index.xml')}\nCrawl-delay: 0\n"
        site.set("/robots.txt", after(robots_seconds, robots))
        site.set("/index.xml", index(maps))
        for number in range(4):
            paths = [f"/page/{number}/{page}" for page in range(count)]
            listed = self.wanted[-5:] + [site.url(path) for path in paths]
            self.wanted += listed[-count:]
            for path in paths:
                site.set(path, after(seconds, f"page {path}"))
            site.set(f"/{number}.xml", answer(gzip.compress(urlset(listed).encode())))

    @property
    def asked(self) -> Counter[str]:
        """How often each page was asked for."""
        hits = list(self.site.requests)
        return Counter(self.site.url(one.target) for one in hits if one.path.startswith("/page"))

    def start(
        self, folder: Path, ends: str = "", reactor: str = "asyncio", **settings: Any
    ) -> Crawl:
        settings = {**self.SETTINGS, "JOBDIR": folder / "job", **settings}
        urls = [self.site.url("/start")]
        return Crawl(folder, urls, settings, ends=ends, reactor=reactor, seeded="yes")

    def check(self, runs: list[Crawl]) -> None:
        """Nothing is missing; twice were asked for only the pages that a killed run was not done with."""
        asked = self.asked
        got = {url for run in runs for url in run.urls("page")}
        assert set(self.wanted) - set(asked) == set()
        assert set(self.wanted) - got == set()
        again = asked.total() - len(asked)
        most = sum(self._not_done(run) for run in runs if run.reason is None)
        assert again <= most, f"{again} pages were asked for again, {most} may be"
        for run in runs:
            run.assert_clean()
            assert {event.detail for event in run.of("page")} <= {PAGE_AS_EVER}

    def _not_done(self, killed: Crawl) -> int:
        """At most so many pages: those on their way, and those whose rows were not deleted yet, twenty
        at a time. That they are done is known when their requests are gone: with older Scrapy, that is
        when garbage is collected."""
        if scrapy.version_info < (2, 18):
            return len(self.wanted)
        return len(killed.of("reached")) - len(killed.of("page")) + 3 * 20
