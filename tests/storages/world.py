"""A crawl's client of a storage, on clocks that the test moves; a storage that records its use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.test import get_crawler

from scrapy_rep.storages import Entry, MemoryStorage, client
from scrapy_rep.storages.client import Claim, StorageClient
from tests.helpers.held import a_while
from tests.helpers.storing import A, rules

LEASE = 30.0


def never(entry: Entry) -> bool:
    return False


def always(entry: Entry) -> bool:
    return True


class WatchedStorage(MemoryStorage):
    """Works, with leases. What is in `fails` raises; what is in `before` is called first."""

    def __init__(self) -> None:
        super().__init__(2000, 1 << 30)
        self.calls: list[tuple[Any, ...]] = []
        self.sizes: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.leases: dict[str, str] = {}
        self.fails: dict[str, Exception] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.overlaps = 0
        self._busy = threading.Lock()
        for name in ("load", "save", "lease", "release"):
            method = getattr(self, f"{name}_many")
            setattr(self, f"{name}_many", partial(self._batch, name, method))

    def _batch(
        self, name: str, method: Callable[..., Any], some: Any, *arguments: Any
    ) -> Any:
        self.sizes.append((name, len(some)))
        return method(some, *arguments)

    def call(self, name: str, *arguments: Any) -> None:
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
        self.call("load", origin)
        return super().load(origin)

    def save(self, entry: Entry) -> None:
        self.call("save", entry.origin)
        super().save(entry)

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        self.call("lease", origin, seconds)
        return self.leases.setdefault(origin, owner) == owner

    def release(self, origin: str, owner: str) -> None:
        self.call("release", origin)
        if self.leases.get(origin) == owner:
            del self.leases[origin]

    def close(self) -> None:
        self.call("close")

    def names(self) -> list[str]:
        return [one[0] for one in self.calls]

    def batches(self, name: str) -> list[int]:
        return [size for one, size in self.sizes if one == name]


class StorageWorld:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.storage = WatchedStorage()
        self.now = 5000.0
        self.timers: list[Any] = []
        monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(client, "call_later", self._call_later)
        self.crawler = get_crawler()
        self.client = self.new()

    def new(self) -> StorageClient:
        return StorageClient(self.crawler, self.storage, LEASE)

    def _call_later(
        self, seconds: float, function: Callable[..., None], *arguments: Any
    ) -> Any:
        timer = SimpleNamespace(
            seconds=seconds, function=partial(function, *arguments), cancelled=False
        )
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def later(self) -> None:
        """So much time goes by that what failed is tried again; the timers ring."""
        self.now += 10.1
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.cancelled:
                timer.function()

    @property
    def lost(self) -> int:
        assert self.crawler.stats is not None
        return self.crawler.stats.get_value("rep/cache/unsaved", 0)  # type: ignore[no-any-return]

    async def settle(self) -> None:
        while self.client._running:
            await a_while(0.001)

    async def claims(
        self,
        origins: list[str],
        by: StorageClient | None = None,
        is_enough: Callable[[Entry], bool] = never,
    ) -> list[Claim]:
        by = by or self.client
        claims = [deferred_from_coro(by.claim(origin, is_enough)) for origin in origins]
        return [await maybe_deferred_to_future(one) for one in claims]

    async def publish(self, *entries: Entry) -> None:
        for entry in entries:
            self.client.publish(entry)
        await self.settle()

    async def use(self, origin: str = A) -> Claim:
        """What the cache does with an origin that has to be asked for."""
        claim = await self.client.claim(origin, never)
        await self.publish(*[rules(origin)] * claim.granted)
        return claim


class HangingCalls:
    """Calls of one name hang until the test lets them go on."""

    def __init__(self, world: StorageWorld, name: str) -> None:
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
