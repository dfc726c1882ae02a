"""Entries on a Redis server, shared by any number of machines. Needs the extra
``redis``, which is imported only where it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
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

# A server that takes longer to answer counts as down for a while (_RETRY_SECONDS in
# client.py).
_TIMEOUT_SECONDS = 2.0
# So many keys are asked for in one call when iterating over all entries: no more, since
# other clients of the server wait for each call.
_KEYS_AT_A_TIME = 500

# The following are programs in Lua, which the server runs, so that nothing comes
# between their steps.

# Returns the values of KEYS, with no more bytes than a batch may have, since other
# programs that share the server may have written anything. A value that is longer than
# allowed, or no string, is returned as an empty one. ARGV: how many bytes a value may
# have, and how many all values together.
_READ_SCRIPT = """
local values = {}
local room = tonumber(ARGV[2])
for number, key in ipairs(KEYS) do
    local length = redis.pcall('STRLEN', key)
    if type(length) == 'table' then  -- an error, with the message in err
        if not string.find(length.err, 'WRONGTYPE') then return length end
        length = math.huge
    end
    if length > tonumber(ARGV[1]) then
        values[number] = ''
    elseif length <= room then
        values[number] = redis.call('GET', key)
        room = room - length
    else
        values[number] = false
    end
end
return values
"""

# Takes or renews the leases under KEYS, and returns a 1 for each lease that the owner
# has now, a 0 for others. ARGV: the owner, and the milliseconds until a lease ends. A
# lease counts as free if it has no end (which a restored dump may have lost), if its
# end is impossibly late (ten times as late as a new lease's), or if its value is of
# another type.
_LEASE_SCRIPT = """
local leased = {}
for number, key in ipairs(KEYS) do
    local owner = redis.pcall('GET', key)
    local remaining = redis.call('PTTL', key)
    local is_sound = type(owner) == 'string' and remaining >= 0 and remaining <= 10 * ARGV[2]
    if is_sound and owner ~= ARGV[1] then
        leased[number] = 0
    else
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
        leased[number] = 1
    end
end
return leased
"""
# Ends the leases under KEYS that the owner has. ARGV: the owner.
_RELEASE_SCRIPT = """
for _, key in ipairs(KEYS) do
    if redis.pcall('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
"""

# Reserves a turn for each of KEYS, which stand for an origin each, and returns how long
# each turn has to wait. It computes that as Turn.moment() in base.py does, but in
# milliseconds of the server's clock. ARGV: MAX_TURNS, then the delay and the own wait
# of each turn. A key's value is the time from which on the next request may be sent; at
# that time, the key expires.
_TURN_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waits = {}
for number, key in ipairs(KEYS) do
    local delay = tonumber(ARGV[2 * number])
    local wait = tonumber(ARGV[2 * number + 1])
    local value = redis.pcall('GET', key)
    local next_moment = type(value) == 'string' and tonumber(value) or 0
    local moment = now + wait
    local latest = moment + ARGV[1] * delay
    if next_moment > moment and next_moment <= latest then moment = next_moment end
    waits[number] = moment - now
    next_moment = string.format('%.0f', moment + delay)
    local lifetime = string.format('%.0f', moment + delay - now)
    redis.call('SET', key, next_moment, 'PX', lifetime)
end
return waits
"""


class RedisStorage(BatchStorage):
    """Entries under keys ``PREFIX:entry:ORIGIN`` (the header) and
    ``PREFIX:body:SHA256``.

    Bodies have keys of their own, since many origins share one, and an old one is kept
    until it expires so that decisions based on it can be checked.
    """

    # What the public methods do is said in Storage (base.py).

    client_class: Any = None
    """By default ``redis.Redis``. For a cluster, a subclass sets
    ``redis.RedisCluster``."""

    def __init__(
        self,
        url: str,
        prefix: str,
        expiry: float,
    ) -> None:
        """:param expiry: seconds from an entry's last change until it is deleted
        :raises ValueError: if the Redis client doesn't understand *url*
        """
        import redis

        self._prefix = prefix
        self._expiry = max(1, int(expiry))  # the server takes whole seconds, not 0
        self._url = url
        redis.ConnectionPool.from_url(url)  # checks the URL, without a connection

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RedisStorage:
        """Use the server at ``REP_CACHE_REDIS_URL``, else at scrapy-redis's
        ``REDIS_URL``.

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
            # The reason isn't quoted, since it may contain the password.
            raise SettingsError(
                "REP_CACHE_REDIS_URL is not the URL of a Redis server, such as "
                "redis://localhost:6379/0."
            ) from None

    @cached_property
    def _client(self) -> Any:
        """The Redis client. The first call makes it, in a thread, since a cluster's
        client connects at once."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client_class = self.client_class or redis.Redis
        # After these errors, the client tries again once, on a new connection: an idle
        # connection may have been closed, or its server may have become a replica in a
        # failover.
        retried = (redis.ConnectionError, redis.ReadOnlyError)
        return client_class.from_url(
            self._url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 1, retried),
        )

    def _key(self, namespace: str, name: str) -> str:
        """Return a key, whose *namespace* is ``entry``, ``body``, ``lease``, ``turn``
        or ``value``."""
        return f"{self._prefix}:{namespace}:{name}"

    def _keys(self, namespace: str, names: Iterable[str]) -> list[str]:
        return [self._key(namespace, name) for name in names]

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        stored = self._entries(self._keys("entry", origins))
        entries = {}
        for origin, entry in zip(origins, stored, strict=True):
            if entry is None:
                continue
            if isinstance(entry, Entry) and entry.sha256 and not entry.packed:
                # The server has evicted the body, so the entry counts as absent.
                continue
            entries[origin] = entry
        return entries

    def _entries(
        self,
        keys: Sequence[str | bytes],
    ) -> list[Entry | UnreadableEntry | None]:
        """Return the entry that is stored under each of *keys*; None if there is none.
        A body that the server has evicted is missing in its entry."""
        entries: list[Entry | UnreadableEntry | None] = []
        hashes: dict[str, None] = {}  # each once
        # First the headers, which say which bodies they need.
        for header in self._values(keys, MAX_ENTRY_HEADER):
            entry = None if header is None else entry_or_error(header)
            entries.append(entry)
            if isinstance(entry, Entry) and entry.sha256:
                hashes[entry.sha256] = None
        # Then the bodies, each once, which are put into their entries.
        values = self._values(self._keys("body", hashes), MAX_PACKED)
        bodies = dict(zip(hashes, values, strict=True))
        for number, entry in enumerate(entries):
            if isinstance(entry, Entry) and entry.sha256:
                packed = bodies[entry.sha256] or b""
                entries[number] = replace(entry, packed=packed)
        return entries

    def _values(self, keys: Sequence[str | bytes], limit: int) -> list[bytes | None]:
        """Return the values of *keys*, each within *limit* bytes, and all within
        :data:`MAX_BATCH`; None for keys that don't exist, or for which there is no
        room."""
        if not keys:
            return []
        read = self._client.register_script(_READ_SCRIPT)
        values: list[bytes | None] = read(keys, [limit, MAX_BATCH])
        return values

    def save_many(self, entries: Sequence[Entry]) -> None:
        pipeline = self._client.pipeline(transaction=True)
        for entry in entries:
            if entry.sha256 is not None:
                key = self._key("body", entry.sha256)
                pipeline.set(key, entry.packed, ex=self._expiry)
            key = self._key("entry", entry.origin)
            pipeline.set(key, entry.header(), ex=self._expiry)
        pipeline.execute()

    def drop(self, origin: str) -> bool:
        # A server that is out of memory refuses transactions, even those that would
        # free memory.
        pipeline = self._client.pipeline(transaction=False)
        pipeline.delete(self._key("entry", origin))
        pipeline.delete(self._key("lease", origin))
        deleted, _ = pipeline.execute()
        return bool(deleted)

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        # The prefix may have characters that are special in the server's patterns.
        literal = re.sub(r"([*?\[\]^\\])", r"\\\1", self._prefix)
        keys = self._client.scan_iter(f"{literal}:entry:*", _KEYS_AT_A_TIME)
        while batch := list(islice(keys, _KEYS_AT_A_TIME)):
            for entry in self._entries(batch):
                if entry is not None:  # otherwise, it has expired since the scan
                    yield entry

    def body(self, sha256: str) -> bytes | None:
        key = self._key("body", sha256)
        [packed] = self._values([key], MAX_PACKED)
        return unsqueeze(packed) if packed else None

    def lease_many(
        self,
        origins: Sequence[str],
        owner: str,
        seconds: float,
    ) -> set[str]:
        milliseconds = max(1, int(seconds * 1000))
        lease = self._client.register_script(_LEASE_SCRIPT)
        marks = lease(self._keys("lease", origins), [owner, milliseconds])
        leased = set()
        for origin, is_leased in zip(origins, marks, strict=True):
            if is_leased:
                leased.add(origin)
        return leased

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        release = self._client.register_script(_RELEASE_SCRIPT)
        release(self._keys("lease", origins), [owner])

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        keys = []
        arguments = [MAX_TURNS]
        for turn in turns:
            keys.append(self._key("turn", turn.origin))
            # These are rounded up, so that no moment comes too early.
            delay = math.ceil(turn.seconds * 1000)
            wait = math.ceil(turn.wait * 1000)
            arguments += [max(1, delay), wait]  # no key can expire after 0 ms
        reserve = self._client.register_script(_TURN_SCRIPT)
        return [int(milliseconds) / 1000 for milliseconds in reserve(keys, arguments)]

    def load_value(self, name: str) -> str | None:
        key = self._key("value", name)
        [value] = self._values([key], MAX_VALUE)
        return None if value is None else value.decode("utf-8", "replace")

    def save_value(self, name: str, value: str) -> None:
        self._client.set(self._key("value", name), value)

    def close(self) -> None:
        # cached_property keeps the client in vars(). If there is no client yet,
        # self._client would make one.
        client = vars(self).pop("_client", None)
        if client is not None:
            client.close()
