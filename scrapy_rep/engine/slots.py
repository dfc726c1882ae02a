"""Slows down Scrapy's download slots through ``downloader.slots``, as AutoThrottle does. They are
undocumented: `tests/engine/test_scrapy_private.py` fails when a name used here goes away."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.core import downloader as scrapys

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

META_KEY = "download_slot"

# The clock of Slot.lastseen; time.time in older versions of Scrapy.
_clock = time.monotonic if hasattr(scrapys, "monotonic") else time.time

# Randomizes a slot's delay: a fraction; in older versions of Scrapy a bool, which means 0.5.
_JITTER = "jitter" if hasattr(scrapys.Slot, "jitter") else "randomize_delay"

# Origins per slot; beyond that only those with the longest delays count.
_MAX_ORIGINS = 1000

# Scrapy removes slots a minute after their last request. Look for removed ones at this many slowed
# slots, and whenever their number has doubled.
_MANY = 64


@dataclass(slots=True, eq=False)
class _Slowed:
    """A slot that is slowed down."""

    slot: Any
    own: tuple[int, float, Any]
    """The project's concurrency, delay (seconds) and jitter."""
    wanted: dict[str, float] = field(default_factory=dict)
    """Each origin's delay in seconds."""
    least: float = 0.0
    """The longest of these."""

    def want(self, origin: str, seconds: float) -> None:
        """Set *origin*'s delay and update the slot."""
        wanted = self.wanted
        if wanted.get(origin, 0.0) == seconds:
            return
        wanted[origin] = seconds
        if len(wanted) > _MAX_ORIGINS or not seconds:
            longest = sorted(wanted.items(), key=lambda item: -item[1])[: _MAX_ORIGINS // 2]
            self.wanted = {name: delay for name, delay in longest if delay}
        self.least = max(self.wanted.values(), default=0.0)
        self.slot.concurrency, self.slot.delay, jitter = self.own
        setattr(self.slot, _JITTER, jitter)
        self.enforce()

    def enforce(self) -> None:
        """Raise the slot's delay if needed. AutoThrottle may have lowered it."""
        slot, jitter = self.slot, getattr(self.slot, _JITTER)
        if not self.least:
            return
        slot.concurrency = 1
        if slot.delay * (1 - (0.5 if jitter is True else jitter)) < self.least:
            slot.delay = max(slot.delay, self.least)
            setattr(slot, _JITTER, type(jitter)(0))


class DownloadSlots:
    """The downloader's slots."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._slowed: dict[str, _Slowed] = {}
        self._sweep_at = _MANY
        self._usual = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")

    @property
    def _downloader(self) -> Any:
        engine: Any = self._crawler.engine
        return engine.downloader

    def key_of(self, url: str) -> str:
        """Return the default slot for *url*."""
        key: str = self._downloader.get_slot_key(Request(url))
        return key

    def is_full(self, request: Request, leaving: list[Request]) -> bool:
        """Whether enough requests are in the slot of *request*. One that is slowed down may have as many as
        others: some of them may turn out to go elsewhere, by another agent's delay.

        :param leaving: others for that slot that the engine took, of which those are removed that have
            got there
        """
        downloader = self._downloader
        slots = getattr(downloader, "slots", None)  # somebody's own downloader may have none
        if slots is None:
            return False
        slot = slots.get(downloader.get_slot_key(request))
        active = slot.active if slot is not None else ()
        leaving[:] = [one for one in leaving if one in downloader.active and one not in active]
        most: int = max(slot.concurrency, self._usual) if slot is not None else self._usual
        return len(active) + len(leaving) >= most

    def slow(self, key: str, origin: str, seconds: float) -> bool:
        """Have the slot *key* send one request at a time and wait at least *seconds* after each.

        The longest delay of several origins counts. 0: *origin* has none.

        :returns: whether *seconds* exceed the project's own delay
        """
        slot = self._downloader.slots.get(key)
        slowed = self._slowed.get(key)
        if slot is None or (slowed is None and not seconds):
            return False
        if slowed is None or slowed.slot is not slot:
            own = slot.concurrency, slot.delay, getattr(slot, _JITTER)
            if not self._slowed:
                self._crawler.signals.connect(self._downloaded, signals.response_downloaded)
            slowed = self._slowed[key] = _Slowed(slot, own)
            self._sweep()
        slowed.want(origin, seconds)
        return seconds > slowed.own[1]

    def beside(self, url: str, name: str, *, if_slowed: bool = False) -> dict[str, str]:
        """Return meta that gives a request its own slot beside that of *url*, with the project's
        settings.

        :param if_slowed: return an empty dict unless the other slot is slowed
        """
        if if_slowed and not self._slowed:
            return {}
        key, slots = self.key_of(url), self._downloader.slots
        slowed = self._slowed.get(key)
        if slowed is not None and slowed.slot is not slots.get(key):
            slowed = None
        if if_slowed and slowed is None:
            return {}
        own = f"{key} ({name})"
        if slowed is not None and own not in slots:
            slots[own] = scrapys.Slot(*slowed.own)
        return {META_KEY: own}

    def _sweep(self) -> None:
        """Forget slots that Scrapy has removed."""
        if len(self._slowed) >= self._sweep_at:
            slots = self._downloader.slots
            self._slowed = {
                key: slowed for key, slowed in self._slowed.items() if slots.get(key) is slowed.slot
            }
            self._sweep_at = max(_MANY, 2 * len(self._slowed))

    def _downloaded(self, request: Request) -> None:
        """Count the delay from the end of a response: to the site, the time a connection takes would
        shorten it."""
        slowed = self._slowed.get(request.meta.get(META_KEY, ""))
        if slowed is not None and slowed.least:
            slowed.slot.lastseen = _clock()
            slowed.enforce()
