"""The figures of the summary, in bounded memory."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import Decision, Origin, Rule
from scrapy_rep.reporting import record as module
from scrapy_rep.reporting.record import IMPOLITE, Counts, Found

A, B, C = (Origin("http", name, 80) for name in "abc")


def forbidden(counts: Counts, origin: Origin, line: int, pattern: str = "/x") -> None:
    counts.decided("disallowed", origin, Decision(False, Rule(line, pattern, False), "*"))


def test_an_origin_counts_by_its_latest_answer() -> None:
    counts = Counts()
    counts.answered(A, Found("unreachable", "HTTP 503", 2))
    counts.answered(A, Found("rules", None, 2))
    counts.answered(B, Found("unreachable", "timeout", 2))
    counts.answered(A, Found("none", None, 2))  # a fetch that was cancelled
    counts.decided("held", C)
    assert counts.outcomes() == {("rules", ""): 1, ("unreachable", "timeout"): 1, ("none", ""): 1}
    assert counts.fetches == 8


def test_requests_count_by_what_became_of_them() -> None:
    """What a setting forbids has no rule."""
    counts = Counts()
    counts.decided("allowed", A, reason=f"{IMPOLITE}; HTTP 503")
    counts.decided("allowed", A, reason="RepMiddleware.overrules()")
    counts.decided("unreachable", A, reason="HTTP 503")
    counts.decided("disallowed", A, Decision(False, None, None))
    assert counts.requests == {"allowed": 1, "passed": 1, "dropped": 1, "forbidden": 1}
    assert counts.rules.end(5) == []


def test_rules_are_counted_over_all_origins() -> None:
    counts = Counts()
    for number in range(3):
        for _ in range(number + 1):
            forbidden(counts, Origin("http", f"site{number}.example", 80), 5 - number)
    forbidden(counts, Origin("http", "z.example", 80), 9, "/\x1b")
    first, second = counts.rules.end(5)
    assert (first.rule, first.times, first.origins) == ("Disallow: /x", 6, 3)
    assert first.first == ("http://site0.example", 5)
    assert second.rule == r"Disallow: /\x1b"


def test_very_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ORIGINS", 100)
    monkeypatch.setattr(module, "_RULES", 50)
    counts = Counts()
    for number in range(1000):
        origin = Origin("http", "site", number)
        counts.answered(origin, Found("missing" if number % 4 else "rules"))
        forbidden(counts, origin, 1, f"/{number % 300}")
        forbidden(counts, origin, 1)
    assert counts.outcomes() == {("rules", ""): 250, ("missing", ""): 750}
    assert counts.rules.end(1)[0].times == counts.rules.end(1)[0].origins == 1000
    assert len(counts._latest) <= 101
    assert len(counts.rules) <= 50
