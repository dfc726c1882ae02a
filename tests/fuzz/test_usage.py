"""Statements about use of any kind, wherever they stand: read in no time, or passed over."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse

from scrapy_rep import usage
from scrapy_rep.inspection.lint import lint
from scrapy_rep.preferences import PURPOSES, Statement, Usage, read_robots
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.preferences.statements import (
    MAX_LICENSES,
    MAX_LINES,
    MAX_STATEMENT_TEXT,
    TdmFile,
    link_licenses,
)
from scrapy_rep.protocol.syntax import MAX_BYTES
from tests.fuzz.strategies import damaged
from tests.helpers.timing import in_a_slice

pytestmark = pytest.mark.slow
WORDS = [b"Content-Usage:", b"content-signal :", b"License:", b"User-agent: a\n", b"user-agent:*\n",
         b"Disallow: /\n", b"train-ai", b"ai-train", b"=", b"n", b"no", b";", b",", b" ", b"\t", b"\n", b"\r",
         b"/a*b$ ", b"/", b"*", b"#", b"\0", b"\xff", b"\xc3\xa4", b'"', b"(", b")", b":", b"?1", b"@9", b"%\"",
         b"\\", b"9", b"user ", b"disallow\n", b"\v"]  # fmt: skip
ROBOTS = damaged(
    [
        b"User-agent: *\nDisallow: /x\nContent-Usage: train-ai=n, search=y;x=1\nContent-Usage: /a ai-use=y\n",
        b"Content-Signal: search=yes, ai-train=no\nUser-agent: a\nUser-agent: b\nContent-Usage: /*.x$ a=b\n",
        b"License: https://a.example/l\n\nUser-agent: *\nContent-Signal: ai-input = no, use=full\n",
    ],
    WORDS,
)
VALUES = damaged(
    [
        b"train-ai=n, search=y",
        b"train-ai;a=1.5;b=\"x\\\"\", search=(a b;c=?1), x=:aGVsbG8=:, y=@1659578233, z=%\"%c3%bc\"",
        b"search=yes, ai-input=no, ai-train=no",
    ],
    WORDS,
    20_000,
)  # fmt: skip
LINKS = damaged(
    [b'<https://a.example/l>; rel="license"; type="application/rsl+xml", <b>; rel=next; title="x"'],
    [b"<", b">", b";", b",", b'"', b"rel=", b"license", b"type=", b"application/rsl+xml", b" ", b"\t"],
    40_000,
)  # fmt: skip
FILES = damaged(
    [
        json.dumps([{"location": path, "tdm-reservation": n, "tdm-policy": "https://a.example/"}]).encode()
        for n, path in enumerate(["/", "/a*b$", "*.png"])
    ],
    [b"[", b"]", b"{", b"}", b'"', b"\\", b"\\ud800", b":", b",", b"1", b"-", b"e9", b"null", b"true", b"NaN",
     b'{"location": "/*a*b*c", "tdm-reservation": 1},', b"\xff", b"\0"],
)  # fmt: skip
PAGES = damaged(
    [
        b'<meta name="tdm-reservation" content="1"><meta name=tdm-policy content=https://a.example/>',
        b'<html><head><meta name="robots" content="noai, noimageai"></head>',
    ],
    [b"<meta ", b"name=", b"content=", b'"', b"'", b">", b"<", b"<!--", b"&#1;", b"tdm-reservation", b"1"],
    100_000,
)  # fmt: skip
PATHS = st.sampled_from(["/", "/a", "/a.x", "/" + "ab" * 1000, "/%C3%A4?b"])
USE = {"bad-usage", "bad-signal", "bad-license", "unknown-use", "signal-before-group"}


def check(statements: list[Statement]) -> None:
    for one in statements:
        assert one.line is None or one.line > 0
        assert len(one.text) <= MAX_STATEMENT_TEXT
        assert {*one.says} <= {*PURPOSES}
        assert {*one.says.values()} <= {"y", "n"}
    json.dumps(Usage(tuple(statements)).as_dict())


@given(ROBOTS, PATHS, st.sampled_from(["*", "a", "B", None]))
@example(
    b"User-agent: *\n" + b"Content-Usage: /*a*a*a*a* train-ai=n\n" * 13_000,
    "/" + "ab" * 1000,
    "*",
)
@example(b"User-agent: a\nDisallow: /\nContent-Usage: a\n" * 11_000, "/", "a")
def test_files_of_any_kind(body: bytes, path: str, token: str | None) -> None:
    body = body[:MAX_BYTES]
    found = in_a_slice(lambda: read_robots(body, token))
    statements = in_a_slice(lambda: found.about(path, allowed=True))
    check(statements)
    assert len(statements) <= 2 * MAX_LINES
    assert len(found.licenses) <= MAX_LICENSES
    last = body.count(b"\n") + body.count(b"\r") + 1
    assert all(one.line <= last for one in statements if one.line)
    for finding in lint(body[:20_000], also=[usage_findings]):
        assert finding.line is None or finding.line >= 1
        assert finding.code not in USE or len(finding.message) < 250


@given(FILES, PATHS)
def test_reservations_of_any_kind(body: bytes, path: str) -> None:
    file = in_a_slice(lambda: TdmFile(body[:MAX_BYTES]))
    found = in_a_slice(lambda: file.about(path))
    check([] if found.statement is None else [found.statement])
    assert len(found.policy or "") <= 8_192


@given(PAGES, VALUES, VALUES, LINKS)
def test_responses_of_any_kind(
    body: bytes, value: bytes, other: bytes, link: bytes
) -> None:
    headers = {
        "Content-Usage": [value, other],
        "X-Robots-Tag": [other],
        "TDM-Reservation": [value, b"1"],
        "TDM-Policy": [other],
        "Link": [link],
    }
    page = HtmlResponse(
        "http://a.example/", headers=headers, body=body, encoding="utf-8"
    )
    found = in_a_slice(lambda: usage(page))
    check(list(found.statements))
    assert found["tdm"] in (None, "n")
    assert len(in_a_slice(lambda: link_licenses([link, link]))) <= MAX_LICENSES
