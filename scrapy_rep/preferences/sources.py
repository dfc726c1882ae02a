"""Short vocabularies (REP.md section 11). For each: who wrote it, and when.

- ``Content-Signal`` in robots.txt: Cloudflare's Content Signals Policy, September 2025,
  contentsignals.org; draft-romm-aipref-contentsignals-00, October 2025, expired.
- ``noai`` and ``noimageai`` in ``X-Robots-Tag`` and metas: DeviantArt, November 2022; ``noml``: noml.info,
  October 2023. No draft.
- Policy tokens, names in ordinary groups that no crawler sends: ``Google-Extended`` (Google, September
  2023), ``Applebot-Extended`` (Apple, June 2024), ``CCBot``, … No draft: who reads one describes it.
- Licenses: RSL 1.0, Really Simple Licensing, December 2025. Their URLs are reported, never fetched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.preferences.statements import (
    IMAGES,
    INPUT,
    MAX_TEXT,
    NO,
    SEARCH,
    TRAINING,
    YES,
    Statement,
)
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_rep.protocol.matching import Decision
    from scrapy_rep.protocol.page import PageRules

# Content-Signal

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
    """Whether there are blanks around the ``=``: other crawlers may not read it then."""


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
    """Return ``"y"`` or ``"n"`` by purpose. If a signal has both values, ``no`` takes precedence."""
    says: dict[str, str] = {}
    for name, said, _ in read_signals(value):
        if name in SIGNALS and said in VALUES and says.get(SIGNALS[name]) != NO:
            says[SIGNALS[name]] = VALUES[said]
    return says


# noai, noimageai, noml

# noai and noml speak for the images too.
RULES = {"noai": (TRAINING, IMAGES), "noimageai": (IMAGES,), "noml": (TRAINING, IMAGES)}


def page_statements(rules: PageRules) -> list[Statement]:
    """Return what the rules of a page say."""
    return [
        Statement(rule.source, rule.line, rule.name, dict.fromkeys(RULES[rule.name], NO))
        for rule in rules.rules
        if rule.name in RULES
    ]


# Policy tokens


def token_statement(token: str, decision: Decision, purposes: Iterable[str]) -> Statement | None:
    """Return what robots.txt says to *token*; None for nothing.

    A line that forbids the page says no. A line that allows it says yes only if its group names the
    token: permission for all crawlers says nothing about use.
    """
    rule = decision.rule
    if rule is None or (decision.allowed and decision.agent == GLOBAL):
        return None
    says = dict.fromkeys(purposes, YES if decision.allowed else NO)
    return Statement(f"robots.txt for {token}", rule.line, str(rule)[:MAX_TEXT].rstrip(), says)


# Licenses

MAX_LICENSES = 100
"""Of one page."""

MEDIA_TYPE = "application/rsl+xml"

# Bytes of Link headers that are looked at.
_MAX_BYTES = 16 * 1024

_LINK = re.compile(r"<([^<>]*)>([^<>]*)")
_LICENSE = re.compile(r";\s*rel\s*=\s*(?:\"(?:[^\"]*[ \t])?license[\" \t]|license\s*(?:[;,]|\Z))")


def link_licenses(values: Sequence[bytes]) -> list[str]:
    """Return the URLs of ``Link: <URL>; rel="license"; type="application/rsl+xml"`` headers."""
    text = b",".join(values)[:_MAX_BYTES].decode("latin-1")
    return [
        url.strip()
        for url, parameters in _LINK.findall(text)
        if MEDIA_TYPE in parameters.lower() and _LICENSE.search(parameters.lower())
    ][:MAX_LICENSES]
