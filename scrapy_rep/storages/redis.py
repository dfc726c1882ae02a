"""Entries on a Redis server: processes on any number of machines share them. Needs the extra
``redis``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry
from scrapy_rep.storages.entry import unsqueeze

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler

# A server that takes longer counts as gone, for a while.
_TIMEOUT_SECONDS = 2.0
# Entries that are asked for at a time when all are.
_AT_A_TIME = 500

# Milliseconds. Returns 1 if the lease is the owner's now. One that has no end (a restored dump loses
# it), or a later one than any lease has, counts as free; so does a value that is no lease.
_LEASE = """
local owner = redis.pcall('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if type(owner) == 'string' and owner ~= ARGV[1] and left >= 0 and left <= 10 * ARGV[2] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class RedisStorage(Storage):
    """Entries under keys ``PREFIX:entry:ORIGIN`` (the header) and ``PREFIX:body:SHA256``.

    Bodies are apart from entries: many sites have the same, and a body that is no longer in use is
    kept until it expires, so that a decision that rests on it can be checked.
    """

    def __init__(self, url: str, prefix: str, expiry: float) -> None:
        """:param expiry: seconds from its last change until an entry is forgotten

        :raises ValueError: if *url* is none that the Redis client understands
        """
        self._prefix = prefix
        self._expiry = max(1, int(expiry))
        self._client: Any = redis.Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            # Once: a connection that was idle may have been closed.
            retry=Retry(NoBackoff(), 1),
        )
        self._lease = self._client.register_script(_LEASE)
        self._release = self._client.register_script(_RELEASE)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RedisStorage:
        """On the server at ``REP_CACHE_REDIS_URL``, else at scrapy-redis's ``REDIS_URL``.

        :raises SettingsError: if neither is set, or it is no URL of a Redis server
        """
        settings = RepSettings.from_settings(crawler.settings)
        url = settings.cache_redis_url or crawler.settings.get("REDIS_URL")
        if not url:
            raise SettingsError(
                "RedisStorage needs REP_CACHE_REDIS_URL, such as redis://localhost:6379/0."
            )
        try:
            return cls(url, settings.cache_redis_prefix, settings.cache_expiry)
        except ValueError:
            # It may hold a password, and the reason may quote it.
            raise SettingsError(
                "REP_CACHE_REDIS_URL is not the URL of a Redis server, such as "
                "redis://localhost:6379/0."
            ) from None

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def load(self, origin: str) -> Entry | None:
        try:
            header = self._client.get(self._key("entry", origin))
        except redis.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            raise UnreadableEntry("broken: it is no string") from None
        if header is None:
            return None
        (entry,) = self._with_bodies([Entry.from_parts(header)])
        return entry

    def _with_bodies(self, entries: list[Entry]) -> list[Entry]:
        keys = [self._key("body", entry.sha256 or "") for entry in entries]
        bodies = self._client.mget(keys) if keys else []
        return [
            replace(entry, packed=packed or b"")
            for entry, packed in zip(entries, bodies, strict=True)
        ]

    def save(self, entry: Entry) -> None:
        pipeline = self._client.pipeline(transaction=True)
        if entry.sha256 is not None:
            pipeline.set(self._key("body", entry.sha256), entry.packed, ex=self._expiry)
        pipeline.set(self._key("entry", entry.origin), entry.header(), ex=self._expiry)
        pipeline.execute()

    def drop(self, origin: str) -> bool:
        dropped, _ = (
            # No transaction: a server without memory left refuses those that would make room.
            self._client.pipeline(transaction=False)
            .delete(self._key("entry", origin))
            .delete(self._key("lease", origin))
            .execute()
        )
        return bool(dropped)

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        # What the prefix holds is not meant as a pattern.
        literal = re.sub(r"([*?\[\]^\\])", r"\\\1", self._prefix)
        keys: list[bytes] = []
        for key in self._client.scan_iter(f"{literal}:entry:*", _AT_A_TIME):
            keys.append(key)
            if len(keys) == _AT_A_TIME:
                yield from self._some(keys)
                keys = []
        yield from self._some(keys)

    def _some(self, keys: list[bytes]) -> Iterator[Entry | UnreadableEntry]:
        entries = []
        for header in self._client.mget(keys) if keys else ():
            try:
                if header is not None:  # else it was dropped meanwhile
                    entries.append(Entry.from_parts(header))
            except UnreadableEntry as error:
                yield error
        yield from self._with_bodies(entries)

    def body(self, sha256: str) -> bytes | None:
        [packed] = self._client.mget([self._key("body", sha256)])  # None for what is no string, too
        return None if packed is None else unsqueeze(packed)

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        milliseconds = max(1, int(seconds * 1000))
        return bool(self._lease([self._key("lease", origin)], [owner, milliseconds]))

    def release(self, origin: str, owner: str) -> None:
        self._release([self._key("lease", origin)], [owner])

    def close(self) -> None:
        self._client.close()
