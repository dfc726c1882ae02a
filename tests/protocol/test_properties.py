"""Whatever a server sends and whatever is asked: the answers of `reference.py`, which is the second
opinion (REP.md sections 6 to 8). That nothing makes it raise is tested in tests/fuzz."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_rep.protocol import Decision, RobotsTxt
from scrapy_rep.protocol.syntax import is_name
from tests.protocol.reference import Reference
from tests.protocol.strategies import TOKENS, any_text, chains, questions


# With half as many examples again nearly every sentence of the specification decides one.
@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples // 2)
@given(questions(), chains)
@example((b"User-agent: *\nDisallow", ["/"]), [])
@example((b"User-agent: *\nAllow: /a\nUser-agent\nDisallow: /", ["/"]), ["foo"])
def test_equals_the_reference(question: tuple[bytes, list[str]], chain: list[str]) -> None:
    """For each spelling of an agent, and for a chain; also if the file is read before it is asked."""
    body, asked = question
    reference = Reference()
    groups = reference.groups(body)

    def named(agent: str) -> bool:
        return any(reference.is_named(agent, group) for group in groups)

    first = next(filter(named, chain), "nobody")
    robots, preloaded = RobotsTxt.parse(body), RobotsTxt(lambda: body)
    preloaded.preload(body, chain)
    assert preloaded.sitemaps == robots.sitemaps
    for url in asked:
        for agent in (chain, *TOKENS, tuple(chain)):
            decision = robots.decide(url, agent)
            ours = (decision.allowed, decision.rule.line if decision.rule else 0)
            name = agent if isinstance(agent, str) else first
            assert ours == reference.decide(groups, url, name), (url, agent)
            assert robots.allowed(url, agent) is decision.allowed
            assert preloaded.decide(url, agent) == decision
            named_only = robots.decide(url, agent, obey_global=False)
            assert named_only == (decision if named(name) else Decision(True, None, None))


@given(st.one_of(any_text, st.lists(any_text)))
@example("\ud800")
def test_an_agent_is_a_token_or_an_error(agent: str | list[str]) -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /\nUser-agent: a\n")
    chain = [agent] if isinstance(agent, str) else agent
    if all(token in ("", "*") or is_name(token) for token in chain):
        assert robots.decide("/x", agent).agent in (None, "*", agent, *agent)
    else:
        for ask in (robots.decide, robots.allowed):
            with pytest.raises(ValueError, match="is not a product token"):
                ask("/x", agent)
