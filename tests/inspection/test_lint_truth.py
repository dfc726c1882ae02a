"""Whatever lint claims, the matcher confirms: of files made for it, of any files, of real ones."""

from __future__ import annotations

import os
from itertools import chain
from statistics import median

import pytest
from hypothesis import given

from scrapy_rep.commands.findings import print_findings
from scrapy_rep.commands.output import Output
from scrapy_rep.inspection.lint import lint
from scrapy_rep.preferences.lint import usage_findings
from tests.inspection.claims import File, wrong_claims
from tests.inspection.lint_cases import CLEAN, FOUND, TRUE_OF
from tests.protocol.golden import CORPUS, records
from tests.protocol.strategies import questions

MOST_LINES = 40


def test_every_claim_about_small_files_is_so() -> None:
    wrong = [
        (body, claim)
        for body in chain(CLEAN, TRUE_OF, (body for body, _ in FOUND))
        for claim in wrong_claims(File(body, robots_url="https://a.b/robots.txt"))
    ]
    assert wrong == []


@given(questions())
def test_every_claim_about_any_file_is_so(question: tuple[bytes, list[str]]) -> None:
    body, urls = question
    assert wrong_claims(File(body, urls)) == []
    assert not [item for item in lint(body) if "\n" in item.message]


@pytest.mark.slow
@pytest.mark.skipif(
    "REP_GOLDEN" not in os.environ and not CORPUS.exists(),
    reason="the files of real sites are not here: set REP_GOLDEN to their folder",
)
def test_every_claim_about_real_files_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    urls: dict[str, list[str]] = {}
    hosts: dict[str, str] = {}
    for record in records(CORPUS):
        body = record["robots"]
        hosts.setdefault(body, record["host"].partition("_")[0])
        urls.setdefault(body, []).extend(url for url, _, _ in record["cases"])
    assert len(hosts) == 1_939
    counts = []
    for text, host in hosts.items():
        body = text.encode("latin-1")
        robots_url = f"https://{host}/robots.txt"
        assert (host, wrong_claims(File(body, urls[text], robots_url))) == (host, [])
        findings = lint(body, robots_url=robots_url, also=[usage_findings])
        print_findings(Output(), host, findings)
        assert capsys.readouterr().out.count("\n") <= MOST_LINES, host
        counts.append(len(findings))
    assert (median(counts), max(counts)) == (1, 12)
