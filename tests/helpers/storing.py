"""What the tests of storages share: entries of all kinds, and the user's own class, as
docs/cache.md has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import (
    Entry,
    MemoryStorage,
    Storage,
    UnreadableEntry,
    client,
    sqlite,
)
from scrapy_rep.storages.client import StorageClient
from scrapy_rep.storages.entry import pack_body
from tests.helpers.behaviours import RULES, RULES_BYTES
from tests.helpers.crawling import NO, OK, CrawlResult, Step, StepSpider, crawl
from tests.helpers.docs import blocks, page
from tests.helpers.held import a_while, assert_clean
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Site, Sites

NOW = 1_800_000_000.0
# No test takes that long.
HOUR = 3600.0
A, B = "http://a.example:80", "https://b.example:443"


def rules(origin: str = A, body: bytes = RULES_BYTES, at: float = NOW, **values: Any) -> Entry:
    """The entry of an origin that has a robots.txt."""
    packed, sha256 = pack_body(body)
    whole: dict[str, Any] = {
        "updated_at": at,
        "outcome": Outcome.RULES,
        "status": 200,
        "url": f"{origin}/robots.txt",
        "packed": packed,
        "sha256": sha256,
        "fetched_at": at,
        "fresh_until": at + 86400,
        **values,
    }
    return Entry(origin, **whole)


def missing(origin: str = A, at: float = NOW) -> Entry:
    return rules(origin, at=at, outcome=Outcome.MISSING, status=404, packed=b"", sha256=None)


FAILURE: dict[str, Any] = {
    "unreachable_since": NOW + 10,
    "attempts": 3,
    "dead_attempts": 2,
    "proxy_attempts": 1,
    "next_attempt_at": NOW + 99.5,
    "not_before": NOW + 50,
    "error": "DNSLookupError: no such host",
}

KINDS: dict[str, Entry] = {
    "rules": rules(),
    "rules after hops": rules(url="https://www.example/other?x=\u00e9", hops=5),
    "an empty file": rules(body=b""),
    "any bytes": rules(body=bytes(range(256)) * 2000),
    "missing": missing(),
    "unreachable": Entry(A, updated_at=NOW, **FAILURE),
    "unreachable, with a copy": rules(**FAILURE),
    # What a library says of a header that is no text, say.
    "an error beyond Unicode": Entry(A, updated_at=NOW, **{**FAILURE, "error": "\udcff\0\u30c4'"}),
    "nothing": Entry(A),
}


def users_class(base: str = "Storage") -> type[Any]:
    """The class that docs/cache.md shows with this base. That of `Storage` keeps its files in the
    current directory."""
    [code] = [block for block in blocks(page("cache.md"), "python") if f"({base}):" in block]
    assert len(code.splitlines()) <= 25
    names: dict[str, Any] = {"__name__": "myproject.storages"}
    exec(compile(code, "cache.md", "exec"), names)  # noqa: S102 (our own manual)
    [found] = [one for one in names.values() if getattr(one, "__module__", "") == names["__name__"]]
    assert issubclass(found, Storage)
    return found


class FolderStorage(users_class()):  # type: ignore[misc]
    """The same with what `scrapy robots --cache` needs."""

    def drop(self, origin: str) -> bool:
        file: Path = self._file(origin)
        kept = file.exists()
        file.unlink(missing_ok=True)
        return kept

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for file in self.folder.iterdir():
            try:
                yield Entry.unpack(file.read_bytes())
            except UnreadableEntry as error:
                yield error


def in_a_file(folder: Path) -> dict[str, Any]:
    """Settings."""
    return {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": folder / "robots.sqlite",
    }


def on_a_server(url: str, prefix: str) -> dict[str, Any]:
    """Settings."""
    return {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_CACHE_REDIS_URL": url,
        "REP_CACHE_REDIS_PREFIX": prefix,
    }


def open_(stored: dict[str, Any]) -> Storage:
    """The storage, as another process opens it."""
    crawler = get_crawler(settings_dict=stored)
    return client.make_storage(crawler, RepSettings.from_settings(crawler.settings))


EARNED = "refused every start"
"""Words of the one warning that such a crawl earns: its only start request is a forbidden one."""


def make_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon, and a process that is locked out does not wait. A claim waits
    for a storage that failed, however slow the machine is."""
    monkeypatch.setattr(client, "_PATIENCE", 60.0)
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", 0.05)


def some(sites: Sites, count: int = 4) -> list[Site]:
    return [sites.add(robots=RULES) for _ in range(count)]


async def visit(
    some: list[Site],
    settings: dict[str, Any],
    *between: Callable[[], object],
    fetched: list[int] | None = None,
) -> CrawlResult:
    """A crawl of two pages of each site, with what happens after each of the first sites. All
    decisions are right, and each robots.txt was asked for once (or *fetched* times)."""
    steps: list[Step] = []
    happens = list(between)
    for site in some:
        steps += [site.url("/private"), site.url("/x")]
        if happens:
            steps.append(happens.pop(0))
    before = [site.count("/robots.txt") for site in some]
    result = await crawl(StepSpider, settings, steps=steps)
    assert_clean(result)
    assert isinstance(result.spider, StepSpider)
    assert result.spider.outcomes == [NO, OK] * len(some)
    counts = [site.count("/robots.txt") - then for site, then in zip(some, before, strict=True)]
    assert counts == (fetched or [1] * len(some))
    return result


def warning(result: CrawlResult) -> str:
    """The only one there is of the storage."""
    [found] = warnings(result, without=EARNED)
    return found


def assert_quiet(result: CrawlResult) -> None:
    assert warnings(result, without=EARNED) == []
    assert lines(result, "works again") == []


def nothing() -> None:
    pass


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    """What *work*, which is called with a number in each of so many threads, returns or raises."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait(60)
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


LEASE = 30.0


class Watched(MemoryStorage):
    """Works as it should, with leases, and writes down how it is used. What is in `fails` raises;
    what is in `before` is called first."""

    def __init__(self) -> None:
        super().__init__(1000, 1 << 30)
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()
        self.leases: dict[str, str] = {}
        self.fails: dict[str, Exception] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.overlaps = 0
        self._busy = threading.Lock()

    def _call(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        self.threads.add(threading.get_ident())
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            return
        try:
            self.before.get(name, lambda: None)()
            if name in self.fails:
                raise self.fails[name]
        finally:
            self._busy.release()

    def load(self, origin: str) -> Entry | None:
        self._call("load", origin)
        return super().load(origin)

    def save(self, entry: Entry) -> None:
        self._call("save", entry.origin)
        super().save(entry)

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        self._call("lease", origin, seconds)
        return self.leases.setdefault(origin, owner) == owner

    def release(self, origin: str, owner: str) -> None:
        self._call("release", origin)
        if self.leases.get(origin) == owner:
            del self.leases[origin]

    def purge(self, before: float) -> None:
        self._call("purge", before)

    def close(self) -> None:
        self._call("close")

    def names(self) -> list[str]:
        return [one[0] for one in self.calls]


class World:
    """An access to a storage, with its clocks in the hand of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.storage = Watched()
        self.now = 5000.0
        self.timers: list[Any] = []
        monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(client, "call_later", self._call_later)
        self.crawler = get_crawler()
        self.access = self.new()

    def new(self) -> StorageClient:
        """Another process's access to the same storage."""
        return StorageClient(self.crawler, self.storage, LEASE, lambda: NOW)

    def _call_later(self, seconds: float, function: Callable[..., None], *arguments: Any) -> Any:
        timer = SimpleNamespace(
            seconds=seconds, function=partial(function, *arguments), cancelled=False
        )
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    @property
    def lost(self) -> int:
        """Answers that will never be saved, as the stat has it."""
        assert self.crawler.stats is not None
        return self.crawler.stats.get_value("rep/cache/unsaved", 0)  # type: ignore[no-any-return]

    async def settle(self) -> None:
        """Wait until everything that was queued is done."""
        while self.access._running:
            await a_while(0.001)


class Hanging:
    """Calls of one name hang until the test lets them go on."""

    def __init__(self, world: World, name: str) -> None:
        self._began, self._go_on = threading.Event(), threading.Event()
        world.storage.before[name] = self._hang

    def _hang(self) -> None:
        self._began.set()
        assert self._go_on.wait(60)

    async def begins(self) -> None:
        while not self._began.is_set():
            await a_while(0.001)

    def go_on(self) -> None:
        self._go_on.set()


def never(entry: Entry) -> bool:
    return False


def always(entry: Entry) -> bool:
    return True
