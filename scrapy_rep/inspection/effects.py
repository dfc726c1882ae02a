"""What crawlers may fetch, and whether their site's owner may have meant something else. Each crawler
that is named has been asked for: the matcher has decided with its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, pairwise

from scrapy_rep.inspection.findings import Finding, finding, shortened, some
from scrapy_rep.inspection.patterns import BLANK, can_match, example_of, matches_all
from scrapy_rep.protocol import AgentLine, Group, Origin, RobotsTxt, RuleLine
from scrapy_rep.protocol.matching import Rules, allows, comparable, line_of, path_of
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.robotstxt import Groups, Pace, delay_seconds, rate_seconds
from scrapy_rep.protocol.syntax import GLOBAL, RULES, normalise, readable, readable_url
from scrapy_rep.text import resolve_sitemap

# Agents that are asked for: a file may name a hundred thousand.
_MAX_ASKED = 50

# Comparisons of a path and a rule with a wildcard, or of a path and an agent's rules: with more, the
# file is hostile, and only what is wrong with its lines is said.
_MAX_TRIALS = 1_000_000

# Rules of a group that are tried, to find one that its agents obey.
_MAX_WITNESSES = 10

# Search engines, of which it matters whether they may fetch a site, and see it as people do.
_ENGINES = ("googlebot", "bingbot", "duckduckbot")

DELAYS = {"crawl-delay": delay_seconds, "request-rate": rate_seconds}
"""Fields that ask for a pause between two requests, and what reads their seconds."""

# A path that only rules for all paths are likely to match.
_ANY_PATH = "/any-page"


class Crawlers:
    """The crawlers that a file names, and ``*``. Knows the rules of the first fifty."""

    def __init__(self, kept: bytes, outline: Outline) -> None:
        self.outline = outline
        names = {token.lower(): token for token in outline.tokens()}
        engines = [token for token in _ENGINES if token in names]
        asked = list(dict.fromkeys([GLOBAL, *engines, *names]))[:_MAX_ASKED]
        self.spelling = {token: names.get(token, token) for token in asked}
        robots = RobotsTxt.parse(kept)
        groups = Groups(normalise(kept))
        self.rules: dict[str, Rules] = {
            token: robots.rules(token, groups=groups)[1] for token in asked
        }
        has_delays = any(field in DELAYS for field, _ in outline.fields.values())
        self.paces = {
            token: robots.pace(token, groups=groups) if has_delays else Pace()
            for token in asked
        }
        self._groups: dict[str, list[Group]] = {token: [] for token in [GLOBAL, *names]}
        for group in outline.groups:
            for token in dict.fromkeys(agent.token for agent in group.agents):
                if token:
                    self._groups[token].append(group)
        covers = {id(group): _longest_of_all_paths(group) for group in outline.groups}
        self.closed = {
            token for token in self._groups if self._is_closed(token, covers)
        }
        """Those that may fetch nothing."""

    @cached_property
    def open(self) -> list[str]:
        """Those that may fetch something, of those that are asked for."""
        return [token for token in self.rules if self.path_for(token)]

    def _is_closed(self, token: str, covers: dict[int, tuple[int, int]]) -> bool:
        lengths = [covers[id(group)] for group in self._groups[token]]
        disallowed = max((disallow for disallow, _ in lengths), default=0)
        return disallowed > max((allow for _, allow in lengths), default=0)

    @property
    def names(self) -> list[str]:
        """The tokens that the file names, in lower case, whether they are asked for or not."""
        return [token for token in self._groups if token != GLOBAL]

    def rules_of(self, token: str) -> list[RuleLine]:
        return [line for group in self._groups[token] for line in group.rules]

    def path_for(self, token: str) -> str:
        """Return a path that an agent may fetch, "" if none comes to mind."""
        allowed = [line.pattern for line in self.rules_of(token) if line.rule.allow]
        for path in ["/", _ANY_PATH, *map(example_of, allowed[:_MAX_WITNESSES])]:
            if path and not BLANK.search(path) and self.rules[token].allows(path):
                return path
        return ""

    def trials(self) -> int:
        """Return about how many comparisons all checks take."""
        lines = [self.rules_of(token) for token in self.rules]
        wildcards = sum("*" in line.pattern for line in chain.from_iterable(lines))
        fields = [kind for kind, _ in self.outline.fields.values()]
        asked = sum(kind in RULES or kind == "sitemap" for kind in fields)
        asked += _MAX_WITNESSES * len(self.outline.groups)
        return asked * (len(self.rules) + wildcards)


def _longest_of_all_paths(group: Group) -> tuple[int, int]:
    """Return how long the longest rule is that disallows all paths, and the longest that allows any."""
    disallow = allow = 0
    for line in group.rules:
        if line.rule.allow and can_match(line.pattern):
            allow = max(allow, len(line.pattern))
        elif not line.rule.allow and matches_all(line.pattern):
            disallow = max(disallow, len(line.pattern))
    return disallow, allow


def effects(kept: bytes, outline: Outline, robots_url: str | None) -> Iterator[Finding]:
    crawlers = Crawlers(kept, outline)
    is_small = crawlers.trials() <= _MAX_TRIALS
    lost: list[Finding] = []
    if GLOBAL in crawlers.closed:
        yield _site_closed(crawlers, is_small)
    elif is_small:
        yield from _engine_closed(crawlers)
        lost = list(_lost_rules(crawlers))
        yield from lost
    if _only_allows(outline):
        yield finding(None, "only-allows")
    if is_small:
        losers = {agent.lower() for item in lost for agent in item.agents}
        texts = normalise(kept).split("\n")
        for group in outline.groups:
            yield from _joined_agents(crawlers, group, texts)
            yield from _assets(crawlers, group)
            if not group.rules:
                yield from _empty_group(crawlers, group, losers)
    yield from _delays(crawlers)
    yield from _sitemaps(crawlers, robots_url, is_small)


def _deciding_line(rules: Rules, path: str) -> int:
    """Return the line that decides, 0 for none."""
    key = rules.find(path)
    return line_of(key) if key else 0


# -- closed and open -------------------------------------------------------------------------


def _site_closed(crawlers: Crawlers, is_small: bool) -> Finding:
    line = _deciding_line(crawlers.rules[GLOBAL], _ANY_PATH)
    others = [token for token in crawlers.names if token not in crawlers.closed]
    if not others:
        return finding(line, "site-closed", exception="", agents=[GLOBAL])
    exception = " without a group of their own"
    if is_small and set(others) <= set(crawlers.open):
        exception = f" but {some([crawlers.spelling[token] for token in others])}"
    return finding(line, "site-closed", exception=exception, agents=[GLOBAL])


def _engine_closed(crawlers: Crawlers) -> Iterator[Finding]:
    path = crawlers.path_for(GLOBAL)
    lines: dict[int, list[str]] = {}
    for token in _ENGINES:
        if path and token in crawlers.closed:
            line = _deciding_line(crawlers.rules[token], _ANY_PATH)
            lines.setdefault(line, []).append(crawlers.spelling[token])
    for line, agents in lines.items():
        yield finding(line, "engine-closed", agents=agents, path=path)


def _only_allows(outline: Outline) -> bool:
    lines = [line for group in outline.groups for line in group.rules if line.pattern]
    has_part = any(
        can_match(line.pattern) and not matches_all(line.pattern) for line in lines
    )
    return has_part and all(line.rule.allow for line in lines)


def _lost_rules(crawlers: Crawlers) -> Iterator[Finding]:
    """Yield groups that allow what ``*`` forbids, unless they say "everything" explicitly."""
    forbidden: list[tuple[str, str]] = []
    for line in crawlers.rules_of(GLOBAL):
        path = "" if line.rule.allow else example_of(line.pattern)
        if path and not crawlers.rules[GLOBAL].allows(path):
            forbidden.append(
                (path, f"{shortened(line.rule.pattern)} (line {line.rule.line})")
            )
    first_lines: dict[tuple[str, ...], int] = {}
    losers: dict[tuple[str, ...], list[str]] = {}
    for agent in _first_lines(crawlers):
        token = agent.token
        if token == GLOBAL or _says_everything(crawlers.rules_of(token)):
            continue
        rules = crawlers.rules[token]
        lost = tuple(named for path, named in forbidden if rules.allows(path))
        if lost:
            first_lines.setdefault(lost, agent.line)
            losers.setdefault(lost, []).append(crawlers.spelling[token])
    for lost, agents in losers.items():
        yield finding(
            first_lines[lost],
            "lost-rules",
            agents=agents,
            lost=some(lost),
            topic="; ".join(lost),
        )


def _first_lines(crawlers: Crawlers) -> list[AgentLine]:
    """Return the first user-agent line of each crawler that is asked for."""
    first: dict[str, AgentLine] = {}
    for group in crawlers.outline.groups:
        for agent in group.agents:
            if agent.token in crawlers.rules:
                first.setdefault(agent.token, agent)
    return list(first.values())


def _says_everything(lines: list[RuleLine]) -> bool:
    """An empty pattern, and an allow of all paths, say that everything is open."""
    return any(
        not line.pattern or (line.rule.allow and matches_all(line.pattern))
        for line in lines
    )


# -- groups ----------------------------------------------------------------------------------


def _joined_agents(
    crawlers: Crawlers, group: Group, texts: list[str]
) -> Iterator[Finding]:
    """Yield a group whose agents were hardly meant to share their rules: something other than a
    comment stands between its user-agent lines."""
    between: list[str] = []
    last_part = group.agents[0].line
    for agent, following in pairwise(group.agents):
        gap = _gap(texts[agent.line : following.line - 1])
        if gap:
            between += gap
            last_part = following.line
    own = {agent.token for agent in group.agents if agent.line >= last_part}
    above = dict.fromkeys(
        agent.token for agent in group.agents if agent.line < last_part
    )
    joined = [token for token in above if token in crawlers.rules and token not in own]
    # What is forbidden says more than what is allowed.
    rules = sorted(group.rules, key=lambda line: (not line.pattern, line.rule.allow))
    for line in rules[:_MAX_WITNESSES] if joined else ():
        path = example_of(line.pattern) if line.pattern else _ANY_PATH
        number = line.rule.line
        obeying = [
            token
            for token in joined
            if path and _deciding_line(crawlers.rules[token], path) == number
        ]
        if obeying:
            yield finding(
                last_part,
                "joined-agents",
                agents=[crawlers.spelling[token] for token in obeying],
                gap=_gap_in_words(between),
                line=number,
                rule=shortened(str(line.rule)),
            )
            return


def _gap(texts: list[str]) -> list[str]:
    """Return what stands between two user-agent lines: names of fields, "" for a blank line."""
    contents = [readable(text).strip() for text in texts]
    return [
        content.partition(":")[0].strip().lower()
        for content in contents
        if not content.startswith("#")
    ]


def _gap_in_words(names: list[str]) -> str:
    fields = [shortened(name) for name in dict.fromkeys(names) if name]
    if not fields:
        return "a blank line stands"
    verb = "stands" if len(fields) == 1 else "stand"
    return f"{some(fields)} {verb}"


def _empty_group(
    crawlers: Crawlers, group: Group, losers: set[str]
) -> Iterator[Finding]:
    """Yield agents of a group without rules that have none elsewhere. Of *losers* more is said."""
    tokens = dict.fromkeys(agent.token for agent in group.agents)
    agents = [
        crawlers.spelling[token]
        for token in tokens
        if token in crawlers.rules
        and not crawlers.rules_of(token)
        and token not in losers
    ]
    if agents:
        yield finding(group.agents[0].line, "empty-group", agents=agents)


def _delays(crawlers: Crawlers) -> Iterator[Finding]:
    """Yield lines that ask for a pause, with the crawlers for which they are the slowest."""
    asked: dict[int, list[str]] = {}
    lines = {
        line: (field, seconds)
        for line, (field, value) in crawlers.outline.fields.items()
        if field in DELAYS and (seconds := DELAYS[field](value)) is not None
    }
    for token, name in crawlers.spelling.items() if lines else ():
        pace = crawlers.paces[token]
        for line in {
            ask.line for ask in (pace.crawl_delay, pace.slowest) if ask is not None
        }:
            asked.setdefault(line, []).append(name)
    groups = crawlers.outline.groups
    first_group = groups[0].agents[0].line if groups else None
    for line, (field, seconds) in lines.items():
        agents = asked.get(line, [])
        if first_group is None or line < first_group:
            yield finding(line, "delay-before-group")
        elif agents:
            yield finding(
                line, "other-delay", topic=field, agents=agents, seconds=seconds
            )


_ASSETS = re.compile(
    r"\.(?:css|js)\b|/(?:css|js|javascripts?|scripts?|styles?|stylesheets?|assets|static|_next|"
    r"wp-includes)(?=[/*$]|\Z)",
    re.IGNORECASE,
)


def _assets(crawlers: Crawlers, group: Group) -> Iterator[Finding]:
    """Yield rules that keep search engines from style sheets and scripts."""
    tokens = dict.fromkeys(agent.token for agent in group.agents)
    engines = [
        token
        for token in tokens
        if token in crawlers.rules and token in (GLOBAL, *_ENGINES)
    ]
    for line in group.rules:
        asset = None if line.rule.allow else _ASSETS.search(line.pattern)
        if asset is None or not engines:
            continue
        path = example_of(line.pattern[: asset.end()].replace("*.", "site."))
        files = (
            [path] if asset[0][0] == "." else [f"{path}/site.css", f"{path}/site.js"]
        )
        for file in files if path else ():
            hidden_from = [
                crawlers.spelling[token]
                for token in engines
                if _deciding_line(crawlers.rules[token], file) == line.rule.line
                and not crawlers.rules[token].allows(file)
            ]
            if hidden_from:
                yield finding(
                    line.rule.line,
                    "blocked-assets",
                    path=shortened(file),
                    agents=hidden_from,
                )
                break


# -- sitemaps --------------------------------------------------------------------------------

_URLS_JOINED = re.compile(
    r"\S[,;\s]\s*(?:https?://|/)\S|\.(?:xml|txt|gz)[,;\s]\s*\S", re.IGNORECASE
)


def _sitemaps(
    crawlers: Crawlers, place: str | None, is_small: bool
) -> Iterator[Finding]:
    """:param place: the URL of the file; None: unknown. Then all sitemaps may be on its host"""
    own = Origin.from_url(place) if place else None
    base = place or "http://host.invalid/robots.txt"
    for line, (field, value) in crawlers.outline.fields.items():
        if field != "sitemap":
            continue
        if _URLS_JOINED.search(value):
            yield finding(line, "sitemaps-joined")
            continue
        try:
            if not value:
                raise ValueError("no URL")
            url, origin, is_relative = resolve_sitemap(readable_url(value), base)
        except ValueError as error:
            yield finding(line, "bad-sitemap", topic=str(error), why=error)
            continue
        if is_relative:
            yield finding(line, "relative-sitemap")
        if is_small and own in (None, origin):
            condition = "" if own or is_relative else "if it is on this host, "
            yield from _sitemap_disallowed(
                crawlers, line, comparable(path_of(url)), condition
            )


def _sitemap_disallowed(
    crawlers: Crawlers, line: int, path: str, condition: str
) -> Iterator[Finding]:
    """Yield a sitemap that is closed to crawlers that may fetch other things."""
    lines = {
        crawlers.spelling[token]: line_of(key)
        for token in crawlers.open
        if not allows(key := crawlers.rules[token].find(path))
    }
    if lines:
        whom = some([f"{agent} (line {number})" for agent, number in lines.items()])
        yield finding(
            line,
            "sitemap-disallowed",
            agents=[*lines],
            topic=whom,
            condition=condition,
            whom=whom,
        )
