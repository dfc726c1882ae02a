"""What lint finds in lines about use."""

from __future__ import annotations

import sys

import pytest

from scrapy_rep.inspection.lint import lint

GROUP = "User-agent: *\nAllow: /\n"

CLEAN = [
    "Content-Usage: train-ai=n, search=y",
    "content-usage : /path/ ai-use=n # why",
    "Content-Usage: train-ai=n;why=42",
    "Content-Signal: search=yes, ai-input=no,ai-train=NO",
    "Content-Signal: search=yes, use=reference",
    "License: https://example.com/license.xml",
]

UNREAD = "ignored, since it can't be read: "
BEFORE = "no user-agent line above it: for all crawlers here, but others may ignore it"
FOUND = {
    "Content-Usage: train-ai = n": [("bad-usage", UNREAD + "no spaces are allowed around =")],
    "Content-Usage: Train-AI=n": [("bad-usage", UNREAD + "keys must be in lower case")],
    "Content-Usage: train-ai=n,": [
        (
            "bad-usage",
            f"{UNREAD}not a dictionary of structured fields (RFC 9651) at character 12",
        )
    ],
    "Content-Usage: train-ai=n; search=y": [
        (
            "bad-usage",
            '"search" is ignored: put a comma before it, not a semicolon',
        )
    ],
    "Content-Usage: /path": [("bad-usage", "ignored: no preference")],
    "Content-Usage: train-ai=no": [
        ("bad-usage", '"train-ai" is ignored: its value is neither y nor n')
    ],
    "Content-Usage: ai-train=n": [
        ("unknown-use", 'ignored: unknown use "ai-train"; did you mean train-ai?')
    ],
    "Content-Usage: serach=n": [
        ("unknown-use", 'ignored: unknown use "serach"; did you mean search?')
    ],
    "Content-Usage: tdm=n": [("unknown-use", 'ignored: unknown use "tdm"')],
    "Content-Signal: ai-train = no": [
        ("bad-signal", 'spaces around =, so some crawlers may not read "ai-train"')
    ],
    "Content-Signal: ai-train=n": [
        ("bad-signal", '"ai-train" is ignored: its value is neither yes nor no')
    ],
    "Content-Signal: train-ai=no": [
        ("unknown-use", 'ignored: unknown use "train-ai"; did you mean ai-train?')
    ],
    "Content-Signal:": [("bad-signal", "ignored: no signal")],
    "License: license.xml": [("bad-license", "not a full URL, as a license needs")],
}


@pytest.mark.parametrize("line", CLEAN)
def test_lines_that_are_as_they_should_be(line: str) -> None:
    assert lint(f"{GROUP}{line}\n".encode()) == []


@pytest.mark.parametrize(("line", "found"), FOUND.items())
def test_what_is_wrong_with_a_line(line: str, found: list[tuple[str, str]]) -> None:
    findings = lint(f"{GROUP}{line}\n".encode())
    assert [(one.code, one.message) for one in findings] == found
    assert {(one.line, one.text) for one in findings} == {(3, line)}


def test_lines_before_any_group() -> None:
    lines = "Content-Signal: search=no\nContent-Usage: search=n\nLicense: https://a.example/l\n"
    assert [(one.line, one.code, one.message) for one in lint((lines + GROUP).encode())] == [
        (
            1,
            "signal-before-group",
            BEFORE,
        ),
        (
            2,
            "rule-before-group",
            "ignored: no user-agent line above it",
        ),
    ]


def test_one_word_where_the_parser_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "http_sf", None)
    findings = lint(f"{GROUP}Content-Usage: a\nContent-Usage: b\nContent-Signal: x=y\n".encode())
    assert [(one.line, one.code) for one in findings] == [(3, "not-checked"), (5, "unknown-use")]
    assert findings[0].message == ("Content-Usage is not checked: pip install 'scrapy-rep[usage]'")
