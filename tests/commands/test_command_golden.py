"""`scrapy robots --file … --json` names the line that Google's own matcher names."""

from __future__ import annotations

import json

import pytest

from scrapy_rep.commands.verdicts import as_json, path_as_given
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.protocol.availability import Outcome
from tests.protocol.golden import SAMPLE, Record


@pytest.mark.slow
def test_the_command_agrees_with_google_on_the_sample() -> None:
    cases = 0
    for text in SAMPLE.read_text(encoding="ascii").splitlines():
        record: Record = json.loads(text)
        body, agent = record["robots"].encode("latin-1"), record["agent"]
        robots = RobotsFile(Outcome.RULES, body, Facts(file="robots.txt"))
        for url, allowed, line in record["cases"]:
            cases += 1
            ours = as_json(robots.explain(url, path_as_given(url), (agent,)), explain=True)
            assert (ours["allowed"], ours["line"]) == (bool(allowed), line or None), (agent, url)
            assert (ours["line"] is None) == (ours["rule"] is None)
            # The rule that is said to win among those that match is the one that decided.
            assert [one["line"] for one in ours["matched"]][:1] == ([line] if line else [])
    assert cases == 3_032
