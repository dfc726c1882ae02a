"""Storages: where what is known of each robots.txt is kept (REP.md section 5)."""

from scrapy_rep.storages.base import (
    Entry,
    MemoryStorage,
    Storage,
    Turn,
    UnreadableEntry,
)
from scrapy_rep.storages.redis import RedisStorage
from scrapy_rep.storages.sqlite import SqliteStorage

__all__ = [
    "Entry",
    "MemoryStorage",
    "RedisStorage",
    "SqliteStorage",
    "Storage",
    "Turn",
    "UnreadableEntry",
]
