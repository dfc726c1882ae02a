"""When the body is read, and that what is kept of it answers like the whole: the ways that are
taken for speed are compared with the naive reference."""

from __future__ import annotations

from itertools import product

import pytest

from scrapy_rep.protocol import Decision, RobotsTxt, Rule
from scrapy_rep.protocol.syntax import MAX_LINE, normalise
from tests.protocol.reference import Reference

BODY = b"""\
User-agent: foo
Disallow: /x
Disallow: /*.css$
User-agent: bar
Allow: /x
Sitemap: /s.xml
Crawl-delay: 3
"""


class Source:
    """Gives a body and counts how often it was asked for it."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.body


def test_read_once_for_an_agent() -> None:
    source = Source(BODY)
    robots = RobotsTxt(source)
    assert source.count == 0
    for number in range(5):
        assert not robots.allowed(f"https://example.com/x/{number}", "foo")
        assert robots.allowed(f"https://example.com/y/{number}", "FOO" if number else "foo")
    assert source.count == 2  # one for each spelling
    assert robots.allowed("https://example.com/x", "bar")
    assert not robots.allowed("https://example.com/x", "foo")
    assert robots.allowed("https://example.com/x", "other")
    assert source.count == 4


def test_read_once_for_a_line() -> None:
    source = Source(BODY)
    robots = RobotsTxt(source)
    for _ in range(3):
        assert robots.decide("/x", "foo") == Decision(False, Rule(2, "/x", False), "foo")
        assert robots.decide("/a.css", "foo") == Decision(False, Rule(3, "/*.css$", False), "foo")
        assert robots.decide("/y", "foo") == Decision(True, None, "foo")
    assert source.count == 3


def test_sitemaps_are_remembered_only_if_they_were_preloaded() -> None:
    """Hardly anybody asks twice, and a file of 500 KB may list 40,000."""
    source = Source(BODY)
    robots = RobotsTxt(source)
    assert robots.sitemaps == robots.sitemaps == ("/s.xml",)
    assert source.count == 2
    assert robots.size == 0
    robots.preload(BODY, "foo")
    assert robots.sitemaps == robots.sitemaps == ("/s.xml",)
    assert source.count == 2


def test_agents_of_one_group_share_its_rules() -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /x")
    assert robots.rules("a")[1] is robots.rules("b")[1]
    assert robots.rules(["c", "d"])[1] is robots.rules("a")[1]


def test_a_list_of_agents_may_change() -> None:
    robots = RobotsTxt.parse(BODY)
    agents = ["foo"]
    assert not robots.allowed("/x", agents)
    agents[0] = "bar"
    assert robots.allowed("/x", agents)
    assert robots.rules(agents)[0] == "bar"


def test_the_last_site_is_remembered_and_no_more() -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /x\nDisallow: /?x")
    for url, allowed in [
        ("https://example.com/y", True),
        ("https://example.com/x", False),
        ("https://example.com/y#/x", True),
        ("https://example.com?x", False),
        ("https://example.com.evil/x", False),
        ("https://example.com", True),
        ("http://example.com/x", False),
        ("x", True),
        ("/x", False),
    ]:
        assert robots.allowed(url, "foo") is allowed, url


WILDCARDS = """\
Disallow: /a*b*c
Allow: /a*cb
Disallow: /aaa*$
Allow: /aaa*d$
Disallow: *dd*d
Allow: /*ddd$
Disallow: /aa*e*$*
Allow: /*ee$e*
Disallow: /b*
Allow: /bb**
Disallow: /bbb$
"""
TAILS = ["", "b", "bc", "cb", "d", "ddd", "dxdd", "e", "ee$e", "e$e", "$", "*", "cbd"]


@pytest.mark.parametrize("length", [0, 1, 3, 290, 310, 700])
@pytest.mark.parametrize("letter", ["a", "b", "x"])
def test_wildcards_in_short_and_long_paths(letter: str, length: int) -> None:
    """In long paths rules are refused in another way."""
    body = f"User-agent: *\n{WILDCARDS}".encode()
    robots = RobotsTxt.parse(body)
    reference = Reference()
    groups = reference.groups(body)
    for tail in TAILS:
        url = f"https://example.com/{letter * length}{tail}"
        decision = robots.decide(url, "foo")
        line = decision.rule.line if decision.rule else 0
        assert (decision.allowed, line) == reference.decide(groups, url, "foo"), url[-20:]


@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_are_cut_wherever_they_are(end: str) -> None:
    """Only lines with a character at certain places are looked at: none may slip through."""
    longest = Reference.MAX_LINE
    assert longest == MAX_LINE
    lengths = [0, 1, longest - 1, longest, longest + 1, 2 * longest, 3 * longest + 7]
    for several in product(lengths, repeat=4):
        lines = [str(at) * length for at, length in enumerate(several)]
        cut = "\n".join(line[:longest] for line in lines)
        assert normalise(("\n".join(lines) + end).encode()) == cut + end
