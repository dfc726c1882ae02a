"""What `scrapy_rep.inspection.lint` finds, and that it claims nothing that the parser doesn't do."""

from __future__ import annotations

import re

from scrapy_rep.inspection.findings import KINDS
from scrapy_rep.inspection.lint import lint
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol import RobotsTxt
from tests.docs.examples import section
from tests.helpers.docs import page
from tests.inspection.lint_cases import ALL, CLEAN, FOUND

SEVERITIES = {"error": "Errors", "warning": "Warnings", "note": "Notes"}
"""By their headings in the manual."""


def test_there_is_nothing_to_say() -> None:
    assert [(body, item) for body in CLEAN for item in lint(body)] == []


def test_each_finding_is_reported_with_its_line() -> None:
    for body, expected in FOUND:
        found = [f"{one.line or 'file'} {one.code}" for one in lint(body)]
        assert (body, "; ".join(found)) == (body, expected)


def test_every_code_is_tested_and_documented() -> None:
    tested = {item.code for body, _ in FOUND for item in lint(body)} | {"beyond-limit"}
    # See tests/preferences/test_robots.py.
    tested |= {"bad-usage", "bad-signal", "bad-license"}
    tested |= {"unknown-use", "signal-before-group", "not-checked"}
    assert KINDS.keys() == tested | {"no-file"}  # that one is the command's
    documented = {
        code: severity
        for severity, heading in SEVERITIES.items()
        for codes in re.findall(
            r"^- (`[a-z0-9`, -]+): ", section(page("check.md"), heading), re.MULTILINE
        )
        for code in re.findall("`(.+?)`", codes)
    }
    assert documented == {code: kind.severity for code, kind in KINDS.items()}


def test_every_finding_says_in_one_line_what_to_do() -> None:
    findings = [item for body, _ in FOUND for item in lint(body)]
    assert [
        item for item in findings if not item.fix or "\n" in item.fix + item.message
    ] == []


def test_lines_with_the_same_finding_are_put_together() -> None:
    rules = b"".join(b"Disallow: /%d*\n" % number for number in range(50))
    (item,) = lint(ALL + rules + rules.replace(b"*", b"") + b"Foo: 1\nBar: 2\n")[:1]
    assert (item.code, item.lines[:3], len(item.lines)) == (
        "trailing-star",
        (2, 3, 4),
        50,
    )
    unknown = lint(ALL + b"Disallow: /x\nFoo: 1\nBar: 2\nfoo: 1\n")
    assert [(item.code, item.lines) for item in unknown] == [
        ("unknown-field", (3, 4, 5))
    ]
    # Of one kind, but about other crawlers.
    (first, second) = lint(
        ALL
        + b"Disallow: /x\nDisallow: /y\nUser-agent: a\nDisallow: /x\nUser-agent: b\n"
        b"Disallow: /y\nUser-agent: c\nDisallow: /x\n"
    )
    assert (first.code, first.line, first.agents) == ("lost-rules", 4, ("a", "c"))
    assert (second.code, second.line, second.agents) == ("lost-rules", 6, ("b",))


def test_no_file_gets_findings_without_end() -> None:
    lines = "".join(
        f"Content-Usage: x{number}=y\nSitemap: x{number}:y\n" for number in range(500)
    )
    findings = lint((ALL.decode() + lines).encode(), also=[usage_findings])
    assert len(findings) < 20


# A file, the kind of a finding, the crawlers that it names, and what it says of them.
NAMED = [
    (b"User-agent: Googlebot\nUser-agent: *\nDisallow: /\n", "site-closed", ["*"], "all crawlers"),
    (
        ALL + b"Disallow: /\n\nUser-agent: Googlebot\nDisallow: /\n\nUser-agent: a\nDisallow:\n",
        "site-closed", ["*"], "all crawlers but a",
    ),
    (
        ALL + b"Disallow: /\n\nUser-agent: a\nDisallow: /\nAllow: /x y\n",
        "site-closed", ["*"], "all crawlers without a group of their own",
    ),
    (
        ALL + b"Disallow: /x\nUser-agent: a\nUser-agent: b\nDisallow: /y\nUser-agent: b\nDisallow: /x\n",
        "lost-rules", ["a"], "a may fetch /x (line 2)",
    ),
    (
        b"User-agent: a\nCrawl-delay: 5\n\nUser-agent: b\nNoindex: /\n\n" + ALL + b"Allow: /x\nDisallow: /y\n",
        "joined-agents", ["a", "b"], "only crawl-delay, noindex stand between",
    ),
    (
        b"User-agent: a\n\nUser-agent: b\nDisallow: /y\n\nUser-agent: a\nAllow: /yy\nAllow: /y\n",
        "joined-agents", [], "",
    ),
    (
        (b"User-agent: GPTBot\nUser-agent: bingbot\nUser-agent: Googlebot\nDisallow: /css/\n\n"
        b"User-agent: bingbot\nAllow: /css/s\n"),
        "blocked-assets", ["Googlebot"], "such as /css/site.css from Googlebot",
    ),
    (
        (b"User-agent: a\nUser-agent: b\nDisallow: /s\n\nUser-agent: c\nUser-agent: a\nDisallow: /\n"
        b"Sitemap: /s.xml\n"),
        "sitemap-disallowed", ["b"], "forbids it to b (line 3)",
    ),
    (
        b"User-agent: a\nCrawl-delay: 5\nUser-agent: b\nCrawl-delay: 9\nDisallow:\n",
        "other-delay", ["a"], "asks a to wait 5 s",
    ),
    (
        b"User-agent: a\nDisallow: /x\n\nUser-agent: a\nUser-agent: b\n",
        "empty-group", ["b"], "b may fetch everything",
    ),
]  # fmt: skip


def test_crawlers_that_a_finding_concerns_are_named() -> None:
    for body, code, agents, words in NAMED:
        items = [item for item in lint(body) if item.code == code][:1]
        assert (body, [agent for item in items for agent in item.agents]) == (
            body,
            agents,
        )
        assert words in "".join(item.message for item in items)


# A line below "User-agent: *", and what its finding says, or what to do.
MEANT = [
    ("Disallow /wiki/Special:", 'read as "disallow: ", which restricts nothing'),
    (
        "Disallow /wiki/Special:Search",
        'read as "disallow: Search", which never matches',
    ),
    ("Disallow /wiki/Special:Search", 'write "Disallow: /wiki/Special:Search"'),
    ("Disallow all: /x", 'write "Disallow: /x"'),
    ("Sitemap https://a.b/s", 'write "Sitemap: https://a.b/s"'),
    ("Disallow: images/", 'did you mean "/images/"?'),
    ("Disallow: .pdf", 'did you mean "/*.pdf"?'),
    ("Disallow: https://a.b/x", 'did you mean "/x"?'),
    ("Disallow: /#!/app", 'read as "Disallow: /"'),
    ("Disallow: / User-agent: a", 'begin a new line before "User-agent:"'),
    ("Disallow: /a /b", "write each path on a line of its own"),
    ("Disallow: /a, /b", 'it doesn\'t match "/a"'),
    ("Disallow: /(a|b)/", '"(a|b)" is read as plain characters'),
    ("Noindex: /x", "use a robots meta tag or an X-Robots-Tag header"),
    ("Host: a.b", "Yandex has done so since 2018"),
    ("Clean-param: s /", "Yandex reads clean-param"),
    ("Dsallow: /x", "did you mean disallow?"),
    ("User-agent: a, b", "write one name a line"),
    ("User-agent: MJ12bot", "keep it if the crawler goes by this name"),
]


def test_what_was_meant_is_said() -> None:
    for line, words in MEANT:
        texts = [
            f"{item.message} | {item.fix}"
            for item in lint(f"User-agent: *\nDisallow: /y\n{line}\n".encode())
            if item.line == 3
        ]
        assert words in " || ".join(texts), (line, texts)


def test_nothing_is_said_of_our_settings() -> None:
    """Who owns a site need not know of Scrapy."""
    said = [one.message for body, _ in FOUND for one in lint(body)]
    assert [text for text in said if "REP_" in text or "crawl with" in text] == []


def test_the_group_that_loses_rules_is_told_which() -> None:
    rules = b"".join(b"Disallow: /%d\n" % number for number in range(5))
    (one,) = lint(
        ALL + rules + b"User-agent: bingbot\nUser-agent: Slurp\nDisallow: /x\n"
    )
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
    whole = (
        LONG[:511_999].rpartition(b"\n")[0].ljust(512_000, b".") + b"\nDisallow: /b\n"
    )
    (found,) = lint(whole)
    assert (found.line, found.text) == (whole.count(b"\n"), "")
    (one, _) = lint(ALL + b"Disallow: /a\nAllow: /a*\n")
    assert one.message == (
        "never decides: line 3 (Allow: /a*) matches the same URLs and wins"
    )
    assert one.text == "Disallow: /a"
    (one,) = lint(ALL + b"Allow: /\nCrawl-delay: 1/10\n")
    assert one.message == '"1/10" is not a number of seconds: nobody is asked to wait'


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


def test_several_names_in_one_line_are_to_be_written_one_a_line() -> None:
    """Whether commas or blanks are between them."""
    fixes = {}
    for value in ("Foo,Bar", "Foo Bot", "Foo/1"):
        body = f"User-agent: {value}\nDisallow: /x\n".encode()
        [fixes[value]] = [
            found.fix for found in lint(body) if found.code == "agent-cut"
        ]
    assert fixes["Foo,Bar"] == fixes["Foo Bot"]
    assert fixes["Foo Bot"].startswith("write one name a line")
    assert fixes["Foo/1"] == 'write "User-agent: Foo"'
