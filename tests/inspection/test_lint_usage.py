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

UNREAD = "can't be read, so it says nothing: "
BEFORE = (
    "stands before the first user-agent line: here it is for all crawlers, but others may ignore it"
)
FOUND = {
    "Content-Usage: train-ai = n": [("bad-usage", UNREAD + "there are blanks around the =")],
    "Content-Usage: Train-AI=n": [("bad-usage", UNREAD + "keys are in lower case")],
    "Content-Usage: train-ai=n,": [
        (
            "bad-usage",
            f"{UNREAD}no dictionary of structured fields (RFC 9651), see character 12 of it",
        )
    ],
    "Content-Usage: train-ai=n; search=y": [
        (
            "bad-usage",
            'says nothing about "search": that takes a comma before it, not a semicolon',
        )
    ],
    "Content-Usage: /path": [("bad-usage", "says nothing: no preference is given")],
    "Content-Usage: train-ai=no": [
        ("bad-usage", 'says nothing about "train-ai": that is neither y nor n')
    ],
    "Content-Usage: ai-train=n": [
        ("unknown-use", 'there is no use "ai-train": ignored; perhaps train-ai is meant')
    ],
    "Content-Usage: serach=n": [
        ("unknown-use", 'there is no use "serach": ignored; perhaps search is meant')
    ],
    "Content-Usage: tdm=n": [("unknown-use", 'there is no use "tdm": ignored')],
    "Content-Signal: ai-train = no": [
        ("bad-signal", 'not all crawlers may read "ai-train": blanks around the =')
    ],
    "Content-Signal: ai-train=n": [
        ("bad-signal", 'says nothing about "ai-train": that is neither yes nor no')
    ],
    "Content-Signal: train-ai=no": [
        ("unknown-use", 'there is no use "train-ai": ignored; perhaps ai-train is meant')
    ],
    "Content-Signal:": [("bad-signal", "says nothing: no signal is given")],
    "License: license.xml": [("bad-license", "a license is given by its full URL")],
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
            "stands before the first user-agent line, so it belongs to no group and is ignored",
        ),
    ]


def test_one_word_where_the_parser_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "http_sf", None)
    findings = lint(f"{GROUP}Content-Usage: a\nContent-Usage: b\nContent-Signal: x=y\n".encode())
    assert [(one.line, one.code) for one in findings] == [(3, "not-checked"), (5, "unknown-use")]
    assert findings[0].message == ("Content-Usage is not checked: pip install 'scrapy-rep[usage]'")
