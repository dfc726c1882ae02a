"""Whether what lint says is so: the matcher is asked, about the file and about the file as it would
be if the finding is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import groupby

from scrapy_rep.inspection.findings import KINDS, Finding
from scrapy_rep.inspection.lint import every_finding, rows
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol import RobotsTxt, comparable
from scrapy_rep.protocol.syntax import (
    MAX_BYTES,
    MAX_LINE,
    agent_token,
    cut,
    escape,
    field_of,
    normalise,
)

NOBODY = "nobody-knows-it"
"""A crawler that no file names."""

# Of each file.
MAX_AGENTS = 12
MAX_PATHS = 160

Verdict = tuple[bool, int]


class File:
    """A robots.txt, crawlers to ask for, and paths to ask about."""

    def __init__(
        self, body: bytes, urls: Iterable[str] = (), robots_url: str | None = None
    ) -> None:
        self.body = body
        self.rows = rows(cut(body))
        self.findings = list(
            every_finding(body, robots_url=robots_url, also=[usage_findings])
        )
        fields = map(field_of, normalise(body).split("\n"))
        known = [field for field in fields if field is not None]
        named = dict.fromkeys(
            agent_token(value) for kind, value in known if kind == "user-agent"
        )
        self.tokens = [token for token in named if token not in ("", "*")]
        concerned = [agent.lower() for item in self.findings for agent in item.agents]
        asked = dict.fromkeys(["*", NOBODY, *concerned[:MAX_AGENTS], *self.tokens])
        self.agents = list(asked)[:MAX_AGENTS]
        # Exceptions come first: they show that a site isn't closed.
        rules = sorted(known, key=lambda field: field[0] != "allow")
        patterns = dict.fromkeys(
            escape(value) for kind, value in rules if kind in ("allow", "disallow")
        )
        paths = ["/", "/any-other", "/a/b?c=d", *map(comparable, urls)]
        for pattern in patterns:
            paths += paths_for(pattern)
        # Crawlers send blanks percent-encoded.
        sent = [
            re.sub(r"[ \t\v\f]", "%20", path) for path in paths if path != "/robots.txt"
        ]
        self.paths = list(dict.fromkeys(sent))[:MAX_PATHS]

    def row(self, line: int) -> str:
        return self.rows[line - 1][:MAX_LINE].partition(b"\0")[0].decode("latin-1")

    def value(self, line: int) -> str:
        field = field_of(self.row(line))
        assert field is not None
        return field[1]

    def pattern(self, line: int) -> str:
        return escape(self.value(line))

    @cached_property
    def robots(self) -> RobotsTxt:
        return RobotsTxt.parse(self.body)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return self.verdicts_of(b"\n".join(self.rows))

    def verdicts_of(self, body: bytes) -> list[Verdict]:
        robots = RobotsTxt.parse(body)
        return [
            decided(robots, path, agent) for agent in self.agents for path in self.paths
        ]

    def edited(self, texts: dict[int, str]) -> bytes:
        """Return the file with other lines."""
        changed = list(self.rows)
        for line, text in texts.items():
            changed[line - 1] = text.encode("latin-1")
        return b"\n".join(changed)

    def is_same_with(self, texts: dict[int, str]) -> bool:
        """Return whether other lines change no verdict, no deciding line, no sitemap and no delay."""
        body = self.edited(texts)
        robots = RobotsTxt.parse(body)
        if (
            robots.sitemaps != self.robots.sitemaps
            or self.verdicts_of(body) != self.verdicts
        ):
            return False
        return all(
            robots.pace(agent) == self.robots.pace(agent) for agent in self.agents
        )

    def is_closed_to(self, agent: str) -> bool:
        return not any(decided(self.robots, path, agent)[0] for path in self.paths)

    def allows(self, path: str, agent: str) -> bool:
        return decided(self.robots, path, agent)[0]


def paths_for(pattern: str) -> list[str]:
    """Return paths that a pattern may match, or may not."""
    begun = pattern if pattern[:1] in ("/", "*") else f"/{pattern}"
    begun = begun.removesuffix("$")
    plain = begun.replace("/*/", "/x/").replace("*", "")
    filled = begun.replace("*", "/x")
    directory = plain[: plain.rfind("/") + 1]
    paths = [
        plain,
        filled,
        f"{plain}x",
        f"{plain}$",
        f"{plain}$x",
        f"{plain}?q=1",
        begun,
        directory,
    ]
    return [path if path[:1] == "/" else f"/{path}" for path in paths]


def decided(robots: RobotsTxt, path: str, agent: str) -> Verdict:
    decision = robots.decide(f"http://site.example{path}", agent)
    return decision.allowed, decision.rule.line if decision.rule else 0


def forbids(pattern: str, path: str) -> bool:
    """Ask about a rule alone."""
    robots = RobotsTxt.parse(b"User-agent: *\nDisallow: " + pattern.encode("latin-1"))
    return not decided(robots, path, "*")[0]


Check = Callable[[File, list[Finding]], bool]
"""Whether all findings of a kind are right."""


def line_of(item: Finding) -> int:
    assert item.line is not None
    return item.line


# -- all findings of a kind at once ----------------------------------------------------------


def means_nothing(file: File, items: list[Finding]) -> bool:
    """Without these lines everything is as it was."""
    return file.is_same_with({line_of(item): "" for item in items})


# A rule that matches nothing: it ends a list of agents, as any rule does.
NO_RULE = "Disallow: never"


def never_decides(file: File, items: list[Finding]) -> bool:
    """With a rule in its place that matches nothing everything is as it was."""
    lines = {line_of(item): NO_RULE for item in items}
    return (
        file.is_same_with(lines)
        and not {line for _, line in file.verdicts} & lines.keys()
    )


def forbids_nothing(file: File, items: list[Finding]) -> bool:
    """Without these lines all is decided by the same lines, although delays may change."""
    return (
        file.verdicts_of(file.edited({line_of(item): "" for item in items}))
        == file.verdicts
    )


def changes_no_verdict(file: File, items: list[Finding]) -> bool:
    after = file.verdicts_of(file.edited({line_of(item): NO_RULE for item in items}))
    return [allowed for allowed, _ in after] == [
        allowed for allowed, _ in file.verdicts
    ]


def is_read_as(expression: str) -> Check:
    """Return a check that a line means the same as what the message or the fix has in quotes."""

    def check(file: File, items: list[Finding]) -> bool:
        texts = {}
        for item in items:
            quoted = re.search(expression, f"{item.message} | {item.fix}")
            assert quoted, item
            if "…" not in quoted[1]:
                texts[line_of(item)] = quoted[1].encode("utf-8").decode("latin-1")
        has_escapes = any("\\x" in text for text in texts.values())
        return has_escapes or file.is_same_with(texts)

    return check


def typo(file: File, items: list[Finding]) -> bool:
    texts = {}
    for item in items:
        said = re.fullmatch('"(.*)" is read as (.*) here; .*', item.message)
        assert said, item
        row = file.row(line_of(item)).partition("#")[0].strip(" \t\v\f")
        assert (
            row.lower().startswith(said[1].lower())
            or "…" in said[1]
            or not row.isascii()
        )
        if "…" not in said[1] and row.isascii():
            texts[line_of(item)] = said[2] + row[len(said[1]) :]
    return file.is_same_with(texts)


def cut_agent(file: File, items: list[Finding]) -> bool:
    texts = {}
    for item in items:
        said = re.search(r'is read as "?([^":]*)', item.message)
        assert said, item
        if "…" not in said[1]:
            texts[line_of(item)] = f"User-agent: {said[1]}"
    return file.is_same_with(texts)


def no_crawler(file: File, items: list[Finding]) -> bool:
    """With a name in its place that is surely none everything is as it was."""
    return file.is_same_with({line_of(item): "User-agent: 0" for item in items})


def html_appended(file: File, items: list[Finding]) -> bool:
    [item] = items
    last = re.search(r"to line (\d+)", item.message)
    assert last, item
    return file.is_same_with(dict.fromkeys(range(line_of(item), int(last[1]) + 1), ""))


def cut_line(file: File, items: list[Finding]) -> bool:
    lines = [line_of(item) for item in items]
    return file.is_same_with({line: file.row(line)[:MAX_LINE] for line in lines})


def nothing_is_forbidden(file: File, items: list[Finding]) -> bool:
    return all(allowed for allowed, _ in file.verdicts)


def there_are_no_rules(file: File, items: list[Finding]) -> bool:
    return all(verdict == (True, 0) for verdict in file.verdicts)


def html(file: File, items: list[Finding]) -> bool:
    if "no rules" in items[0].message:
        return there_are_no_rules(file, items)
    known = [field_of(file.row(line)) for line in range(1, len(file.rows) + 1)]
    return any(
        field is not None and field[0] in ("allow", "disallow") for field in known
    )


def beyond_limit(file: File, items: list[Finding]) -> bool:
    """What counts is what stands before that line."""
    [item] = items
    counted = b"\n".join(rows(file.body)[: line_of(item) - 1])
    return len(file.body) > MAX_BYTES and file.verdicts_of(counted) == file.verdicts


# -- each finding ----------------------------------------------------------------------------


def each(check: Callable[[File, Finding], bool]) -> Check:
    return lambda file, items: all(check(file, item) for item in items)


def needless_star(file: File, item: Finding) -> bool:
    pattern = file.pattern(line_of(item))
    assert pattern.endswith("*")
    shorter = pattern.rstrip("*") or "/"
    asked = [*file.paths, *paths_for(pattern), *paths_for(shorter)]
    return all(forbids(pattern, path) is forbids(shorter, path) for path in asked)


def differs_in_case(file: File, item: Finding) -> bool:
    other = re.search(r"line (\d+)", item.message)
    assert other
    here, there = file.pattern(line_of(item)), file.pattern(int(other[1]))
    # Of /A* and /*a each matches examples of the other.
    is_other = here != there and any(
        forbids(here, path) is not forbids(there, path)
        for pattern in (here, there)
        for path in paths_for(pattern)
    )
    return here.lower() == there.lower() and (is_other or here[:1] not in ("/", "*"))


def never_matches(file: File, item: Finding) -> bool:
    meant = re.fullmatch(r'did you mean "(.*)"\?', item.fix, re.DOTALL)
    assert meant, item
    pattern = file.pattern(line_of(item))
    assert not any(
        forbids(pattern, path) for path in [*file.paths, *paths_for(pattern)]
    )
    if not meant[1] or "…" in meant[1] or not meant[1].isascii() or "\\x" in meant[1]:
        return True
    return forbids(escape(meant[1]), paths_for(escape(meant[1]))[0])


def blank_in_rule(file: File, item: Finding) -> bool:
    pattern = re.sub(r"[\t\v\f]", " ", file.pattern(line_of(item)))
    sent = [path.replace(" ", "%20") for path in paths_for(pattern)]
    return not any(forbids(file.pattern(line_of(item)), path) for path in sent)


def joined_rules(file: File, item: Finding) -> bool:
    path = re.search(r'"(.*)"', item.message)
    assert path, item
    pattern = file.pattern(line_of(item))
    return "," in pattern and ("…" in path[1] or not forbids(pattern, path[1]))


def plain_characters(file: File, item: Finding) -> bool:
    """The rule matches a path with these characters as they are."""
    pattern = file.pattern(line_of(item))
    part = re.match(r'"(.*)" is read as', item.message)
    assert part is None or part[1] in pattern or "…" in part[1]
    literal = paths_for(pattern)[0]
    return forbids(pattern, literal) and (part is not None or "$" in literal)


def listed_sitemap(file: File, item: Finding) -> bool:
    """The parser lists the value as one URL; it is the line's place in the list that counts."""
    fields = [field_of(file.row(line)) for line in range(1, line_of(item) + 1)]
    place = (
        len([1 for field in fields if field and field[0] == "sitemap" and field[1]]) - 1
    )
    url = file.robots.sitemaps[place]
    has_scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", url) is not None
    assert not (has_scheme and item.code == "relative-sitemap")
    return item.code == "relative-sitemap" or re.search(r"[,;\s]", url) is not None


def no_sitemap(file: File, item: Finding) -> bool:
    value = file.value(line_of(item))
    is_plain = (
        re.fullmatch(r"https?://[a-z.-]+/[a-zA-Z0-9._/-]{0,999}", value) is not None
    )
    return not is_plain


def forbidden_sitemap(file: File, item: Finding) -> bool:
    value = file.value(line_of(item))
    named = re.findall(r"([a-zA-Z_*-]+) \(line (\d+)\)", item.message)
    assert named, item
    path = re.sub(r"^[a-zA-Z]+:/+[^/]*|^//[^/]*", "", value)
    path = path if path[:1] == "/" else f"/{path}"
    if "%" not in path and path.isascii() and " " not in path:
        for agent, line in named:
            assert decided(file.robots, path, agent) == (False, int(line))
    return not any(file.is_closed_to(agent) for agent in item.agents[:MAX_AGENTS])


def closed_site(file: File, item: Finding) -> bool:
    everybody = [token for token in file.tokens if not file.is_closed_to(token)]
    exception = re.search(
        r"all crawlers(?: but (.*?)(?: and ([\d,]+) more)?)?\Z", item.message
    )
    if exception is None:
        assert item.message.endswith("without a group of their own")
    elif exception[1] is None:
        assert not everybody
    else:
        named = exception[1].lower().split(", ")
        assert set(named) <= set(everybody)
        count = len(named) + int((exception[2] or "0").replace(",", ""))
        assert count == len(everybody), (everybody, item)
    return file.is_closed_to("*") and file.is_closed_to(NOBODY)


def closed_engine(file: File, item: Finding) -> bool:
    path = re.search(r"may fetch (.*)", item.message)
    assert path
    return all(map(file.is_closed_to, item.agents)) and file.allows(path[1], NOBODY)


def lost_rules(file: File, item: Finding) -> bool:
    lines = re.findall(r"\(line (\d+)\)", item.message)
    for line in map(int, lines):
        path = paths_for(file.pattern(line))[0]
        assert not file.allows(path, NOBODY), (line, item)
        for agent in item.agents:
            assert file.allows(path, agent), (path, agent)
    return bool(lines)


def hidden_assets(file: File, item: Finding) -> bool:
    path = re.search("such as (.*?) from ", item.message)
    assert path and item.agents
    if "…" in path[1]:
        return True
    verdicts = {decided(file.robots, path[1], agent) for agent in item.agents}
    return verdicts == {(False, item.line)}


def joined_agents(file: File, item: Finding) -> bool:
    """They stand above, no rule is in between, and the rule named decides for all of them."""
    rule = re.search(r"obeys? line (\d+)", item.message)
    assert rule and item.agents
    line = int(rule[1])
    for agent in item.agents:
        fields = [field_of(file.row(number)) for number in range(1, line_of(item))]
        above = [
            number
            for number, field in enumerate(fields, 1)
            if field
            and field[0] == "user-agent"
            and agent_token(field[1]) == agent.lower()
        ]
        between = [field for field in fields[above[-1] :] if field]
        assert not any(kind in ("allow", "disallow") for kind, _ in between)
        path = paths_for(file.pattern(line))[0] if file.pattern(line) else "/any-page"
        assert decided(file.robots, path, agent)[1] == line
    return True


def split_group(file: File, item: Finding) -> bool:
    first = re.search(r"group on line (\d+)", item.message)
    assert first
    lines = line_of(item), int(first[1])
    tokens = {agent_token(file.value(line)) for line in lines}
    rules = {field_of(file.row(line)) for line in range(lines[1], lines[0])}
    return len(tokens) == 1 and any(
        field and field[0] in ("allow", "disallow") for field in rules
    )


def empty_group(file: File, item: Finding) -> bool:
    asked = [
        decided(file.robots, path, agent)
        for agent in item.agents
        for path in file.paths
    ]
    return bool(item.agents) and set(asked) == {(True, 0)}


def delay(file: File, item: Finding) -> bool:
    seconds = re.search(r"to wait ([\d.e+]+) s", item.message)
    assert seconds, item
    for agent in item.agents:
        pace = file.robots.pace(agent)
        asks = [
            ask
            for ask in (pace.crawl_delay, pace.slowest)
            if ask and ask.line == item.line
        ]
        assert asks
        assert f"{asks[0].seconds:g}" == seconds[1]
    return True


def no_delay(file: File, item: Finding) -> bool:
    paces = [file.robots.pace(agent) for agent in file.agents]
    return item.line not in [ask.line for pace in paces for ask in pace if ask]


def always(file: File, items: list[Finding]) -> bool:
    """A matter of bytes, not of the matcher."""
    return True


CHECKS: dict[str, list[Check]] = {
    "html": [html],
    "html-appended": [html_appended],
    "utf-16": [there_are_no_rules],
    "beyond-limit": [beyond_limit],
    "bom": [always],
    "not-utf8": [always],
    "empty": [there_are_no_rules],
    "only-allows": [nothing_is_forbidden],
    "line-cut": [cut_line],
    "rule-before-group": [means_nothing],
    "delay-before-group": [means_nothing],
    "line-ignored": [means_nothing],
    "later-colon": [is_read_as('read as "(.*?)"(?:, which| \\|)')],
    "misspelt-field": [means_nothing],
    "hash-cut": [is_read_as('read as "(.*?)" \\|')],
    "missing-colon": [is_read_as('\\| write "(.*)"')],
    "typo": [typo],
    "unknown-field": [means_nothing],
    "no-field": [means_nothing],
    "noindex-field": [means_nothing],
    "other-field": [forbids_nothing],
    "other-delay": [each(delay), forbids_nothing],
    "bad-delay": [each(no_delay), forbids_nothing],
    "agent-never": [no_crawler],
    "agent-cut": [cut_agent],
    "split-group": [each(split_group)],
    "joined-agents": [each(joined_agents)],
    "empty-group": [each(empty_group)],
    "never-matches": [never_decides, each(never_matches)],
    "blank-in-rule": [never_decides, each(blank_in_rule)],
    "rules-joined": [each(joined_rules)],
    "regular-expression": [each(plain_characters)],
    "dollar-inside": [each(plain_characters)],
    "empty-allow": [changes_no_verdict],
    "shadowed": [never_decides],
    "duplicate": [never_decides],
    "case": [each(differs_in_case)],
    "trailing-star": [each(needless_star)],
    "site-closed": [each(closed_site)],
    "engine-closed": [each(closed_engine)],
    "lost-rules": [each(lost_rules)],
    "blocked-assets": [each(hidden_assets)],
    "bad-sitemap": [each(no_sitemap)],
    "sitemaps-joined": [each(listed_sitemap)],
    "relative-sitemap": [each(listed_sitemap)],
    "sitemap-disallowed": [each(forbidden_sitemap)],
    # These lines say nothing about what may be fetched.
    "bad-usage": [means_nothing],
    "bad-signal": [means_nothing],
    "bad-license": [means_nothing],
    "unknown-use": [means_nothing],
    "signal-before-group": [means_nothing],
    "not-checked": [means_nothing],
}


def wrong_claims(file: File) -> list[str]:
    """Return what lint says of a file, and isn't so."""
    assert file.verdicts == file.verdicts_of(file.body)
    wrong = []
    findings = sorted(file.findings, key=lambda item: item.code)
    for code, group in groupby(findings, key=lambda item: item.code):
        items = list(group)
        for number, check in enumerate(CHECKS[code]):
            try:
                is_so = check(file, items)
                reason = ""
            except AssertionError as error:
                is_so, reason = False, str(error)
            if not is_so:
                wrong.append(f"{code} ({number}): {items[0]} {reason}"[:1000])
    return wrong


assert CHECKS.keys() == KINDS.keys() - {"no-file"}
