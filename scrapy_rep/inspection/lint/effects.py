"""What the rules come to, taken together: for the whole site, for a crawler with a group of its own,
for what pages need, for sitemaps (REP.md sections 7 to 9)."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.inspection.lint.groups import same_paths
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import allows, comparable, line_of, path_of
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_rep.inspection.outline import Outline, RuleLine
    from scrapy_rep.protocol.matching import Rules

# How many agents are asked about, and how many things are named in one finding.
_ASKED, _NAMED = 50, 3

# Pairs of a path and a rule with a wildcard: with more the file is hostile, and only its other
# findings count. Longer paths aren't tried.
_MAX_PAIRS, _MAX_PATH = 200_000, 500

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
    closed = _closed(outline)
    if closed:
        named = [token for token in outline.tokens() if token != GLOBAL]
        but = f" but {_some(named)}, which have groups of their own" if named else ""
        yield Finding(closed, "site-closed", f"the whole site is closed to all crawlers{but}")
    else:
        yield from _lost(outline, rules)
    yield from _assets(outline, rules)
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


def _lost(outline: Outline, rules: dict[str, Rules]) -> Iterator[Finding]:
    """Yield groups that allow what ``*`` forbids, unless they say "everything" explicitly."""
    forbidden = [
        (path, f"{rule.rule.pattern[:_SHOWN]} (line {rule.rule.line})")
        for rule in outline.rules_for(GLOBAL)
        if not rule.rule.allow and (path := _example_of(rule.pattern))
        if not rules[GLOBAL].allows(path)
    ]
    seen = {GLOBAL}
    for group in outline.groups:
        names = {
            agent.token: agent
            for agent in group.agents
            if agent.token in rules and agent.token not in seen
        }
        seen |= names.keys()
        own = [rule for token in names for rule in outline.rules_for(token)]
        if not names or any(_opens_all(rule) for rule in own) or _too_many(forbidden, own):
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


def _too_many(paths: Sequence[object], own: Sequence[RuleLine]) -> bool:
    wildcards = sum("*" in rule.pattern for rule in own)
    return len(paths) * (1 + wildcards) > _MAX_PAIRS


def _example_of(pattern: str) -> str:
    """Return a path that a pattern matches, "" if none comes to mind."""
    if pattern[:1] not in ("/", "*") or len(pattern) > _MAX_PATH:
        return ""
    path = pattern.removesuffix("$").replace("*", "")
    return path if path[:1] == "/" else f"/{path}"


def _assets(outline: Outline, rules: dict[str, Rules]) -> Iterator[Finding]:
    """Yield rules that keep crawlers from style sheets and scripts."""
    for group in outline.groups:
        tokens = [agent.token for agent in group.agents if agent.token in rules]
        hiding = [(rule, paths) for rule in group.rules if (paths := _files_behind(rule))]
        if not tokens or _too_many(hiding, group.rules):
            continue
        for rule, paths in hiding:
            if any(not rules[tokens[0]].allows(path) for path in paths):
                why = (
                    "hides style sheets or scripts: a search engine may then see a page otherwise "
                    "than people do"
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
