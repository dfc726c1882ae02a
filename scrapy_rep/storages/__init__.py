"""Storages: where what is known of each robots.txt is kept (REP.md section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.storages.base import Entry, MemoryStorage, Storage, UnreadableEntry
from scrapy_rep.storages.sqlite import SqliteStorage

if TYPE_CHECKING:
    from scrapy_rep.storages.redis import RedisStorage

__all__ = [
    "Entry",
    "MemoryStorage",
    "RedisStorage",
    "SqliteStorage",
    "Storage",
    "UnreadableEntry",
]


if not TYPE_CHECKING:  # to type checkers, all names would be right

    def __getattr__(name):
        if name == "RedisStorage":  # its client is an extra
            from scrapy_rep.storages.redis import RedisStorage

            return RedisStorage
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
