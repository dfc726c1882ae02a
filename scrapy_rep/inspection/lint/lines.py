"""What is to be said of single lines (REP.md section 6)."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.file import is_utf16
from scrapy_rep.inspection.lint.finding import Finding, quoted
from scrapy_rep.inspection.outline import BOM
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.groups import delay_seconds, rate_seconds
from scrapy_rep.protocol.syntax import MAX_LINE, SPACE, Field, lines
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import AgentLine, Outline, RuleLine

_CANONICAL = {
    Field.USER_AGENT: "user-agent",
    Field.ALLOW: "allow",
    Field.DISALLOW: "disallow",
    Field.SITEMAP: "sitemap",
    Field.CRAWL_DELAY: "crawl-delay",
    Field.REQUEST_RATE: "request-rate",
    Field.VISIT_TIME: "visit-time",
}

_META_INSTEAD = "ignored here; for search engines use the robots meta tag or X-Robots-Tag"

# Fields that mean something to somebody, none of them part of RFC 9309.
_ELSEWHERE = {
    "host": "ignored here; only Yandex used it, and no longer does",
    "clean-param": "ignored here; Yandex obeys it",
    "noindex": _META_INSTEAD,
    "nofollow": _META_INSTEAD,
    "noarchive": _META_INSTEAD,
}

# See preferences/lint.py.
_ABOUT_USE = ("content-signal", "content-usage", "license")

# Spaces and tabs: crawlers send them as %20 and %09.
_BLANK = re.compile(r"[ \t\v\f]")


def line_findings(kept: bytes, outline: Outline) -> Iterator[Finding]:
    """:param kept: the part of the file that counts"""
    if is_utf16(kept):
        return  # said once, that is enough
    read = {number: (field, value) for number, field, value in lines(kept)}
    page = is_html(kept)
    remarks = []  # lines that mean nothing and are not UTF-8
    for number, row in enumerate(rows(kept), 1):
        if len(row) > MAX_LINE:
            why = f"{len(row):,} bytes long: only the first {MAX_LINE:,} count"
            yield Finding(number, "line-cut", why)
        row, nul, _ = row[:MAX_LINE].partition(b"\0")
        if nul:
            yield Finding(number, "nul", "NUL byte: the rest of the line is ignored")
        if not _is_utf8(row):
            if number in read:
                why = "not UTF-8: each byte is percent-encoded by itself"
                yield Finding(number, "not-utf8", why)
            else:
                remarks.append(number)
        if number in read:
            yield from _known(number, row, *read[number])
        elif not page:
            yield from _unknown(number, row.decode("latin-1"))
    if remarks:
        also = f", here and on {len(remarks) - 1} more lines" if remarks[1:] else ""
        yield Finding(remarks[0], "not-utf8", f"not UTF-8{also}")
    for rule in outline.homeless:
        why = "ignored: no user-agent line above it"
        yield Finding(rule.rule.line, "rule-before-group", why)
    for group in outline.groups:
        for agent in group.agents:
            yield from _agent(agent)
        for rule in group.rules:
            yield from _pattern(rule)


def rows(kept: bytes) -> list[bytes]:
    """Return the lines as they stand in the file, numbered as the parser numbers them."""
    # Even part of a byte order mark is skipped, see `normalise`.
    for size in (3, 2, 1):
        if kept.startswith(BOM[:size]):
            kept = kept[size:]
            break
    return kept.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _is_utf8(row: bytes) -> bool:
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return True


def _known(number: int, row: bytes, field: int, value: str) -> Iterator[Finding]:
    text = row.decode("latin-1").strip(SPACE)
    before, hash_sign, _ = text.partition("#")
    name, colon, _ = before.partition(":")
    if not colon:
        name = before.split()[0]
        why = f"no colon after {quoted(name)}: accepted here, but not by all crawlers"
        yield Finding(number, "missing-colon", why)
    name = name.strip(SPACE)
    canonical = _CANONICAL[field]
    if _BLANK.split(name)[0].lower() == canonical != name.lower():
        # `Sitemap https://…`: the colon is that of the URL.
        why = f"no colon after {quoted(canonical)}, so the value is {quoted(value)}"
        yield Finding(number, "missing-colon", why)
    elif name.lower() != canonical:
        why = f"{quoted(name)} is read as {canonical} here; other crawlers may ignore the line"
        yield Finding(number, "typo", why)
    if field in (Field.CRAWL_DELAY, Field.REQUEST_RATE):
        yield _delay(number, field, value)
    if field == Field.VISIT_TIME:
        yield Finding(number, "other-field", "visit-time is ignored here; a few crawlers obey it")
    if field in (Field.ALLOW, Field.DISALLOW) and value and hash_sign and before[-1:] not in SPACE:
        why = f"# starts a comment, so the rule is {quoted(value)}"
        yield Finding(number, "comment-in-rule", why)


def _delay(number: int, field: int, value: str) -> Finding:
    is_rate = field == Field.REQUEST_RATE
    seconds = rate_seconds(value) if is_rate else delay_seconds(value)
    if seconds is None:
        right = "a rate, such as 1/10" if is_rate else "a number of seconds, such as 10 or 2.5"
        why = f"{quoted(value)} is not {right}: the line has no effect"
        return Finding(number, "bad-delay", why)
    who = "A few crawlers" if is_rate else "Bing and some others"
    why = f"{who} wait {seconds:g} s between two requests; Google doesn't"
    return Finding(number, "other-field", why)


def _unknown(number: int, text: str) -> Iterator[Finding]:
    """Yield what is wrong with a line that means nothing to the parser."""
    text = text.partition("#")[0].strip(SPACE)
    if not text:
        return
    name, colon, _ = text.partition(":")
    name = name.strip(SPACE)
    if not colon:
        word, *others = _BLANK.split(text)
        if _closest(word) or _closest("-".join([word, *others[:1]])):
            why = f"no colon after {quoted(word)}: the line is ignored"
            yield Finding(number, "missing-colon", why)
        else:
            yield Finding(number, "no-field", "ignored: neither a field nor a comment")
    elif name.lower() in _ELSEWHERE:
        why = f"{name.lower()} is {_ELSEWHERE[name.lower()]}"
        yield Finding(number, "other-field", why)
    elif name.lower() not in _ABOUT_USE:
        canonical = _closest(name)
        hint = f"; did you mean {canonical}?" if canonical else ""
        yield Finding(number, "unknown-field", f"ignored: unknown field {quoted(name)}{hint}")


def _closest(name: str) -> str | None:
    names = get_close_matches(name.lower()[:50], _CANONICAL.values(), 1, 0.75)
    return names[0] if names else None


def _agent(agent: AgentLine) -> Iterator[Finding]:
    value, number = quoted(agent.value), agent.line
    if not agent.value:
        yield Finding(number, "agent-never", "names no crawler")
    elif not agent.token:
        why = (
            f"names no crawler: {value} does not start with a letter, - or _, as product tokens do"
        )
        yield Finding(number, "agent-never", why)
    elif agent.token == GLOBAL:
        if agent.value != GLOBAL:
            yield Finding(number, "agent-cut", f"{value} is read as *")
    elif agent.token != agent.value.lower():
        token = quoted(agent.value[: len(agent.token)])
        why = f"{value} is read as {token}: product tokens have letters, - and _ only"
        yield Finding(number, "agent-cut", why)


def _pattern(line: RuleLine) -> Iterator[Finding]:
    """Yield why a rule matches nothing, if that is so."""
    pattern, number = line.rule.pattern, line.rule.line
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", pattern):
        path = "/" + pattern.split("://", 1)[1].partition("/")[2]
        why = f"can never match: rules are paths, not URLs; did you mean {quoted(path)}?"
        yield Finding(number, "never-matches", why)
    elif pattern[:1] not in ("", "/", "*"):
        yield Finding(number, "never-matches", "can never match: paths start with /")
    elif _BLANK.search(pattern):
        why = "crawlers send spaces as %20, so this matches nothing"
        yield Finding(number, "blank-in-rule", why)
