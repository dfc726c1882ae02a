"""Entries on a Redis server, shared by any number of machines. Needs the extra ``redis``, which is
imported only where it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

from scrapy.crawler import Crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import (
    MAX_BATCH,
    MAX_ENTRY_HEADER,
    MAX_PACKED,
    MAX_TURNS,
    MAX_VALUE,
    BatchStorage,
    Entry,
    Turn,
    UnreadableEntry,
    entry_or_error,
    unsqueeze,
)

# A slower server counts as down for a while.
_TIMEOUT_SECONDS = 2.0
# Keys in one call when iterating over all entries.
_AT_A_TIME = 500

# Returns what is there, and no more than the batch may have: others who share the server may have
# written anything. What is longer than allowed, or no string, is empty.
_READ = """
local found, room = {}, tonumber(ARGV[2])
for at, key in ipairs(KEYS) do
    local length = redis.pcall('STRLEN', key)
    if type(length) == 'table' then
        if not string.find(length.err, 'WRONGTYPE') then return length end
        length = math.huge
    end
    if length > tonumber(ARGV[1]) then
        found[at] = ''
    elseif length <= room then
        found[at] = redis.call('GET', key)
        room = room - length
    else
        found[at] = false
    end
end
return found
"""

# Milliseconds. Returns a 1 for each lease the owner has now. What counts as free: a lease without
# an end (lost in a restored dump) or with an impossibly late one; a value of another type.
_LEASE = """
local leased = {}
for at, key in ipairs(KEYS) do
    local owner = redis.pcall('GET', key)
    local left = redis.call('PTTL', key)
    if type(owner) == 'string' and owner ~= ARGV[1] and left >= 0 and left <= 10 * ARGV[2] then
        leased[at] = 0
    else
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
        leased[at] = 1
    end
end
return leased
"""
_RELEASE = """
for _, key in ipairs(KEYS) do
    if redis.pcall('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
"""

# Milliseconds of the server's clock. ARGV: the most turns that may come before, then delay and own wait
# of each. Returns how long each has to wait; see Turn.moment(). A key is gone once it has no effect.
_TURN = """
local time = redis.call('TIME')
local now, waits = time[1] * 1000 + math.floor(time[2] / 1000), {}
for at, key in ipairs(KEYS) do
    local delay, wait = tonumber(ARGV[2 * at]), tonumber(ARGV[2 * at + 1])
    local value = redis.pcall('GET', key)
    local earlier = type(value) == 'string' and tonumber(value) or 0
    local moment = now + wait
    if earlier > moment and earlier <= moment + ARGV[1] * delay then moment = earlier end
    local following = moment + delay
    redis.call('SET', key, string.format('%.0f', following), 'PX', string.format('%.0f', following - now))
    waits[at] = moment - now
end
return waits
"""


class RedisStorage(BatchStorage):
    """Entries under keys ``PREFIX:entry:ORIGIN`` (the header) and ``PREFIX:body:SHA256``.

    Bodies have keys of their own: many origins share one, and an old one is kept until it expires
    so that decisions based on it can be checked.
    """

    client_class: Any = None
    """By default ``redis.Redis``. For a cluster, a subclass sets ``redis.RedisCluster``."""

    def __init__(self, url: str, prefix: str, expiry: float) -> None:
        """:param expiry: seconds after its last change that an entry is deleted
        :raises ValueError: if the Redis client doesn't understand *url*
        """
        import redis

        self._prefix = prefix
        self._expiry = max(1, int(expiry))
        self._url = url
        redis.ConnectionPool.from_url(url)  # only reads it

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RedisStorage:
        """Use the server at ``REP_CACHE_REDIS_URL``, else at scrapy-redis's ``REDIS_URL``.

        :raises SettingsError: if neither is the URL of a Redis server
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
            # Don't quote the reason: it may contain the password.
            raise SettingsError(
                "REP_CACHE_REDIS_URL is not the URL of a Redis server, such as "
                "redis://localhost:6379/0."
            ) from None

    @cached_property
    def _client(self) -> Any:
        """Made by the first call, since a cluster's client connects at once."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return (self.client_class or redis.Redis).from_url(
            self._url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            # Once, on a new connection: an idle one may have been closed, or its server may have
            # become a replica in a failover.
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError, redis.ReadOnlyError)),
        )

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        entries = self._entries([self._key("entry", origin) for origin in origins])
        return {
            origin: entry
            for origin, entry in zip(origins, entries, strict=True)
            # Without its body: the server has evicted that.
            if isinstance(entry, UnreadableEntry)
            or (entry and (entry.packed or not entry.sha256))
        }

    def _entries(
        self, keys: Sequence[str | bytes]
    ) -> list[Entry | UnreadableEntry | None]:
        """Return what there is under each of *keys*, with the bodies that are still there."""
        headers = self._values(keys, MAX_ENTRY_HEADER)
        entries = [
            None if header is None else entry_or_error(header) for header in headers
        ]
        hashes = {
            one.sha256: None for one in entries if isinstance(one, Entry) and one.sha256
        }
        values = self._values([self._key("body", one) for one in hashes], MAX_PACKED)
        bodies = dict(zip(hashes, values, strict=True))
        return [
            replace(one, packed=bodies[one.sha256] or b"")
            if isinstance(one, Entry) and one.sha256
            else one
            for one in entries
        ]

    def _values(self, keys: Sequence[str | bytes], limit: int) -> list[bytes | None]:
        """Return the values of *keys*, within :data:`MAX_BATCH` bytes."""
        return (
            self._client.register_script(_READ)(keys, [limit, MAX_BATCH])
            if keys
            else []
        )

    def save_many(self, entries: Sequence[Entry]) -> None:
        pipeline = self._client.pipeline(transaction=True)
        for entry in entries:
            if entry.sha256 is not None:
                pipeline.set(
                    self._key("body", entry.sha256), entry.packed, ex=self._expiry
                )
            pipeline.set(
                self._key("entry", entry.origin), entry.header(), ex=self._expiry
            )
        pipeline.execute()

    def drop(self, origin: str) -> bool:
        # A server that is out of memory refuses transactions, even ones that free some.
        pipeline = self._client.pipeline(transaction=False)
        pipeline.delete(self._key("entry", origin))
        pipeline.delete(self._key("lease", origin))
        return bool(pipeline.execute()[0])

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        # The prefix is not a pattern.
        literal = re.sub(r"([*?\[\]^\\])", r"\\\1", self._prefix)
        keys = self._client.scan_iter(f"{literal}:entry:*", _AT_A_TIME)
        while some := list(islice(keys, _AT_A_TIME)):
            yield from filter(None, self._entries(some))

    def body(self, sha256: str) -> bytes | None:
        [packed] = self._values([self._key("body", sha256)], MAX_PACKED)
        return unsqueeze(packed) if packed else None

    def lease_many(
        self, origins: Sequence[str], owner: str, seconds: float
    ) -> set[str]:
        keys = [self._key("lease", origin) for origin in origins]
        lease = self._client.register_script(_LEASE)
        leased = lease(keys, [owner, max(1, int(seconds * 1000))])
        return {origin for origin, one in zip(origins, leased, strict=True) if one}

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        release = self._client.register_script(_RELEASE)
        release([self._key("lease", origin) for origin in origins], [owner])

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        keys = [self._key("turn", turn.origin) for turn in turns]
        values: list[int] = [MAX_TURNS]
        for turn in turns:
            # No moment may come too early.
            values += [
                max(1, math.ceil(turn.seconds * 1000)),
                math.ceil(turn.wait * 1000),
            ]
        waits = self._client.register_script(_TURN)(keys, values)
        return [int(wait) / 1000 for wait in waits]

    def load_value(self, name: str) -> str | None:
        [value] = self._values([self._key("value", name)], MAX_VALUE)
        return None if value is None else value.decode("utf-8", "replace")

    def save_value(self, name: str, value: str) -> None:
        self._client.set(self._key("value", name), value)

    def close(self) -> None:
        if (client := vars(self).pop("_client", None)) is not None:
            client.close()
