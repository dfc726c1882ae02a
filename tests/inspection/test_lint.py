"""What `scrapy_rep.inspection.lint` finds, and that it claims nothing that the parser doesn't do."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given

import scrapy_rep.inspection.lint
from scrapy_rep.inspection.lint import Finding, lint
from scrapy_rep.protocol import RobotsTxt
from tests.helpers.docs import page
from tests.protocol.strategies import questions

ALL = b"User-agent: *\n"
CLEAN = [
    b"User-agent: *\nDisallow:\n",
    (
        b"# hello\n\nuser-agent: a\nuser-agent: b-c_d\ndisallow: /x\nallow: /x/y$ # why\n\n"
        b"User-Agent: *\nDISALLOW: /*.pdf\nSitemap: https://example.com/s.xml\n"
    ).replace(b"/x\n", b"/x\ndisallow: *.pdf\n"),
    "User-agent: *\nDisallow: /café\n".encode(),
    # A rule of one group says nothing about another.
    b"User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /x\n",
    # Longer, but not of the same paths.
    b"User-agent: *\nDisallow: /x\nAllow: /x/y\nDisallow: /x$\n",
    # Closed to all but some; closed to one; open to one on purpose.
    b"User-agent: *\nDisallow: /\nAllow: /press\n",
    b"User-agent: *\nDisallow: /x\n\nUser-agent: Googlebot\nDisallow:\n",
    b"User-agent: *\nDisallow: /x\n\nUser-agent: Googlebot\nAllow: /\n\nUser-agent: GPTBot\nDisallow: /\n",
    # No style sheets or scripts, or they are allowed.
    b"User-agent: *\nDisallow: /jsessionid\nDisallow: /static-pages/\n",
    b"User-agent: *\nDisallow: /assets/\nAllow: /assets/*.css\nAllow: /assets/*.js\n",
]


def test_there_is_nothing_to_say() -> None:
    assert [found for body in CLEAN for found in lint(body)] == []


# A file; line and code of what is found.
FOUND = [
    (b"useragent: *\nDissallow: /x\nDisallowed: /y\nsite-map: https://a.b/c\n", "1 typo; 2 typo; 3 typo; 4 typo"),
    (ALL + b"disallow /x\ndisallow /y z\n", "2 missing-colon; 3 missing-colon"),
    (ALL + b"Allow: /\nuser agent b\n", "3 missing-colon"),
    (ALL + b"Allow: /\nSitemap https://a.b/s\n", "3 missing-colon; 3 relative-sitemap"),
    (b"Disallow: /x\n" + ALL + b"Allow: /\n", "1 rule-before-group"),
    (ALL + b"Disallow: x\nDisallow: https://a.b/x\n", "2 never-matches; 3 never-matches"),
    (ALL + b"Disallow: /a b\nDisallow: /c#d\n", "2 blank-in-rule"),
    (b"User-agent: FooBot/2.1\nUser-agent: Foo Bot\nUser-agent: * all\nAllow: /\n", "1 agent-cut; 2 agent-cut; 3 agent-cut"),
    (b"User-agent: 360Spider\nUser-agent: *bot\nUser-agent:\nAllow: /\n", "1 agent-never; 2 agent-never; 3 agent-never"),
    (ALL + b"Disallow: /" + b"a" * 17_000 + b"\n", "2 line-cut"),
    (b"\xef\xbb\xbf" + ALL + b"Disallow: /x\n", "1 bom"),
    (b"\xef\xbb" + ALL + b"Disallow: /x\n", "1 bom"),
    (ALL + b"# caf\xe9\nDisallow: /x\n# t\xe9\n", "2 not-utf8"),
    (ALL + b"Allow: /\nCrawl-delay: 3s\n", "3 bad-delay"),
    (
        ALL + b"Disallow: /a\nCrawl-delay: 3\nHost: a.b\nClean-param: s /\nNoindex: /b\n",
        "3 other-field; 4 unknown-field; 5 unknown-field; 6 unknown-field",
    ),
    (ALL + b"Disallow: /a\nFoo: /b\nhello you there\n", "3 unknown-field; 4 no-field"),
    (ALL + b"Disallow: /a\nDisallow: /a\n", "3 duplicate"),
    (ALL + b"Disallow: /a\nUser-agent: b\nAllow: /\n" + ALL + b"Disallow: /a\n", "5 split-group; 6 duplicate"),
    (ALL + "Disallow: /%c3%a9\nDisallow: /é\n".encode(), "3 duplicate"),
    (ALL + b"Disallow: /a\nAllow: /a\n", "2 shadowed"),
    (ALL + b"Allow: /a\nDisallow: /a*\n", "2 shadowed; 3 trailing-star"),
    (b"User-agent: a\nUser-agent: b\nDisallow: /x\n\nUser-agent: b\nAllow: /x\n", "5 split-group"),
    (ALL + b"Disallow: /\n", "2 site-closed"),
    (ALL + b"Disallow: /x\nDisallow: *\n", "3 site-closed"),
    (ALL + b"Disallow: /cart\nUser-agent: bingbot\nDisallow: /x\n", "3 lost-rules"),
    (ALL + b"Disallow: /cart\nUser-agent: bingbot\nCrawl-delay: 5\n", "3 lost-rules; 4 other-field"),
    (ALL + b"Disallow: /c\nUser-agent: b\nDisallow: /x\nUser-agent: b\nDisallow: /y\n", "3 lost-rules; 5 split-group"),
    (ALL + b"Disallow: /wp-includes/\nDisallow: /*.js$\n", "2 blocked-assets; 3 blocked-assets"),
    (ALL + b"Disallow: /theme/css/\nAllow: /*.css\n", "2 blocked-assets"),
    (ALL + b"Disallow: /Admin\nDisallow: /admin\n", "3 case"),
    (ALL + b"Allow: /\nSitemap: /s.xml\nSitemap:\nSitemap: ftp://a.b/s\n", "3 relative-sitemap; 4 bad-sitemap; 5 bad-sitemap"),
    (ALL + b"Disallow: /s\nSitemap: https://a.b/s.xml\n", "3 sitemap-disallowed"),
    (ALL + b"Allow: /\nUser-agent: b\nDisallow: /\nSitemap: https://a.b/s.xml\n", "5 sitemap-disallowed"),
    (b"User-agent: a\nDisallow:\n\nUser-agent: a\n", "4 split-group"),
    (b"", "file empty"),
    (b"# nothing\n", "file empty"),
    (b"Sitemap: https://a.b/s\n", "file empty"),
    (b"<!DOCTYPE html>\n<title>Welcome</title>\n<p>hello", "file html; file empty"),
    ("User-agent: *\n".encode("utf-16"), "file empty; 1 utf-16"),
]  # fmt: skip


def test_each_finding_is_reported_with_its_line() -> None:
    for body, expected in FOUND:
        found = [f"{one.line or 'file'} {one.code}" for one in lint(body)]
        assert (body, "; ".join(found)) == (body, expected)


def test_every_code_is_tested_and_documented() -> None:
    package = Path(scrapy_rep.__file__).parent
    files = "inspection/lint.py", "preferences/lint.py"
    code = "".join((package / path).read_text("utf-8") for path in files)
    tested = {one.code for body, _ in FOUND for one in lint(body)} | {"beyond-limit"}
    # See tests/preferences/test_robots.py.
    tested |= {"bad-usage", "bad-signal", "bad-license"}
    tested |= {"unknown-use", "signal-before-group", "not-checked"}
    assert set(re.findall(r'Finding\(\s*[\w.() +\[\]]+,\s*"([a-z0-9-]+)"', code)) == tested
    rows = re.findall(r"^\| (`[a-z0-9`, -]+) \| (\w+) \|", page("command-lint.md"), re.MULTILINE)
    documented = {code: severity for cell, severity in rows for code in re.findall("`(.+?)`", cell)}
    assert documented.keys() == tested | {"no-file"}  # that one is the command's
    assert documented == {code: Finding(None, code, "").severity for code in documented}


def test_nothing_is_said_of_our_settings() -> None:
    """Who owns a site need not know of Scrapy."""
    said = [one.message for body, _ in FOUND for one in lint(body)]
    assert [text for text in said if "REP_" in text or "crawl with" in text] == []


def test_the_group_that_loses_rules_is_told_which() -> None:
    rules = b"".join(b"Disallow: /%d\n" % number for number in range(5))
    (one,) = lint(ALL + rules + b"User-agent: bingbot\nUser-agent: Slurp\nDisallow: /x\n")
    assert one.message == (
        "bingbot, Slurp may fetch /0 (line 2), /1 (line 3), /2 (line 4) and 2 more: a crawler with "
        "a group of its own ignores the * group"
    )


LONG = ALL + b"Disallow: /a\n" + b"# %s\n" % (b"." * 97) * 5200 + b"Disallow: /b\n"


def test_beyond_the_limit() -> None:
    (found,) = lint(LONG)
    assert (found.code, found.line is None) == ("beyond-limit", False)
    # What counts is what stands before that line.
    counts = b"\n".join(LONG.split(b"\n")[: found.line - 1])
    assert 511_000 < len(counts) < 512_000
    # The last line that counts may end right there.
    whole = LONG[:511_999].rpartition(b"\n")[0].ljust(512_000, b".") + b"\nDisallow: /b\n"
    (found,) = lint(whole)
    assert (found.line, found.text) == (whole.count(b"\n"), "")
    (one, _) = lint(ALL + b"Disallow: /a\nAllow: /a*\n")
    assert one.message == ("never decides: line 3 (Allow: /a*) matches the same URLs and wins")
    assert one.text == "Disallow: /a"
    (one,) = lint(ALL + b"Allow: /\nCrawl-delay: 1/10\n")
    assert one.message == '"1/10" is not a number of seconds: no effect'


def test_a_sitemap_of_another_host_is_not_judged() -> None:
    body = ALL + b"Disallow: /s\nSitemap: https://b.c/s.xml\n"
    assert lint(body, robots_url="https://a.b/robots.txt") == []
    (found,) = lint(body, robots_url="https://b.c/robots.txt")
    assert found.message == "this file forbids it to * (line 2)"
    # A file of which nobody says where it is from.
    (found,) = lint(body)
    assert found.message == "if it is on this host, this file forbids it to * (line 2)"


def test_lines_are_numbered_as_the_parser_numbers_them() -> None:
    for end in (b"\n", b"\r", b"\r\n"):
        body = b"\n# one\n\nUser-agent: *\nDisallow: x\nAllow: /y\n".replace(b"\n", end)
        (found,) = lint(body)
        assert (found.line, found.text) == (5, "Disallow: x")
        rule = RobotsTxt.parse(body).decide("https://a.b/y", "c").rule
        assert rule is not None
        assert rule.line == 6


# Rules of which it says that they never decide.
NEVER = {"duplicate", "shadowed", "never-matches", "rule-before-group", "beyond-limit"}


@given(questions())
def test_what_never_decides_does_not(question: tuple[bytes, list[str]]) -> None:
    body, some = question
    found = lint(body)
    assert not [one for one in found if "\n" in one.message]
    never = {one.line for one in found if one.code in NEVER}
    robots = RobotsTxt.parse(body)
    for url in some:
        for agent in ("foo", "bar", "foo-bar", "*"):
            rule = robots.decide(url, agent).rule
            assert rule is None or rule.line not in never
