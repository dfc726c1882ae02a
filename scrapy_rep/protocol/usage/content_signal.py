"""``Content-Signal`` in robots.txt (REP.md section 11): Cloudflare's Content Signals Policy of
September 2025, contentsignals.org; draft-romm-aipref-contentsignals-00, October 2025, expired."""

from __future__ import annotations

from typing import NamedTuple

from scrapy_rep.protocol.usage.statements import INPUT, NO, SEARCH, TRAINING, YES

SIGNALS = {"search": SEARCH, "ai-input": INPUT, "ai-train": TRAINING}
"""The signals, and our purposes."""

OTHER = frozenset({"use"})
"""Written by Cloudflare too. Restricts nothing: ``use=reference``."""

VALUES = {"yes": YES, "no": NO}

# Of one line. There are three.
_MAX_SIGNALS = 100


class Signal(NamedTuple):
    """One signal of a line, in lower case."""

    name: str
    value: str
    loose: bool
    """Whether there are blanks around the ``=``: not all may read it then."""


def read_signals(value: str) -> list[Signal]:
    """Return the signals of a line."""
    found = []
    for part in value.lower().split(",", _MAX_SIGNALS)[:_MAX_SIGNALS]:
        name, equals, said = part.partition("=")
        loose = bool(equals) and (name[-1:].isspace() or said[:1].isspace())
        if part.strip():
            found.append(Signal(name.strip(), said.strip(), loose))
    return found


def signals(value: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose. Of two values for one signal ``no`` counts."""
    says: dict[str, str] = {}
    for name, said, _ in read_signals(value):
        if name in SIGNALS and said in VALUES and says.get(SIGNALS[name]) != NO:
            says[SIGNALS[name]] = VALUES[said]
    return says
