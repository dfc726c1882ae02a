"""All statements about the use of a page, and what they say together (REP.md section 11).

Statements are combined as draft-ietf-aipref-vocab-08 (September 2026), "Combining Preferences",
asks: ``n`` takes precedence over ``y``; without either, nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
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
        decisive = self.decisive(purpose)
        return None if decisive is None else decisive.says[purpose]

    @property
    def verdicts(self) -> dict[str, str | None]:
        """``"y"``, ``"n"`` or None for each purpose."""
        return {purpose: self[purpose] for purpose in PURPOSES}

    def decisive(self, purpose: str) -> Statement | None:
        """Return the first statement that decides about *purpose*."""
        return decisive(self.statements, purpose)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {
            **self.verdicts,
            "statements": [
                {"source": one.source, "line": one.line, "text": one.text, "says": dict(one.says)}
                for one in self.statements
            ],
            "licenses": list(self.licenses),
            "tdm_policy": self.tdm_policy,
            "robots_sha256": self.robots_sha256,
            "robots_fetched_at": _iso(self.robots_fetched_at),
            "tdmrep_sha256": self.tdmrep_sha256,
            "time": _iso(self.time),
        }


def decisive(statements: Iterable[Statement], purpose: str) -> Statement | None:
    """Return the first statement that says no to *purpose*; if none does, the first that says yes."""
    found = None
    for one in statements:
        said = one.says.get(purpose)
        if said == NO:
            return one
        if said == YES and found is None:
            found = one
    return found


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")
