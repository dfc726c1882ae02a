"""The checks (REP.md sections 6 to 9): of single lines; of groups and neighbouring rules; and of the
combined effect of all rules on the whole origin, on crawlers with their own group, on page assets and on
sitemaps."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from scrapy_rep.engine.text import resolve_sitemap
from scrapy_rep.inspection.explanation import BOM
from scrapy_rep.inspection.lint.finding import Finding, is_utf16, quoted
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.robotstxt import delay_seconds, rate_seconds
from scrapy_rep.protocol.matching import allows, comparable, line_of, path_of
from scrapy_rep.protocol.syntax import GLOBAL, MAX_LINE, SPACE, Field, normalise, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_rep.inspection.explanation import AgentLine, Group, Outline, RuleLine
    from scrapy_rep.protocol.matching import Rules

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
    known = {number: (field, value) for number, field, value in read(normalise(kept).split("\n"))}
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
            if number in known:
                why = "not UTF-8: each byte is percent-encoded by itself"
                yield Finding(number, "not-utf8", why)
            else:
                remarks.append(number)
        if number in known:
            yield from _known(number, row, *known[number])
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


_STARS = re.compile(r"\*+")

# Pairs of an agent and a rule: with more the file is hostile, and only its other findings count.
_MAX_PAIRS = 1_000_000


def group_findings(outline: Outline) -> Iterator[Finding]:
    """Yield agents without rules or with several groups, and rules without effect."""
    ruled = {agent.token for group in outline.groups if group.rules for agent in group.agents}
    for group in outline.groups:
        for agent in group.agents:
            if agent.token and agent.token not in ruled:
                who = "all crawlers" if agent.token == GLOBAL else agent.token
                yield Finding(agent.line, "no-rules", f"no rules for {who}: no restrictions")
        yield from _odd_patterns(group)
    yield from _split(outline)
    yield from _never_decide(outline)


def _split(outline: Outline) -> Iterator[Finding]:
    """Yield agents that an earlier group names."""
    first: dict[str, AgentLine] = {}
    for group in outline.groups:
        for agent in group.agents:
            earlier = first.get(agent.token)
            if agent.token and earlier is not None:
                why = f"{agent.value} already has a group on line {earlier.line}: merged with it here, but not by all crawlers"
                yield Finding(agent.line, "split-group", why)
        for agent in group.agents:
            first.setdefault(agent.token, agent)


def _odd_patterns(group: Group) -> Iterator[Finding]:
    """Yield patterns that differ from others by case alone, or end with a needless wildcard."""
    spelt: dict[str, RuleLine] = {}
    for line in group.rules:
        other = spelt.setdefault(line.pattern.lower(), line)
        if other.pattern != line.pattern:
            why = f"differs from line {other.rule.line} ({other.rule}) only in case; paths are case-sensitive, so these are two rules"
            yield Finding(line.rule.line, "case", why)
        if len(line.pattern) > 1 and line.pattern.endswith("*"):
            why = "the * at the end matches nothing more; it only makes the rule longer, and the longest rule wins"
            yield Finding(line.rule.line, "trailing-star", why)


def _never_decide(outline: Outline) -> Iterator[Finding]:
    """Yield rules that lose to another one whatever the URL.

    Only what can be proven: the other one matches exactly the same paths, and wins. All groups
    that name an agent are one, so a rule must lose for each of its agents.
    """
    if sum(len(group.agents) * len(group.rules) for group in outline.groups) > _MAX_PAIRS:
        return
    groups = [
        (dict.fromkeys(agent.token for agent in group.agents if agent.token), group.rules)
        for group in outline.groups
    ]
    best: dict[tuple[str, str], RuleLine] = {}
    for tokens, rules in groups:
        for rule in rules:
            same = same_paths(rule)
            if same is None:
                continue
            for token in tokens:
                if _rank(rule) > _rank(best.setdefault((token, same), rule)):
                    best[token, same] = rule
    for tokens, rules in groups:
        for rule in rules:
            same = same_paths(rule)
            if same is None or not tokens:
                continue
            rivals = [best[token, same] for token in tokens]
            if all(_beats(rival, rule) for rival in rivals):
                yield _shadowed(rule, rivals[0])


def _rank(line: RuleLine) -> tuple[int, bool, int]:
    """As the matcher compares rules: the longest, then an allow, then the first."""
    return len(line.pattern), line.rule.allow, -line.rule.line


def _beats(winner: RuleLine, rule: RuleLine) -> bool:
    if winner is rule:
        return False
    # An allow of an index page also speaks for its directory; a disallow does not.
    return winner.rule.allow or not (rule.rule.allow and "/index.htm" in rule.pattern)


def same_paths(line: RuleLine) -> str | None:
    """Return a key that rules share if they match the same paths; None for rules that match none,
    or restrict nothing."""
    pattern = line.pattern
    if pattern[:1] not in ("/", "*"):
        return None
    pattern = _STARS.sub("*", pattern)
    if pattern.endswith("*$"):
        pattern = pattern[:-1]
    return pattern.removesuffix("*") or "/"


def _shadowed(rule: RuleLine, winner: RuleLine) -> Finding:
    line, other = rule.rule.line, winner.rule
    if winner.pattern == rule.pattern and other.allow == rule.rule.allow:
        return Finding(line, "duplicate", f"same rule as on line {other.line}")
    if len(winner.pattern) > len(rule.pattern):
        why = "is longer"
    elif other.allow != rule.rule.allow:
        why = "wins: Allow beats a Disallow of the same length"
    else:
        why = "comes first"
    message = f"never decides: line {other.line} ({other}) matches the same URLs and {why}"
    return Finding(line, "shadowed", message)


# How many agents are asked about, and how many things are named in one finding.
_ASKED, _NAMED = 50, 3

# Pairs of a path and a rule with a wildcard: with more the file is hostile, and only its other
# findings count. Longer paths aren't tried.
_MAX_TRIALS, _MAX_PATH = 200_000, 500

_SHOWN = 60  # characters of a rule

_ASSETS = re.compile(
    r"\.(?:css|js)\b|/(?:css|js|javascripts?|scripts?|styles?|stylesheets?|assets|static|_next|"
    r"wp-includes)(?=[/*$]|\Z)",
    re.IGNORECASE,
)


def effect_findings(
    kept: bytes, outline: Outline, robots_url: str | None = None
) -> Iterator[Finding]:
    """:param robots_url: where the file is from; None: unknown. Then all sitemaps may be on its host"""
    robots = RobotsTxt.parse(kept)
    tokens = dict.fromkeys([GLOBAL, *(token.lower() for token in outline.tokens())])
    rules = {agent: robots.rules(agent)[1] for agent in islice(tokens, _ASKED)}
    # How many rules with a wildcard a path is compared with.
    costs = {agent: 1 + sum("*" in r.pattern for r in outline.rules_for(agent)) for agent in rules}
    if closed := _closed(outline):
        named = [token for token in outline.tokens() if token != GLOBAL]
        but = f" but {_some(named)}, which have groups of their own" if named else ""
        yield Finding(closed, "site-closed", f"the whole site is closed to all crawlers{but}")
    else:
        yield from _lost(outline, rules, costs)
    yield from _assets(outline, rules, costs)
    yield from _sitemaps(outline, rules, robots_url)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _closed(outline: Outline) -> int:
    """Return the line that closes the whole site to all crawlers, 0 if none does."""
    line = 0
    for rule in outline.rules_for(GLOBAL):
        if rule.rule.allow and same_paths(rule) is not None:
            return 0
        if same_paths(rule) == "/":
            line = line or rule.rule.line
    return line


def _lost(outline: Outline, rules: dict[str, Rules], costs: dict[str, int]) -> Iterator[Finding]:
    """Yield groups that allow what ``*`` forbids, unless they say "everything" explicitly."""
    examples = [
        (path, f"{rule.rule.pattern[:_SHOWN]} (line {rule.rule.line})")
        for rule in outline.rules_for(GLOBAL)
        if not rule.rule.allow and (path := _example_of(rule.pattern))
    ]
    if len(examples) * sum(costs.values()) > _MAX_TRIALS:
        return
    forbidden = [(path, what) for path, what in examples if not rules[GLOBAL].allows(path)]
    seen = {GLOBAL}
    for group in outline.groups:
        names = {
            agent.token: agent
            for agent in group.agents
            if agent.token in rules and agent.token not in seen
        }
        seen |= names.keys()
        own = [rule for token in names for rule in outline.rules_for(token)]
        if not names or any(_opens_all(rule) for rule in own):
            continue
        token, agent = next(iter(names.items()))
        lost = [what for path, what in forbidden if rules[token].allows(path)]
        if lost:
            yield Finding(agent.line, "lost-rules", (
                f"{_some([one.value for one in names.values()])} may fetch {_some(lost)}: a crawler "
                "with a group of its own ignores the * group"
            ))  # fmt: skip


def _opens_all(rule: RuleLine) -> bool:
    return not rule.pattern or (rule.rule.allow and same_paths(rule) == "/")


def _example_of(pattern: str) -> str:
    """Return a path that a pattern matches, "" if none comes to mind."""
    if pattern[:1] not in ("/", "*") or len(pattern) > _MAX_PATH:
        return ""
    path = pattern.removesuffix("$").replace("*", "")
    return path if path[:1] == "/" else f"/{path}"


def _assets(outline: Outline, rules: dict[str, Rules], costs: dict[str, int]) -> Iterator[Finding]:
    """Yield rules that keep crawlers from style sheets and scripts."""
    hiding = [
        (rule, token, paths)
        for group in outline.groups
        if (token := next((one.token for one in group.agents if one.token in rules), None))
        for rule in group.rules
        if (paths := _files_behind(rule))
    ]
    if sum(len(paths) * costs[token] for _, token, paths in hiding) > _MAX_TRIALS:
        return
    for rule, token, paths in hiding:
        if not all(map(rules[token].allows, paths)):
            why = (
                "hides style sheets or scripts: a search engine may then see a page differently from "
                "people"
            )
            yield Finding(rule.rule.line, "blocked-assets", why)


def _files_behind(line: RuleLine) -> list[str]:
    """Return style sheets and scripts that a rule seems to forbid."""
    found = _ASSETS.search(line.pattern)
    path = _example_of(line.pattern[: found.end()]) if found else ""
    if line.rule.allow or not path or not found:
        return []
    return [path] if found[0][0] == "." else [f"{path}/site.css", f"{path}/site.js"]


def _sitemaps(
    outline: Outline, rules: dict[str, Rules], robots_url: str | None
) -> Iterator[Finding]:
    own = Origin.from_url(robots_url) if robots_url else None
    base = robots_url or "http://host.invalid/robots.txt"
    for line, value in outline.sitemaps:
        if not value:
            yield Finding(line, "bad-sitemap", "ignored: no URL")
            continue
        try:
            url, origin, relative = resolve_sitemap(value, base)
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
            condition = "" if own is not None or relative else "if it is on this host, "
            why = f"{condition}this file forbids it to {_some(by)}"
            yield Finding(line, "sitemap-disallowed", why)
