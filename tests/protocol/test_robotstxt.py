"""The protocol's door, for people who use it without Scrapy."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from array import array
from typing import Any

import pytest

import scrapy_rep.protocol
from scrapy_rep import RobotParser
from scrapy_rep.protocol import Decision, RobotsTxt, Rule, comparable, product_token
from scrapy_rep.protocol.syntax import MAX_BYTES

BODY = b"User-agent: foo\nDisallow: /x\nCrawl-delay: 2\nUser-agent: *\nDisallow: /y\n"
EVERYTHING = b"User-agent: *\nDisallow: /\n"


class Source:
    """Gives a body and counts how often it was asked for it."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.body


def test_everything_public_is_there() -> None:
    assert sorted(scrapy_rep.protocol.__all__) == [
        "Decision",
        "Origin",
        "RobotsTxt",
        "Rule",
        "comparable",
        "product_token",
    ]
    assert all(hasattr(scrapy_rep.protocol, name) for name in scrapy_rep.protocol.__all__)


# -- parse -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytearray, lambda body: memoryview(bytearray(body))])
def test_a_body_that_changes_later_changes_no_rule(kind: Any) -> None:
    body = kind(BODY)
    robots = RobotsTxt.parse(body)
    body[:] = b"#" * len(body)
    assert not robots.allowed("/x", "foo")
    assert robots.decide("/x", "foo").rule == Rule(2, "/x", False)


def test_views_of_any_shape_are_bytes() -> None:
    padded = BODY + b"\n" * (-len(BODY) % 8)
    for view in (memoryview(array("q", padded)), memoryview(padded)[::1], array("q", padded)):
        assert not RobotsTxt.parse(view).allowed("/x", "foo")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_no_more_is_kept_than_counts(kind: Any) -> None:
    body = BODY + b"#" * (MAX_BYTES - len(BODY) - 1) + b"\n" + EVERYTHING * 1000
    robots = RobotsTxt.parse(kind(body))
    assert len(pickle.dumps(robots)) < MAX_BYTES + 1000
    assert robots.allowed("/", "foo")
    assert not robots.allowed("/x", "foo")


@pytest.mark.parametrize("body", ["User-agent: *", None, 7, ["User-agent: *"]], ids=repr)
def test_what_is_not_bytes_is_refused_at_once(body: Any) -> None:
    kind = type(body).__name__
    with pytest.raises(TypeError, match=f"robots.txt is bytes-like, not {kind}"):
        RobotsTxt.parse(body)


def test_it_can_be_pickled_and_copied() -> None:
    robots = RobotsTxt.parse(BODY)
    for asked in (False, True):
        if asked:
            assert not robots.allowed("/x", "foo")
            assert robots.allowed("/x", "bar")
        for one in (
            *(pickle.loads(pickle.dumps(robots, version)) for version in range(2, 6)),  # noqa: S301
            copy.copy(robots),
            copy.deepcopy(robots),
        ):
            assert one.decide("/x", "foo") == robots.decide("/x", "foo")
            assert one.crawl_delay("foo") == 2


def test_its_repr_says_what_was_read() -> None:
    robots = RobotsTxt.parse(BODY)
    assert repr(robots) == f"<RobotsTxt: {len(BODY)} bytes, not read yet>"
    robots.allowed("/", "Foo")
    assert repr(robots) == f"<RobotsTxt: {len(BODY)} bytes, group 'Foo' for 'Foo'>"
    robots.allowed("/", ["bar", "baz"])
    assert repr(robots) == f"<RobotsTxt: {len(BODY)} bytes, group '*' for ('bar', 'baz')>"
    source = Source(b"")
    robots = RobotsTxt(source)
    assert repr(robots) == "<RobotsTxt: not read yet>"
    assert source.count == 0
    robots.allowed("/", ["a" * 10_000] * 100)
    assert repr(robots).startswith("<RobotsTxt: no group for (")
    assert len(repr(robots)) < 400


# -- agents ----------------------------------------------------------------------------------

WRONG = [
    "FooBot/1.0",
    "foo*",
    "Foo Bar",
    " foo",
    "foo\n",
    "f\xf6\xf6",
    "\u212aoo",
    "\ud800",
]


@pytest.mark.parametrize("agent", WRONG)
def test_what_is_no_product_token_is_refused(agent: str) -> None:
    robots = RobotsTxt.parse(BODY)
    for one in (agent, [agent], ("bar", agent)):
        for ask in (
            lambda one=one: robots.allowed("/", one),
            lambda one=one: robots.decide("/", one),
            lambda one=one: robots.rules(one),
            lambda one=one: robots.crawl_delay(one),
        ):
            for _ in range(2):
                with pytest.raises(
                    ValueError, match=r"is not a product token \(letters, '-' and '_'"
                ):
                    ask()


def test_the_error_says_which_token_was_meant() -> None:
    header = "Mozilla/5.0 (compatible; FooBot/1.2; +https://foo.example/bot)"
    assert product_token(header) == "FooBot"
    for agent in ("FooBot/1.0", header):
        with pytest.raises(ValueError, match=r"; product_token\(\) finds 'FooBot' in it$"):
            RobotsTxt.parse(BODY).allowed("/", agent)
    with pytest.raises(ValueError, match=r"only\)$"):
        RobotsTxt.parse(BODY).allowed("/", "1.0")
    with pytest.raises(ValueError, match="not a product token") as caught:
        RobotsTxt.parse(BODY).allowed("/", "FooBot/" + "1" * 1_000_000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("agent", [b"foo", [b"foo"], None, 7, [None]], ids=repr)
def test_an_agent_that_is_no_string_is_refused(agent: Any) -> None:
    for obey_global in (True, False):
        with pytest.raises(TypeError):
            RobotsTxt.parse(BODY).allowed("/", agent, obey_global=obey_global)


@pytest.mark.parametrize("agent", ["", "*", (), [""], ["*"]], ids=repr)
def test_who_names_no_crawler_gets_the_rules_for_all(agent: str | list[str]) -> None:
    robots = RobotsTxt.parse(BODY)
    assert robots.decide("/y", agent) == Decision(False, Rule(5, "/y", False), "*")
    assert robots.decide("/y", agent, obey_global=False) == Decision(True, None, None)


# -- how often the file is read --------------------------------------------------------------


@pytest.mark.parametrize("agent", ["bar", ["bar"], ("bar", "baz")], ids=repr)
@pytest.mark.parametrize("body", [b"", b"<html>" * 1000, b"User-agent: foo\nDisallow: /\n"])
def test_a_file_without_a_group_for_the_agent_is_read_once(
    body: bytes, agent: str | list[str]
) -> None:
    source = Source(body)
    robots = RobotsTxt(source)
    for number in range(9):
        assert robots.allowed(f"https://example.com/{number}", agent)
        assert robots.decide(f"https://example.com/{number}", agent) == (True, None, None)
    assert source.count == 1


def test_agents_without_a_group_may_take_turns() -> None:
    source = Source(b"")
    robots = RobotsTxt(source)
    for _ in range(5):
        for agent in ("foo", ["bar"], "baz"):
            assert robots.allowed("/", agent)
    assert source.count == 3


# -- URLs ------------------------------------------------------------------------------------

SPELLINGS = [
    ("/caf\xe9", "https://example.com/caf\xe9"),
    ("/caf%C3%A9", "https://example.com/caf%c3%a9"),
    ("/a%2Fb", "https://example.com/a%2fb?x"),
    ("/\u30c4", "/\u30c4"),
    ("/a", "http://b\xfccher.example/a#\xe9"),
]


@pytest.mark.parametrize(("rule", "url"), SPELLINGS)
def test_comparable_urls_get_the_verdict_of_a_crawl(rule: str, url: str) -> None:
    body = f"User-agent: *\nDisallow: {rule}".encode()
    assert not RobotsTxt.parse(body).allowed(comparable(url), "foo")
    assert not RobotsTxt.parse(body).decide(comparable(url), "foo").allowed
    assert not RobotParser(RobotsTxt.parse(body)).allowed(url, "foo")


@pytest.mark.rfc9309
@pytest.mark.parametrize("rule", ["/", "/robots.txt", "/robots", "*.txt$", "/robots.txt$"])
def test_the_file_itself_is_always_allowed(rule: str) -> None:
    robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
    for url in ("/robots.txt", "https://example.com/robots.txt", "http://a.b/robots.txt#x"):
        assert robots.allowed(url, "foo")
        assert robots.decide(url, "foo") == Decision(True, None, "*")
        assert RobotParser(robots).allowed(url, "foo/1.0")
    assert robots.rules("foo")[1].allows("/robots.txt")


def test_other_files_of_that_name_are_under_the_rules() -> None:
    robots = RobotsTxt.parse(EVERYTHING)
    for path in ("/robots.txt?", "/robots.txt/", "/a/robots.txt", "/Robots.txt", "//robots.txt"):
        assert not robots.allowed(f"https://example.com{path}", "foo"), path
        assert not robots.rules("foo")[1].allows(path), path


def test_a_rule_that_allows_the_file_is_still_named() -> None:
    robots = RobotsTxt.parse(EVERYTHING + b"Allow: /robots.txt")
    assert robots.decide("/robots.txt", "foo").rule == Rule(3, "/robots.txt", True)


# -- threads ---------------------------------------------------------------------------------


def test_threads_may_share_one() -> None:
    """Each asks as somebody else: none gets the verdict that is another's."""
    names = ["a", "b", "c", "d"]
    body = "".join(f"User-agent: {name}\nDisallow: /{name}\n" for name in names)
    robots = RobotsTxt.parse(body.encode())
    wrong: list[object] = []

    def ask(name: str) -> None:
        try:
            for number in range(3000):
                other = names[number % 4]
                url = f"https://{other}.example/{other}"
                if robots.allowed(url, name) is not (name != other):
                    wrong.append((name, other))
                if robots.decide(url, name).allowed is not (name != other):
                    wrong.append((name, other))
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
