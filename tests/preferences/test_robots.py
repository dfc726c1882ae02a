"""Lines of a robots.txt about use: which count for whom and which path; what lint finds."""

from __future__ import annotations

import sys
from itertools import product

import pytest

from scrapy_rep.inspection import lint as inspection
from scrapy_rep.preferences import RobotsUsage, Statement, read_robots
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.preferences.statements import _MAX_LINES_READ, MAX_LINES
from scrapy_rep.protocol import RobotsTxt, comparable

# draft-ietf-aipref-attach-05, "Example".
EXAMPLE = """\
User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: / train-ai=y
"""


def ask(body: str | bytes, path: str = "/", agent: str = "FooBot") -> list[Statement]:
    data = body.encode() if isinstance(body, str) else body
    token, rules = RobotsTxt.parse(data).rules(agent)
    path = comparable(path)
    return read_robots(data, token).about(path, allowed=rules.allows(path))


def said(body: str, path: str = "/", agent: str = "FooBot") -> list[dict[str, str]]:
    return [one.says for one in ask(body, path, agent)]


def test_the_example_of_the_draft() -> None:
    n, y = {"train-ai": "n"}, {"train-ai": "y"}
    asked = [("/test", "FooBot"), ("/never/test", "FooBot"), ("/ai-ok/test", "FooBot")]
    asked += [("/test", "ExampleBot"), ("/never/test", "examplebot")]
    assert [said(EXAMPLE, *one) for one in asked] == [[n], [], [y], [y], [y]]
    rules = read_robots(EXAMPLE.encode(), "*").rules
    assert [(path is None, one.says) for path, one in rules] == [(True, n), (False, y)]


USAGE = "User-agent: *\n{}\n"

# Two lines, a path, and which of them counts.
LONGEST = [
    ("/a search=y", "/ab search=n", "/abc", 3),
    ("/ab search=y", "/* search=n", "/abc", 2),
    ("/a/b search=y", "search=n", "/abc", 3),
    ("/*.pdf$ search=y", "/ search=n", "/x.pdf", 2),
    ("/*.pdf$ search=y", "/ search=n", "/x.pdf?y", 3),
    ("/%c3%a4 search=y", "/ search=n", "/ä", 2),
    ("/ä search=y", "/ search=n", "/%C3%A4", 2),
    ("/A search=y", "/a search=y", "/a", 3),
    ("/d/index.html search=y", "/ search=n", "/d/", 3),
]


def test_the_longest_path_that_matches_counts() -> None:
    for first, second, path, line in LONGEST:
        lines = f"Content-Usage: {first}\nContent-Usage: {second}"
        assert [one.line for one in ask(USAGE.format(lines), path)] == [line]
    # Lines of one length count together.
    lines = "Content-Usage: /a search=y\nContent-Usage: /a search=n\nContent-Usage: /* train-ai=n"
    found = said(USAGE.format(lines), "/abc")
    assert found == [{"search": "y"}, {"search": "n"}, {"train-ai": "n"}]


def test_a_line_about_use_ends_the_agents_of_a_group() -> None:
    body = "User-agent: a\n{}\nUser-agent: b\nContent-Usage: search=n\n"
    for line in ("Content-Usage: search=y", "Content-Signal: search=yes"):
        assert said(body.format(line), agent="a") == [{"search": "y"}]
        assert said(body.format(line), agent="b") == [{"search": "n"}]
    license, sitemap = "License: https://a.example/l", "Sitemap: https://a.example/s"
    for line in ("", sitemap, license, "X: y", "Allow"):
        assert said(body.format(line), agent="a") == [{"search": "n"}]
    for line in (
        "Allow: /",
        "disallow /x",
        " Dissallow : ",
        "Disallowed:",
        "DISALLAW:/ # x",
    ):
        assert said(body.format(line), agent="a") == []


def test_groups_that_name_a_crawler_are_merged_and_never_mixed() -> None:
    body = (
        "User-agent: FooBot\nAllow: /\nContent-Usage: search=y\n\nUser-agent: *\n"
        "Content-Usage: search=n\nUser-agent: foobot\nContent-Usage: train-ai=n\n"
    )
    assert said(body) == [{"search": "y"}, {"train-ai": "n"}]
    assert said(body, agent="BarBot") == [{"search": "n"}]
    assert said("User-agent: FooBot\nContent-Usage: search=y\n", agent="BarBot") == []


def test_signals_before_all_groups_are_everybodys() -> None:
    group = USAGE.format("Content-Signal: ai-train=no")
    body = f"Content-Signal: search=no\nuser: x\nContent-Usage: search=n\n{group}"
    assert said(body) == [{"search": "n"}, {"train-ai": "n"}]
    assert said("Content-Signal: search=no\n") == [{"search": "n"}]


def test_licenses_stand_anywhere() -> None:
    body = "license: https://a.example/1 # x\nUser-agent: other\nLICENSE :https://a.example/\xe4\nLicense:\n"
    found = read_robots(body.encode(), None)
    assert found.licenses == ("https://a.example/1", "https://a.example/\xe4")
    # Most files say nothing.
    assert read_robots(b"User-agent: *\nDisallow: /\n", "*") == RobotsUsage()


def test_lines_are_counted_as_in_the_file() -> None:
    text = (
        "# hello\n\nContent-Signal: search=yes\nUser-agent: a\nuser-agent: *\n\n"
        "  content-usage\t: search=n # why\nUser-agent: b\nuser nonsense\n\nUser-agent: *\n"
        "Content-Usage: train-ai=n"
    )
    for bom, end in product(("", "\ufeff"), ("\n", "\r\n", "\r")):
        found = ask(bom + text.replace("\n", end))
        assert [(one.line, one.text) for one in found] == [
            (7, "content-usage\t: search=n # why"),
            (12, "Content-Usage: train-ai=n"),
            (3, "Content-Signal: search=yes"),
        ]
    # What does not begin a line is not read.
    for name in ("# Content-Usage:", "x Content-Usage:", "Content-Usage"):
        assert ask(USAGE.format(f"{name} search=n")) == []


def test_lines_beyond_the_limit_are_not_looked_at() -> None:
    lines = "\n".join(
        f"Content-Usage: /{number} search=n" for number in range(MAX_LINES + 1)
    )
    body = USAGE.format(lines)
    assert said(body, f"/{MAX_LINES - 1}") == [{"search": "n"}]
    assert ask(body, f"/{MAX_LINES}x") == ask(body, "/10x")
    signals = read_robots(b"Content-Signal: search=no\n" * 2_000, None).signals
    assert len(signals) == MAX_LINES


def test_lines_for_other_agents_are_limited_too() -> None:
    """Reading them takes time, too."""
    line = "Content-Usage: search=n\n"
    for agents in (1, _MAX_LINES_READ - 1):
        others = f"User-agent: b\n{line * ((_MAX_LINES_READ - 1) // agents)}" * agents
        last, beyond = (
            f"{others}{line * more}User-agent: a\n{line}" for more in (0, 1)
        )
        assert read_robots(last.encode(), "a").rules
        assert not read_robots(beyond.encode(), "a").rules


GROUP = "User-agent: *\nAllow: /\n"

CLEAN = [
    "Content-Usage: train-ai=n, search=y",
    "content-usage : /path/ ai-use=n # why",
    "Content-Usage: train-ai=n;why=42",
    "Content-Signal: search=yes, ai-input=no,ai-train=NO",
    "Content-Signal: search=yes, use=reference",
    "License: https://example.com/license.xml",
]

UNREAD = "can't be read, so the line says nothing: "
BEFORE = "no user-agent line above it: applied to all crawlers here, but other parsers may ignore it"
FOUND = {
    "Content-Usage: train-ai = n": ("bad-usage", UNREAD + "remove the blanks around the ="),
    "Content-Usage: Train-AI=n": (
        "bad-usage", UNREAD + "Key cannot begin with an uppercase character at position 0",
    ),
    f"Content-Usage: search=n, x={'1' * 500}": ("bad-usage", UNREAD + "longer than 500 bytes"),
    "Content-Usage: /path": ("bad-usage", "no preference is given, so the line says nothing"),
    "Content-Usage: train-ai=no": ("bad-usage", '"train-ai" is neither y nor n, so it says nothing'),
    "Content-Usage: ai-train=n": (
        "unknown-use", 'ignored: unknown purpose "ai-train"; did you mean train-ai?',
    ),
    "Content-Usage: serach=n": (
        "unknown-use", 'ignored: unknown purpose "serach"; did you mean search?',
    ),
    "Content-Usage: tdm=n": ("unknown-use", 'ignored: unknown purpose "tdm"'),
    "Content-Signal: ai-train = no": (
        "bad-signal", '"ai-train" has blanks around the =: other crawlers may not read it',
    ),
    "Content-Signal: ai-train=n": (
        "bad-signal", '"ai-train" is neither yes nor no, so it says nothing',
    ),
    "Content-Signal: train-ai=no": (
        "unknown-use", 'ignored: unknown purpose "train-ai"; did you mean ai-train?',
    ),
    "Content-Signal: search=yes; ai-train=no": (
        "bad-signal", "signals are separated by semicolons: other crawlers may read commas only",
    ),
    "Content-Signal: use=links": (
        "bad-signal", '"use" is none of immediate, reference, full, so it says nothing',
    ),
    "Content-Signal:": ("bad-signal", "no signal is given, so the line says nothing"),
    "License: license.xml": ("bad-license", "a license needs a full URL"),
}  # fmt: skip


def lint(lines: str) -> list[inspection.Finding]:
    return inspection.lint(lines.encode(), also=[usage_findings])


def test_what_is_wrong_with_a_line() -> None:
    assert [lint(f"{GROUP}{line}\n") for line in CLEAN] == [[]] * len(CLEAN)
    found = {line: lint(f"{GROUP}{line}\n")[0] for line in FOUND}
    assert {line: (one.code, one.message) for line, one in found.items()} == FOUND
    assert all((one.line, one.text) == (3, line) for line, one in found.items())
    # One finding for each.
    assert len(lint(GROUP + "\n".join(FOUND))) == len(FOUND)


def test_lines_before_any_group() -> None:
    lines = "Content-Signal: search=no\nContent-Usage: search=n\nLicense: https://a.example/l\n"
    assert [(one.line, one.code, one.message) for one in lint(lines + GROUP)] == [
        (1, "signal-before-group", BEFORE),
        (2, "rule-before-group", "ignored: no user-agent line above it"),
    ]


def test_a_note_where_the_parser_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "http_sf", None)
    findings = lint(f"{GROUP}Content-Usage: a\nContent-Signal: x=y\n")
    assert [(one.line, one.code) for one in findings] == [
        (3, "not-checked"),
        (4, "unknown-use"),
    ]
    assert (
        findings[0].message
        == "Content-Usage is not checked: pip install 'scrapy-rep[usage]'"
    )
