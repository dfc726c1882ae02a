"""What is known of an origin's robots.txt (REP.md sections 4 and 5), and how it is stored.

It is stored as a header (JSON) and a packed body (raw deflate, see :func:`squeeze`);
:meth:`Entry.pack` joins both. Raise :data:`SCHEMA` if an older version of this package could
misread what a newer one writes; it ignores unknown fields, so these need no new schema.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import dataclass, fields
from typing import Any

from scrapy_rep.protocol.availability import STATUSES, Outcome
from scrapy_rep.protocol.syntax import MAX_BYTES

SCHEMA = 1

# A preset dictionary, as most files are short. Part of the schema: it must never change.
_PRESET = (
    b'{"schema":1,"outcome":"unreachable","status":404,"hops":1,"url":"https://www.",'
    b'"unreachable_since":1800000000.0,"attempts":1,"dead_attempts":1,"next_attempt_at":18'
    b'"error":"HTTP status 503","outcome":"missing","outcome":"rules","status":200,"sha256":"'
    b'"fetched_at":1800000000.0,"fresh_until":1800086400.0,"updated_at":1800000000.0}'
    b"Crawl-delay: 10\nAllow: /wp-admin/admin-ajax.php\nDisallow: /wp-content/\nDisallow: /search\n"
    b"User-agent: Googlebot\nUser-agent: bingbot\nSitemap: https://www..com/sitemap.xml\n"
    b"User-agent: *\nDisallow: /wp-admin/\nAllow: /\nDisallow: /"
)

# Bodies are cut to less, but a damaged one may unpack to anything.
_MAX_BYTES = 2 * MAX_BYTES

# Bytes of what another program may have written to a shared cache: more is not even read.
MAX_HEADER = 262_144
MAX_PACKED = MAX_BYTES + 8_192
MAX_BATCH = 32 * 1024 * 1024
"""Bytes of the bodies of one batch. Those beyond count as missing, and are fetched again."""

MAX_TIME = 253_402_300_799.0
"""The last second of the year 9999, the last that ``datetime`` knows."""

MAX_TEXT = 65_536
"""Characters: longer than any URL from a header line that HTTP clients accept."""

# More attempts than fit into a century, and far from any overflow.
_MAX_COUNT = 10**9
# Characters of a bad value that are quoted in a message.
_SHOWN = 80


class UnreadableEntry(ValueError):
    """A stored entry is broken, or of a newer schema. It counts as absent."""


def squeeze(data: bytes) -> bytes:
    """Return *data*, compressed: what :attr:`Entry.packed` is of a body."""
    squeezer = zlib.compressobj(6, zlib.DEFLATED, -15, zdict=_PRESET)
    return squeezer.compress(data) + squeezer.flush()


def unsqueeze(data: bytes) -> bytes:
    """:raises UnreadableEntry: if *data* is not what :func:`squeeze` returned"""
    unsqueezer = zlib.decompressobj(-15, zdict=_PRESET)
    try:
        plain = unsqueezer.decompress(data, _MAX_BYTES)
    except (zlib.error, TypeError) as error:
        raise UnreadableEntry(f"broken: {error}") from None
    if not unsqueezer.eof:
        raise UnreadableEntry("broken: it is cut off, or too large")
    return plain


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything known of one origin's robots.txt. One entry serves all agents.

    Times are seconds since the epoch. The first half describes the last answer that counted (rules,
    or a missing file), the second the failures in a row since then, if any.
    """

    origin: str
    """Canonical, as ``str()`` of an :class:`~scrapy_rep.protocol.Origin`."""
    updated_at: float = 0.0
    """When robots.txt was last requested, successfully or not."""

    outcome: Outcome = Outcome.UNREACHABLE
    """Of the last answer that counted; ``UNREACHABLE`` if there never was one."""
    status: int | None = None
    url: str = ""
    """Where the answer came from, after redirects."""
    hops: int = 0
    packed: bytes = b""
    """The body as received, truncated and compressed."""
    sha256: str | None = None
    """Of the body, in hexadecimal; None if there are no rules."""
    fetched_at: float | None = None
    fresh_until: float = 0.0

    unreachable_since: float | None = None
    """When the first failure in the row happened; None if the last attempt succeeded."""
    unreachable_for: float = 0.0
    """How many seconds of the row count as unreachable: see
    :func:`~scrapy_rep.protocol.freshness.unreachable_seconds`."""
    attempts: int = 0
    """Failures in the row."""
    dead_attempts: int = 0
    """How many of the latest, in a row, were failures to resolve the host, to connect, or of TLS."""
    proxy_attempts: int = 0
    """How many of the failures were a proxy's."""
    next_attempt_at: float = 0.0
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
        """Return :attr:`body`: the entry is its own callback, without a closure's memory."""
        return self.body

    @property
    def has_copy(self) -> bool:
        """Whether there are rules to use while the origin is unreachable.

        A missing file is not a copy: an origin that had no robots.txt yesterday and answers 503 today is in
        trouble, so it is polite to wait.
        """
        return self.outcome is Outcome.RULES

    def check(self, origin: str) -> Entry:
        """Return the entry.

        :raises UnreadableEntry: if it is damaged, or not that of *origin*
        """
        self._check_values()
        if self.origin != origin:
            raise UnreadableEntry(f"broken: it belongs to {self.origin[:_SHOWN]}")
        has_body = self.has_copy or self.packed
        if has_body and hashlib.sha256(self.body).hexdigest() != self.sha256:
            raise UnreadableEntry("broken: its body does not match its hash")
        return self

    def _check_values(self) -> None:
        for name, (optional, kind, *limits) in _KINDS.items():
            value = getattr(self, name)
            if value is None and optional:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                raise UnreadableEntry(f"broken: {name} is {value!r:.{_SHOWN}}")
            size, wrong = (len(value), "too long") if kind is str else (value, "out of range")
            if limits and not limits[0] <= size <= limits[1]:  # nor is NaN
                raise UnreadableEntry(f"broken: {name} is {wrong}")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise UnreadableEntry("broken: sha256 is not a hash")

    def header(self) -> str:
        """Return all but the body as JSON, without default values."""
        values: dict[str, Any] = {"schema": SCHEMA}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "packed" and value != item.default:
                values[item.name] = value.value if isinstance(value, Outcome) else value
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_parts(cls, header: str | bytes, packed: bytes | None = None) -> Entry:
        """Read an entry from its :meth:`header` and its :attr:`packed` body.

        :raises UnreadableEntry: if that fails
        """
        try:
            if len(header) > MAX_HEADER or len(packed or b"") > MAX_PACKED:
                raise UnreadableEntry("broken: it is too large")
            values = json.loads(header)
            schema = values["schema"]
            if schema > SCHEMA:
                raise _newer(schema)
            known = {name: values[name] for name in _KINDS if name in values}
            known["outcome"] = Outcome(known.get("outcome", "unreachable"))
            entry = cls(**known, packed=packed or b"")
            entry._check_values()
            return entry
        except UnreadableEntry:
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UnreadableEntry(f"broken: {str(error)[:_SHOWN]}") from None

    def pack(self) -> bytes:
        """Return the whole entry as bytes."""
        header = squeeze(self.header().encode())
        return bytes([SCHEMA]) + len(header).to_bytes(4, "big") + header + self.packed

    @classmethod
    def unpack(cls, data: bytes) -> Entry:
        """Read what :meth:`pack` returned.

        :raises UnreadableEntry: if that fails
        """
        if not data:
            raise UnreadableEntry("broken: it is empty")
        if data[0] > SCHEMA:
            raise _newer(data[0])
        end = 5 + int.from_bytes(data[1:5], "big")
        return cls.from_parts(unsqueeze(data[5:end]), data[end:])


def entry_or_error(header: Any, packed: Any = None) -> Entry | UnreadableEntry:
    try:
        return Entry.from_parts(header, packed)
    except UnreadableEntry as error:
        return error


def _newer(schema: object) -> UnreadableEntry:
    return UnreadableEntry(f"of the form {schema!r:.{_SHOWN}}; this version knows {SCHEMA}")


# By annotation: the type, and the range of the value (of a text: of its length). In _KINDS, by field,
# with whether it may be None before them.
_RANGES: dict[str, tuple[Any, ...]] = {
    "Outcome": (Outcome,),
    "str": (str, 0, MAX_TEXT),
    "int": (int, 0, _MAX_COUNT),
    "float": ((int, float), 0, MAX_TIME),
}
_KINDS = {
    item.name: (item.default is None, *_RANGES[str(item.type).removesuffix(" | None")])
    for item in fields(Entry)
    if item.name != "packed"
} | {"status": (True, int, *STATUSES)}
_SHA256 = re.compile(r"[0-9a-f]{64}")
