"""Matching a URL against the rules of a group (REP.md section 8), and what a decision says."""

from __future__ import annotations

import pickle

from scrapy_rep.protocol import RobotsTxt, Rule
from tests.protocol.tables import check, rules, verdict

NO_RULE = (True, 0)
ALLOWED, DISALLOWED = (True, 2), (False, 2)

# (rules, path, answer, reason), the section's second table first; its first is in test_golden.py.
OTHERS = [
    (["Allow: /p", "Disallow: /"], "/page", ALLOWED, "the longer one"),
    (["Allow: /folder", "Disallow: /folder"], "/folder/page", ALLOWED, "tie"),
    (["Allow: /page", "Disallow: /*.htm"], "/page.htm", (False, 3), "longer"),
    (["Allow: /page", "Disallow: /*.ph"], "/page.php5", ALLOWED, "tie, the star counts"),
    (["Allow: /$", "Disallow: /"], "/", ALLOWED, "the dollar counts"),
    (["Allow: /$", "Disallow: /"], "/page.htm", (False, 3), "the allow does not match"),
    (["Disallow: /%62%61"], "/ba", NO_RULE, "nothing is decoded in the rule"),
    (["Disallow: /ba"], "/%62%61", NO_RULE, "nothing is decoded in the URL"),
    (["Allow: /12345", "Disallow: /*\u30c4"], "/12345%E3%83%84", (False, 3), "11 octets to 6"),
    (["Disallow: $"], "/", NO_RULE, "a dollar alone never matches"),
    (["Disallow: /a", "Disallow: /ab", "Disallow: /abc"], "/abd", (False, 3), "one of a chain"),
]  # fmt: skip


def test_rules_are_compared_as_google_does() -> None:
    check(OTHERS, lambda lines, path: verdict(rules(*lines), path))
    # Bytes are encoded one by one.
    for value, path in {
        b"/\xc3\xa9\xff": "/%C3%A9%FF",
        b"/\xff*\xfe$": "/%FFx%FE",
    }.items():
        assert verdict(b"User-agent: *\nDisallow: " + value, path) == DISALLOWED


# (URL or something like it, a rule that matches what is compared, reason)
COMPARED = [
    ("https://example.com;a/b", "/;a/b$", "parameters without a path"),
    ("https://example.com#/a", "/$", "a fragment without a path"),
    ("https://example.com/a?b=https://x/y", "/a?b=https://x/y$", "a URL in the query"),
    ("example.com/a", "/a$", "no scheme"),
    ("//example.com/a", "/a$", "a relative scheme"),
    *(
        (text, "/$", "no path")
        for text in ("https://example.com", "example.com", "", "http://[")
    ),
]


def test_path_parameters_and_query_of_a_url_are_compared() -> None:
    rows = [(*row, DISALLOWED, reason) for *row, reason in COMPARED]
    check(rows, lambda url, rule: verdict(rules(f"Disallow: {rule}"), url))


def test_each_of_a_thousand_plain_prefixes_is_found() -> None:
    """Plain prefixes are not tested one by one: each must be found all the same."""
    many = [f"Disallow: /{number:03d}/" for number in range(1000)]
    robots = RobotsTxt.parse(rules(*many, "Allow: /5", "Allow: /*9/$").encode())
    lines = {f"/{number:03d}/x": number + 2 for number in range(1000)}
    for path, line in {**lines, "/5000": 1002, "/009/": 1003}.items():
        rule = robots.decide(path, "FooBot").rule
        assert rule is not None
        assert rule.line == line
    assert robots.decide("/1000", "FooBot").rule is None


def test_a_decision_names_its_rule_as_written() -> None:
    body = "User-agent: foobot\n\nDisallow: /caf\u00e9%c3*$ # comment\nAllow: /b/index.html\n"
    robots = RobotsTxt.parse(body.encode())
    decision = robots.decide("https://example.com/caf%C3%A9%C3x", "FooBot")
    assert decision == (False, Rule(3, "/caf\u00e9%c3*$", False), "FooBot")
    assert str(decision.rule) == "Disallow: /caf\u00e9%c3*$"
    assert robots.decide("/b/", "FooBot").rule == Rule(4, "/b/index.html", True)
    assert robots.decide("/c", "FooBot") == (True, None, "FooBot")
    assert robots.decide("/b", "BarBot") == (True, None, None)
    # Bytes that are not UTF-8 can be printed.
    rule = (
        RobotsTxt.parse(b"User-agent: *\nDisallow: /\xff\n")
        .decide("/%FF", "FooBot")
        .rule
    )
    assert rule and rule.pattern.isprintable()


def test_a_rule_is_told_as_it_stands_in_the_file() -> None:
    """Without its comment, and with white space as blanks; rules are equal however they are written."""
    for row in (
        "Dissalow: /x",
        "disallow /x",
        "  DISALLOW :/x  # why",
        "Disallow:\t/x",
    ):
        rule = (
            RobotsTxt.parse(f"User-agent: *\n{row}\n".encode()).decide("/x", "a").rule
        )
        assert rule == Rule(2, "/x", False)
        assert (
            str(rule) == rule.text == row.partition("#")[0].replace("\t", " ").strip()
        )
        assert pickle.loads(pickle.dumps(rule)).text == rule.text  # noqa: S301 (our own)
    assert str(Rule(2, "/x", False)) == "Disallow: /x"
