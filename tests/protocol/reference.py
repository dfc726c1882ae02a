"""A second, naive matcher, written after REP.md sections 6 to 8, to compare the real one with.

Slow and obvious on purpose: one regular expression or loop for each sentence of the
specification, no preparation, nothing shared with the package.
"""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

USER_AGENT, ALLOW, DISALLOW, SITEMAP = "user-agent", "allow", "disallow", "sitemap"


class Rule(NamedTuple):
    line: int
    allow: bool
    value: bytes


class Group(NamedTuple):
    tokens: set[bytes]
    rules: list[Rule]


class Reference:
    BOM = b"\xef\xbb\xbf"
    LINE_END = rb"\r\n|\r|\n"
    MAX_LINE = 16_663
    SPACE = b" \t\v\f"
    FIELDS: ClassVar[dict[str, tuple[str, ...]]] = {
        USER_AGENT: ("user-agent", "useragent", "user agent"),
        ALLOW: ("allow",),
        DISALLOW: ("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"),
        SITEMAP: ("sitemap", "site-map"),
    }
    TOKEN = rb"[a-zA-Z_-]*"

    # Section 6: the file

    def without_bom(self, body: bytes) -> bytes:
        for length in (3, 2, 1):
            if body.startswith(self.BOM[:length]):
                return body[length:]
        return body

    def lines(self, body: bytes) -> list[bytes]:
        lines = re.split(self.LINE_END, self.without_bom(body))
        return [self.content(line[: self.MAX_LINE]) for line in lines]

    def content(self, line: bytes) -> bytes:
        return self.before_comment(self.before_nul(line)).strip(self.SPACE)

    def before_nul(self, line: bytes) -> bytes:
        return line.partition(b"\0")[0]

    def before_comment(self, line: bytes) -> bytes:
        return line.partition(b"#")[0]

    def split(self, line: bytes) -> tuple[bytes, bytes] | None:
        if b":" in line:
            name, _, value = line.partition(b":")
            return name.strip(self.SPACE), value.strip(self.SPACE)
        return self.split_words(re.split(rb"[ \t]+", line))

    def split_words(self, words: list[bytes]) -> tuple[bytes, bytes] | None:
        if len(words) != 2:
            return None
        return words[0].strip(self.SPACE), words[1].strip(self.SPACE)

    def field(self, name: bytes) -> str | None:
        name = name.lower()
        for field, spellings in self.FIELDS.items():
            if any(self.is_field(name, spelling.encode()) for spelling in spellings):
                return field
        return None

    def is_field(self, name: bytes, spelling: bytes) -> bool:
        return name.startswith(spelling)

    # Section 7: groups and user agents

    def token(self, value: bytes) -> bytes:
        if value[:1] == b"*" and (len(value) == 1 or value[1:2] in self.SPACE):
            return b"*"
        found = re.match(self.TOKEN, value)
        return found[0] if found else b""

    def groups(self, body: bytes) -> list[Group]:
        groups: list[Group] = []
        for number, line in enumerate(self.lines(body), 1):
            name_and_value = self.split(line)
            field = self.field(name_and_value[0]) if name_and_value else None
            if name_and_value is None or field is None:
                continue
            value = name_and_value[1]
            if field == USER_AGENT:
                if not groups or groups[-1].rules:
                    groups.append(Group(set(), []))
                groups[-1].tokens.add(self.token(value))
            elif field in (ALLOW, DISALLOW) and groups:
                groups[-1].rules.append(Rule(number, field == ALLOW, self.escaped(value)))
        return groups

    def is_named(self, agent: str, group: Group) -> bool:
        # "*" on a line names whoever has no group of their own: no crawler goes by it.
        token = agent.encode(errors="replace").lower()
        return token not in (b"", b"*") and token in {name.lower() for name in group.tokens}

    def rules(self, groups: list[Group], agent: str) -> list[Rule]:
        named = [group for group in groups if self.is_named(agent, group)]
        merged = named or [group for group in groups if b"*" in group.tokens]
        return [rule for group in merged for rule in group.rules]

    # Section 8: matching a URL

    def escaped(self, value: bytes) -> bytes:
        value = re.sub(rb"%[0-9a-fA-F]{2}", lambda found: found[0].upper(), value)
        return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], value)

    def path(self, url: str) -> bytes:
        octets = url.encode(errors="surrogatepass")
        # What Google's matcher takes for scheme and host of anything that it is given.
        before = re.match(rb"(?://)?(?:[^/?;]*?://)?[^/?;]*", octets)
        host = before[0] if before else b""
        path = b"" if b"#" in host else octets[len(host) :].partition(b"#")[0]
        return path if path.startswith(b"/") else b"/" + path

    def matches(self, path: bytes, pattern: bytes) -> bool:
        """Dynamic programming: after each octet of the pattern, how much of the path can have
        been taken?"""
        anchored = pattern.endswith(b"$")
        taken = {0}
        for octet in pattern[:-1] if anchored else pattern:
            if octet == ord("*"):
                taken = set(range(min(taken), len(path) + 1)) if taken else set()
            else:
                taken = {at + 1 for at in taken if at < len(path) and path[at] == octet}
        return len(path) in taken if anchored else bool(taken)

    def priority(self, path: bytes, rule: Rule) -> int:
        """Octets of the rule; less than zero where it doesn't match."""
        if self.matches(path, rule.value):
            return len(rule.value)
        directory, slash, page = rule.value.rpartition(b"/")
        if rule.allow and slash and page.startswith(b"index.htm"):
            return self.priority(path, rule._replace(value=directory + b"/$"))
        return -1

    def decide(self, groups: list[Group], url: str, agent: str) -> tuple[bool, int]:
        """Whether *agent* may fetch *url*, and the number of the deciding line, 0 for none."""
        path = self.path(url)
        best = (-1, True, 0)
        for rule in self.rules(groups, agent):
            # The longest rule wins, then allow, then the first one in the file. An empty rule
            # restricts nothing, but is the one that "decided" where no other rule matches.
            best = max(best, (self.priority(path, rule), rule.allow, -rule.line))
        priority, allow, line = best
        return (allow or priority == 0, -line) if priority >= 0 else (True, 0)
