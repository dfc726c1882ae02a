"""BroadPriorityQueue: as Scrapy's, but its time does not grow with the hosts that wait."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface
from scrapy.squeues import FifoMemoryQueue, PickleLifoDiskQueue
from scrapy.utils.test import get_crawler

from scrapy_rep import BroadPriorityQueue
from scrapy_rep.engine import pqueue

pytestmark = pytest.mark.scrapy_api


# All, and those beyond a few: some tests cross that number.
@pytest.fixture(params=[0, 8], ids="many is {}".format)
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pqueue, "_MANY", request.param)


class BusyDownloader:
    """A downloader whose active requests the test names, and a queue that looks at it."""

    def __init__(
        self,
        kind: type[DownloaderAwarePriorityQueue],
        key: str = "",
        **options: Any,
    ) -> None:
        self.crawler = get_crawler()
        self.slots: dict[str, Any] = {}
        downloader = SimpleNamespace(slots=self.slots, get_slot_key=self._slot_of)
        self.crawler.engine = SimpleNamespace(downloader=downloader)  # type: ignore[assignment]
        self.crawler.spider = self.crawler._create_spider("queue")
        below = PickleLifoDiskQueue if key else FifoMemoryQueue
        self.queue = kind.from_crawler(self.crawler, below, key, **options)

    @staticmethod
    def _slot_of(request: Request) -> str:
        return request.url.split("/")[2]

    def push(self, *urls: str, priority: int = 0) -> None:
        for url in urls:
            self.queue.push(Request(f"http://{url}", priority=priority))

    def pop(self) -> str:
        request = self.queue.pop()
        assert request is not None
        slot = self._slot_of(request)
        self.slots.setdefault(slot, SimpleNamespace(active=set())).active.add(request)
        request.meta["download_slot"] = slot
        return request.url.removeprefix("http://")

    def end(self, slot: str) -> None:
        self.slots[slot].active.pop()


@pytest.mark.usefixtures("many")
def test_a_slot_that_can_not_be_read_does_not_stop_others() -> None:
    world = BusyDownloader(BroadPriorityQueue)
    world.push("a/1", "a/2", "b/1")

    def fail() -> None:
        raise OSError("damaged")

    world.queue.pqueues["a"] = SimpleNamespace(pop=fail)  # type: ignore[assignment]
    with pytest.raises(OSError, match="damaged"):
        world.pop()
    assert world.pop() == "b/1"


@pytest.mark.usefixtures("many")
def test_slots_with_equal_downloads_take_turns() -> None:
    world = BusyDownloader(BroadPriorityQueue)
    world.push(*[f"{slot}/{number}" for slot in "abc" for number in range(3)])
    served = [world.queue.pop().url[7] for _ in range(9)]  # type: ignore[union-attr]
    assert served == list("abcabcabc")


@pytest.mark.usefixtures("many")
def test_whatever_happens_the_least_active_slot_is_next() -> None:
    chance = random.Random(1)
    world, count = BusyDownloader(BroadPriorityQueue), 0
    for number in range(1000):
        what = chance.random()
        if what < 0.5:
            world.push(f"h{chance.randrange(20)}/{number}")
            count += 1
        elif what < 0.8 and count:
            active = {slot: len(one.active) for slot, one in world.slots.items()}
            least = min(active.get(slot, 0) for slot in world.queue.pqueues)
            assert active.get(world.pop().split("/")[0], 0) == least
            count -= 1
        elif busy := [slot for slot, one in world.slots.items() if one.active]:
            world.end(chance.choice(busy))
    assert len(world.queue) == count


def test_few_slots_come_in_scrapys_order() -> None:
    ours, theirs = (
        BusyDownloader(BroadPriorityQueue),
        BusyDownloader(DownloaderAwarePriorityQueue),
    )
    for world in (ours, theirs):
        world.push(
            *[
                f"h{number}/{page}"
                for number in range(pqueue._MANY - 1)
                for page in (1, 2)
            ]
        )
    for number in range(100):
        assert ours.pop() == theirs.pop()
        if number % 3:
            slot = min(slot for slot, one in ours.slots.items() if one.active)
            ours.end(slot)
            theirs.end(slot)


def test_a_pop_looks_at_few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BusyDownloader(BroadPriorityQueue)
    world.push(*[f"h{number}/{page}" for number in range(1000) for page in (1, 2)])
    looks = 0
    active = DownloaderInterface._active_downloads

    def counted(self: DownloaderInterface, slot: str) -> int:
        nonlocal looks
        looks += 1
        return active(self, slot)

    monkeypatch.setattr(DownloaderInterface, "_active_downloads", counted)
    for number in range(1500):
        slot = world.pop().split("/")[0]
        if number % 2:
            world.end(slot)
    assert looks < 4 * 1500


@pytest.mark.usefixtures("many")
def test_what_scrapys_queue_left_on_disk_goes_on(tmp_path: Path) -> None:
    """And the other way round."""
    key = str(tmp_path)
    first = BusyDownloader(DownloaderAwarePriorityQueue, key)
    first.push("a/1", "b/1", "b/2")
    state: Any = first.queue.close()
    second = BusyDownloader(BroadPriorityQueue, key, startprios=state)
    assert second.pop() == "a/1"
    state = second.queue.close()
    third = BusyDownloader(DownloaderAwarePriorityQueue, key, startprios=state)
    assert {third.pop(), third.pop()} == {"b/1", "b/2"}
    third.queue.close()
