"""``Content-Usage``: its preferences, in robots.txt and in headers (REP.md section 11).

- Preferences: draft-ietf-aipref-vocab-08, September 2026 (07, of August, has no ``ai-use``).
- In robots.txt and as a header: draft-ietf-aipref-attach-05, August 2026.
- Their syntax, a dictionary of structured fields: RFC 9651.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from scrapy_rep.preferences.statements import (
    INPUT,
    MAX_TEXT,
    NO,
    SEARCH,
    TRAINING,
    YES,
    Statement,
)
from scrapy_rep.protocol.syntax import SPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Members(NamedTuple):
    """What a dictionary of preferences contains."""

    says: dict[str, str]
    """``"y"`` or ``"n"`` by purpose."""
    unknown: tuple[str, ...]
    """Keys that are not in the vocabulary."""
    wrong: tuple[str, ...]
    """Keys of the vocabulary whose value is neither of the tokens ``y`` and ``n``."""
    parameters: tuple[str, ...]
    """Parameters named like a key: most likely, a comma was meant."""


def read_preferences(value: bytes) -> Members:
    """Parse a dictionary. The last of duplicate keys counts, parameters mean nothing.

    :raises Malformed: if it isn't one; it says nothing then
    :raises ModuleNotFoundError: if the extra ``usage`` is not installed
    """
    try:
        from http_sf import Token, parse
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"Content-Usage is read with http-sf: {EXTRA}") from None
    if len(value) > MAX_BYTES:
        raise Malformed(f"longer than {MAX_BYTES:,} bytes")
    try:
        members = cast(
            "dict[str, tuple[object, dict[str, object]]]", parse(value, tltype="dictionary")
        )
    except ValueError as error:
        raise Malformed(str(error), getattr(error, "position", None)) from None
    says: dict[str, str] = {}
    for label, purpose in LABELS.items():
        bare = members[label][0] if label in members else None
        if isinstance(bare, Token) and str(bare) in (YES, NO):
            says[purpose] = str(bare)
    known = [label for label in LABELS if label in members]
    return Members(
        says,
        tuple(key for key in members if key not in LABELS),
        tuple(label for label in known if LABELS[label] not in says),
        tuple(name for _, parameters in members.values() for name in parameters if name in LABELS),
    )


def preferences(value: bytes) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose, nothing for what can't be read."""
    try:
        return read_preferences(value).says
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
