"""What of a URL is compared, and what a decision says (REP.md section 8)."""

from __future__ import annotations

import pickle

import pytest

from scrapy_rep.protocol import RobotsTxt, Rule
from tests.protocol.tables import google_only, rfc9309, rows, rules, verdict

NO_RULE = (True, 0)
DISALLOWED = (False, 2)

COMPARED = [
    ("https://example.com", "/$", "no path is /"),
    ("https://example.com?a", "/?a$", "a query without a path"),
    ("https://example.com;a", "/;a$", "parameters without a path"),
    ("https://example.com#/a", "/$", "a fragment without a path"),
    ("https://example.com/a#b", "/a$", "the fragment goes"),
    ("https://example.com/a?b#c#d", "/a?b$", "the fragment starts at the first #"),
    ("https://example.com/a?b=https://x/y", "/a?b=https://x/y$", "a URL in the query"),
    ("https://u:p@example.com:8080/a", "/a$", "user info and port go"),
    ("HTTPS://EXAMPLE.COM/a", "/a$", "scheme and host in capitals"),
    ("ftp://example.com/a", "/a$", "another scheme"),
    ("https://[::1]:8080/a", "/a$", "an IPv6 address"),
    ("https://example.com/a/../b", "/a/../b$", "dots stay"),
    ("https://example.com//a//b", "//a//b$", "doubled slashes stay"),
]
NO_URLS = [
    ("example.com/a", "/a$", "no scheme"),
    ("//example.com/a", "/a$", "a relative scheme"),
    ("/a/b", "/a/b$", "a path alone"),
    ("example.com", "/$", "a host alone"),
    ("", "/$", "nothing"),
    ("/a?b=https://x/y", "/a?b=https://x/y$", "a path alone with a URL in its query"),
    ("http://", "/$", "a scheme alone"),
    ("http://[", "/$", "broken"),
]


@pytest.mark.parametrize(
    ("url", "rule"),
    [*rows("8 path", COMPARED, rfc9309), *rows("8 path", NO_URLS, google_only)],
)
def test_what_is_compared(url: str, rule: str) -> None:
    assert verdict(rules(f"Disallow: {rule}"), url) == DISALLOWED


@google_only
def test_escapes_of_a_url_are_compared_as_they_are() -> None:
    assert verdict(rules("Disallow: /a%2fb"), "/a%2fb") == NO_RULE
    assert verdict(rules("Disallow: /a%2fb"), "/a%2Fb") == DISALLOWED


def test_decision_names_its_rule_as_written() -> None:
    body = "User-agent: foobot\n\nDisallow: /caf\u00e9%c3*$ # comment\nAllow: /b/index.html\n"
    robots = RobotsTxt.parse(body.encode())
    decision = robots.decide("https://example.com/caf%C3%A9%C3x", "FooBot")
    assert decision.rule == Rule(3, "/caf\u00e9%c3*$", False)
    assert (decision.allowed, decision.agent) == (False, "FooBot")
    assert str(decision.rule) == "Disallow: /caf\u00e9%c3*$"
    decision = robots.decide("https://example.com/b/", "FooBot")
    assert decision.rule == Rule(4, "/b/index.html", True)
    assert str(decision.rule) == "Allow: /b/index.html"


def test_decision_without_a_rule() -> None:
    robots = RobotsTxt.parse(rules("Disallow: /a").encode())
    assert robots.decide("https://example.com/b", "FooBot") == (True, None, "*")
    assert RobotsTxt.parse(b"").decide("https://example.com/b", "FooBot") == (True, None, None)


def test_bytes_of_a_rule_that_are_not_utf8_can_be_printed() -> None:
    rule = RobotsTxt.parse(b"User-agent: *\nDisallow: /\xff\n").decide("/%FF", "FooBot").rule
    assert rule is not None
    assert rule.pattern.startswith("/")
    assert rule.pattern.isprintable()


@pytest.mark.parametrize(
    "row",
    [
        "Disallow: /x",
        "Dissalow: /x",
        "disallow /x",
        "  DISALLOW :/x  # why",
        "Disallow:\t/x",
        "disallow:/x",
    ],
)
def test_a_rule_is_told_as_it_stands_in_the_file(row: str) -> None:
    """Without its comment, and with white space as blanks; rules are equal however they are written."""
    rule = RobotsTxt.parse(f"User-agent: *\n{row}\n".encode()).decide("/x", "a").rule
    assert rule == Rule(2, "/x", False)
    assert str(rule) == rule.text == row.partition("#")[0].replace("\t", " ").strip()
    assert str(Rule(2, "/x", False)) == "Disallow: /x"
    assert pickle.loads(pickle.dumps(rule)).text == rule.text  # noqa: S301 (our own)
