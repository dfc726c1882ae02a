"""The protocol's door, for people who use it without Scrapy; and when the body is read."""

from __future__ import annotations

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import pytest

from scrapy_rep import RobotParser
from scrapy_rep.protocol import Decision, RobotsTxt, Rule, comparable
from scrapy_rep.protocol.syntax import MAX_BYTES, MAX_LINE, normalise
from tests.protocol import reference

BODY = b"User-agent: foo\nDisallow: /x\nCrawl-delay: 2\nUser-agent: *\nDisallow: /y\nSitemap: /s\n"
EVERYTHING = b"User-agent: *\nDisallow: /\n"


class Source:
    def __init__(self, body: bytes) -> None:
        self.body, self.count = body, 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.body


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, lambda body: memoryview(bytearray(body))]
)
def test_of_bytes_of_any_type_what_counts_is_copied(kind: Any) -> None:
    body = BODY + b"#" * (MAX_BYTES - len(BODY) - 1) + b"\n" + EVERYTHING * 1000
    given = kind(body)
    robots = RobotsTxt.parse(given)
    if kind is not bytes:
        given[:] = b"#" * len(body)
    assert len(pickle.dumps(robots)) < MAX_BYTES + 1000
    assert robots.decide("/x", "foo").rule == Rule(2, "/x", False)
    assert robots.allowed("/", "foo")


@pytest.mark.parametrize("text", [
    "User-agent: *\nDisallow: /\xe9",
    "\ufeffUser-agent: *\nDisallow: /\xe9",
    "User-agent: *\nDisallow: /\udcc3\udca9",  # as open(..., errors="surrogateescape") reads it
    "User-agent: *\nDisallow: /\xe9\n# \ud800",
    "User-agent: *\nDisallow: /\xe9\n" + "#\u3042" * MAX_BYTES,
])  # fmt: skip
def test_a_text_is_read_as_utf8(text: str) -> None:
    robots = RobotsTxt.parse(text)
    assert not robots.allowed("/%C3%A9", "foo")
    assert robots.allowed("/x", "foo")
    assert len(pickle.dumps(robots)) < MAX_BYTES + 1000


@pytest.mark.parametrize("body", [None, 7, ["User-agent: *"]])
def test_a_body_that_is_neither_bytes_nor_text_is_refused(body: Any) -> None:
    with pytest.raises(TypeError):
        RobotsTxt.parse(body)


@pytest.mark.parametrize("asked", [False, True])
def test_it_can_be_pickled_and_copied(asked: bool) -> None:
    robots = RobotsTxt.parse(BODY)
    if asked:
        assert not robots.allowed("/x", "foo")
    pickles = [pickle.dumps(robots, version) for version in range(2, 6)]
    for one in (*map(pickle.loads, pickles), copy.copy(robots), copy.deepcopy(robots)):
        assert one.decide("/x", "foo") == robots.decide("/x", "foo")
        assert one.crawl_delay("foo") == 2


def test_what_is_no_product_token_is_refused_the_second_time_too() -> None:
    wrong = r"is not a product token \(letters, '-' and '_' only\)"
    robots = RobotsTxt.parse(BODY)
    asks = (
        partial(robots.allowed, "/"),
        partial(robots.decide, "/"),
        robots.rules,
        robots.crawl_delay,
    )
    for agent in (
        "FooBot/1.0",
        "foo*",
        " foo",
        "foo\n",
        "\u212aoo",
        "\ud800",
        "a" * 9999 + ".",
    ):
        for one, ask in product((agent, [agent], ("bar", agent)), asks + asks):
            with pytest.raises(ValueError, match=wrong) as caught:
                ask(one)
            assert len(str(caught.value)) < 600
    assert robots.decide("/y", "Foo_1-b").agent == "*"  # with digits it is one


@pytest.mark.parametrize(
    ("agent", "error", "words"),
    [
        ("FooBot/1.0", ValueError, r"; product_token\(\) finds 'FooBot' in it$"),
        (
            "Mozilla/5.0 (compatible; FooBot/1.2; +http://a.example)",
            ValueError,
            "finds 'FooBot'",
        ),
        ("1.0", ValueError, r"only\)$"),
        *((agent, TypeError, ".") for agent in (b"foo", [b"foo"], None, 7, [None])),
    ],
)
def test_the_error_says_which_token_was_meant(
    agent: Any, error: type, words: str
) -> None:
    with pytest.raises(error, match=words):
        RobotsTxt.parse(BODY).allowed("/", agent)


def test_who_names_no_crawler_gets_the_rules_for_all() -> None:
    robots = RobotsTxt.parse(BODY)
    for agent in ("", "*", (), [""], ["*"]):
        assert robots.decide("/y", agent) == Decision(False, Rule(5, "/y", False), "*")
        assert robots.decide("/y", agent, obey_global=False) == Decision(
            True, None, None
        )


def test_a_list_of_agents_may_change() -> None:
    robots = RobotsTxt.parse(BODY)
    agents = ["foo"]
    assert not robots.allowed("/x", agents)
    agents[0] = "bar"
    assert robots.allowed("/x", agents)
    assert robots.rules(agents)[0] == "*"


def test_read_once_for_an_agent_and_for_a_line() -> None:
    source = Source(BODY)
    robots = RobotsTxt(source)
    assert source.count == 0
    for number in range(5):
        assert not robots.allowed(f"https://example.com/x/{number}", "foo")
        assert robots.allowed(
            f"https://example.com/y/{number}", "FOO" if number else "foo"
        )
    assert source.count == 2  # one for each spelling
    for _ in range(3):
        assert robots.decide("/x", "foo") == Decision(
            False, Rule(2, "/x", False), "foo"
        )
        assert robots.decide("/y", "foo") == Decision(True, None, "foo")
    assert source.count == 3


def test_a_file_without_a_group_for_the_agent_is_read_once_for_each() -> None:
    for body in (b"", b"<html>" * 1000, b"User-agent: qux\nDisallow: /\n"):
        source = Source(body)
        robots = RobotsTxt(source)
        for number in range(9):
            for agent in ("foo", ["bar"], ("bar", "baz")):
                assert robots.decide(f"https://example.com/{number}", agent) == (
                    True,
                    None,
                    None,
                )
        assert source.count == 3


def test_sitemaps_are_remembered_only_if_they_were_preloaded() -> None:
    """Hardly anybody asks twice, and a file of 500 KB may list 40,000."""
    source = Source(BODY)
    robots = RobotsTxt(source)
    assert robots.sitemaps == robots.sitemaps == ("/s",)
    assert source.count == 2
    assert robots.size == 0
    robots.preload(BODY, ["foo", "qux"])
    assert robots.sitemaps == ("/s",)
    assert not robots.allowed("/x", ("foo", "qux"))
    assert source.count == 2
    size = robots.size
    robots.preload(BODY, ["foo", "qux"])
    assert robots.size == size


def test_agents_of_one_group_share_its_rules() -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /x")
    assert robots.rules("a")[1] is robots.rules("b")[1]
    assert robots.rules(["c", "d"])[1] is robots.rules("a")[1]


COMPARABLE = {
    "/caf\xe9": "https://example.com/caf\xe9",
    "/caf%C3%A9": "https://example.com/caf%c3%a9",
    "/a%2Fb": "https://example.com/a%2fb?x",
    "/\u30c4": "/\u30c4",
    "/a": "http://b\xfccher.example/a#\xe9",
}


def test_comparable_urls_get_the_verdict_of_a_crawl() -> None:
    for rule, url in COMPARABLE.items():
        robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
        assert not robots.decide(comparable(url), "foo").allowed
        assert not RobotParser(robots).allowed(url, "foo")


def test_the_file_itself_is_always_allowed() -> None:
    for rule in ("/", "/robots.txt", "/robots", "*.txt$", "/robots.txt$"):
        robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
        for url in (
            "/robots.txt",
            "https://example.com/robots.txt",
            "http://a.b/robots.txt#x",
        ):
            assert robots.allowed(url, "foo")
            assert robots.decide(url, "foo") == Decision(True, None, "*")
            assert RobotParser(robots).allowed(url, "foo/1.0")
        assert robots.rules("foo")[1].allows("/robots.txt")
    robots = RobotsTxt.parse(EVERYTHING + b"Allow: /robots.txt")
    assert robots.decide("/robots.txt", "foo").rule == Rule(3, "/robots.txt", True)


def test_other_files_of_that_name_are_under_the_rules() -> None:
    robots = RobotsTxt.parse(EVERYTHING)
    for path in (
        "/robots.txt?",
        "/robots.txt/",
        "/a/robots.txt",
        "/Robots.txt",
        "//robots.txt",
    ):
        assert not robots.allowed(f"https://example.com{path}", "foo"), path
        assert not robots.rules("foo")[1].allows(path), path


WILDCARDS = b"""User-agent: *
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


def test_wildcards_in_short_and_long_paths() -> None:
    """In long paths rules are refused in another way."""
    robots, groups = RobotsTxt.parse(WILDCARDS), reference.groups_of(WILDCARDS)
    for letter, length, tail in product("abx", (0, 1, 3, 290, 310), TAILS):
        url = f"https://example.com/{letter * length}{tail}"
        decision = robots.decide(url, "foo")
        line = decision.rule.line if decision.rule else 0
        assert (decision.allowed, line) == reference.decide(groups, url, "foo"), url[
            -20:
        ]


def test_lines_are_cut_wherever_they_are() -> None:
    """Only lines with a character at certain places are looked at: none may slip through."""
    longest = reference.MAX_LINE
    assert longest == MAX_LINE
    lengths = [0, 1, longest - 1, longest, longest + 1, 2 * longest, 3 * longest + 7]
    for several in product(lengths, repeat=3):
        lines = [str(at) * length for at, length in enumerate(several)]
        cut = "\n".join(line[:longest] for line in lines)
        for end in ("\n", ""):
            assert normalise(("\n".join(lines) + end).encode()) == cut + end


def test_threads_may_share_one() -> None:
    names = ["a", "b", "c", "d"]
    body = "".join(f"User-agent: {name}\nDisallow: /{name}\n" for name in names)
    robots = RobotsTxt.parse(body.encode())

    def wrong(name: str) -> list[str]:
        asked = [(other, f"https://{other}.example/{other}") for other in names] * 3000
        verdicts = (
            (robots.allowed(url, name), robots.decide(url, name)[0]) for _, url in asked
        )
        return [
            one for (one, _), got in zip(asked, verdicts) if got != (one != name,) * 2
        ]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(names)) as threads:
            assert [*threads.map(wrong, names)] == [[]] * 4
    finally:
        sys.setswitchinterval(interval)
