"""All statements about the use of a page, and what they say together (REP.md section 11).

- ``Content-Usage``: draft-ietf-aipref-vocab-08, September 2026 (07, of August, has no ``ai-use``); in
  robots.txt and as a header: draft-ietf-aipref-attach-05, August 2026; its syntax, a dictionary of
  structured fields: RFC 9651.
- The TDM Reservation Protocol: W3C Community Group Final Report, 10 May 2024. Metas take precedence over
  headers, headers over ``/.well-known/tdmrep.json``. A reservation is 1 or 0. 0 permits nothing; it only
  says that nothing is reserved in this protocol.

Statements are combined as draft-ietf-aipref-vocab-08, "Combining Preferences", asks: ``n`` takes
precedence over ``y``; without either, nothing is known.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from scrapy_rep.protocol.html import metas_of
from scrapy_rep.protocol.matching import ALLOW, SHORTEST, Rules
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.protocol.syntax import SPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

TRAINING, IMAGES, INPUT, SEARCH, MINING = PURPOSES = (
    "train-ai",
    "train-ai-images",
    "ai-input",
    "search",
    "tdm",
)
"""Training of generative AI on the page, and on its images; input to an AI that answers; search;
text and data mining."""

YES, NO = "y", "n"

MAX_TEXT = 1_000
"""Characters of a statement that are kept for the record."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of robots.txt, one header or one meta that is about use."""

    source: str
    """``robots.txt``, ``robots.txt for CCBot``, ``header Content-Usage``, ``meta robots``, …"""
    line: int | None
    """Of robots.txt or of the HTML, counted from 1."""
    text: str
    """As written: a line of robots.txt, the value of a header or meta."""
    says: dict[str, str] = field(default_factory=dict)
    """``"y"`` or ``"n"`` by purpose. Empty if it says nothing that is understood."""

    @property
    def where(self) -> str:
        """The source, with the line."""
        return self.source if self.line is None else f"{self.source}, line {self.line}"

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True)
class Usage:
    """How a page may be used: ``usage["train-ai"]`` is ``"y"``, ``"n"`` or None."""

    statements: tuple[Statement, ...] = ()
    """All that apply to the page, those of robots.txt first."""
    licenses: tuple[str, ...] = ()
    """URLs of RSL licenses. Never fetched."""
    tdm_policy: str | None = None
    """URL of the policy under which text and data mining is licensed. Never fetched."""
    robots_sha256: str | None = None
    """Of the robots.txt that was read. None if there is none, or if it isn't known."""
    robots_fetched_at: datetime | None = None
    tdmrep_sha256: str | None = None
    """Of ``/.well-known/tdmrep.json``."""
    time: datetime | None = None
    """When all this was looked up."""

    def __getitem__(self, purpose: str) -> str | None:
        """:raises KeyError: if there is no such purpose"""
        if purpose not in PURPOSES:
            raise KeyError(purpose)
        statement = self.decisive(purpose)
        return None if statement is None else statement.says[purpose]

    @property
    def verdicts(self) -> dict[str, str | None]:
        """``"y"``, ``"n"`` or None for each purpose."""
        return {purpose: self[purpose] for purpose in PURPOSES}

    def decisive(self, purpose: str) -> Statement | None:
        """Return the first statement that says no to *purpose*; if none does, the first that says yes."""
        said = {one.says[purpose]: one for one in reversed(self.statements) if purpose in one.says}
        return said.get(NO) or said.get(YES)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {
            **self.verdicts,
            "statements": [asdict(one) for one in self.statements],
            "licenses": list(self.licenses),
            "tdm_policy": self.tdm_policy,
            "robots_sha256": self.robots_sha256,
            "robots_fetched_at": _iso(self.robots_fetched_at),
            "tdmrep_sha256": self.tdmrep_sha256,
            "time": _iso(self.time),
        }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")


LABELS = {"train-ai": TRAINING, "ai-use": INPUT, "search": SEARCH}
"""The categories of the vocabulary, and our purposes."""

MAX_BYTES = 4_096
"""Longer preferences say nothing."""

EXTRA = "pip install 'scrapy-rep[usage]'"
"""What installs the parser of structured fields."""


class Malformed(ValueError):
    """The preferences are not a dictionary of structured fields."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        """Of the first byte that can't be parsed, counted from 0."""


Members = dict[str, tuple[object, dict[str, object]]]
"""Of a dictionary of structured fields: values and parameters by key."""


def read_preferences(value: bytes) -> Members:
    """Parse a dictionary. The last of duplicate keys counts.

    :raises Malformed: if it isn't one; it says nothing then
    :raises ModuleNotFoundError: if the extra ``usage`` is not installed
    """
    try:
        from http_sf import parse
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"Content-Usage is read with http-sf: {EXTRA}") from None
    if len(value) > MAX_BYTES:
        raise Malformed(f"longer than {MAX_BYTES:,} bytes")
    try:
        return cast("Members", parse(value, tltype="dictionary"))
    except ValueError as error:
        raise Malformed(str(error), getattr(error, "position", None)) from None


def meaning(members: Members) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose: only these tokens count, and parameters mean nothing."""
    from http_sf import Token

    found = {purpose: members.get(label, ("",))[0] for label, purpose in LABELS.items()}
    return {
        purpose: str(bare)
        for purpose, bare in found.items()
        if isinstance(bare, Token) and str(bare) in (YES, NO)
    }


def preferences(value: bytes) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose, nothing for what can't be read."""
    try:
        return meaning(read_preferences(value))
    except Malformed:
        return {}


def split_rule(value: str) -> tuple[str, str]:
    """Return path and preferences of a ``Content-Usage`` line; an empty path if it has none."""
    if value[:1] != "/":
        return "", value
    path, blank, rest = value.replace("\t", " ").partition(" ")
    return path, value[len(path) + len(blank) :].strip(SPACE) if rest else ""


def header_statements(values: Sequence[bytes]) -> list[Statement]:
    """Return what ``Content-Usage`` header lines say. Together they are one dictionary."""
    if not values:
        return []
    value = b", ".join(values)
    text = value[:MAX_TEXT].decode("latin-1")
    return [Statement("header Content-Usage", None, text, preferences(value))]


PATH = "/.well-known/tdmrep.json"
"""Of an origin's file."""

RESERVATION, POLICY = "tdm-reservation", "tdm-policy"

# More can only be an attack.
_MAX_LOCATIONS = 1_000
_MAX_METAS = 100

# Bytes of memory for a location, beside its rules and texts.
_LOCATION = 500


class Reservation(NamedTuple):
    statement: Statement
    policy: str | None


def _reservation(
    source: str, line: int | None, text: str, value: object, policy: object
) -> Reservation | None:
    value = str(value).strip()
    if value not in ("0", "1"):
        return None
    statement = Statement(source, line, text[:MAX_TEXT], {MINING: NO} if value == "1" else {})
    url = policy.strip()[:MAX_URL] if isinstance(policy, str) and value == "1" else None
    return Reservation(statement, url or None)


def _strictest(found: Iterable[Reservation | None]) -> Reservation | None:
    valid = [one for one in found if one is not None]
    return next((one for one in valid if one.statement.says), valid[0] if valid else None)


def from_headers(values: Sequence[bytes], policies: Sequence[bytes]) -> Reservation | None:
    """Return what the headers ``tdm-reservation`` and ``tdm-policy`` say; None for nothing."""
    policy = policies[-1][:MAX_URL].decode("latin-1") if policies else None
    texts = [value[:MAX_TEXT].decode("latin-1") for value in values[:_MAX_METAS]]
    return _strictest(
        _reservation(f"header {RESERVATION}", None, text, text, policy) for text in texts
    )


def from_html(body: bytes, encoding: str) -> Reservation | None:
    values: list[tuple[str, int]] = []
    policy = None
    for name, content, line in metas_of(body, encoding, {RESERVATION, POLICY}):
        if name == POLICY:
            policy = content
        elif len(values) < _MAX_METAS:
            values.append((content, line))
    return _strictest(
        _reservation(f"meta {RESERVATION}", line, value, value, policy) for value, line in values
    )


class TdmFile:
    """The rules of a ``tdmrep.json``: any bytes at all; never raises."""

    def __init__(self, body: bytes) -> None:
        try:
            entries = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            entries = None
        self._rules = [
            self._rule(entry)
            for entry in (entries[:_MAX_LOCATIONS] if isinstance(entries, list) else ())
            if isinstance(entry, dict) and isinstance(entry.get("location"), str)
        ]

    def _rule(self, entry: dict[str, Any]) -> tuple[Rules, Reservation | None]:
        location = entry["location"].encode("utf-8", "replace").decode("latin-1")
        said = {name: entry.get(name) for name in ("location", RESERVATION, POLICY)}
        text = json.dumps({name: value for name, value in said.items() if value is not None})
        found = _reservation("tdmrep.json", None, text, said[RESERVATION], said[POLICY])
        return Rules([location], [ALLOW - 1]), found

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        found = [one for _, one in self._rules if one is not None]
        texts = sum(len(one.statement.text) + len(one.policy or "") for one in found)
        return texts + sum(_LOCATION + rules.size for rules, _ in self._rules)

    def about(self, path: str) -> Reservation | None:
        """Return what the first location that matches says.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        """
        return next((found for rules, found in self._rules if rules.find(path) >= SHORTEST), None)
