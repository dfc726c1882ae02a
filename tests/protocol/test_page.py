"""REP.md section 10: what a page says in headers and in its HTML."""

from __future__ import annotations

import dataclasses
import pickle
import re
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_rep.protocol import html
from scrapy_rep.protocol.html import links_of, metas_of, sitemaps_of
from scrapy_rep.protocol.link_header import targets_of
from scrapy_rep.protocol.page import PageRule, PageRules
from tests.helpers import timing
from tests.helpers.timing import in_a_slice
from tests.protocol.pages import DATES, HEADERS, HTML, META, told

CHAIN = ["foobot-image", "foobot"]


@pytest.mark.parametrize("sentence", HEADERS)
def test_what_headers_mean(sentence: str) -> None:
    for values, agents, meaning in HEADERS[sentence]:
        found = told(PageRules.from_headers(values, agents))
        assert (values, agents, found) == (values, agents, meaning)


@pytest.mark.parametrize("sentence", HTML)
def test_what_html_means(sentence: str) -> None:
    for body, encoding, meaning in HTML[sentence]:
        assert (body, told(PageRules.from_html(body, encoding, CHAIN))) == (
            body,
            meaning,
        )


@pytest.mark.parametrize("sentence", DATES)
def test_which_dates_are_read(sentence: str) -> None:
    for text, meaning in DATES[sentence]:
        expected = f"unavailable_after={meaning}" if meaning else ""
        header = f"unavailable_after: {text}".encode()
        assert (text, told(PageRules.from_headers([header]))) == (text, expected)
        html = b'<meta name="robots" content="' + header + b'">'
        assert (text, told(PageRules.from_html(html))) == (text, expected)


def test_texts_are_read_like_bytes() -> None:
    assert PageRules.from_headers(
        ["foobot:\xa0noindex", "\ufeffnofollow"], "foobot"
    ).nofollow
    page = '<meta name="robots" content="\u3000noindex\ud800">' + META.decode()
    assert PageRules.from_html(page, "utf-16") == PageRules.from_html(
        page.encode("utf-8", "replace")
    )


@pytest.mark.parametrize("agent", ["FooBot/1.0", "\N{KELVIN SIGN}bot", "Foo Bot"])
def test_an_agent_that_is_no_token_is_refused(agent: str) -> None:
    for one in (agent, ["foobot", agent]):
        with pytest.raises(ValueError, match="is not a product token"):
            PageRules.from_headers([b"kbot: noindex"], one)
        with pytest.raises(ValueError, match="is not a product token"):
            PageRules.from_html(META, "utf-8", one)


HEADER = PageRules.from_headers(
    [b"noarchive", b"foobot: noindex, max-snippet:50"], CHAIN
)
PAGE = PageRules.from_html(
    b'\n<meta name="Foobot" content="nofollow">\r\n\n'
    b'<meta name="robots" content="max-snippet: 20, foo">',
    "utf-8",
    CHAIN,
)


def test_header_and_html_are_added_up() -> None:
    assert told(HEADER | PAGE) == "noindex nofollow noarchive max_snippet=20"
    assert (HEADER | PAGE).rules == (
        PageRule("noarchive", None, "X-Robots-Tag 1"),
        PageRule("noindex", None, "X-Robots-Tag 2"),
        PageRule("max-snippet", 50, "X-Robots-Tag 2"),
        PageRule("nofollow", None, "meta foobot", 2),
        PageRule("max-snippet", 20, "meta robots", 4),
    )
    with pytest.raises(TypeError):
        HEADER | {}  # type: ignore[operator]


def test_page_rules_are_values() -> None:
    assert HEADER | HEADER == HEADER | PageRules() == HEADER
    assert pickle.loads(pickle.dumps(HEADER)) == HEADER  # noqa: S301
    assert not PageRules()
    with pytest.raises(dataclasses.FrozenInstanceError):
        HEADER.rules = ()  # type: ignore[misc]


def test_the_first_rule_of_some_names_is_told() -> None:
    assert PAGE.saying("nofollow", "none") == PageRule(
        "nofollow", None, "meta foobot", 2
    )


def test_a_page_expires_when_it_says_so() -> None:
    rules = PageRules.from_headers([b"unavailable_after: 2025-12-03T13:09:53Z"])
    date = datetime(2025, 12, 3, 13, 9, 53, tzinfo=timezone.utc)
    assert rules.unavailable_after == date
    before = date - timedelta(seconds=1)
    for now in (
        date,
        date.timestamp(),
        date.replace(tzinfo=None),
        date.astimezone(timezone.max),
    ):
        assert rules.expired(now)
    for now in (before, before.timestamp(), before.replace(tzinfo=None)):
        assert not rules.expired(now)
    assert not PageRules().expired(date)


LINKS = [
    (b"<a href=/a>", "", {}),
    (b"<a href=/a><a rel=nofollow href=/b>", "", {"/a": True, "/b": False}),
    (b"<a rel='external,NoFollow' href=/b>", "", {"/b": False}),
    (b"<a rel=ugc href=/b><a rel=sponsored href=/c>", "", {"/b": False, "/c": False}),
    (b"<a rel=nofollows href=/b>", "", {"/b": True}),
    (b"<a rel=nofollow href=/b><a href=/b>", "", {"/b": True}),
    (b"<a href=/b><a rel=nofollow href=/b>", "", {"/b": True}),
    (b"<area rel=nofollow href=/b>", "", {"/b": False}),
    (b"<A REL=NOFOLLOW HREF=' /b '>", "", {"/b": False}),
    (
        b"<base href=/x/><base href=/y/><a rel=nofollow href='b&amp;c'>",
        "/x/",
        {"b&c": False},
    ),
    (b"<base href><base href=/y/><a rel=nofollow href=b>", "/y/", {"b": False}),
    (b"<a rel=nofollow>", "", {}),
    (b"<link rel=nofollow href=/b>", "", {}),
    (b"<!-- <a rel=nofollow href=/b> -->", "", {}),
    (b"<noscript><a rel=nofollow href=/b></noscript>", "", {"/b": False}),
    (b"<svg><a rel=nofollow href=/b></svg>", "", {"/b": False}),
    ("<a rel=nofollow href=/\xe4>".encode("latin-1"), "", {"/\ufffd": False}),
]


def test_which_links_are_not_vouched_for() -> None:
    for body, base, links in LINKS:
        assert links_of(body) == (base, links), body


def test_links_are_read_in_any_encoding() -> None:
    page = "<base href=/\u3042/><a rel=nofollow href=/\u3044>\u3046</a><a href=/x?a=1&amp;b=2>"
    links = "/\u3042/", {"/\u3044": False, "/x?a=1&b=2": True}
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "iso-2022-jp", "utf-8"):
        assert links_of(page.encode(encoding), encoding) == links


SITEMAPS = [
    (b"<head><link rel=sitemap href=/map.xml>", "", ["/map.xml"]),
    (b'<link rel="sitemap" type="application/xml" title="Sitemap" href="/map.xml" />', "", ["/map.xml"]),
    (b"<LINK REL='alternate SiteMap' HREF=' /map.xml '>", "", ["/map.xml"]),
    (b"<base href=/x/><base href=/y/><link rel=sitemap href='?a&amp;b'>", "/x/", ["?a&b"]),
    (b"<link rel=sitemap href=/1><link rel=sitemap href=/2>", "", ["/1", "/2"]),
    (b"<link rel=sitemap href=/1></head><link rel=sitemap href=/2><body>", "", ["/1", "/2"]),
    (b"<script>'<body>'</script><link rel=sitemap href=/1>", "", ["/1"]),
    (b"<style>" + b"p{}" * 50_000 + b"</style><link rel=sitemap href=/1>", "", ["/1"]),
    (b"<link rel=x href=/x>\n" * 7_000 + b"<link rel=sitemap href=/1>", "", []),  # too far away
    (b"<link rel=sitemap href=/1>" * 50, "", ["/1"] * 10),
    (b"<body><link rel=sitemap href=/1>", "", []),
    (b"<body class='x'><p><link rel=sitemap href=/1>", "", []),
    (b"<a rel=sitemap href=/1>Sitemap</a>", "", []),
    (b"<link rel=sitemaps href=/1><link rel=x href=/sitemap.xml>", "", []),
    (b"<link rel=sitemap><link rel=sitemap href=''>", "", []),
    (b"<!-- <link rel=sitemap href=/1> --><noscript><link rel=sitemap href=/2></noscript>", "", []),
    (b"<template><link rel=sitemap href=/1></template>", "", []),
    (b"", "", []),
]  # fmt: skip


def test_which_sitemaps_a_page_links_to() -> None:
    for body, base, sitemaps in SITEMAPS:
        assert sitemaps_of(body) == (base, sitemaps), body[:100]


def test_sitemaps_of_a_page_are_read_in_any_encoding() -> None:
    page = "<base href=/\u3042/><link rel=sitemap href=/\u3044>"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "iso-2022-jp", "utf-8"):
        assert sitemaps_of(page.encode(encoding), encoding) == ("/\u3042/", ["/\u3044"])


LINK_HEADERS = [
    ([b"</map.xml>; rel=sitemap"], ["/map.xml"]),
    ([b'</map.xml>; rel="sitemap"; type="application/xml"'], ["/map.xml"]),
    ([b'</llms.txt>;rel="llms", </map.xml>;rel="sitemap"', b"<http://a.example/2>;rel=sitemap"],
     ["/map.xml", "http://a.example/2"]),
    ([b'</a,b;c>; title="x, y; rel=x"; REL = "Alternate SITEMAP"'], ["/a,b;c"]),
    ([b"</1>; rel=x; rel=sitemap"], []),  # only the first counts
    ([b'</1>; title="; rel=sitemap"', b"</2>; rel=sitemaps", b"</3>", b"</4>; rel", b"/5; rel=sitemap"], []),
    ([b'</1>; rel="sitemap', b"< /2 >; rel=sitemap"], ["/2"]),
    ([b"\xff</\xe4>;rel=sitemap", b"", b"<", b">", b"<>"], ["/\xe4"]),
    ([b"<" * 20_000, b"</1>; rel=sitemap"], []),  # of very long ones, the beginning counts
    ([], []),
]  # fmt: skip


def test_which_sitemaps_a_link_header_names() -> None:
    for values, targets in LINK_HEADERS:
        assert targets_of(values, "sitemap") == targets, values


def test_plain_tags_are_skipped_and_count_as_no_steps() -> None:
    page = b"<ul>" + b"<li><a href=/x class='y'>z</a></li>\n" * 7000 + META
    assert PageRules.from_html(page).noindex


PIECES = [
    b"<p", b"<a", b"</a", b"<svg", b"<style", b"</style", b"<title", b"</title", b"<template", b"</template", b"<meta",
    b"<span", b"<!--", b"-->", b"<!", b">", b">", b">", b"/>", b"<", b" ", b" ", b"=", b"='", b'="', b'"', b"'", b"/", b"x", b" b=c",
    b"<script>", b"</script>", b"&#", b"\xff", b"\0", b"2025-", b"unavailable_after:", b"<a rel=ugc href=",
    b" d='e'", b' name="robots"', b" name=robots", b'<meta name="robots" content="noindex">',
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
def test_skipping_plain_tags_changes_nothing(body: bytes) -> None:
    """What is read in one go is what is read attribute by attribute. Nothing raises."""
    PageRules.from_headers([body, body], CHAIN)
    for encoding in ("utf-8", "utf-16"):
        told(PageRules.from_html(body, encoding, CHAIN))
        links_of(body + b"nofollow", encoding)
        sitemaps_of(body + b"<link rel=sitemap href=/>", encoding)
    targets_of([body, body], "sitemap")
    found = list(metas_of(body, "utf-8", {"robots"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "_SKIPPED", 0)
        patch.setattr(
            html, "_TOKEN", re.compile(html._TOKEN.pattern.replace(html.PLAIN, b"(?!)"))
        )
        assert list(metas_of(body, "utf-8", {"robots"})) == found


def filled(unit: bytes, before: bytes = b"", after: bytes = META) -> bytes:
    """A page of 2 MB."""
    length = 2_000_000 - len(before) - len(after)
    return before + (unit * (length // len(unit) + 1))[:length] + after


ROBOTS = b'<meta name="robots" content="'
HOSTILE = {
    "tags that begin": filled(b"<meta"),
    "attributes without an end": filled(b"<meta name=robots "),
    "metas": filled(META),
    "metas with references": filled(b'<meta name="x&amp;">'),
    "names that might be": filled(b'<meta name="' + b"x" * 900 + b'&">'),
    "a content of rules": filled(b"noindex,", ROBOTS, b'">'),
    "a content of dates": filled(b"unavailable_after:1,", ROBOTS, b'">'),
    "a content of references": filled(b"&notitzzzzzz", ROBOTS, b'">'),
    "a reference of digits": filled(b"9", ROBOTS + b"&#", b'">'),
    "a name of references": filled(b"&", b'<meta name="', b'">'),
    "quotes without an end": filled(b'<meta name=robots a="'),
    "comments without an end": filled(b"<!--"),
    "comments": filled(b"<!-->"),
    "angles": filled(b"<"),
    "long attributes": filled(b'<a b="' + b"x" * 9999),
    "blanks in a tag": filled(b" ", b"<meta "),
    "blanks in tags": filled(b"<meta " + b" " * 1000),
    "slashes in a tag": filled(b"/", b"<meta name=robots"),
    "equals signs": filled(b"= ", b"<meta name=robots "),
    "svg in svg": filled(b"<svg>"),
    "svg ends": filled(b"</svg>", b"<svg>" * 100),
    "svg in svg, math ends": filled(b"</math>", b"<svg>" * 3_000),
    "svg in math in svg": filled(b"<math><svg></math>"),
    "templates": filled(b"<template>"),
    "a script of comments": filled(b"<!---->", b"<script>"),
    "a script of hidden ends": filled(b"<script></script>", b"<script><!--"),
    "metas that aren't plain": filled(b"<meta a b c d=e f='g>"),
    "scripts": filled(b"<script></script>"),
    "a script of scripts": filled(b"<!--<script>", b"<script>"),
    "a script of ends": filled(b"-->", b"<script>"),
    "links": filled(b'<a href="&amp;" rel=ugc>'),
    "references": filled(b"<a rel=ugc href='" + b"&amp;" * 3_000 + b"'>"),
    "unknown references": filled(b"<a rel=ugc href='" + b"&notitzzzz" * 1_000 + b"'>"),
    "references in rel": filled(b"<a href=/ rel='" + b"&notitzzzz" * 1_000 + b" ugc'>"),
    "many attributes": filled(b"<p" + b" b" * 40 + b">"),
    "many values": filled(b"<p" + b" a=b" * 10 + b">"),
    "links to sitemaps": filled(b"<link rel='x' href='/sitemap.xml'>"),
    "links to sitemaps that aren't plain": filled(
        b"<link rel=sitemap a b c d=e href='>"
    ),
    "links in a list": filled(b"<li><a href='/x?a=1&amp;b=2' rel=ugc>x</a>\n"),
    "lone surrogates": b"\x00\xd8" * 1_000_000,
    "digits in punycode": filled(b"<a rel=ugc href='" + b"9" * 16_000 + b"'>"),
    "digits in Punycode": filled(b"<a rel=ugc href='" + b"9" * 16_000 + b"'>"),
}
ENCODINGS = {"lone surrogates": "utf-16"}
ENCODINGS |= {"digits in punycode": "punycode", "digits in Punycode": " PUNYCODE"}


@pytest.mark.alone
@pytest.mark.parametrize("name", HOSTILE)
def test_no_page_holds_the_event_loop(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of 2 MB that is meant to is given twice the time of others."""
    monkeypatch.setattr(timing, "LONGEST", 2 * timing.LONGEST)
    body, encoding = HOSTILE[name], ENCODINGS.get(name, "utf-8")
    in_a_slice(lambda: PageRules.from_html(body, encoding, CHAIN))
    in_a_slice(
        lambda: links_of(body if b"ugc" in body else body[:-8] + b"nofollow", encoding)
    )
    in_a_slice(
        lambda: sitemaps_of(body[:250_000] + b"<link rel=sitemap href=/>", encoding)
    )


LONG = [b"a:" * 8000, b"unavailable_after:," * 1000, b"unavailable_after: 1,2,3," * 700]
LONG += [
    b"a," * 8000,
    b"noindex " * 2000,
    b" " * 16000,
    b"noindex" + b" " * 15000 + b"x",
]
LONG += [
    b"," * 16000,
    b":unavailable_after," * 860,
    b"a :" + b" " * 16000,
    b"a: noindex" * 1600,
]
LONG += [
    b"a" * 16000,
    b"a:" + b"b" * 16000,
    b"a: noindexx " * 1300,
    b"a" + b" " * 16000 + b"b",
]


def test_of_headers_16_kilobytes_are_read() -> None:
    for header in LONG:
        in_a_slice(partial(PageRules.from_headers, [header] * 1000, CHAIN))
    assert not PageRules.from_headers([b"x" * 16384, b"noindex"], CHAIN)
    assert not PageRules.from_headers([b"x" * 16380 + b",noindex"], CHAIN)


def test_of_a_page_two_megabytes_are_read() -> None:
    room = 2_000_000 - len(META)
    assert PageRules.from_html(b"x" * room + META).noindex
    assert not PageRules.from_html(b"x" * (room + 1) + META).noindex
