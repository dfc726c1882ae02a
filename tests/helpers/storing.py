"""What the tests of storages share: entries of all kinds, and the class that docs/cache.md shows."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scrapy.utils.test import get_crawler

from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, Storage, UnreadableEntry, client
from scrapy_rep.storages.base import squeeze
from tests.helpers.behaviours import RULES_BYTES
from tests.helpers.docs import blocks, page

NOW = 1_800_000_000.0
# No test takes that long.
HOUR = 3600.0
A, B = "http://a.example:80", "https://b.example:443"


def rules(
    origin: str = A, body: bytes = RULES_BYTES, at: float = NOW, **values: Any
) -> Entry:
    packed, sha256 = squeeze(body), hashlib.sha256(body).hexdigest()
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


def state_with(entry: Entry, origin: Origin) -> OriginState:
    """Return a state that has learnt *entry*, beside any table."""
    state = OriginState(origin)
    state.learn(entry)
    return state


def know(cache: RobotsCache, entry: Entry) -> OriginState:
    """Have *cache* know what *entry* says of its origin, as if that had been fetched."""
    return cache._make_known(Origin.from_url(entry.origin), entry)


def learn(cache: RobotsCache, origin: Origin, answer: Answer) -> OriginState:
    """Have *cache* learn from the answer to a fetch that there wasn't."""
    return cache._learn(origin, answer)


def missing(origin: str = A, at: float = NOW) -> Entry:
    return rules(
        origin, at=at, outcome=Outcome.MISSING, status=404, packed=b"", sha256=None
    )


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
    "an error beyond Unicode": Entry(
        A, updated_at=NOW, **{**FAILURE, "error": "\udcff\0\u30c4'"}
    ),
    "nothing": Entry(A),
}


def users_class(base: str = "Storage") -> type[Any]:
    """The class that docs/cache.md shows with this base. That of `Storage` keeps its files in the
    current directory."""
    [code] = [
        block for block in blocks(page("cache.md"), "python") if f"({base}):" in block
    ]
    assert len(code.splitlines()) <= 25
    names: dict[str, Any] = {"__name__": "myproject.storages"}
    exec(compile(code, "cache.md", "exec"), names)  # noqa: S102 (our own manual)
    [found] = [
        one
        for one in names.values()
        if getattr(one, "__module__", "") == names["__name__"]
    ]
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
    return {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": folder / "robots.sqlite",
    }


def on_a_server(url: str, prefix: str) -> dict[str, Any]:
    return {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_CACHE_REDIS_URL": url,
        "_REP_CACHE_REDIS_PREFIX": prefix,
    }


def open_(stored: dict[str, Any]) -> Storage:
    crawler = get_crawler(settings_dict=stored)
    return client.make_storage(crawler, RepSettings.from_settings(crawler.settings))


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
