"""What Google's own matcher answers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.golden import FOLDER, SAMPLE, WHOLE_FILES, Record, whole_file
from tests.protocol.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture(scope="module")
def sample() -> list[Record]:
    return [json.loads(line) for line in SAMPLE.read_text(encoding="ascii").splitlines()]


def check(records: Iterable[Record]) -> int:
    """Compare verdict and line of each case; return how many there were."""
    cases = 0
    wrong = []
    for record in records:
        agent = record["agent"]
        robots = RobotsTxt.parse(record["robots"].encode("latin-1"))
        for url, allowed, line in record["cases"]:
            cases += 1
            decision = robots.decide(url, agent)
            ours = (decision.allowed, decision.rule.line if decision.rule else 0)
            if ours != (bool(allowed), line) or robots.allowed(url, agent) is not bool(allowed):
                wrong.append((ours, (bool(allowed), line), url, agent, record["robots"][:500]))
    assert not wrong, f"{len(wrong)} of {cases} verdicts; the first (ours, Google's): {wrong[0]}"
    return cases


def test_the_sample_gets_the_verdicts_of_googles_matcher(sample: list[Record]) -> None:
    assert check(sample) == 3_032


def test_the_reference_agrees(sample: list[Record]) -> None:
    """What the property tests trust."""
    reference = Reference()
    for record in sample:
        groups = reference.groups(record["robots"].encode("latin-1"))
        for url, allowed, line in record["cases"]:
            assert reference.decide(groups, url, record["agent"]) == (bool(allowed), line)


@pytest.mark.skipif(
    "REP_GOLDEN" not in os.environ and not FOLDER.is_dir(),
    reason="the whole golden files are not here: set REP_GOLDEN to their folder",
)
def test_the_whole_files_get_the_verdicts_of_googles_matcher() -> None:
    cases = {name: check(whole_file(name)) for name in WHOLE_FILES}
    assert cases == WHOLE_FILES
    assert sum(cases.values()) == 76_349
