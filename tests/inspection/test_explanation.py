"""Why a URL is allowed or not, in words. (That the verdicts are right is for the golden cases.)"""

from __future__ import annotations

from typing import Any

from hypothesis import given

from scrapy_rep.commands.output import ExitStatus, gravest
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile, facts_line
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import path_of
from scrapy_rep.text import iso
from tests.protocol.strategies import questions


def explain(body: str, path: str, *chain: str, **options: bool) -> Explanation:
    return answered(Outcome.RULES, body).explain(
        f"http://a.b{path}", path, chain, **options
    )


def answered(outcome: Outcome, body: str = "", **options: Any) -> RobotsFile:
    """A file, or what there is in its place; *options*: its facts, and what a crawl makes of it."""
    known = {
        name: options.pop(name)
        for name in ("status", "hops", "error")
        if name in options
    }
    facts = Facts(origin="http://a.b", robots_url="http://a.b/robots.txt", **known)
    return RobotsFile(outcome, body.encode(), facts, **options)


ALL = "User-agent: *\n"
REASONS: list[tuple[str, str, tuple[str, ...], str]] = [
    (ALL + "Disallow: /x", "/x", ("a",), "line 2: Disallow: /x"),
    (ALL + "Disallow: /x", "/y", ("a",), "no rule matches in the group for *"),
    (ALL + "Disallow:", "/y", ("a",), "line 2: Disallow: (empty: restricts nothing)"),
    ("User-agent: b\nDisallow: /", "/", ("a",), "no group for a, and no * group"),
    (
        "User-agent: b\nDisallow: /",
        "/",
        ("a", "c"),
        "no group for a or c, and no * group",
    ),
    ("", "/", (), "no group for this crawler, and no * group"),
    (
        ALL + "Disallow: /",
        "/robots.txt",
        ("a",),
        "robots.txt itself may always be fetched",
    ),
]


def test_the_reason_names_the_group_or_says_why_none_applies() -> None:
    for body, path, chain, reason in REASONS:
        assert explain(body, path, *chain).reason == reason
    one = explain(ALL + "User-agent: 1\nDisallow: /", "/", "a", obey_global=False)
    assert one.allowed
    assert one.decision.agent is None
    assert one.reason == "no group for a, and REP_OBEY_GLOBAL_GROUP is off"
    assert one.how()["matched"] == []
    assert [group["applied"] for group in one.how()["groups"]] == [False]


# Rules, path; of each that matches, its line and why it wins or loses.
SHORTER, EQUAL = "lost: shorter", "lost: as long, but Allow wins, then the first"
WHY = [
    ("Disallow: /é", "/%C3%A9", ["2 decides"]),
    ("Disallow: /x$", "/x", ["2 decides"]),
    (
        "Disallow: /a$b\nDisallow: /a$*$\nDisallow: /A",
        "/a$b",
        ["3 decides", f"2 {SHORTER}"],
    ),
    ("Disallow: /\nDisallow: /x\nAllow: /y", "/x", ["3 decides", f"2 {SHORTER}"]),
    ("Disallow: /x\nAllow: /x", "/x", ["3 decides", f"2 {EQUAL}"]),
    ("Disallow: /*x\nDisallow: /xy", "/xy", ["2 decides", f"3 {EQUAL}"]),
    ("Disallow: /d\nAllow: /d/index.html", "/d/", ["3 decides", f"2 {SHORTER}"]),
]


def test_each_matching_rule_says_why_it_wins_or_loses() -> None:
    for rules, path, expected in WHY:
        one = explain(ALL + rules, path, "a")
        matched = one.how()["matched"]
        assert [f"{rule['line']} {rule['why']}" for rule in matched] == expected
        assert str(one.decision.rule) == matched[0]["rule"]


@given(questions())
def test_the_rules_one_by_one_come_to_the_same(
    question: tuple[bytes, list[str]],
) -> None:
    body, urls = question
    robots = RobotsFile(Outcome.RULES, body, Facts(file="-"))
    for url in urls:
        for chain in (("foo",), ("bar", "foo-bar"), ()):
            one = robots.explain(url, path_of(url), chain)
            assert one.decision == robots.parsed.decide(url, chain)
            matched, rule = one.how()["matched"], one.decision.rule
            assert (matched[0]["line"] if matched else None) == (rule and rule.line)
            used = [group["applied"] for group in one.how()["groups"]]
            assert any(used) is (one.decision.agent is not None)


SOFT_404 = 'HTTP 500 with a page that says "not found"'
PAGE = "<!DOCTYPE html>\n<title>Shop</title>"
FREE = "no restrictions"
HOPS = "HTTP 302 without a usable target, after 5 redirects"
IN_ITS_PLACE = [
    (answered(Outcome.MISSING, status=404), f"no robots.txt (HTTP 404): {FREE}"),
    (answered(Outcome.MISSING, status=302, hops=5), f"no robots.txt ({HOPS}): {FREE}"),
    (answered(Outcome.MISSING, status=500), f"no robots.txt ({SOFT_404}): {FREE}"),
    (answered(Outcome.RULES, PAGE, status=200), "no group for a, and no * group (robots.txt is an HTML page)"),
    # Rules count wherever they stand.
    (answered(Outcome.RULES, f"{PAGE}\n{ALL}Disallow: /\n", status=200), "line 4: Disallow: / (robots.txt is an HTML page)"),
]  # fmt: skip


def test_what_stands_in_the_place_of_a_file_is_told() -> None:
    for robots, reason in IN_ITS_PLACE:
        one = robots.explain("http://a.b/x", "/x", ("a",))
        assert (one.reason, one.allowed) == (reason, "Disallow" not in reason)
        assert not one.unreachable
    assert SOFT_404 in facts_line(IN_ITS_PLACE[2][0])
    assert "HTTP 200, an HTML page, fresh until" in facts_line(IN_ITS_PLACE[3][0])


DOWN = "robots.txt unreachable (no route)"
WITHOUT_ANSWER: list[tuple[dict[str, bool], bool, str]] = [
    ({}, False, f"{DOWN}: nothing may be fetched for now"),
    ({"pass_unreachable": True}, True, f'{DOWN}: REP_UNREACHABLE = "allow" lets it pass'),
    ({"unrestricted": True}, True, f"{DOWN} for longer than REP_UNREACHABLE_LIMIT: no restrictions"),
]  # fmt: skip


def test_without_an_answer_the_settings_decide() -> None:
    for options, allowed, reason in WITHOUT_ANSWER:
        robots = answered(Outcome.UNREACHABLE, error="no route", **options)
        one = robots.explain("http://a.b/x", "/x", ("a",))
        assert (one.allowed, one.unreachable, one.reason) == (allowed, True, reason)
        assert one.how()["matched"] == one.how()["groups"] == []
        data = one.as_dict()
        assert (data["line"], data["rule"], data["group"], data["sha256"]) == (
            None,
        ) * 4


def test_a_moment_is_printed_in_utc_or_not_at_all() -> None:
    assert iso(None) is iso(1e300) is iso(float("inf")) is None
    assert iso(0.0) == "1970-01-01T00:00:00Z"


def test_the_gravest_status() -> None:
    good, found, unreachable, usage = ExitStatus
    assert gravest() == good == 0
    assert gravest(good, found) == found == 1
    assert gravest(found, unreachable, good) == unreachable == 3
    assert gravest(unreachable, usage, found) == usage == 2
