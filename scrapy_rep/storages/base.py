"""What is stored of an origin's robots.txt (:class:`Entry`; REP.md sections 4 and 5);
the interface of storages (:class:`Storage`), and the simplest of them, in memory.

An entry is stored as a header (JSON) and a packed body (raw deflate, see
:func:`squeeze`); :meth:`Entry.pack` joins both.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from scrapy.crawler import Crawler

from scrapy_rep.protocol.availability import STATUSES, Outcome
from scrapy_rep.protocol.syntax import MAX_BYTES
from scrapy_rep.settings import RepSettings

SCHEMA = 1
"""The form of stored entries. Raise it if an older version of this package could
misread what a newer one writes. An older version ignores fields that it doesn't know,
so a new field needs no new schema."""

# A text that compression takes for what came before the data, so that it finds
# repetitions from the first byte on. (Most entries are short, and consist of such
# pieces.) It needn't be valid JSON: only its pieces count, so some break off. Stored
# entries can't be unpacked without this text, so it must never change.
_PRESET = (
    b'{"schema":1,"outcome":"unreachable","status":404,"hops":1,"url":"https://www.",'
    b'"unreachable_since":1800000000.0,"attempts":1,"dead_attempts":1,"next_attempt_at":18'
    b'"error":"HTTP status 503","outcome":"missing","outcome":"rules","status":200,"sha256":"'
    b'"fetched_at":1800000000.0,"fresh_until":1800086400.0,"updated_at":1800000000.0}'
    b"Crawl-delay: 10\nAllow: /wp-admin/admin-ajax.php\nDisallow: /wp-content/\nDisallow: /search\n"
    b"User-agent: Googlebot\nUser-agent: bingbot\nSitemap: https://www..com/sitemap.xml\n"
    b"User-agent: *\nDisallow: /wp-admin/\nAllow: /\nDisallow: /"
)

# At most this many bytes of a body are unpacked. Bodies that we store are cut to
# MAX_BYTES; a damaged one may be anything.
_MAX_UNPACKED = 2 * MAX_BYTES

MAX_ENTRY_HEADER = 262_144
"""At most this many bytes of a header are read, since another program that shares the
cache may have written anything."""

MAX_PACKED = MAX_BYTES + 8_192
"""At most this many bytes of a packed body are read. They are more than MAX_BYTES,
since data that can't be compressed gets a little longer than it was."""

BATCH = 500
"""At most this many origins are in one call of a ``…_many`` method."""

MAX_BATCH = 32 * 1024 * 1024
"""At most this many bytes of bodies are read for one batch. Entries with further bodies
count as missing, and their robots.txt files are fetched again."""

MAX_TURNS = 1000
"""At most this many turns (:class:`Turn`) of an origin may have been reserved before a
new one. They are more than a fleet has processes."""

MAX_TIME = 253_402_300_799.0
"""The last second of the year 9999, the last that ``datetime`` knows."""

MAX_ENTRY_TEXT = 65_536
"""A text in an entry has at most this many characters: more than the longest URL in a
header line that HTTP clients accept."""

MAX_VALUE = 1000
"""A value that belongs to no origin (:meth:`Storage.load_value`) has at most this many
characters."""

# A counter's highest value: more attempts than fit into a century, and far from any
# overflow.
_MAX_COUNT = 10**9
# The sign of a bot wall has at most this many characters. (A newer version may know
# signs that are longer than ours.)
_MAX_WALL = 100
# So many characters of a bad value are quoted in a message.
_VALUE_LENGTH = 80
# Data of fewer bytes is compressed with little memory, since clearing more memory would
# take longer than compressing.
_SMALL = 2048
# Bytes that an entry in memory takes besides its packed form: its key and its place in
# a dictionary.
_OVERHEAD_BYTES = 250


class UnreadableEntry(ValueError):
    """A stored entry is broken, or of a newer schema. It counts as absent."""


def squeeze(data: bytes) -> bytes:
    """Return *data*, compressed. For a body, this is :attr:`Entry.packed`."""
    # Small data (see _SMALL) gets a small window and little memory. A negative number
    # for the window means raw deflate, without header and checksum.
    is_small = len(data) < _SMALL
    window_bits = -12 if is_small else -15
    memory_level = 5 if is_small else 8
    squeezer = zlib.compressobj(
        level=6,
        method=zlib.DEFLATED,
        wbits=window_bits,
        memLevel=memory_level,
        zdict=_PRESET,
    )
    return squeezer.compress(data) + squeezer.flush()


def unsqueeze(data: bytes) -> bytes:
    """Return what :func:`squeeze` was given.

    :raises UnreadableEntry: if *data* isn't what :func:`squeeze` returns
    """
    # With the largest window, also data that was compressed with a small one can be
    # unpacked.
    unsqueezer = zlib.decompressobj(-15, zdict=_PRESET)
    try:
        plain = unsqueezer.decompress(data, _MAX_UNPACKED)
    except (zlib.error, TypeError) as error:
        raise UnreadableEntry(f"broken: {error}") from None
    if not unsqueezer.eof:  # there is more, or less, than there should be
        raise UnreadableEntry("broken: it is cut off, or too large")
    return plain


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything known of one origin's robots.txt. One entry serves all agents.

    Times are seconds since the epoch. The fields from ``outcome`` to ``fresh_until``
    describe the last answer that counted (rules, or a missing file); those from
    ``unreachable_since`` to ``error``, the failures in a row since then, if any.
    """

    origin: str
    """Canonical, as ``str()`` of an :class:`~scrapy_rep.protocol.Origin`."""
    updated_at: float = 0.0
    """When robots.txt was last requested, successfully or not."""

    outcome: Outcome = Outcome.UNREACHABLE
    """What the last answer that counted was; ``UNREACHABLE`` if there never was one."""
    status: int | None = None
    """The answer's HTTP status; None if it had none."""
    url: str = ""
    """Where the answer came from, after redirects."""
    hops: int = 0
    """How many redirects led there."""
    packed: bytes = b""
    """The body as received, truncated and compressed."""
    sha256: str | None = None
    """The hash of the body, in hexadecimal; None if there are no rules."""
    wall: str = ""
    """The sign by which a bot wall said that the answer was its own; empty without one.
    See :data:`~scrapy_rep.protocol.availability.WALL_SIGNS`."""
    fetched_at: float | None = None
    """When the answer came; None if there never was one."""
    fresh_until: float = 0.0
    """When robots.txt has to be fetched again."""

    unreachable_since: float | None = None
    """When the first failure in the row happened; None if the last attempt
    succeeded."""
    unreachable_for: float = 0.0
    """How many seconds of the row count as unreachable: see
    :func:`~scrapy_rep.protocol.freshness.unreachable_seconds`."""
    attempts: int = 0
    """Failures in the row."""
    dead_attempts: int = 0
    """How many failures to resolve the host, to connect, or of TLS there were in the
    row. A failure of another kind, unless it is a proxy's, begins the count anew."""
    proxy_attempts: int = 0
    """How many failures in the row were a proxy's."""
    next_attempt_at: float = 0.0
    """When robots.txt may be requested again after the last failure."""
    not_before: float = 0.0
    """When the origin allows the next attempt (``Retry-After``)."""
    error: str | None = None
    """The last failure, in words."""
    page_answered_at: float = 0.0
    """When a page of the origin last answered, for ``REP_UNREACHABLE_RULES``."""

    @property
    def body(self) -> bytes:
        """The body of the last answer that counted.

        :raises UnreadableEntry: if it is damaged
        """
        return unsqueeze(self.packed) if self.packed else b""

    def __call__(self) -> bytes:
        """Return :attr:`body`. So an entry can be passed where a function is wanted
        that returns a body (``RobotsTxt`` in protocol/robotstxt.py). A function made
        for each entry would take more memory."""
        return self.body

    @property
    def has_copy(self) -> bool:
        """Whether there are rules to use while the origin is unreachable.

        A missing file is not a copy: an origin that had no robots.txt yesterday and
        answers 503 today is in trouble, so it is polite to wait.
        """
        return self.outcome is Outcome.RULES

    @property
    def note(self) -> str:
        """What is strange about the last answer that counted, in words; empty if
        nothing is."""
        return f"a bot wall answered ({self.wall})" if self.wall else ""

    def check(self, origin: str) -> Entry:
        """Return the entry itself, if it is sound.

        :raises UnreadableEntry: if it is damaged, or not that of *origin*
        """
        self._check_values()
        if self.origin != origin:
            raise UnreadableEntry(
                f"broken: it belongs to {self.origin[:_VALUE_LENGTH]}"
            )
        if self.has_copy or self.packed:
            sha256 = hashlib.sha256(self.body).hexdigest()
            if sha256 != self.sha256:
                raise UnreadableEntry("broken: its body does not match its hash")
        return self

    def _check_values(self) -> None:
        """Raise :class:`UnreadableEntry` if a field has a value that it can't have."""
        for name, limits in _LIMITS.items():
            limits.check(name, getattr(self, name))
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise UnreadableEntry("broken: sha256 is not a hash")

    def header(self) -> str:
        """Return all but the body as JSON, without default values."""
        values: dict[str, Any] = {"schema": SCHEMA}
        for item in fields(self):  # those of the dataclass
            value = getattr(self, item.name)
            if item.name == "packed" or value == item.default:
                continue
            if isinstance(value, Outcome):
                value = value.value
            values[item.name] = value
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_parts(cls, header: str | bytes, packed: bytes | None = None) -> Entry:
        """Read an entry from its :meth:`header` and its :attr:`packed` body.

        :raises UnreadableEntry: if that fails
        """
        try:
            packed = packed or b""
            if len(header) > MAX_ENTRY_HEADER or len(packed) > MAX_PACKED:
                raise UnreadableEntry("broken: it is too large")
            values = json.loads(header)
            schema = values["schema"]
            if schema > SCHEMA:
                raise _newer(schema)
            # A newer version may have written fields that this one doesn't have.
            ours = {name: values[name] for name in _LIMITS if name in values}
            # Like all defaults, "unreachable" isn't written.
            ours["outcome"] = Outcome(ours.get("outcome", "unreachable"))
            entry = cls(**ours, packed=packed)
            entry._check_values()
            return entry
        except UnreadableEntry:
            raise
        except (
            ValueError,
            TypeError,
            KeyError,
            OverflowError,
            RecursionError,
        ) as error:
            problem = str(error)[:_VALUE_LENGTH]
            raise UnreadableEntry(f"broken: {problem}") from None

    def pack(self) -> bytes:
        """Return the whole entry as bytes: the schema (1 byte), the length of the
        packed header (4 bytes), this header, and the packed body."""
        header = squeeze(self.header().encode())
        length = len(header).to_bytes(4, "big")
        return bytes([SCHEMA]) + length + header + self.packed

    @classmethod
    def unpack(cls, data: bytes) -> Entry:
        """Read what :meth:`pack` returned.

        :raises UnreadableEntry: if that fails
        """
        if not data:
            raise UnreadableEntry("broken: it is empty")
        schema = data[0]
        if schema > SCHEMA:
            raise _newer(schema)
        length = int.from_bytes(data[1:5], "big")
        end_of_header = 5 + length  # the schema and the length take 5 bytes
        header = unsqueeze(data[5:end_of_header])
        return cls.from_parts(header, data[end_of_header:])


def entry_or_error(header: Any, packed: Any = None) -> Entry | UnreadableEntry:
    """Return what :meth:`Entry.from_parts` returns, or the error that it raises."""
    try:
        return Entry.from_parts(header, packed)
    except UnreadableEntry as error:
        return error


def _newer(schema: object) -> UnreadableEntry:
    """Return the error about an entry that a newer version of this package has
    written."""
    return UnreadableEntry(
        f"of the form {schema!r:.{_VALUE_LENGTH}}; this version knows {SCHEMA}"
    )


class _Limits(NamedTuple):
    """What values a field of an entry may have."""

    type: Any
    """The class of the values, or a tuple of several."""
    range: tuple[float, float] | None = None
    """The least and the greatest value, or the least and the greatest length of a text;
    None: any value."""
    optional: bool = False
    """Whether it may be None."""

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`UnreadableEntry` if the field *name* can't have this
        *value*."""
        if value is None and self.optional:
            return
        if not isinstance(value, self.type) or isinstance(value, bool):
            raise UnreadableEntry(f"broken: {name} is {value!r:.{_VALUE_LENGTH}}")
        if self.range is None:
            return
        least, greatest = self.range
        is_text = isinstance(value, str)
        size = len(value) if is_text else value
        # NaN is not in any range.
        if not least <= size <= greatest:
            problem = "too long" if is_text else "out of range"
            raise UnreadableEntry(f"broken: {name} is {problem}")


# Limits of most fields, by the text of their annotations in Entry.
_LIMITS_BY_ANNOTATION = {
    "Outcome": _Limits(Outcome),
    "str": _Limits(str, (0, MAX_ENTRY_TEXT)),
    "int": _Limits(int, (0, _MAX_COUNT)),
    "float": _Limits((int, float), (0, MAX_TIME)),
}


def _limits_of_fields() -> dict[str, _Limits]:
    """Return the limits of each field in an entry's header, by its name."""
    limits = {}
    for item in fields(Entry):
        if item.name == "packed":
            continue
        annotation = str(item.type).removesuffix(" | None")
        usual = _LIMITS_BY_ANNOTATION[annotation]
        # All fields that may be None have None as their default.
        is_optional = item.default is None
        limits[item.name] = usual._replace(optional=is_optional)
    # Two fields have narrower limits than their annotations say.
    limits["status"] = _Limits(int, STATUSES, optional=True)
    limits["wall"] = _Limits(str, (0, _MAX_WALL))
    return limits


# What Entry._check_values() goes by.
_LIMITS = _limits_of_fields()
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Turn(NamedTuple):
    """A request that may only be sent when its origin's crawl delay is over."""

    origin: str
    seconds: float
    """The delay: seconds between two requests, more than 0."""
    wait: float
    """Seconds from now for which the process would wait if it were alone."""

    def moment(self, now: float, next_moment: object) -> float:
        """Return when to send the request, in the unit of *now*, the current time.

        *next_moment*: the stored time from which on the origin's next request may be
        sent. A time that is too far away, or isn't a number, doesn't count, since other
        programs may have written it, or a clock was set back.
        """
        earliest = now + self.wait
        if isinstance(next_moment, int | float):
            # The next moment is this late if as many turns as possible come before this
            # turn.
            latest = earliest + MAX_TURNS * self.seconds
            if earliest < next_moment <= latest:
                return next_moment
        return earliest


class Storage:
    """Keeps entries after the process ends, and shares them with other processes.

    Scrapy creates one with ``from_crawler(crawler)`` if the class has it, else without
    arguments. A crawl calls the methods in threads, one at a time, so they may block
    and need no locks. If a method raises an exception, that is logged as a warning, and
    the crawl does without the storage for a while.

    :meth:`load` and :meth:`save` are required; the other defaults suit a storage used
    by one process at a time. A crawl calls the ``…_many`` methods, with up to 500
    origins. Override them where one call can replace many.
    """

    def load(self, origin: str) -> Entry | None:
        """Return the entry stored for *origin*, or None.

        :raises UnreadableEntry: if the entry can't be read, and so counts as absent
        """
        raise NotImplementedError

    def save(self, entry: Entry) -> None:
        """Store *entry*, replacing that of its origin."""
        raise NotImplementedError

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        """Return the entries stored for *origins*, by origin: for an unreadable one,
        its :class:`UnreadableEntry`."""
        entries: dict[str, Entry | UnreadableEntry] = {}
        for origin in origins:
            try:
                entry = self.load(origin)
            except UnreadableEntry as error:
                entries[origin] = error
                continue
            if entry is not None:
                entries[origin] = entry
        return entries

    def save_many(self, entries: Sequence[Entry]) -> None:
        """Store each of *entries*, see :meth:`save`."""
        for entry in entries:
            self.save(entry)

    def drop(self, origin: str) -> bool:
        """Delete the entry of *origin*. Return whether there was one."""
        raise NotImplementedError

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        """Iterate over all entries, in any order."""
        raise NotImplementedError

    def body(self, sha256: str) -> bytes | None:
        """Return the robots.txt body with this hash, even one that no entry has any
        more; None if it isn't stored."""
        for entry in self.entries():
            if isinstance(entry, Entry) and entry.sha256 == sha256:
                return entry.body
        return None

    def lease(
        self,
        origin: str,
        owner: str,
        seconds: float,
    ) -> bool:
        """Give *owner* the exclusive right to fetch the robots.txt of *origin* for some
        *seconds*, or renew this right (the lease). Return whether *owner* has the lease
        now; False: another owner has it."""
        return True

    def release(self, origin: str, owner: str) -> None:
        """End the lease of *origin*, if *owner* has it."""

    def lease_many(
        self,
        origins: Sequence[str],
        owner: str,
        seconds: float,
    ) -> set[str]:
        """Return which of *origins* are leased to *owner* now, see :meth:`lease`."""
        leased = set()
        for origin in origins:
            # None counts as True: a user's method without a return statement probably
            # means that the lease was given.
            if self.lease(origin, owner, seconds) is not False:
                leased.add(origin)
        return leased

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        """End the leases of *origins*, see :meth:`release`."""
        for origin in origins:
            self.release(origin, owner)

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        """Reserve a moment for each of *turns*: not before its ``wait`` is over, and at
        least its ``seconds`` after the last moment that any process reserved for its
        origin. Return the seconds from now until each. Time is the storage's, since the
        clocks of processes may differ.

        Without this method, each process keeps crawl delays by itself.
        """
        return [turn.wait for turn in turns]

    def load_value(self, name: str) -> str | None:
        """Return the text that :meth:`save_value` has stored as *name*, or None."""
        return None

    def save_value(self, name: str, value: str) -> None:
        """Store *value*, a short text, as *name*, in place of the one before, until it
        is replaced.

        Without this method, ``REP_SITEMAP_SINCE = "last"`` takes all pages.
        """

    def close(self) -> None:
        """Close what is open, since the crawl has ended."""


class BatchStorage(Storage):
    """A storage that implements the ``…_many`` methods, which are all that a crawl
    calls."""

    def load(self, origin: str) -> Entry | None:
        entry = self.load_many([origin]).get(origin)
        if isinstance(entry, UnreadableEntry):
            raise entry
        return entry

    def save(self, entry: Entry) -> None:
        self.save_many([entry])

    def lease(
        self,
        origin: str,
        owner: str,
        seconds: float,
    ) -> bool:
        return bool(self.lease_many([origin], owner, seconds))

    def release(self, origin: str, owner: str) -> None:
        self.release_many([origin], owner)


class MemoryStorage(Storage):
    """Entries in memory, packed: mostly a kilobyte each.

    Beyond a number of entries or bytes, the least recently used entries are evicted.
    Over the limit of bytes, entries larger than their share
    (``max_bytes / max_origins``) go first, so that a hundred large files can't evict
    ten thousand ordinary ones. The latest entry stays, whatever its size.
    """

    def __init__(self, max_origins: int, max_bytes: int) -> None:
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._bytes = 0
        """How many bytes all entries take."""
        self._packed: dict[str, bytes] = {}
        """Entries by origin, the least recently used first. They are bytes, not
        objects, which takes half the memory, and the same code as on disk."""
        self._large: dict[str, None] = {}
        """Origins whose entries are larger than their share, in the same order."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> MemoryStorage:
        """Use the limits of the settings."""
        settings = RepSettings.from_settings(crawler.settings)
        return cls(settings.cache_max_origins, settings.cache_max_bytes)

    def load(self, origin: str) -> Entry | None:
        packed = self._packed.pop(origin, None)
        if packed is None:
            return None
        # The entry is put back at the end, since now it is the most recently used one.
        self._packed[origin] = packed
        if origin in self._large:
            self._large[origin] = self._large.pop(origin)
        return Entry.unpack(packed)

    def save(self, entry: Entry) -> None:
        self.drop(entry.origin)
        packed = entry.pack()
        self._packed[entry.origin] = packed
        size = _OVERHEAD_BYTES + len(packed)
        self._bytes += size
        # That is: if it is larger than its share, max_bytes / max_origins.
        if size * self._max_origins > self._max_bytes:
            self._large[entry.origin] = None
        self.shrink(self._max_origins, self._max_bytes)

    def shrink(self, max_origins: int, max_bytes: int) -> None:
        """Evict the least recently used entries until at most *max_origins* are left,
        and these take at most *max_bytes* or there is only one."""
        while len(self._packed) > max_origins:
            self.drop(next(iter(self._packed)))
        while self._bytes > max_bytes and len(self._packed) > 1:
            # Large entries go first, unless there is only one: it may be the latest
            # entry, which stays.
            has_large = len(self._large) > 1
            evictable = self._large if has_large else self._packed
            oldest = next(iter(evictable))
            self.drop(oldest)

    def drop(self, origin: str) -> bool:
        packed = self._packed.pop(origin, None)
        if packed is None:
            return False
        self._bytes -= _OVERHEAD_BYTES + len(packed)
        self._large.pop(origin, None)
        return True

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for packed in list(self._packed.values()):
            yield Entry.unpack(packed)
