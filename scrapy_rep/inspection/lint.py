"""What the owner of a robots.txt would want to know about it, line by line (REP.md sections 6 to 9).

>>> from scrapy_rep.inspection.lint import lint
>>> for finding in lint(b"User-agent: *\\nDissallow: /x\\nDisallow: private\\n"):
...     print(finding.line, finding.code, finding.message)
2 typo "Dissallow" is read as disallow here; other crawlers may ignore the line
3 never-matches can never match: paths start with /
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from scrapy_rep.protocol import AgentLine, Group, Origin, RobotsTxt, RuleLine
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.matching import NO_RULES, Rules, allows, comparable, line_of, path_of
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.robotstxt import delay_seconds, rate_seconds
from scrapy_rep.protocol.syntax import (
    FIELDS,
    GLOBAL,
    MAX_BYTES,
    MAX_LINE,
    SPACE,
    cut,
    readable_url,
)
from scrapy_rep.text import resolve_sitemap

ERROR, WARNING, NOTE = SEVERITIES = ("error", "warning", "note")

_ERRORS = {
    "rule-before-group", "never-matches", "blank-in-rule", "agent-never",
    "line-cut", "utf-16", "html", "beyond-limit", "bad-delay", "bad-sitemap", "bad-usage",
    "bad-signal", "bad-license",
}  # fmt: skip
_NOTES = {
    "duplicate", "no-file", "not-checked", "other-field", "split-group", "case",
    "trailing-star",
}  # fmt: skip


class Finding(NamedTuple):
    """Something that the owner of a robots.txt would want to know."""

    line: int | None
    """From 1; None for the whole file."""
    code: str
    """The kind of finding, for filters: docs/command-lint.md lists them."""
    message: str
    text: str = ""
    """The line as it stands in the file; bytes that are not UTF-8 as ``\\xNN``."""

    @property
    def severity(self) -> str:
        """``error``: it doesn't do what it says. ``warning``: probably not what is meant, or not for
        all crawlers. ``note``: worth knowing."""
        if self.code in _ERRORS:
            return ERROR
        return NOTE if self.code in _NOTES else WARNING


def lint(
    body: bytes,
    *,
    robots_url: str | None = None,
    also: Sequence[Callable[[bytes], Iterable[Finding]]] = (),
) -> list[Finding]:
    """Return what there is to say about *body*, in the order of the lines.

    :param body: any bytes at all; the whole file, or as much of it as was fetched
    :param robots_url: where it is from, to tell which sitemaps are on its own host
    :param also: further checks, of the part of the file that counts
    """
    kept = cut(body)
    outline = Outline.of(kept)
    found = [
        *_file(body, outline),
        *_lines(kept, outline),
        *_groups(outline),
        *_effects(kept, outline, robots_url),
        *(finding for check in also for finding in check(kept)),
    ]
    # After the last line, what is beyond the limit may begin.
    texts = [*(row.decode("utf-8", "backslashreplace") for row in rows(kept)), ""]
    found.sort(key=lambda one: one.line or 0)
    return [one._replace(text=texts[one.line - 1]) if one.line else one for one in found]


# Even part of a byte order mark is skipped, see `normalise`.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
# How Windows' "Unicode" files begin.
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def rows(kept: bytes) -> list[bytes]:
    """Return the lines as they stand in the file, numbered as the parser numbers them."""
    return _BOM.sub(b"", kept).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def quoted(text: str) -> str:
    """Return *text* in quotes, cut to 60 characters."""
    return f'"{text if len(text) <= 60 else text[:60] + "…"}"'


def _file(body: bytes, outline: Outline) -> Iterator[Finding]:
    if body.startswith(_UTF16):
        yield Finding(1, "utf-16", "the file is UTF-16, but is read as UTF-8: save it as UTF-8")
    elif _BOM.match(body):
        why = "byte order mark: skipped here, but other crawlers may miss the first line"
        yield Finding(1, "bom", why)
    if is_html(body):
        yield Finding(None, "html", "this is HTML or XML, not a robots.txt")
    if not outline.groups and not outline.ungrouped:
        yield Finding(None, "empty", "the file has no rules: no restrictions")
    if len(body) > MAX_BYTES:
        why = f"from this line on the file is ignored: only the first {MAX_BYTES:,} bytes count"
        first = len(rows(body[: MAX_BYTES + 1]))
        yield Finding(first, "beyond-limit", why)


_ABOUT_USE = ("content-signal", "content-usage", "license")  # see preferences/lint.py
_DELAYS = {"crawl-delay": delay_seconds, "request-rate": rate_seconds}
# Spaces and tabs: crawlers send them as %20 and %09.
_BLANK = re.compile(r"[ \t\v\f]")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*/?(.*)", re.DOTALL)


def _lines(kept: bytes, outline: Outline) -> Iterator[Finding]:
    if kept.startswith(_UTF16):
        return  # said once, that is enough
    page = is_html(kept)
    not_utf8 = []
    for number, row in enumerate(rows(kept), 1):
        if len(row) > MAX_LINE:
            why = f"{len(row):,} bytes long: only the first {MAX_LINE:,} count"
            yield Finding(number, "line-cut", why)
        row = row[:MAX_LINE].partition(b"\0")[0]
        if row.decode("utf-8", "ignore").encode() != row:
            not_utf8.append(number)
        text = row.decode("latin-1")
        if number in outline.fields:
            yield from _known(number, text, *outline.fields[number])
        elif not page:
            yield from _unknown(number, text)
    if not_utf8:
        also = f", here and on {len(not_utf8) - 1} more lines" if not_utf8[1:] else ""
        why = f"not UTF-8{also}: bytes are percent-encoded one by one"
        yield Finding(not_utf8[0], "not-utf8", why)
    for one in outline.ungrouped:
        yield Finding(one.rule.line, "rule-before-group", "ignored: no user-agent line above it")


def _known(number: int, row: str, field: str, value: str) -> Iterator[Finding]:
    before = row.strip(SPACE).partition("#")[0]
    name, colon, _ = before.partition(":")
    name = name.strip(SPACE) if colon else before.split()[0]
    word = _BLANK.split(name)[0]
    if not colon or word.lower() == field != name.lower():  # `Sitemap https://…` has the URL's
        why = f"no colon after {quoted(word)}: accepted here, but not by all crawlers"
        yield Finding(number, "missing-colon", why)
    if word.lower() != field:
        why = f"{quoted(name)} is read as {field} here; other crawlers may ignore the line"
        yield Finding(number, "typo", why)
    if read_delay := _DELAYS.get(field):
        seconds = read_delay(value)
        if seconds is None:
            right = "a number of seconds" if field == "crawl-delay" else "a rate such as 1/10"
            yield Finding(number, "bad-delay", f"{quoted(value)} is not {right}: no effect")
        else:
            why = f"some crawlers wait {seconds:g} s between two requests; Google doesn't"
            yield Finding(number, "other-field", why)
    elif field == "visit-time":
        yield Finding(number, "other-field", "visit-time is ignored here; a few crawlers obey it")


def _unknown(number: int, text: str) -> Iterator[Finding]:
    """Yield what is wrong with a line that means nothing to the parser."""
    text = text.partition("#")[0].strip(SPACE)
    name, colon, _ = text.partition(":")
    name = name.strip(SPACE)
    if not text or (colon and name.lower() in _ABOUT_USE):
        return
    word, *others = _BLANK.split(name)
    meant = _closest(name if colon else word) or _closest("-".join([word, *others[:1]]))
    if colon:
        hint = f"; did you mean {meant}?" if meant else ""
        yield Finding(number, "unknown-field", f"ignored: unknown field {quoted(name)}{hint}")
    elif meant:
        why = f"no colon after {quoted(word)}: the line is ignored"
        yield Finding(number, "missing-colon", why)
    else:
        yield Finding(number, "no-field", "ignored: neither a field nor a comment")


def _closest(name: str) -> str | None:
    return next(iter(get_close_matches(name.lower()[:50], FIELDS, 1, 0.75)), None)


def _agent(agent: AgentLine) -> Iterator[Finding]:
    line, value, token = agent
    if not token:
        why = f": {quoted(value)} does not start with a letter, - or _, as product tokens do"
        yield Finding(line, "agent-never", f"names no crawler{why if value else ''}")
    elif token != value.lower():
        why = f"{quoted(value[: len(token)])}: product tokens have letters, - and _ only"
        read_as = token if token == GLOBAL else why
        yield Finding(line, "agent-cut", f"{quoted(value)} is read as {read_as}")


def _groups(outline: Outline) -> Iterator[Finding]:
    """Yield agents with several groups, and rules without effect."""
    first: dict[str, tuple[Group, int]] = {}  # of each agent: its group and line
    merged: dict[frozenset[str], list[RuleLine]] = {}  # rules of groups with the same agents
    for group in outline.groups:
        for agent in group.agents:
            yield from _agent(agent)
            other, line = first.setdefault(agent.token, (group, agent.line))
            if agent.token and other is not group:
                why = f"{agent.value} already has a group on line {line}: merged with it here, but not by all crawlers"
                yield Finding(agent.line, "split-group", why)
        merged.setdefault(frozenset(one.token for one in group.agents), []).extend(group.rules)
        spelt: dict[str, RuleLine] = {}
        for rule in group.rules:
            yield from _pattern(rule, spelt.setdefault(rule.pattern.lower(), rule))
    for rules in merged.values():
        yield from _never_decide(rules)


def _pattern(one: RuleLine, other: RuleLine) -> Iterator[Finding]:
    """Yield what is wrong with a pattern. *other*: the first of the group that differs from it only
    in case, or itself."""
    number, written = one.rule.line, one.rule.pattern
    if url := _URL.match(written):
        path = quoted("/" + url[1])
        why = f"can never match: rules are paths, not URLs; did you mean {path}?"
        yield Finding(number, "never-matches", why)
    elif written[:1] not in ("", "/", "*"):
        yield Finding(number, "never-matches", "can never match: paths start with /")
    elif _BLANK.search(written):
        why = "crawlers send spaces as %20, so this matches nothing"
        yield Finding(number, "blank-in-rule", why)
    if other.pattern != one.pattern:
        why = f"differs from line {other.rule.line} ({other.rule}) only in case; paths are case-sensitive, so these are two rules"
        yield Finding(number, "case", why)
    if len(one.pattern) > 1 and one.pattern.endswith("*"):
        why = "the * at the end matches nothing more; it only makes the rule longer, and the longest rule wins"
        yield Finding(number, "trailing-star", why)


def _never_decide(rules: list[RuleLine]) -> Iterator[Finding]:
    """Yield rules of a group that lose to another one whatever the URL. Only what can be proven: the
    other one matches exactly the same paths, and wins."""
    best: dict[str, RuleLine] = {}
    # As the matcher compares rules: the longest, then an allow, then the first.
    ranked = sorted(rules, key=lambda one: (-len(one.pattern), not one.rule.allow))
    for one in ranked:
        if (same := _same_paths(one)) is None:
            continue
        winner = best.setdefault(same, one)
        here, there = one.rule, winner.rule
        # An allow of an index page also speaks for its directory; a disallow does not.
        if one is winner or (here.allow and not there.allow and "/index.htm" in one.pattern):
            continue
        if one.pattern == winner.pattern and here.allow == there.allow:
            yield Finding(here.line, "duplicate", f"same rule as on line {there.line}")
        else:
            why = f"never decides: line {there.line} ({there}) matches the same URLs and wins"
            yield Finding(here.line, "shadowed", why)


def _same_paths(line: RuleLine) -> str | None:
    """Return a key that rules for the same paths share; None if a rule does nothing."""
    if line.pattern[:1] not in ("/", "*"):
        return None
    pattern = re.sub(r"\*+", "*", line.pattern)
    return re.sub(r"\*\$?$", "", pattern) or "/"


# Agents that are asked about; things named in a finding, and characters of a rule there.
_ASKED, _NAMED, _SHOWN = 50, 3, 60

# Pairs of a rule and a rule with a wildcard: with more the file is hostile, and only its other findings
# count. Longer paths aren't tried.
_MAX_TRIALS, _MAX_PATH = 1_000_000, 500

_ASSETS = re.compile(
    r"\.(?:css|js)\b|/(?:css|js|javascripts?|scripts?|styles?|stylesheets?|assets|static|_next|"
    r"wp-includes)(?=[/*$]|\Z)",
    re.IGNORECASE,
)


def _effects(kept: bytes, outline: Outline, robots_url: str | None) -> Iterator[Finding]:
    robots = RobotsTxt.parse(kept)
    agents = [GLOBAL, *outline.tokens()][:_ASKED]
    rules = {agent.lower(): robots.rules(agent)[1] for agent in agents}
    wildcards = sum("*" in one.pattern for agent in rules for one in outline.rules_for(agent))
    trials = sum(len(group.rules) for group in outline.groups) * (len(rules) + wildcards)
    if closed := _closed(outline):
        *named, _ = outline.tokens()
        but = f" but {some(named)}, which have groups of their own" if named else ""
        yield Finding(closed, "site-closed", f"the whole site is closed to all crawlers{but}")
    elif trials <= _MAX_TRIALS:
        yield from _lost(outline, rules)
    if trials <= _MAX_TRIALS:
        yield from _assets(outline, rules)
    yield from _sitemaps(outline, rules, robots_url)


def some(names: Sequence[str]) -> str:
    """Return the first few of *names*, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _closed(outline: Outline) -> int:
    """Return the line that closes the whole site to all crawlers, 0 if none does."""
    rules = [(_same_paths(line), line.rule) for line in outline.rules_for(GLOBAL)]
    if any(rule.allow and same is not None for same, rule in rules):
        return 0
    return next((rule.line for same, rule in rules if same == "/"), 0)


def _lost(outline: Outline, rules: dict[str, Rules]) -> Iterator[Finding]:
    """Yield groups that allow what ``*`` forbids, unless they say "everything" explicitly."""
    forbidden = [
        (path, f"{rule.rule.pattern[:_SHOWN]} (line {rule.rule.line})")
        for rule in outline.rules_for(GLOBAL)
        if not rule.rule.allow
        and (path := _example_of(rule.pattern))
        and not rules[GLOBAL].allows(path)
    ]
    left = rules.keys() - {GLOBAL}
    for group in outline.groups:
        names = {agent.token: agent for agent in group.agents if agent.token in left}
        left -= names.keys()
        own = [rule for token in names for rule in outline.rules_for(token)]
        # An empty pattern, and an allow of all paths, say "everything".
        if any(not one.pattern or (one.rule.allow and _same_paths(one) == "/") for one in own):
            continue
        agent = next(iter(names.values()), None)
        lost = [what for path, what in forbidden if agent and rules[agent.token].allows(path)]
        if agent and lost:
            who = some([one.value for one in names.values()])
            why = "a crawler with a group of its own ignores the * group"
            yield Finding(agent.line, "lost-rules", f"{who} may fetch {some(lost)}: {why}")


def _example_of(pattern: str) -> str:
    """Return a path that a pattern matches, "" if none comes to mind."""
    if pattern[:1] not in ("/", "*") or len(pattern) > _MAX_PATH:
        return ""
    path = pattern.removesuffix("$").replace("*", "")
    return path if path[:1] == "/" else f"/{path}"


def _assets(outline: Outline, rules: dict[str, Rules]) -> Iterator[Finding]:
    """Yield rules that keep crawlers from style sheets and scripts."""
    for group in outline.groups:
        own = next((rules[one.token] for one in group.agents if one.token in rules), NO_RULES)
        for line in group.rules:
            found = None if line.rule.allow else _ASSETS.search(line.pattern)
            if found and (path := _example_of(line.pattern[: found.end()])):
                files = [path] if found[0][0] == "." else [f"{path}/site.css", f"{path}/site.js"]
                if not all(map(own.allows, files)):
                    why = "a search engine may then see a page differently from people"
                    where = line.rule.line
                    yield Finding(where, "blocked-assets", f"hides style sheets or scripts: {why}")


def _sitemaps(outline: Outline, rules: dict[str, Rules], place: str | None) -> Iterator[Finding]:
    """:param place: the URL of the file; None: unknown. Then all sitemaps may be on its host"""
    own = Origin.from_url(place) if place else None
    base = place or "http://host.invalid/robots.txt"
    for line, (field, value) in outline.fields.items():
        if field != "sitemap":
            continue
        try:
            if not value:
                raise ValueError("no URL")
            url, origin, relative = resolve_sitemap(readable_url(value), base)
        except ValueError as error:
            yield Finding(line, "bad-sitemap", f"ignored: {error}")
            continue
        if relative:
            why = "not a full URL, which the standard asks for; read as relative to robots.txt"
            yield Finding(line, "relative-sitemap", why)
        if own is not None and origin != own:
            continue
        path = comparable(path_of(url))
        found = [(agent, own_rules.find(path)) for agent, own_rules in rules.items()]
        by = [f"{agent} (line {line_of(key)})" for agent, key in found if not allows(key)]
        if by:
            condition = "" if own or relative else "if it is on this host, "
            why = f"{condition}this file forbids it to {some(by)}"
            yield Finding(line, "sitemap-disallowed", why)
