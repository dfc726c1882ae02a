"""The sentences of REP.md sections 6 to 8 by name, each with a matcher that doesn't know it.

A golden verdict "needs" a sentence where the matcher without it answers otherwise. So the
sample of golden verdicts can be chosen to need every sentence, and a test can tell that it
still does.
"""

from __future__ import annotations

import re

from tests.protocol.reference import ALLOW, DISALLOW, USER_AGENT, Group, Reference, Rule

WITHOUT: dict[str, Reference] = {}
"""By name of the sentence: the matcher that lacks it."""


def _without(name: str, **members: object) -> None:
    WITHOUT[name] = type("Without", (Reference,), members)()


def _fields(field: str, *spellings: str) -> dict[str, tuple[str, ...]]:
    return {**Reference.FIELDS, field: spellings}


# Section 6: the file
for _count in (1, 3):
    _without(
        f"6 a BOM of {_count} bytes is skipped",
        without_bom=lambda self, body, count=_count: (
            body
            if len(body) - len(Reference.without_bom(self, body)) == count
            else Reference.without_bom(self, body)
        ),
    )
_without("6 CR ends a line", LINE_END=rb"\r\n|\n")
_without("6 LF ends a line", LINE_END=rb"\r\n|\r")
_without("6 CRLF is one line end", LINE_END=rb"\r|\n")
for _name, _bytes in {
    "VT": rb"\v",
    "FF": rb"\f",
    "FS": rb"\x1c",
    "NEL": rb"\xc2\x85",
    "U+2028": rb"\xe2\x80\xa8",
}.items():
    _without(f"6 {_name} ends no line", LINE_END=Reference.LINE_END + rb"|" + _bytes)
_without("6 NUL ends the content of its line", before_nul=lambda self, line: line)
_without("6 a comment starts anywhere", before_comment=lambda self, line: line)
_without("6 spaces and tabs around are ignored", SPACE=b"")
_without("6 VT and FF around are ignored", SPACE=b" \t")
_without("6 a missing colon is forgiven", split_words=lambda self, words: None)
_without(
    "6 only two words forgive a missing colon",
    split_words=lambda self, words: (words[0], words[1]) if len(words) > 1 else None,
)
_without("6 fields are case-insensitive", field=lambda self, name: _field_as_written(name))


def _field_as_written(name: bytes) -> str | None:
    return Reference().field(name) if name in (name.lower(), name.capitalize()) else None


for _field, _spellings in Reference.FIELDS.items():
    if _field in (USER_AGENT, ALLOW, DISALLOW):  # sitemap lines decide nothing
        _without(
            f"6 {_field} is recognised by prefix",
            is_field=lambda self, name, spelling, spellings=_spellings: (
                name == spelling if spelling.decode() in spellings else name.startswith(spelling)
            ),
        )
        for _typo in _spellings[1:]:
            _without(
                f"6 {_typo} is {_field}",
                FIELDS=_fields(_field, *(s for s in _spellings if s != _typo)),
            )
_without("6 what only contains a field is none", is_field=lambda self, name, s: s in name)


# Section 7: groups and user agents
class _RulesBeforeAgents(Reference):
    """Takes what precedes the first user-agent line for a group for all."""

    def groups(self, body: bytes) -> list[Group]:
        first = b"User-agent: *\n"
        groups = super().groups(first + self.without_bom(body))
        return [g._replace(rules=[r._replace(line=r.line - 1) for r in g.rules]) for g in groups]


class _EveryLineEndsAGroup(Reference):
    """Lets lines that are neither rules nor user-agent lines end the agents of a group."""

    def field(self, name: bytes) -> str | None:
        return super().field(name) or (DISALLOW if name else None)

    def groups(self, body: bytes) -> list[Group]:
        known = {rule.line for group in Reference().groups(body) for rule in group.rules}
        return [
            group._replace(rules=[rule for rule in group.rules if rule.line in known])
            for group in super().groups(body)
        ]


class _OnlyTheFirstGroup(Reference):
    """Doesn't merge groups."""

    def rules(self, groups: list[Group], agent: str) -> list[Rule]:
        named = [group for group in groups if self.is_named(agent, group)]
        return super().rules(named[:1] or groups, agent)


class _NamedAndGlobal(Reference):
    """Adds the rules for all to those for the agent."""

    def rules(self, groups: list[Group], agent: str) -> list[Rule]:
        both = [g for g in groups if self.is_named(agent, g) or b"*" in g.tokens]
        return [rule for group in both for rule in group.rules]


class _EmptyNamedGroup(Reference):
    """Falls back to the rules for all where the named group has no rules."""

    def rules(self, groups: list[Group], agent: str) -> list[Rule]:
        return super().rules([group for group in groups if group.rules], agent)


WITHOUT["7 rules before the first user-agent line are ignored"] = _RulesBeforeAgents()
WITHOUT["7 unknown lines never split a group"] = _EveryLineEndsAGroup()
WITHOUT["7 groups of a token are merged"] = _OnlyTheFirstGroup()
WITHOUT["7 named and global groups are never mixed"] = _NamedAndGlobal()
WITHOUT["7 a named group without rules restricts nothing"] = _EmptyNamedGroup()
_without("7 a token ends at a version", TOKEN=rb"[a-zA-Z_/.0-9-]*")
_without("7 a token ends at a blank", TOKEN=rb"[a-zA-Z_ -]*")
_without("7 a token ends at a star", TOKEN=rb"[a-zA-Z_*-]*")
_without("7 a token ends at a dot", TOKEN=rb"[a-zA-Z_.-]*")
_without("7 a token may hold a hyphen", TOKEN=rb"[a-zA-Z_]*")
_without("7 a token may hold an underscore", TOKEN=rb"[a-zA-Z-]*")
_without(
    "7 a star followed by white space is the global group",
    token=lambda self, value: value if value == b"*" else Reference.token(self, value.lstrip(b"*")),
)
_without(
    "7 a star followed by letters is not the global group",
    token=lambda self, value: b"*" if value[:1] == b"*" else Reference.token(self, value),
)
_without(
    "7 agents compare case-insensitively",
    is_named=lambda self, agent, group: agent.encode() in group.tokens,
)
_without(
    "7 agents compare for equality",
    is_named=lambda self, agent, group: any(
        token != b"*" and token and agent.lower().encode().startswith(token)
        for token in group.tokens
    ),
)


# Section 8: matching a URL
class _Otherwise(Reference):
    """Rules of another length, or in another order."""

    def length(self, rule: Rule) -> int:
        return len(rule.value)

    def priority(self, path: bytes, rule: Rule) -> int:
        found = super().priority(path, rule)
        return self.length(rule) if found == len(rule.value) else found


class _StarsDontCount(_Otherwise):
    def length(self, rule: Rule) -> int:
        return len(rule.value.replace(b"*", b""))


class _FirstRuleWins(_Otherwise):
    def length(self, rule: Rule) -> int:
        return 1_000_000 - rule.line


class _DisallowWinsTies(_Otherwise):
    def length(self, rule: Rule) -> int:
        return len(rule.value) * 2 - rule.allow


class _NoIndexPage(Reference):
    def priority(self, path: bytes, rule: Rule) -> int:
        return super().priority(path, rule._replace(allow=False))


class _IndexPageBelowToo(Reference):
    def priority(self, path: bytes, rule: Rule) -> int:
        directory, page, _ = rule.value.rpartition(b"/index.htm")
        below = rule._replace(value=directory + b"/")
        found = super().priority(path, rule)
        return super().priority(path, below) if found < 0 and rule.allow and page else found


WITHOUT["8 the longest rule wins"] = _FirstRuleWins()
WITHOUT["8 wildcards count for the length"] = _StarsDontCount()
WITHOUT["8 with equal lengths allow wins"] = _DisallowWinsTies()
WITHOUT["8 an index page stands for its directory"] = _NoIndexPage()
WITHOUT["8 for exactly its directory"] = _IndexPageBelowToo()
_without(
    "8 * stands for any characters",
    matches=lambda self, path, pattern: (
        b"*" not in pattern and Reference.matches(self, path, pattern)
    ),
)
_without(
    "8 $ at the end is the end of the URL",
    matches=lambda self, path, pattern: (
        path.startswith(pattern)
        if pattern.endswith(b"$") and b"*" not in pattern
        else Reference.matches(self, path, pattern)
    ),
)
_without(
    "8 $ anywhere else is a dollar sign",
    matches=lambda self, path, pattern: Reference.matches(
        self, path, pattern.partition(b"$")[0] + b"$" if b"$" in pattern else pattern
    ),
)
_without(
    "8 comparison is case-sensitive",
    matches=lambda self, path, pattern: Reference.matches(self, path.lower(), pattern.lower()),
)
_without(
    "8 escapes of a rule are upper-cased",
    escaped=lambda self, value: b"".join(
        b"%%%02X" % octet if octet > 127 else bytes([octet]) for octet in value
    ),
)
_without(
    "8 escapes of a URL are compared as they are",
    path=lambda self, url: Reference.escaped(self, Reference.path(self, url)),
)
_without(
    "8 raw bytes of a rule are percent-encoded",
    escaped=lambda self, value: re.sub(rb"%[0-9a-fA-F]{2}", lambda found: found[0].upper(), value),
)
_without(
    "8 bytes that are not UTF-8 are encoded one by one",
    escaped=lambda self, value: Reference.escaped(self, value.decode(errors="ignore").encode()),
)
_without(
    "8 an empty rule is ignored",
    decide=lambda self, groups, url, agent: Reference.decide(
        self,
        [
            group._replace(rules=[rule._replace(value=rule.value or b"/") for rule in group.rules])
            for group in groups
        ],
        url,
        agent,
    ),
)
_without(
    "8 an empty rule is named where no other matches",
    rules=lambda self, groups, agent: [
        rule for rule in Reference.rules(self, groups, agent) if rule.value
    ],
)
_without(
    "8 a rule without a slash never matches",
    escaped=lambda self, value: Reference.escaped(
        self, value if value[:1] in b"/*" else b"/" + value
    ),
)
_without(
    "8 a query without a path starts with a slash",
    path=lambda self, url: (
        Reference.path(self, url) if re.match(r"(//|[^/?;]*://)?[^/?;]*/", url) else b""
    ),
)
_without(
    "8 the fragment is not compared",
    path=lambda self, url: Reference.path(self, url.replace("#", "%23")),
)
_without(
    "8 the scheme may be missing",
    path=lambda self, url: Reference.path(self, url if "://" in url else f"x:///{url}"),
)

OCCURS = {"6 a BOM of 2 bytes": re.compile(rb"\xef\xbb(?!\xbf)")}
"""By name: how a file starts that has what no golden verdict needs."""
