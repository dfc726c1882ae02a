"""What crawlers may fetch, and whether their site's owner may have meant something
else. Nothing is guessed from the text of rules: the matcher that crawls use decides on
example paths, with the rules of each crawler that the file names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from scrapy_rep.inspection.findings import Finding, finding, first_few, shortened
from scrapy_rep.inspection.patterns import BLANK, can_match, example_of, matches_all
from scrapy_rep.protocol import AgentLine, Group, Origin, RobotsTxt, RuleLine
from scrapy_rep.protocol.matching import Rules, allows, comparable, line_of, path_of
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.robotstxt import Groups, Pace, delay_seconds, rate_seconds
from scrapy_rep.protocol.syntax import GLOBAL, RULES, normalise, readable, readable_url
from scrapy_rep.text import resolve_sitemap

# Of the crawlers that a file names, which may be a hundred thousand, the first fifty
# are examined.
_MAX_EXAMINED = 50

# A comparison matches a path with one rule that has a wildcard, or with all other rules
# of a crawler at once. A file that would take more comparisons than this is hostile,
# and the checks that compare paths are left out.
_MAX_COMPARISONS = 1_000_000

# Only this many rules of a group are tried to find one that its agents obey, or that
# lets them fetch a path.
_MAX_TRIED_RULES = 10

# Search engines, in lower case. It matters whether they may fetch a site, and see it as
# people do.
_ENGINES = ("googlebot", "bingbot", "duckduckbot")

DELAYS = {"crawl-delay": delay_seconds, "request-rate": rate_seconds}
"""Fields that ask for a pause between two requests, and what reads their seconds."""

# A path that only rules for all paths are likely to match.
_ANY_PATH = "/any-page"


class Crawlers:
    """The crawlers that a file names, and ``*``. Fifty of them, ``*`` and search
    engines first, are examined. Only the rules of these fifty are known.

    Crawlers go by their tokens in lower case here; :attr:`spelling` has the tokens as
    the file spells them.
    """

    def __init__(self, kept: bytes, outline: Outline) -> None:
        """*kept*: the part of the file that counts; *outline*: its lines."""
        self.outline = outline
        names = {token.lower(): token for token in outline.tokens()}
        engines = [token for token in _ENGINES if token in names]
        # Each token is here once, the most important first.
        tokens = list(dict.fromkeys([GLOBAL, *engines, *names]))
        examined = tokens[:_MAX_EXAMINED]
        has_delays = _has_delays(outline)
        robots = RobotsTxt.parse(kept)
        groups = Groups(normalise(kept))  # the file is read once for all crawlers
        self.spelling: dict[str, str] = {}
        """The crawlers that are examined, as the file spells them, by their tokens."""
        self.rules: dict[str, Rules] = {}
        """The rules of each crawler that is examined, ready for the matcher."""
        self.paces: dict[str, Pace] = {}
        """How slowly each crawler that is examined is asked to crawl."""
        for token in examined:
            self.spelling[token] = names.get(token, token)
            _, self.rules[token] = robots.rules(token, groups=groups)
            self.paces[token] = Pace()  # no delay, which spares a search
            if has_delays:
                self.paces[token] = robots.pace(token, groups=groups)
        self._groups = _groups_by_token(outline)
        """The groups of all tokens that the file names, and of ``*``."""
        self.closed = _closed_tokens(self._groups)
        """The tokens, examined or not, that may fetch nothing."""

    @cached_property
    def open(self) -> list[str]:
        """The tokens of examined crawlers that may fetch something."""
        return [token for token in self.rules if self.path_for(token)]

    @property
    def names(self) -> list[str]:
        """The tokens that the file names, whether they are examined or not."""
        return [token for token in self._groups if token != GLOBAL]

    def rules_of(self, token: str) -> list[RuleLine]:
        """Return the rules of all groups that name *token*, as they stand in the
        file."""
        lines = []
        for group in self._groups[token]:
            lines += group.rules
        return lines

    def path_for(self, token: str) -> str:
        """Return a path that the crawler *token* may fetch; "" if no path that is tried
        is allowed."""
        paths = ["/", _ANY_PATH]
        allow_lines = [line for line in self.rules_of(token) if line.rule.allow]
        for line in allow_lines[:_MAX_TRIED_RULES]:
            paths.append(example_of(line.pattern))
        for path in paths:
            if path and not BLANK.search(path) and self.rules[token].allows(path):
                return path
        return ""

    def comparisons(self) -> int:
        """Return about how many comparisons all checks take (see _MAX_COMPARISONS)."""
        wildcards = 0
        for token in self.rules:
            for line in self.rules_of(token):
                if "*" in line.pattern:
                    wildcards += 1
        paths = _MAX_TRIED_RULES * len(self.outline.groups)
        for name, _ in self.outline.fields.values():
            if name in RULES or name == "sitemap":
                paths += 1
        # Each path is compared once with each crawler's plain rules, and with each
        # wildcard rule.
        return paths * (len(self.rules) + wildcards)


def _has_delays(outline: Outline) -> bool:
    """Return whether any line asks for a pause between two requests."""
    return any(name in DELAYS for name, _ in outline.fields.values())


def _groups_by_token(outline: Outline) -> dict[str, list[Group]]:
    """Return the groups that name each token. Tokens are in the order of the file, but
    ``*`` comes first."""
    groups_by_token: dict[str, list[Group]] = {GLOBAL: []}
    for group in outline.groups:
        for token in _tokens_of(group):
            if token:  # "" for a line that names no crawler
                groups = groups_by_token.setdefault(token, [])
                groups.append(group)
    return groups_by_token


def _tokens_of(group: Group) -> list[str]:
    """Return the tokens that a group names, each once."""
    return list(dict.fromkeys(agent.token for agent in group.agents))


class _Longest(NamedTuple):
    """How many characters the longest patterns of a group have, 0 if there is no such
    pattern. The longest pattern that matches a path decides."""

    disallow_of_all_paths: int
    """Of the patterns that disallow all paths."""
    allow: int
    """Of the patterns that allow at least one path."""


def _closed_tokens(groups_by_token: dict[str, list[Group]]) -> set[str]:
    """Return the tokens that may fetch nothing: those with a rule that disallows all
    paths and is longer than each rule that allows something."""
    # Many tokens may share a group, so each group is measured once.
    longest_by_group: dict[int, _Longest] = {}
    closed = set()
    for token, groups in groups_by_token.items():
        disallow_of_all_paths = 0
        allow = 0
        for group in groups:
            longest = longest_by_group.get(id(group))
            if longest is None:
                longest = _longest_of(group)
                longest_by_group[id(group)] = longest
            disallow_of_all_paths = max(
                disallow_of_all_paths, longest.disallow_of_all_paths
            )
            allow = max(allow, longest.allow)
        if disallow_of_all_paths > allow:
            closed.add(token)
    return closed


def _longest_of(group: Group) -> _Longest:
    """Measure the patterns of a group."""
    disallow_of_all_paths = 0
    allow = 0
    for line in group.rules:
        length = len(line.pattern)
        if line.rule.allow and can_match(line.pattern):
            allow = max(allow, length)
        elif not line.rule.allow and matches_all(line.pattern):
            disallow_of_all_paths = max(disallow_of_all_paths, length)
    return _Longest(disallow_of_all_paths, allow)


def effects(kept: bytes, outline: Outline, robots_url: str | None) -> Iterator[Finding]:
    """Yield what there is to say about what crawlers may fetch.

    :param kept: the part of the file that counts
    :param outline: the lines of this part
    :param robots_url: where the file is from; None if that isn't known
    """
    crawlers = Crawlers(kept, outline)
    # Whether there is time for the checks that compare paths.
    is_small = crawlers.comparisons() <= _MAX_COMPARISONS
    lost_rules: list[Finding] = []
    if GLOBAL in crawlers.closed:
        yield _site_closed(crawlers, is_small)
    elif is_small:
        yield from _engine_closed(crawlers)
        lost_rules = list(_lost_rules(crawlers))
        yield from lost_rules
    if _only_allows(outline):
        yield finding(None, "only-allows")
    if is_small:
        losers = {agent.lower() for item in lost_rules for agent in item.agents}
        texts = normalise(kept).split("\n")
        for group in outline.groups:
            yield from _joined_agents(crawlers, group, texts)
            yield from _assets(crawlers, group)
            if not group.rules:
                yield from _empty_group(crawlers, group, losers)
    yield from _delays(crawlers)
    yield from _sitemaps(crawlers, robots_url, is_small)


def _deciding_line(rules: Rules, path: str) -> int:
    """Return the number of the line that decides about *path*; 0 if no rule matches."""
    key = rules.find(path)
    return line_of(key) if key else 0


# -- closed and open -------------------------------------------------------------------------


def _site_closed(crawlers: Crawlers, is_small: bool) -> Finding:
    """Return the finding that the ``*`` group is closed, with the exceptions to it.

    :param is_small: whether there is time to find out which crawlers may fetch
        something
    """
    open_names = [token for token in crawlers.names if token not in crawlers.closed]
    exception = ""
    if open_names:
        exception = " without a group of their own"
        # These crawlers can be named only if for each of them a path is known that it
        # may fetch.
        if is_small and set(open_names) <= set(crawlers.open):
            agents = [crawlers.spelling[token] for token in open_names]
            exception = f" but {first_few(agents)}"
    line = _deciding_line(crawlers.rules[GLOBAL], _ANY_PATH)
    return finding(line, "site-closed", exception=exception, agents=[GLOBAL])


def _engine_closed(crawlers: Crawlers) -> Iterator[Finding]:
    """Yield lines that close the whole site to search engines, while ``*`` may fetch
    something."""
    open_path = crawlers.path_for(GLOBAL)
    if not open_path:
        return
    engines_by_line: dict[int, list[str]] = {}
    for token in _ENGINES:
        if token in crawlers.closed:
            rules = crawlers.rules[token]
            line = _deciding_line(rules, _ANY_PATH)
            engines = engines_by_line.setdefault(line, [])
            engines.append(crawlers.spelling[token])
    for line, engines in engines_by_line.items():
        yield finding(line, "engine-closed", agents=engines, path=open_path)


def _only_allows(outline: Outline) -> bool:
    """Return whether a file disallows nothing, while one of its rules allows some paths
    only, as if all others were forbidden."""
    allows_part = False
    for group in outline.groups:
        for line in group.rules:
            if line.pattern and not line.rule.allow:
                return False
            if can_match(line.pattern) and not matches_all(line.pattern):
                allows_part = True
    return allows_part


class _Forbidden(NamedTuple):
    """Something that the ``*`` group forbids."""

    path: str
    """A path that the rule matches."""
    rule: str
    """The rule, with its line, as a finding names it."""


def _lost_rules(crawlers: Crawlers) -> Iterator[Finding]:
    """Yield crawlers whose own groups let them fetch what ``*`` forbids, unless these
    groups say explicitly that everything is open."""
    forbidden = _forbidden_to_all(crawlers)
    # Crawlers that lose the same rules of * are put together in one finding.
    losers_by_rules: dict[tuple[str, ...], list[AgentLine]] = {}
    for agent in _first_lines(crawlers):
        token = agent.token
        if token == GLOBAL or _opens_everything(crawlers.rules_of(token)):
            continue
        rules = crawlers.rules[token]
        lost = tuple(item.rule for item in forbidden if rules.allows(item.path))
        if lost:
            losers = losers_by_rules.setdefault(lost, [])
            losers.append(agent)
    for lost, losers in losers_by_rules.items():
        yield finding(
            losers[0].line,
            "lost-rules",
            agents=[crawlers.spelling[agent.token] for agent in losers],
            lost=first_few(lost),
            topic="; ".join(lost),
        )


def _forbidden_to_all(crawlers: Crawlers) -> list[_Forbidden]:
    """Return what the disallow rules of the ``*`` group forbid, each with a path as an
    example. Rules that another one overrules there are left out."""
    forbidden = []
    for line in crawlers.rules_of(GLOBAL):
        if line.rule.allow:
            continue
        path = example_of(line.pattern)
        if path and not crawlers.rules[GLOBAL].allows(path):
            pattern = shortened(line.rule.pattern)
            rule = f"{pattern} (line {line.rule.line})"
            forbidden.append(_Forbidden(path, rule))
    return forbidden


def _first_lines(crawlers: Crawlers) -> list[AgentLine]:
    """Return the first user-agent line of each crawler that is examined."""
    first_by_token: dict[str, AgentLine] = {}
    for group in crawlers.outline.groups:
        for agent in group.agents:
            if agent.token in crawlers.rules:
                first_by_token.setdefault(agent.token, agent)
    return list(first_by_token.values())


def _opens_everything(lines: list[RuleLine]) -> bool:
    """Return whether one of *lines* says that everything is open: by an empty pattern,
    or by an allow rule for all paths."""
    for line in lines:
        if not line.pattern or (line.rule.allow and matches_all(line.pattern)):
            return True
    return False


# -- groups ----------------------------------------------------------------------------------


def _joined_agents(
    crawlers: Crawlers,
    group: Group,
    texts: list[str],
) -> Iterator[Finding]:
    """Yield a group whose agents were hardly meant to share their rules, since
    something other than a comment stands between its user-agent lines.

    :param texts: the lines of the file
    """
    gaps: list[str] = []  # what stands between user-agent lines, see _gap()
    line_below = group.agents[0].line  # the first user-agent line below all gaps
    for agent, next_agent in pairwise(group.agents):
        # Lines are counted from 1, and the indices of texts from 0.
        texts_between = texts[agent.line : next_agent.line - 1]
        gap = _gap(texts_between)
        if gap:
            gaps += gap
            line_below = next_agent.line
    # Sort the agents into those below and those above the last gap.
    tokens_below = set()
    for agent in group.agents:
        if agent.line >= line_below:
            tokens_below.add(agent.token)
    tokens_above = []  # of agents hardly meant to obey the rules below the gaps
    for token in _tokens_of(group):
        if token in crawlers.rules and token not in tokens_below:
            tokens_above.append(token)
    if not tokens_above:
        return
    # One rule is enough to show that the agents share rules. A disallow says more than
    # an allow.
    rules = sorted(group.rules, key=_says_less)
    for line in rules[:_MAX_TRIED_RULES]:
        path = example_of(line.pattern) if line.pattern else _ANY_PATH
        if not path:
            continue
        obeying = []
        for token in tokens_above:
            rules_of_token = crawlers.rules[token]
            if _deciding_line(rules_of_token, path) == line.rule.line:
                obeying.append(crawlers.spelling[token])
        if obeying:
            yield finding(
                line_below,
                "joined-agents",
                agents=obeying,
                gap=_gap_in_words(gaps),
                line=line.rule.line,
                rule=shortened(str(line.rule)),
            )
            return


def _says_less(line: RuleLine) -> tuple[bool, bool]:
    """Return a key to sort rules by: first rules that forbid, then rules that allow,
    then empty rules."""
    return not line.pattern, line.rule.allow


def _gap(texts: list[str]) -> list[str]:
    """Return what stands between two user-agent lines: the name of each line's field,
    or "" for a blank line. Comments are left out."""
    names = []
    for text in texts:
        content = readable(text).strip()
        if not content.startswith("#"):
            name, _, _ = content.partition(":")
            names.append(name.strip().lower())
    return names


def _gap_in_words(names: list[str]) -> str:
    """Return what stands between lines as subject and verb: "crawl-delay stands".

    :param names: what :func:`_gap` returns
    """
    fields = [shortened(name) for name in dict.fromkeys(names) if name]
    if not fields:
        return "a blank line stands"
    verb = "stands" if len(fields) == 1 else "stand"
    return f"{first_few(fields)} {verb}"


def _empty_group(
    crawlers: Crawlers,
    group: Group,
    losers: set[str],
) -> Iterator[Finding]:
    """Yield a group without rules, with those of its agents that have no rules in other
    groups either.

    :param losers: agents about which "lost-rules" says more (:func:`_lost_rules`)
    """
    agents = []
    for token in _tokens_of(group):
        if token not in crawlers.rules or token in losers:
            continue
        if not crawlers.rules_of(token):
            agents.append(crawlers.spelling[token])
    if agents:
        yield finding(group.agents[0].line, "empty-group", agents=agents)


def _delays(crawlers: Crawlers) -> Iterator[Finding]:
    """Yield lines that ask for a pause, each with the crawlers for which it is the
    longest."""
    agents_by_line: dict[int, list[str]] = {}
    for token, agent in crawlers.spelling.items():
        # Some crawlers know only crawl-delay. For them, the slowest crawl-delay line
        # counts, even if a request-rate line is slower.
        pace = crawlers.paces[token]
        slowest_lines = set()
        for delay in (pace.crawl_delay, pace.slowest):
            if delay is not None:
                slowest_lines.add(delay.line)
        for line in slowest_lines:
            agents_by_line.setdefault(line, []).append(agent)
    # The first user-agent line; None without any.
    groups = crawlers.outline.groups
    first_group = groups[0].agents[0].line if groups else None
    for line, (name, value) in crawlers.outline.fields.items():
        if name not in DELAYS:
            continue
        seconds = DELAYS[name](value)
        if seconds is None:  # lint.py finds this line: "bad-delay"
            continue
        agents = agents_by_line.get(line, [])
        if first_group is None or line < first_group:
            yield finding(line, "delay-before-group")
        elif agents:
            yield finding(
                line, "other-delay", topic=name, agents=agents, seconds=seconds
            )


# Patterns that match style sheets or scripts: by the ending of their names, or a usual
# folder's.
_ASSETS = re.compile(
    r"\.(?:css|js)\b|/(?:css|js|javascripts?|scripts?|styles?|stylesheets?|assets|static|_next|"
    r"wp-includes)(?=[/*$]|\Z)",
    re.IGNORECASE,
)


def _assets(crawlers: Crawlers, group: Group) -> Iterator[Finding]:
    """Yield rules that keep search engines from style sheets and scripts."""
    engines = []
    for token in _tokens_of(group):
        if token in crawlers.rules and token in (GLOBAL, *_ENGINES):
            engines.append(token)
    if not engines:
        return
    for line in group.rules:
        if line.rule.allow:
            continue
        for path in _asset_paths(line.pattern):
            hidden_from = []
            for token in engines:
                rules = crawlers.rules[token]
                is_decisive = _deciding_line(rules, path) == line.rule.line
                if is_decisive and not rules.allows(path):
                    hidden_from.append(crawlers.spelling[token])
            if hidden_from:
                yield finding(
                    line.rule.line,
                    "blocked-assets",
                    path=shortened(path),
                    agents=hidden_from,
                )
                break  # one path is enough to show what the rule does


def _asset_paths(pattern: str) -> list[str]:
    """Return paths of style sheets or scripts that a rule with *pattern* is likely to
    be about; none if it is about other files."""
    match = _ASSETS.search(pattern)
    if match is None:
        return []
    start = pattern[: match.end()]
    path = example_of(start.replace("*.", "site."))  # "/*.css" is about "/site.css"
    if not path:
        return []
    if match[0].startswith("."):  # the ending of a file's name, not a folder's name
        return [path]
    return [f"{path}/site.css", f"{path}/site.js"]


# -- sitemaps --------------------------------------------------------------------------------

# Where one URL ends, and another one begins: after a comma, a semicolon or a blank.
_URLS_JOINED = re.compile(
    r"\S[,;\s]\s*(?:https?://|/)\S|\.(?:xml|txt|gz)[,;\s]\s*\S", re.IGNORECASE
)


def _sitemaps(
    crawlers: Crawlers,
    robots_url: str | None,
    is_small: bool,
) -> Iterator[Finding]:
    """Yield what is wrong with the sitemap lines.

    :param robots_url: the URL of the file; if it isn't known, any sitemap may be on its
        host
    :param is_small: whether there is time to find out if crawlers may fetch the
        sitemaps
    """
    own_origin = Origin.from_url(robots_url) if robots_url else None
    # Relative URLs are relative to this. Only their paths count, so any host will do.
    base = robots_url or "http://host.invalid/robots.txt"
    for line, (name, value) in crawlers.outline.fields.items():
        if name != "sitemap":
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
        # Only the rules for this host are known here.
        if is_small and own_origin in (None, origin):
            is_own = own_origin is not None or is_relative
            condition = "" if is_own else "if it is on this host, "
            path = comparable(path_of(url))
            yield from _sitemap_disallowed(crawlers, line, path, condition)


def _sitemap_disallowed(
    crawlers: Crawlers,
    line: int,
    path: str,
    condition: str,
) -> Iterator[Finding]:
    """Yield a sitemap that is closed to crawlers to which the site isn't.

    :param line: the line that lists the sitemap
    :param path: the sitemap's path, as rules are compared with it
    :param condition: on which condition the finding is true, as the beginning of its
        sentence; "" if it is true in any case
    """
    agents = []
    agents_and_lines = []
    for token in crawlers.open:
        key = crawlers.rules[token].find(path)
        if not allows(key):
            agent = crawlers.spelling[token]
            deciding_line = line_of(key)
            agents.append(agent)
            agents_and_lines.append(f"{agent} (line {deciding_line})")
    if agents:
        whom = first_few(agents_and_lines)
        yield finding(
            line,
            "sitemap-disallowed",
            agents=agents,
            topic=whom,
            condition=condition,
            whom=whom,
        )
