"""Whatever a server sends and whatever is asked: what must hold (REP.md sections 6 to 8).

`reference.py` is the second opinion.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_rep.protocol import Decision, RobotsTxt
from scrapy_rep.protocol.syntax import is_token
from tests.protocol.reference import Reference
from tests.protocol.strategies import (
    HARMLESS,
    TOKENS,
    any_text,
    bodies,
    chains,
    ended_lines,
    line_ends,
    questions,
    rule_lines,
    tokens,
    urls,
)

pytestmark = pytest.mark.slow

Question = tuple[bytes, list[str]]


def without_line(decision: Decision) -> tuple[object, ...]:
    """A decision less the number of its line, for files that differ in their lines."""
    rule = decision.rule
    return decision.allowed, rule and rule.pattern, rule and rule.allow, decision.agent


@given(
    bodies,
    st.one_of(urls(), any_text),
    st.one_of(tokens, chains),
)
@example(b"", "", "")
@example(b"", "http://[", [])
@example(b"User-agent: *\nDisallow: /", "\ud800", "foo")
def test_no_file_and_no_url_raises_an_error(body: bytes, url: str, agent: str | list[str]) -> None:
    robots = RobotsTxt.parse(body)
    decision = robots.decide(url, agent)
    assert robots.allowed(url, agent) is decision.allowed
    assert robots.allowed(url, agent, obey_global=False) in (True, False)
    assert decision.agent in (None, "*", agent, *agent)
    if decision.rule:
        assert 1 <= decision.rule.line <= len(body) + 1
        str(decision.rule).encode()  # fit for a log
    delay = robots.crawl_delay(agent)
    assert delay is None or 0 <= delay < float("inf")
    assert all(sitemap.encode() for sitemap in robots.sitemaps)


@given(bodies, st.one_of(any_text, st.lists(any_text)))
@example(b"User-agent: *\nDisallow: /", "\ud800")
def test_an_agent_is_a_token_or_an_error(body: bytes, agent: str | list[str]) -> None:
    robots = RobotsTxt.parse(body)
    chain = [agent] if isinstance(agent, str) else agent
    if all(token in ("", "*") or is_token(token) for token in chain):
        assert robots.decide("/x", agent).agent in (None, "*", agent, *agent)
    else:
        for ask in (robots.decide, robots.allowed):
            with pytest.raises(ValueError, match="is not a product token"):
                ask("/x", agent)


# With three times the examples nearly every sentence of the specification decides one.
@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)
@given(questions())
@example((b"User-agent: *\nDisallow", ["/"]))
@example((b"User-agent: *\nAllow: /a\nUser-agent\nDisallow: /", ["/"]))
def test_equals_the_reference(question: Question) -> None:
    body, asked = question
    reference = Reference()
    groups = reference.groups(body)
    robots = RobotsTxt.parse(body)
    for url in asked:
        for agent in TOKENS:
            decision = robots.decide(url, agent)
            ours = (decision.allowed, decision.rule.line if decision.rule else 0)
            assert ours == reference.decide(groups, url, agent), (url, agent)


@given(
    st.lists(st.lists(rule_lines, min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["foo", "*"]),
    st.lists(rule_lines, min_size=1, max_size=3),
    st.data(),
)
def test_split_groups_equal_one_big_group(
    parts: list[list[str]], name: str, other_rules: list[str], data: st.DataObject
) -> None:
    """Groups of one token, with others' between them, are one group (section 7)."""
    other = ["User-agent: bar", *other_rules]
    split = [line for part in parts for line in (f"User-agent: {name}", *part, *other)]
    big = [f"User-agent: {name}", *(line for part in parts for line in part), *other]
    first, second = (RobotsTxt.parse("\n".join(lines).encode()) for lines in (split, big))
    for url in data.draw(st.lists(urls("\n".join(big).encode()), min_size=1, max_size=5)):
        for agent in ("foo", "bar"):
            assert without_line(first.decide(url, agent)) == without_line(second.decide(url, agent))


@given(
    st.lists(st.one_of(ended_lines, rule_lines.map(str.encode)), min_size=2, max_size=8),
    st.integers(0, 9),
    line_ends,
    st.data(),
)
def test_harmless_lines_change_no_verdict(
    parts: list[bytes], place: int, end: bytes, data: st.DataObject
) -> None:
    """Comments, blank, unknown and sitemap lines, anywhere (section 7)."""
    parts = [part if part.endswith((b"\n", b"\r")) else part + end for part in parts]
    parts.insert(0, b"User-agent: *" + end)
    before = RobotsTxt.parse(b"".join(parts))
    asked = data.draw(st.lists(urls(b"".join(parts)), min_size=1, max_size=3))
    for line in HARMLESS:
        after = RobotsTxt.parse(b"".join([*parts[:place], line.encode() + end, *parts[place:]]))
        for url in asked:
            for agent in ("foo", "bar", "nobody"):
                decisions = [without_line(r.decide(url, agent)) for r in (before, after)]
                assert decisions[0] == decisions[1], (line, url, agent)
        if "map" not in line:
            assert after.sitemaps == before.sitemaps


@given(questions(), tokens)
def test_case_of_the_agent_never_matters(question: Question, agent: str) -> None:
    body, asked = question
    robots = RobotsTxt.parse(body)
    for url in asked:
        verdicts = {
            robots.decide(url, spelling)[:2]
            for spelling in (agent, agent.swapcase(), agent.upper(), agent.lower())
        }
        assert len(verdicts) == 1


@given(questions(), chains)
def test_the_first_token_with_a_group_decides(question: Question, chain: list[str]) -> None:
    body, asked = question
    robots = RobotsTxt.parse(body)
    reference = Reference()
    first = next((token for token in chain if reference.has_group(body, token)), "nobody")
    for url in asked:
        assert robots.decide(url, chain) == robots.decide(url, first)
        assert robots.decide(url, tuple(chain)) == robots.decide(url, chain)


@given(questions(), tokens)
def test_without_the_global_group_only_names_count(question: Question, agent: str) -> None:
    body, asked = question
    robots = RobotsTxt.parse(body)
    named = Reference().has_group(body, agent)
    for url in asked:
        decision = robots.decide(url, agent, obey_global=False)
        assert decision == (robots.decide(url, agent) if named else Decision(True, None, None))


@given(questions())
def test_earlier_questions_change_no_answer(question: Question) -> None:
    """What is prepared or remembered for one agent is not taken for another's."""
    body, asked = question
    pairs = [(url, agent) for url in asked for agent in ("foo", "bar", "foo-bar", "nobody", "FOO")]
    alone = [RobotsTxt.parse(body).decide(*pair) for pair in pairs]
    robots = RobotsTxt.parse(body)
    assert [robots.decide(*pair) for pair in pairs] == alone
    assert [robots.decide(*pair) for pair in reversed(pairs)] == alone[::-1]


@given(questions(), st.one_of(tokens, chains), st.booleans())
def test_read_at_once_is_read_when_asked(
    question: Question, agent: str | list[str], obey_global: bool
) -> None:
    """For who has the body just now: the same answers, for that agent and for others."""
    body, asked = question
    later, at_once = RobotsTxt.parse(body), RobotsTxt(lambda: body)
    at_once.preload(body, agent, obey_global)
    assert at_once.sitemaps == later.sitemaps
    for url in asked:
        for one in (agent, "foo", ["bar", "foo"], agent):
            for obey in (obey_global, not obey_global):
                ours = at_once.decide(url, one, obey_global=obey)
                assert ours == later.decide(url, one, obey_global=obey)


def test_read_at_once_asks_for_the_body_no_more() -> None:
    body = b"User-agent: foo\nDisallow: /a\nSitemap: https://example.com/s.xml\n"

    def source() -> bytes:
        raise AssertionError("the body is asked for")

    robots = RobotsTxt(source)
    robots.preload(body, ["foo", "bar"])
    assert robots.sitemaps == ("https://example.com/s.xml",)
    assert not robots.allowed("https://example.com/a", ("foo", "bar"))
    assert robots.allowed("https://example.com/b", ("foo", "bar"))
