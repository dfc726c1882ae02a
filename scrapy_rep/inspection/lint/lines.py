"""What is to be said of single lines (REP.md section 6)."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.file import is_html, is_utf16
from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.inspection.outline import GLOBAL
from scrapy_rep.protocol.groups import delay_seconds
from scrapy_rep.protocol.syntax import MAX_LINE, SPACE, Field, lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import AgentLine, Outline, RuleLine

_CANONICAL = {
    Field.USER_AGENT: "user-agent",
    Field.ALLOW: "allow",
    Field.DISALLOW: "disallow",
    Field.SITEMAP: "sitemap",
    Field.CRAWL_DELAY: "crawl-delay",
}

_META_INSTEAD = "ignored here; for search engines use the robots meta tag or X-Robots-Tag"

# Fields that mean something to somebody, none of them part of RFC 9309.
_ELSEWHERE = {
    "request-rate": "ignored here; a few crawlers slow down by it",
    "visit-time": "ignored here; a few crawlers come at these hours",
    "host": "ignored here; it was for Yandex, which has given it up too",
    "clean-param": "ignored here; Yandex reads it",
    "noindex": _META_INSTEAD,
    "nofollow": _META_INSTEAD,
    "noarchive": _META_INSTEAD,
}

# See usage.py.
_ABOUT_USE = ("content-signal", "content-usage", "license")

# Blanks and tabs: every URL that a crawler sends has them as %20 and %09.
_BLANK = re.compile(r"[ \t\v\f]")


def line_findings(kept: bytes, outline: Outline) -> Iterator[Finding]:
    """Yield them.

    :param kept: the part of the file that counts
    """
    if is_utf16(kept):
        return  # said once, that is enough
    read = {number: (field, value) for number, field, value in lines(kept)}
    page = is_html(kept)
    first_remark: int | None = None
    remarks = 0
    for number, row in enumerate(rows(kept), 1):
        if len(row) > MAX_LINE:
            yield Finding(
                number, "line-cut", f"{len(row):,} bytes; what is beyond {MAX_LINE:,} is ignored"
            )
        row = row[:MAX_LINE]
        if b"\0" in row:
            yield Finding(number, "nul", "a NUL byte: what follows it on the line is ignored")
            row = row.partition(b"\0")[0]
        if not _is_utf8(row):
            if number in read:
                yield Finding(
                    number, "not-utf8", "bytes that are not UTF-8; each is percent-encoded alone"
                )
            else:
                remarks += 1
                first_remark = first_remark or number
        if number in read:
            yield from _known(number, row, *read[number])
        elif not page:
            yield from _unknown(number, row.decode("latin-1"))
    if first_remark is not None:
        also = f", here and on {remarks - 1} further lines" if remarks > 1 else ""
        yield Finding(first_remark, "not-utf8", f"bytes that are not UTF-8{also}")
    for rule in outline.homeless:
        yield Finding(
            rule.rule.line,
            "rule-before-group",
            "stands before the first user-agent line, so it belongs to no group and is ignored",
        )
    for group in outline.groups:
        for agent in group.agents:
            yield from _agent(agent)
    for group in outline.groups:
        for rule in group.rules:
            yield from _pattern(rule)


def rows(kept: bytes) -> list[bytes]:
    """Return the lines as they stand in the file, numbered as the parser numbers them."""
    # As many bytes of a byte order mark as there are do not count, see `normalise`.
    for size in (3, 2, 1):
        if kept.startswith(b"\xef\xbb\xbf"[:size]):
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
        yield Finding(
            number,
            "missing-colon",
            f"a colon is missing after {_quoted(name)}; forgiven here, but not by all crawlers",
        )
    name = name.strip(SPACE)
    canonical = _CANONICAL[field]
    if _BLANK.split(name)[0].lower() == canonical != name.lower():
        # `Sitemap https://…`: the colon is that of the URL.
        yield Finding(
            number,
            "missing-colon",
            f"a colon is missing after {_quoted(canonical)}; what follows the first one counts: "
            f"{_quoted(value)}",
        )
    elif name.lower() != canonical:
        yield Finding(
            number,
            "typo",
            f"{_quoted(name)} is read as {canonical} here; other crawlers may ignore the line",
        )
    if field == Field.CRAWL_DELAY:
        yield _delay(number, value)
    if field in (Field.ALLOW, Field.DISALLOW) and value and hash_sign and before[-1:] not in SPACE:
        yield Finding(
            number,
            "comment-in-rule",
            f"# begins a comment: the rule is {_quoted(value)}",
        )


def _delay(number: int, value: str) -> Finding:
    seconds = delay_seconds(value)
    if seconds is None:
        message = f"{_quoted(value)} is not a number of seconds, such as 10 or 2.5: the line has no effect"
        return Finding(number, "bad-delay", message)
    message = (
        f"Bing and some others wait {seconds:g} s between two requests, and so does a crawl with "
        "REP_CRAWL_DELAY; Google ignores crawl-delay"
    )
    return Finding(number, "other-field", message)


def _unknown(number: int, text: str) -> Iterator[Finding]:
    """A line that means nothing to the parser."""
    text = text.partition("#")[0].strip(SPACE)
    if not text:
        return
    name, colon, _ = text.partition(":")
    name = name.strip(SPACE)
    if not colon:
        word, *others = _BLANK.split(text)
        if _closest(word) or _closest("-".join([word, *others[:1]])):
            yield Finding(
                number,
                "missing-colon",
                f"a colon is missing after {_quoted(word)}, so the line is ignored",
            )
        else:
            yield Finding(number, "no-field", "neither a field with a value nor a comment: ignored")
        return
    if name.lower() in _ABOUT_USE:
        return
    known = _ELSEWHERE.get(name.lower())
    if known:
        yield Finding(number, "other-field", f"{name.lower()} is {known}")
        return
    canonical = _closest(name)
    perhaps = f"; perhaps {canonical} is meant" if canonical else ""
    yield Finding(number, "unknown-field", f"there is no field {_quoted(name)}: ignored{perhaps}")


def _closest(name: str) -> str | None:
    names = get_close_matches(name.lower()[:50], _CANONICAL.values(), 1, 0.75)
    return names[0] if names else None


def _agent(agent: AgentLine) -> Iterator[Finding]:
    if not agent.value:
        yield Finding(agent.line, "agent-never", "no crawler is named")
    elif not agent.token:
        yield Finding(
            agent.line,
            "agent-never",
            f"names no crawler: a product token begins with a letter, - or _, and "
            f"{_quoted(agent.value)} does not",
        )
    elif agent.token == GLOBAL:
        if agent.value != GLOBAL:
            yield Finding(agent.line, "agent-cut", f"{_quoted(agent.value)} is read as *")
    elif agent.token != agent.value.lower():
        token = agent.value[: len(agent.token)]
        yield Finding(
            agent.line,
            "agent-cut",
            f"{_quoted(agent.value)} is read as {_quoted(token)}: product tokens are letters, - "
            "and _ alone",
        )


def _pattern(line: RuleLine) -> Iterator[Finding]:
    """Rules that match nothing."""
    pattern, number = line.rule.pattern, line.rule.line
    if not pattern:
        return
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", pattern):
        path = "/" + pattern.split("://", 1)[1].partition("/")[2]
        why = f"rules are paths, not URLs; perhaps {_quoted(path)} is meant"
    elif pattern[0] not in "/*":
        why = "paths start with /"
    else:
        if _BLANK.search(pattern):
            yield Finding(
                number,
                "blank-in-rule",
                "matches no URL that a crawler sends: those have %20 where this has a blank",
            )
        return
    yield Finding(number, "never-matches", f"can never match: {why}")


def _quoted(text: str) -> str:
    return f'"{text if len(text) <= 60 else text[:60] + "…"}"'
