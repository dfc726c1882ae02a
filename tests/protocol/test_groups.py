"""Groups and user agents (REP.md section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import google_only, rfc9309, rows, verdict

ALLOWED = (True, 0)


def disallowed(line: int) -> tuple[bool, int]:
    return False, line


# (lines of the file, answer about /x for FooBot, reason)
STANDARD: list[tuple[Any, ...]] = [
    (["User-agent: FooBot", "Disallow: /"], disallowed(2), "named"),
    (["User-agent: BarBot", "Disallow: /"], ALLOWED, "another is named"),
    (["User-agent: *", "Disallow: /"], disallowed(2), "all are named"),
    (["User-agent: foobot", "Disallow: /"], disallowed(2), "in small letters"),
    (["User-agent: FOOBOT", "Disallow: /"], disallowed(2), "in capitals"),
    (["User-agent: FooBot-Image", "Disallow: /"], ALLOWED, "a longer name is another's"),
    (["User-agent: Foo", "Disallow: /"], ALLOWED, "a shorter name is another's"),
    (["User-agent: FooBot/1.2", "Disallow: /"], disallowed(2), "a version is no part of it"),
    (
        ["User-agent: BarBot", "User-agent: FooBot", "Disallow: /"],
        disallowed(3),
        "second of two names",
    ),
    (
        ["User-agent: FooBot", "User-agent: BarBot", "Disallow: /"],
        disallowed(3),
        "first of two names",
    ),
    (
        ["User-agent: BarBot", "Disallow: /a", "User-agent: FooBot", "Disallow: /"],
        disallowed(4),
        "a user-agent line after a rule starts a group",
    ),
    (
        ["User-agent: FooBot", "Disallow: /a", "User-agent: BarBot", "Disallow: /"],
        ALLOWED,
        "and ends the one before",
    ),
    (
        ["User-agent: FooBot", "Allow: /", "User-agent: BarBot", "Disallow: /"],
        (True, 2),
        "an allow is a rule too",
    ),
    (
        ["User-agent: FooBot", "Disallow: /a", "User-agent: b", "Allow: /", "User-agent: foobot"]
        + ["Disallow: /x"],
        disallowed(6),
        "groups of one name are merged",
    ),
    (
        ["User-agent: *", "Disallow: /a", "User-agent: b", "Allow: /", "User-agent: *"]
        + ["Disallow: /x"],
        disallowed(6),
        "groups for all are merged",
    ),
    (
        ["User-agent: FooBot", "Disallow: /a", "User-agent: *", "Disallow: /"],
        ALLOWED,
        "named and global groups are never mixed",
    ),
    (
        ["User-agent: *", "Disallow: /", "User-agent: FooBot", "Allow: /a"],
        ALLOWED,
        "whichever comes first",
    ),
    (
        ["User-agent: *", "Disallow: /", "User-agent: FooBot"],
        ALLOWED,
        "a named group without rules restricts nothing",
    ),
    (
        ["User-agent: FooBot", "", "User-agent: *", "Disallow: /"],
        disallowed(4),
        "an empty line never splits a group",
    ),
    (
        ["User-agent: FooBot", "# comment", "User-agent: *", "Disallow: /"],
        disallowed(4),
        "nor does a comment",
    ),
    (
        ["User-agent: a", "Sitemap: https://example.com/s", "User-agent: FooBot", "Disallow: /"],
        disallowed(4),
        "nor does a sitemap line between the names",
    ),
    (
        ["User-agent: FooBot", "Sitemap: https://example.com/s", "Disallow: /"],
        disallowed(3),
        "nor one before the rules",
    ),
    (
        ["User-agent: FooBot", "Disallow: /a", "", "", "Disallow: /x"],
        disallowed(5),
        "empty lines between rules",
    ),
    (["Disallow: /", "User-agent: *", "Allow: /a"], ALLOWED, "rules before the first name"),
    (["Disallow: /"], ALLOWED, "rules without any name"),
    ([""], ALLOWED, "an empty file"),
    (["User-agent: *"], ALLOWED, "a name and no rules"),
]
GOOGLES: list[tuple[Any, ...]] = [
    (["User-agent: FooBot*", "Disallow: /"], disallowed(2), "up to a star"),
    (["User-agent: FooBot (x)", "Disallow: /"], disallowed(2), "up to a blank"),
    (["User-agent: FooBot.x", "Disallow: /"], disallowed(2), "up to a dot"),
    (["User-agent: FooBot1", "Disallow: /"], disallowed(2), "up to a digit"),
    (["User-agent: FooBot\u00e9", "Disallow: /"], disallowed(2), "up to what is not ASCII"),
    (["User-agent: FooBot, BarBot", "Disallow: /"], disallowed(2), "up to a comma"),
    (["User-agent: BarBot, FooBot", "Disallow: /"], ALLOWED, "one name a line"),
    (["User-agent: Foo Bot", "Disallow: /"], ALLOWED, "a name has no blank"),
    (
        ["User-agent: Mozilla/5.0 (compatible; FooBot)", "Disallow: /"],
        ALLOWED,
        "a header is not searched for the name",
    ),
    (["User-agent: * x", "Disallow: /"], disallowed(2), "a star and a word are a star"),
    (["User-agent: *\tx", "Disallow: /"], disallowed(2), "with a tab too"),
    (["User-agent: *x", "Disallow: /"], ALLOWED, "a star with a letter is none"),
    (["User-agent: *FooBot", "Disallow: /"], ALLOWED, "and names nobody"),
    (["User-agent: **", "Disallow: /"], ALLOWED, "two stars name nobody"),
    (["User-agent:", "Disallow: /"], ALLOWED, "an empty name names nobody"),
    (
        ["User-agent: *", "Disallow: /a", "User-agent:", "Disallow: /"],
        ALLOWED,
        "but starts a group",
    ),
    (
        ["User-agent: FooBot", "Noindex: /a", "User-agent: BarBot", "Disallow: /"],
        disallowed(4),
        "an unknown line never splits a group",
    ),
    (
        ["User-agent: FooBot", "Crawl-delay: 5", "User-agent: BarBot", "Disallow: /"],
        disallowed(4),
        "nor does a crawl delay",
    ),
    (
        ["User-agent: FooBot", "Disallow:", "User-agent: BarBot", "Disallow: /"],
        (True, 2),
        "an empty rule is a rule: it ends the names",
    ),
    (
        ["User-agent: *", "User-agent: FooBot", "Disallow: /x", "User-agent: *", "Allow: /x"],
        disallowed(3),
        "a group for all and for a name counts as named",
    ),
]


@pytest.mark.parametrize(
    ("lines", "answer"), [*rows("7", STANDARD, rfc9309), *rows("7", GOOGLES, google_only)]
)
def test_the_rules_of_the_agents_groups_decide(lines: list[str], answer: tuple[bool, int]) -> None:
    assert verdict("\n".join(lines), "/x") == answer


TOKENS = [
    ("User-agent: foo-bot", "Foo-Bot", "a hyphen"),
    ("User-agent: foo_bot", "foo_bot", "an underscore"),
    ("User-agent: -", "-", "a hyphen alone"),
    ("User-agent: f", "F", "one letter"),
]


@rfc9309
@pytest.mark.parametrize(("line", "agent"), rows("7 token", TOKENS))
def test_a_user_agent_line_applies_to_the_agent_it_names(line: str, agent: str) -> None:
    assert verdict(f"{line}\nDisallow: /", "/x", agent) == disallowed(2)


CHAIN_FILE = """\
User-agent: googlebot
Disallow: /googlebot
User-agent: googlebot-image
Disallow: /image
User-agent: *
Disallow: /all
"""
# (chain, the group that applies, the only path that it disallows, reason)
CHAINS = [
    (["googlebot-image", "googlebot"], "googlebot-image", "/image", "the most specific"),
    (["googlebot-news", "googlebot"], "googlebot", "/googlebot", "the next where it is missing"),
    (["googlebot", "googlebot-image"], "googlebot", "/googlebot", "the order is the crawler's"),
    (["Googlebot-Image"], "Googlebot-Image", "/image", "a token as the crawler writes it"),
    (["other", "another"], "*", "/all", "all, where none is there"),
    ([], "*", "/all", "no token at all"),
    (["*"], "*", "/all", "a star is no token of a crawler"),
    (["", "googlebot"], "googlebot", "/googlebot", "an empty one is passed over"),
]


@pytest.mark.parametrize(("chain", "group", "path"), rows("7 chain", CHAINS))
def test_the_first_agent_of_a_chain_with_a_group_decides(
    chain: list[str], group: str, path: str
) -> None:
    robots = RobotsTxt.parse(CHAIN_FILE.encode())
    for other in ("/googlebot", "/image", "/all"):
        for agents in (chain, tuple(chain)):
            decision = robots.decide(f"https://example.com{other}", agents)
            assert decision.agent == group
            assert decision.allowed is (other != path)


def test_a_chain_is_never_merged() -> None:
    body = "User-agent: a\nAllow: /x\nUser-agent: b\nDisallow: /x/y"
    assert verdict(body, "/x/y", ["a", "b"]) == (True, 2)
    assert verdict(body, "/x/y", ["b", "a"]) == (False, 4)


OBEY_NAMED_ONLY = [
    ("User-agent: *\nDisallow: /", ALLOWED, None, "rules for all do not apply"),
    ("User-agent: FooBot\nDisallow: /", disallowed(2), "FooBot", "those for the name do"),
    ("User-agent: *\nUser-agent: FooBot\nDisallow: /", disallowed(3), "FooBot", "for both too"),
    ("", ALLOWED, None, "no rules"),
]


@google_only
@pytest.mark.parametrize(("body", "answer", "group"), rows("7 ignores *", OBEY_NAMED_ONLY))
def test_a_crawler_that_ignores_the_global_group(
    body: str, answer: tuple[bool, int], group: str | None
) -> None:
    assert verdict(body, "/x", obey_global=False) == answer
    robots = RobotsTxt.parse(body.encode())
    assert robots.decide("/x", "FooBot", obey_global=False).agent == group
    # What is known of one kind of crawler must not answer for the other.
    assert robots.decide("/x", "FooBot").allowed is not body.endswith("Disallow: /")
