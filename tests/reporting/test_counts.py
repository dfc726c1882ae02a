"""The figures of the summary, in bounded memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_rep.engine.log import Isolation
from scrapy_rep.protocol import Decision, Rule
from scrapy_rep.reporting import summary as module
from scrapy_rep.reporting.record import ALLOWED_COUNT, ANSWER, IMPOLITE, Basis, Record
from scrapy_rep.reporting.summary import Counts


@pytest.fixture
def counts() -> Counts:
    crawler: Any = SimpleNamespace(spider=None)
    return Counts(Isolation(crawler))


def tell(counts: Counts, verdict: str, origin: str, basis: Basis = Basis(), **more: Any) -> None:  # noqa: B008
    counts.handle(Record(verdict, 1.0, (f"{origin}/x", origin), basis, **more))


def answered(counts: Counts, origin: str, outcome: str, kind: str | None = None) -> None:
    tell(counts, ANSWER, origin, answer={"outcome": outcome, "kind": kind, "fetches": 2})


def forbidden(counts: Counts, origin: str, line: int, pattern: str = "/x") -> None:
    tell(
        counts, "disallowed", origin, Basis(None, Decision(False, Rule(line, pattern, False), "*"))
    )


def test_an_origin_counts_by_its_latest_answer(counts: Counts) -> None:
    answered(counts, "http://a", "unreachable", "HTTP 503")
    answered(counts, "http://a", "rules")
    answered(counts, "http://b", "unreachable", "timeout")
    answered(counts, "http://a", "none")  # a fetch that was cancelled
    tell(counts, "held", "http://c", reason="no answer yet")
    assert counts.outcomes() == {("rules", ""): 1, ("unreachable", "timeout"): 1, ("none", ""): 1}
    assert counts.fetches == 8


def test_requests_count_by_what_became_of_them(counts: Counts) -> None:
    tell(counts, ALLOWED_COUNT, "http://a", count=7)
    tell(counts, "allowed", "http://a", reason=f"{IMPOLITE}; HTTP 503")
    tell(counts, "allowed", "http://a", reason="RepMiddleware.overrules()")
    tell(counts, "unreachable", "http://a", reason="HTTP 503")
    forbidden(counts, "http://a", 2)
    assert counts.requests == {"allowed": 8, "passed": 1, "dropped": 1, "forbidden": 1}


def test_rules_are_counted_over_all_origins(counts: Counts) -> None:
    for number in range(3):
        for _ in range(number + 1):
            forbidden(counts, f"http://site{number}.example", 5 - number)
    forbidden(counts, "http://z.example", 9, "/\x1b")
    first, second = counts.top_rules(5)
    assert (first.rule, first.times, first.origins) == ("Disallow: /x", 6, 3)
    assert first.first == ("http://site0.example", 5)
    assert second.rule == r"Disallow: /\x1b"


def test_very_many_are_counted_together(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ORIGINS", 100)
    monkeypatch.setattr(module, "_RULES", 50)
    for number in range(1000):
        answered(counts, f"http://{number}", "missing" if number % 4 else "rules")
        forbidden(counts, f"http://{number}", 1, f"/{number % 300}")
        forbidden(counts, f"http://{number}", 1)
    assert counts.outcomes() == {("rules", ""): 250, ("missing", ""): 750}
    assert counts.top_rules(1)[0].times == counts.top_rules(1)[0].origins == 1000
    assert len(counts._latest) <= 101
    assert len(counts._rules) <= 50


def test_what_a_setting_forbids_is_no_rule(counts: Counts) -> None:
    tell(counts, "disallowed", "http://a", Basis(None, Decision(False, None, None)))
    assert counts.requests == {"forbidden": 1}
    assert counts.top_rules(5) == []
