"""The TDM Reservation Protocol (REP.md section 11): W3C Community Group Final Report, 10 May 2024.

Metas take precedence over headers, headers over ``/.well-known/tdmrep.json``. A reservation is 1 or 0.
0 permits nothing; it only says that nothing is reserved in this protocol.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_rep.preferences.statements import MAX_TEXT, MINING, NO, Statement
from scrapy_rep.protocol.matching import ALLOW, SHORTEST, Rules
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.protocol.page.html import metas_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PATH = "/.well-known/tdmrep.json"
"""Of an origin's file."""

RESERVATION, POLICY = "tdm-reservation", "tdm-policy"

# More can only be an attack.
_MAX_LOCATIONS = 1_000
_MAX_METAS = 100

# Bytes of memory for a location, beside its rules and texts.
_LOCATION = 500


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one source says."""

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
    """Return what the metas ``tdm-reservation`` and ``tdm-policy`` of a page say."""
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
        self._rules: list[tuple[Rules, Reservation | None]] = []
        for entry in entries[:_MAX_LOCATIONS] if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("location"), str):
                self._rules.append(_rule(entry))
        self.size = sum(_LOCATION + rules.size + _length(found) for rules, found in self._rules)
        """About how many bytes it takes."""

    def about(self, path: str) -> Reservation | None:
        """Return what the first location that matches says.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        """
        for rules, reservation in self._rules:
            if rules.find(path) >= SHORTEST:
                return reservation
        return None


def _length(found: Reservation | None) -> int:
    return 0 if found is None else len(found.statement.text) + len(found.policy or "")


def _rule(entry: dict[str, Any]) -> tuple[Rules, Reservation | None]:
    location = entry["location"].encode("utf-8", "replace").decode("latin-1")
    said = {name: entry.get(name) for name in ("location", RESERVATION, POLICY)}
    text = json.dumps({name: value for name, value in said.items() if value is not None})
    found = _reservation("tdmrep.json", None, text, said[RESERVATION], said[POLICY])
    return Rules([location], [ALLOW - 1]), found
