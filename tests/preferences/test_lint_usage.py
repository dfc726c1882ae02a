"""What lint finds in lines about use."""

from __future__ import annotations

import sys

import pytest

from scrapy_rep.inspection import lint as inspection
from scrapy_rep.preferences.lint import usage_findings

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
BEFORE = (
    "no user-agent line above it: applied to all crawlers here, but other parsers may ignore it"
)
FOUND = {
    "Content-Usage: train-ai = n": ("bad-usage", UNREAD + "remove the blanks around the ="),
    "Content-Usage: Train-AI=n": ("bad-usage", UNREAD + "write keys in lower case"),
    "Content-Usage: train-ai=n,": (
        "bad-usage", UNREAD + "the preferences break RFC 9651 at character 12",
    ),
    "Content-Usage: train-ai=n; search=y": (
        "bad-usage", '"search" says nothing: separate it with a comma, not a semicolon',
    ),
    f"Content-Usage: search=n, x={'1' * 4_096}": ("bad-usage", UNREAD + "longer than 4,096 bytes"),
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


def test_one_word_where_the_parser_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "http_sf", None)
    findings = lint(f"{GROUP}Content-Usage: a\nContent-Usage: b\nContent-Signal: x=y\n")
    assert [(one.line, one.code) for one in findings] == [(3, "not-checked"), (5, "unknown-use")]
    assert findings[0].message == ("Content-Usage is not checked: pip install 'scrapy-rep[usage]'")
