"""Why a URL is allowed or not, in words. (That the verdicts are right is for the golden cases.)"""

from __future__ import annotations

from hypothesis import given

from scrapy_rep.commands.output import Status, gravest
from scrapy_rep.commands.verdicts import as_json, facts_line
from scrapy_rep.engine.text import iso
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import path_of
from tests.protocol.strategies import questions


def explain(body: str, path: str, *chain: str, obey_global: bool = True) -> Explanation:
    robots = RobotsFile(Outcome.RULES, body.encode(), Facts(origin="http://a.b"))
    return robots.explain(f"http://a.b{path}", path, chain, obey_global=obey_global)


ALL = "User-agent: *\n"

REASONS: list[tuple[str, str, tuple[str, ...], str]] = [
    (ALL + "Disallow: /x", "/x", ("a",), "line 2: Disallow: /x"),
    (ALL + "Disallow: /x", "/y", ("a",), "no rule matches in the group for *"),
    (ALL + "Disallow:", "/y", ("a",), "line 2: Disallow: (empty: restricts nothing)"),
    ("User-agent: b\nDisallow: /", "/", ("a",), "no group for a, and no * group"),
    ("User-agent: b\nDisallow: /", "/", ("a", "c"), "no group for a or c, and no * group"),
    ("", "/", (), "no group for this crawler, and no * group"),
    (ALL + "Disallow: /", "/robots.txt", ("a",), "robots.txt itself may always be fetched"),
]


def test_the_reason_names_the_group_or_says_why_none_applies() -> None:
    for body, path, chain, reason in REASONS:
        assert explain(body, path, *chain).reason == reason

    one = explain(ALL + "Disallow: /", "/", "a", obey_global=False)
    assert one.allowed
    assert one.decision.agent is None
    assert one.reason == "no group for a, and REP_OBEY_GLOBAL_GROUP is off"
    assert one.matched == []
    assert [applied for _, applied in one.considered] == [False]


# Rules, path; of each that matches, its line and why it wins or loses.
INDEX = "allowing the index page of a directory allows the directory"
BEST = "decides: of the longest matches"
WHY = [
    ("Disallow: /x", "/x", ["2 decides: the only match"]),
    ("Disallow: /é", "/%C3%A9", ["2 decides: the only match"]),
    (
        "Disallow: /\nDisallow: /x\nAllow: /y",
        "/x",
        ["3 decides: the longest match", "2 lost: shorter"],
    ),
    (
        "Disallow: /x\nAllow: /x",
        "/x",
        [f"3 {BEST}, Allow wins", "2 lost: same length, and Allow wins"],
    ),
    (
        "Disallow: /*x\nDisallow: /xy",
        "/xy",
        [f"2 {BEST}, the first wins", "3 lost: same length, and the first wins"],
    ),
    (
        "Disallow: /d\nAllow: /d/index.html",
        "/d/",
        [f"3 decides: the longest match; {INDEX}", "2 lost: shorter"],
    ),
]


def test_each_matching_rule_says_why_it_wins_or_loses() -> None:
    for rules, path, expected in WHY:
        one = explain(ALL + rules, path, "a")
        assert [f"{match.rule.line} {match.why}" for match in one.matched] == expected
        assert one.decision.rule == one.matched[0].rule


@given(questions())
def test_the_rules_one_by_one_come_to_the_same(question: tuple[bytes, list[str]]) -> None:
    body, urls = question
    robots = RobotsFile(Outcome.RULES, body, Facts(file="-"))
    for url in urls:
        for chain in (("foo",), ("bar", "foo-bar"), ()):
            one = robots.explain(url, path_of(url), chain)
            assert one.decision == robots.parsed.decide(url, chain)
            first = one.matched[0].rule if one.matched else None
            assert first == one.decision.rule
            token = one.decision.agent
            assert any(applied for _, applied in one.considered) is (token is not None)


def test_without_a_file() -> None:
    facts = Facts(origin="http://a.b", status=404)
    gone = RobotsFile(Outcome.MISSING, facts=facts).explain("http://a.b/x", "/x", ("a",))
    assert (gone.allowed, gone.unreachable) == (True, False)
    assert gone.reason == "no robots.txt (HTTP 404): no restrictions"
    facts = Facts(origin="http://a.b", status=302, hops=5)
    lost = RobotsFile(Outcome.MISSING, facts=facts).explain("http://a.b/x", "/x", ("a",))
    assert lost.reason == (
        "no robots.txt (HTTP 302 without a usable target, after 5 redirects): no restrictions"
    )


def test_a_page_of_a_server_in_trouble_says_not_found() -> None:
    """Why a 500 counts as "no such file"."""
    facts = Facts(origin="http://a.b", robots_url="http://a.b/robots.txt", status=500)
    robots = RobotsFile(Outcome.MISSING, facts=facts)
    answer = 'HTTP 500 with a page that says "not found"'
    one = robots.explain("http://a.b/x", "/x", ("a",))
    assert one.reason == f"no robots.txt ({answer}): no restrictions"
    assert answer in facts_line(robots)


def test_a_page_instead_of_a_file_is_called_a_page() -> None:
    page = b"<!DOCTYPE html>\n<title>Shop</title>"
    facts = Facts(origin="http://a.b", robots_url="http://a.b/robots.txt", status=200)
    robots = RobotsFile(Outcome.RULES, page, facts)
    one = robots.explain("http://a.b/x", "/x", ("a",))
    assert one.reason.endswith("and no * group (robots.txt is an HTML page)")
    assert "HTTP 200, an HTML page, fresh until" in facts_line(robots)
    # Rules count wherever they stand.
    robots = RobotsFile(Outcome.RULES, page + b"\nUser-agent: *\nDisallow: /\n", facts)
    one = robots.explain("http://a.b/x", "/x", ("a",))
    assert one.reason == "line 4: Disallow: / (robots.txt is an HTML page)"


def test_without_an_answer() -> None:
    facts = Facts(origin="http://a.b", error="no route")
    url = ("http://a.b/x", "/x", ("a",))
    down = RobotsFile(Outcome.UNREACHABLE, facts=facts).explain(*url)
    assert (down.allowed, down.unreachable) == (False, True)
    assert down.reason == "robots.txt unreachable (no route): nothing may be fetched for now"
    impolite = RobotsFile(Outcome.UNREACHABLE, facts=facts, pass_unreachable=True).explain(*url)
    assert (impolite.allowed, impolite.unreachable) == (True, True)
    assert 'REP_UNREACHABLE = "allow" lets it pass' in impolite.reason
    over = RobotsFile(Outcome.UNREACHABLE, facts=facts, unrestricted=True).explain(*url)
    assert (over.allowed, over.unreachable) == (True, True)
    assert over.reason.endswith("for longer than REP_UNREACHABLE_LIMIT: no restrictions")
    for one in (down, impolite, over):
        assert one.matched == one.considered == []
        data = as_json(one, explain=True)
        assert (data["line"], data["rule"], data["group"], data["sha256"]) == (None,) * 4


def test_a_moment_is_printed_in_utc_or_not_at_all() -> None:
    assert iso(None) is iso(1e300) is iso(float("inf")) is None
    assert iso(0.0) == "1970-01-01T00:00:00Z"


def test_the_gravest_status() -> None:
    good, found, usage, unreachable = Status
    assert gravest() == good == 0
    assert gravest(good, found) == found == 1
    assert gravest(found, unreachable, good) == unreachable == 3
    assert gravest(unreachable, usage, found) == usage == 2
