"""Where entries live (REP.md section 5). What is named here is imported when it is asked for:
the Redis client is an extra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry
    from scrapy_rep.storages.memory import MemoryStorage
    from scrapy_rep.storages.redis import RedisStorage
    from scrapy_rep.storages.sqlite import SqliteStorage

__all__ = [
    "Entry",
    "MemoryStorage",
    "RedisStorage",
    "SqliteStorage",
    "Storage",
    "UnreadableEntry",
]

_HOMES = {
    "Entry": "base",
    "MemoryStorage": "memory",
    "RedisStorage": "redis",
    "SqliteStorage": "sqlite",
    "Storage": "base",
    "UnreadableEntry": "base",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
