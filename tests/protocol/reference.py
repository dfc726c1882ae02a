"""A second, naive matcher, written after REP.md sections 6 to 8, to compare the real one with. Slow and
obvious on purpose: a regular expression or loop for each sentence, nothing shared with the package."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINE = 16_663
SPACE = b" \t\v\f"
USER_AGENT, ALLOW, DISALLOW = "user-agent", "allow", "disallow"
FIELDS = {
    USER_AGENT: ("user-agent", "useragent", "user agent"),
    ALLOW: ("allow",),
    DISALLOW: ("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"),
}


class Rule(NamedTuple):
    line: int
    allow: bool
    value: bytes


class Group(NamedTuple):
    tokens: set[bytes]
    rules: list[Rule]


# Section 6: the file


def lines_of(body: bytes) -> list[bytes]:
    for length in (3, 2, 1):  # of a byte order mark
        if body.startswith(b"\xef\xbb\xbf"[:length]):
            body = body[length:]
            break
    lines = [line[:MAX_LINE] for line in re.split(rb"\r\n|\r|\n", body)]
    return [line.partition(b"\0")[0].partition(b"#")[0].strip(SPACE) for line in lines]


def split(line: bytes) -> tuple[bytes, bytes]:
    if b":" in line:
        name, _, value = line.partition(b":")
        return name.strip(SPACE), value.strip(SPACE)
    words = re.split(rb"[ \t]+", line)
    return (
        (words[0].strip(SPACE), words[1].strip(SPACE))
        if len(words) == 2
        else (b"", b"")
    )


def field_of(name: bytes) -> str | None:
    for field, spellings in FIELDS.items():
        if any(name.lower().startswith(spelling.encode()) for spelling in spellings):
            return field
    return None


# Section 7: groups and user agents


def token_of(value: bytes) -> bytes:
    if value[:1] == b"*" and (len(value) == 1 or value[1:2] in SPACE):
        return b"*"
    found = re.match(rb"[a-zA-Z_-]*", value)
    return found[0].lower() if found else b""


def groups_of(body: bytes) -> list[Group]:
    groups: list[Group] = []
    for number, line in enumerate(lines_of(body), 1):
        name, value = split(line)
        field = field_of(name)
        if field == USER_AGENT:
            if not groups or groups[-1].rules:
                groups.append(Group(set(), []))
            groups[-1].tokens.add(token_of(value))
        elif field is not None and groups:
            groups[-1].rules.append(Rule(number, field == ALLOW, escaped(value)))
    return groups


def is_named(agent: str, group: Group) -> bool:
    # "*" is the group for crawlers that no other group names. It is not a crawler's name.
    token = agent.encode(errors="replace").lower()
    return token not in (b"", b"*") and token in group.tokens


def rules_for(groups: list[Group], agent: str) -> list[Rule]:
    named = [group for group in groups if is_named(agent, group)]
    merged = named or [group for group in groups if b"*" in group.tokens]
    return [rule for group in merged for rule in group.rules]


# Section 8: matching a URL


def escaped(value: bytes) -> bytes:
    value = re.sub(rb"%[0-9a-fA-F]{2}", lambda found: found[0].upper(), value)
    return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], value)


def path_of(url: str) -> bytes:
    octets = url.encode(errors="surrogatepass")
    # What Google's matcher takes for scheme and host of anything that it is given.
    before = re.match(rb"(?://)?(?:[^/?;]*?://)?[^/?;]*", octets)
    host = before[0] if before else b""
    path = b"" if b"#" in host else octets[len(host) :].partition(b"#")[0]
    return path if path.startswith(b"/") else b"/" + path


def matches(path: bytes, pattern: bytes) -> bool:
    """Dynamic programming: after each octet of the pattern, how much of the path can have been taken?"""
    anchored = pattern.endswith(b"$")
    taken = {0}
    for octet in pattern[:-1] if anchored else pattern:
        if octet == ord("*"):
            taken = set(range(min(taken), len(path) + 1)) if taken else set()
        else:
            taken = {at + 1 for at in taken if at < len(path) and path[at] == octet}
    return len(path) in taken if anchored else bool(taken)


def priority(path: bytes, rule: Rule) -> int:
    """Octets of the rule; less than zero where it doesn't match."""
    if matches(path, rule.value):
        return len(rule.value)
    directory, slash, page = rule.value.rpartition(b"/")
    if rule.allow and slash and page.startswith(b"index.htm"):
        return priority(path, rule._replace(value=directory + b"/$"))
    return -1


def decide(groups: list[Group], url: str, agent: str) -> tuple[bool, int]:
    """Whether *agent* may fetch *url*, and the number of the deciding line, 0 for none."""
    path = path_of(url)
    best = (-1, True, 0)
    for rule in rules_for(groups, agent):
        # The longest, then allow, then the first. An empty one "decides" where no other matches.
        best = max(best, (priority(path, rule), rule.allow, -rule.line))
    length, allow, line = best
    return (allow or length == 0, -line) if length >= 0 else (True, 0)
