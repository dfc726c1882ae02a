"""Likely mistakes in lines about use (REP.md section 11): ``Content-Usage``, ``Content-Signal``,
``License``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from scrapy_rep.inspection.findings import Finding, finding, quoted
from scrapy_rep.preferences.statements import (
    EXTRA,
    LABELS,
    LEVELS,
    SIGNALS,
    USE,
    VALUES,
    lines_about_use,
    read_preferences,
    read_signals,
    split_rule,
)
from scrapy_rep.protocol.syntax import normalise

_BLANKS = re.compile(r"[ \t]=|=[ \t]")


def usage_findings(kept: bytes) -> Iterator[Finding]:
    """*kept*: the part of the file that counts."""
    for line, field, value, _, token in lines_about_use(normalise(kept)):
        if field == "license":
            if "://" not in value:
                yield finding(line, "bad-license")
        elif field == "content-signal":
            if token is None:
                yield finding(line, "signal-before-group")
            yield from _signals(line, value)
        else:
            if token is None:
                yield finding(line, "rule-before-group")
            try:
                yield from _preferences(line, split_rule(value)[1])
            except ModuleNotFoundError:
                yield finding(line, "not-checked", extra=EXTRA)


def _bad(line: int, code: str, why: str) -> Finding:
    return finding(line, code, topic=why, why=why)


def _preferences(line: int, value: str) -> Iterator[Finding]:
    if not value:
        yield _bad(
            line, "bad-usage", "no preference is given, so the line says nothing"
        )
        return
    try:
        preferences = read_preferences(value)
    except ValueError as error:
        why = (
            "remove the blanks around the ="
            if _BLANKS.search(value)
            else str(error)[:100]
        )
        yield _bad(line, "bad-usage", f"can't be read, so the line says nothing: {why}")
        return
    for key, answer in preferences.items():
        if key not in LABELS:
            yield _unknown(line, key, LABELS)
        elif answer is None:
            why = f"{quoted(key)} is neither y nor n, so it says nothing"
            yield _bad(line, "bad-usage", why)


def _signals(line: int, value: str) -> Iterator[Finding]:
    if not value:
        yield _bad(line, "bad-signal", "no signal is given, so the line says nothing")
    if ";" in value:
        why = "signals are separated by semicolons: other crawlers may read commas only"
        yield _bad(line, "bad-signal", why)
    for name, answer, is_loose in read_signals(value):
        if name == USE and answer not in LEVELS:
            why = f"{quoted(name)} is none of {', '.join(LEVELS)}, so it says nothing"
            yield _bad(line, "bad-signal", why)
        elif name not in SIGNALS and name != USE:
            yield _unknown(line, name, SIGNALS)
        elif name in SIGNALS and answer not in VALUES:
            why = f"{quoted(name)} is neither yes nor no, so it says nothing"
            yield _bad(line, "bad-signal", why)
        elif is_loose:
            why = f"{quoted(name)} has blanks around the =: other crawlers may not read it"
            yield _bad(line, "bad-signal", why)


def _unknown(line: int, name: str, known: Collection[str]) -> Finding:
    close = get_close_matches(
        name[:50], known, 1, 0.5
    )  # ai-use is ai-input in the other field
    hint = f"; did you mean {close[0]}?" if close else ""
    names = ", ".join(known)
    return finding(
        line, "unknown-use", topic=name, name=quoted(name), hint=hint, known=names
    )
