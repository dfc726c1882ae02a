"""Finds likely mistakes in lines of robots.txt about use (REP.md section 11):
``Content-Usage``, ``Content-Signal`` and ``License``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from scrapy_rep.inspection.findings import Finding, finding, quoted
from scrapy_rep.preferences.statements import (
    EXTRA,
    LABELS,
    SIGNALS,
    USE,
    USE_LEVELS,
    VALUES,
    lines_about_use,
    read_preferences,
    read_signals,
    split_rule,
)
from scrapy_rep.protocol.syntax import normalise

# What people write around the =, as in ``train-ai = n``. RFC 9651 doesn't allow it.
_BLANK_BESIDE_EQUALS = re.compile(r"[ \t]=|=[ \t]")

# At most this many characters of an unknown name are compared with the known ones,
# since that takes quadratic time.
_MAX_COMPARED = 50
# How similar a known name must be to be suggested, see difflib. With this value,
# somebody who writes ai-use in a Content-Signal is asked whether that means ai-input,
# as Content-Signal calls the ai-use of Content-Usage.
_SIMILARITY = 0.5


def usage_findings(kept: bytes) -> Iterator[Finding]:
    """Yield the likely mistakes in the lines about use of a robots.txt.

    *kept*: the part of the file that counts.
    """
    for line in lines_about_use(normalise(kept)):
        # is_named is None only for lines before all groups.
        is_before_groups = line.is_named is None
        if line.field == "license":
            if "://" not in line.value:
                yield finding(line.number, "bad-license")
        elif line.field == "content-signal":
            if is_before_groups:
                yield finding(line.number, "signal-before-group")
            yield from _signal_findings(line.number, line.value)
        else:
            if is_before_groups:
                yield finding(line.number, "rule-before-group")
            _, preferences = split_rule(line.value)
            try:
                yield from _preference_findings(line.number, preferences)
            except ModuleNotFoundError:  # the extra "usage" is not installed
                yield finding(line.number, "not-checked", extra=EXTRA)


def _bad(line: int, code: str, why: str) -> Finding:
    """Return the finding with this *code* about a bad *line*. It says *why* the line is
    bad."""
    return finding(line, code, topic=why, why=why)


def _preference_findings(line: int, value: str) -> Iterator[Finding]:
    """Yield the mistakes in *value*, the preferences of a ``Content-Usage`` line.

    :raises ModuleNotFoundError: if the extra ``usage`` is not installed
    """
    if not value:
        why = "no preference is given, so the line says nothing"
        yield _bad(line, "bad-usage", why)
        return
    try:
        answers = read_preferences(value)
    except ValueError as error:
        why = str(error)[:100]
        if _BLANK_BESIDE_EQUALS.search(value):
            why = "remove the blanks around the ="
        yield _bad(line, "bad-usage", f"can't be read, so the line says nothing: {why}")
        return
    for key, answer in answers.items():
        if key not in LABELS:
            yield _unknown(line, key, LABELS)
        elif answer is None:
            why = f"{quoted(key)} is neither y nor n, so it says nothing"
            yield _bad(line, "bad-usage", why)


def _signal_findings(line: int, value: str) -> Iterator[Finding]:
    """Yield the mistakes in *value*, the signals of a ``Content-Signal`` line."""
    if not value:
        yield _bad(line, "bad-signal", "no signal is given, so the line says nothing")
    if ";" in value:
        why = "signals are separated by semicolons: other crawlers may read commas only"
        yield _bad(line, "bad-signal", why)
    for signal in read_signals(value):
        name = quoted(signal.name)
        if signal.name == USE and signal.value not in USE_LEVELS:
            why = f"{name} is none of {', '.join(USE_LEVELS)}, so it says nothing"
            yield _bad(line, "bad-signal", why)
        elif signal.name not in SIGNALS and signal.name != USE:
            yield _unknown(line, signal.name, SIGNALS)
        elif signal.name in SIGNALS and signal.value not in VALUES:
            why = f"{name} is neither yes nor no, so it says nothing"
            yield _bad(line, "bad-signal", why)
        elif signal.has_blanks:
            why = f"{name} has blanks around the =: other crawlers may not read it"
            yield _bad(line, "bad-signal", why)


def _unknown(line: int, name: str, known_names: Collection[str]) -> Finding:
    """Return the finding for a *name* that means nothing, with the known name that is
    most like it."""
    similar = get_close_matches(
        name[:_MAX_COMPARED], known_names, n=1, cutoff=_SIMILARITY
    )
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return finding(
        line,
        "unknown-use",
        topic=name,
        name=quoted(name),
        hint=hint,
        known=", ".join(known_names),
    )
