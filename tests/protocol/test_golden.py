"""Google's own matcher, and `reference.py`, the second opinion (REP.md sections 6 to 8)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings

from scrapy_rep.protocol import Decision, RobotsTxt
from tests.protocol import reference
from tests.protocol.golden import CORPUS, GENERATED, SAMPLE, Record, records
from tests.protocol.strategies import TOKENS, chains, questions

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture(scope="module")
def sample() -> list[Record]:
    return [
        json.loads(line) for line in SAMPLE.read_text(encoding="ascii").splitlines()
    ]


def check(recorded: Iterable[Record]) -> int:
    """Compare verdict and line of each case; return how many there were."""
    cases = 0
    wrong = []
    for record in recorded:
        agent = record["agent"]
        robots = RobotsTxt.parse(record["robots"].encode("latin-1"))
        for url, allowed, line in record["cases"]:
            cases += 1
            decision = robots.decide(url, agent)
            ours = (decision.allowed, decision.rule.line if decision.rule else 0)
            if ours != (bool(allowed), line) or robots.allowed(url, agent) is not bool(
                allowed
            ):
                wrong.append(
                    (ours, (bool(allowed), line), url, agent, record["robots"][:500])
                )
    assert not wrong, (
        f"{len(wrong)} of {cases} verdicts; the first (ours, Google's): {wrong[0]}"
    )
    return cases


def test_the_sample_gets_the_verdicts_of_googles_matcher(sample: list[Record]) -> None:
    assert check(sample) == 3_032


def test_the_reference_agrees(sample: list[Record]) -> None:
    """What the property tests trust."""
    for record in sample:
        groups = reference.groups_of(record["robots"].encode("latin-1"))
        for url, allowed, line in record["cases"]:
            assert reference.decide(groups, url, record["agent"]) == (
                bool(allowed),
                line,
            )


def test_generated_files_get_the_verdicts_of_googles_matcher() -> None:
    assert check(records(GENERATED)) == 32_000


@pytest.mark.skipif(
    "REP_GOLDEN" not in os.environ and not CORPUS.exists(),
    reason="the files of real sites are not here: set REP_GOLDEN to their folder",
)
def test_files_of_real_sites_get_the_verdicts_of_googles_matcher() -> None:
    assert check(records(CORPUS)) > 0


# With half as many examples again nearly every sentence of the specification decides one.
@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples // 2)
@given(questions(), chains)
@example((b"User-agent: *\nDisallow", ["/"]), [])
@example((b"User-agent: *\nAllow: /a\nUser-agent\nDisallow: /", ["/"]), ["foo"])
def test_equals_the_reference(
    question: tuple[bytes, list[str]], chain: list[str]
) -> None:
    """For each spelling of an agent, and for a chain; also if the file is read before it is asked."""
    body, asked = question
    groups = reference.groups_of(body)

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
            assert named_only == (
                decision if named(name) else Decision(True, None, None)
            )
