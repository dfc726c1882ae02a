"""The figures behind the summary and the report: exact, however many there are, in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Decision, Origin, Rule
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting import ledger as module
from scrapy_rep.reporting.ledger import Ledger, RuleCount
from scrapy_rep.reporting.report.data import Timeline
from tests.helpers.crawling import captured_log


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    one = Ledger()
    yield one
    one.close()


def origin(number: int) -> Origin:
    return Origin("http", f"site{number}.example", 80)


def disallowed(number: int, line: int = 2, pattern: str = "/x") -> RobotsDisallowed:
    return RobotsDisallowed(origin(number), Decision(False, Rule(line, pattern, False), "*"))


def answered(
    ledger: Ledger, number: int, outcome: Outcome, now: float, attempts: int = 0, asked: bool = True
) -> None:
    ledger.answered(
        origin(number),
        outcome,
        asked=asked,
        status=200,
        hops=0,
        error="HTTP 503" if attempts else None,
        attempts=attempts,
        now=now,
    )


def spells(ledger: Ledger) -> list[tuple[object, ...]]:
    ledger.flush()
    return list(ledger.rows("SELECT origin, began, ended, attempts FROM spells ORDER BY began"))


@pytest.mark.parametrize("pending", [1, 2, 500])
def test_the_ledger_counts_requests_and_the_lines_that_decided(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, pending: int
) -> None:
    monkeypatch.setattr(module, "_PENDING", pending)
    for number in range(3):
        for _ in range(number + 1):
            ledger.forbidden(disallowed(number), f"http://site{number}.example/x")
        ledger.forbidden(disallowed(number, 3, "/é"), "http://e.example/\ud800")
        ledger.count(origin(number), "held")
    ledger.count(origin(7), "held")
    ledger.flush()
    assert ledger.total("forbidden") == 9
    assert ledger.total("held") == 4
    assert ledger.outcomes() == {None: 4}
    assert ledger.size("rules") == 6
    first, second = ledger.top_rules(2)
    assert first == RuleCount(
        "http://site2.example", 2, "Disallow: /x", "*", 3, "http://site2.example/x"
    )
    assert (second.origin, second.times) == ("http://site1.example", 2)
    assert ledger.top_rules(9)[-1][2:] == ("Disallow: /é", "*", 1, r"http://e.example/\ud800")


@pytest.mark.parametrize("pending", [1, 500])
def test_the_ledger_records_spells_of_unreachability(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, pending: int
) -> None:
    monkeypatch.setattr(module, "_PENDING", pending)
    for now, attempts in enumerate((1, 2, 3)):
        answered(ledger, 1, Outcome.UNREACHABLE, now, attempts)
    answered(ledger, 2, Outcome.UNREACHABLE, 2.5, attempts=5)  # an earlier run has asked too
    answered(ledger, 1, Outcome.RULES, 4)
    answered(ledger, 1, Outcome.UNREACHABLE, 5, attempts=1)
    answered(ledger, 3, Outcome.MISSING, 6)
    answered(ledger, 3, Outcome.MISSING, 7, asked=False)
    assert spells(ledger) == [
        ("http://site1.example", 0, 4, 3),
        ("http://site2.example", 2.5, None, 5),
        ("http://site1.example", 5, None, 1),
    ]
    assert ledger.outcomes() == {"unreachable": 2, "missing": 1}
    asked = dict(ledger.rows("SELECT origin, asked FROM origins"))  # type: ignore[arg-type]
    assert asked == {
        "http://site1.example": 5, "http://site2.example": 1, "http://site3.example": 1
    }  # fmt: skip


@pytest.mark.slow
def test_memory_is_bounded(ledger: Ledger) -> None:
    """20,000 origins take no more than 1,000 do: SQLite's own memory, 2 MB, is not counted here,
    nor is it Python's."""

    def some(first: int, last: int) -> int:
        for number in range(first, last):
            answered(ledger, number, Outcome.RULES, 1.0)
            ledger.forbidden(disallowed(number), f"http://site{number}.example/x")
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        little = some(0, 1_000)
        tracemalloc.reset_peak()
        assert some(1_000, 20_000) < 1.5 * little + 100_000
    finally:
        tracemalloc.stop()
    ledger.flush()
    assert ledger.outcomes() == {"rules": 20_000}
    assert ledger.size("rules") == 20_000


def test_a_full_disk_is_one_warning(ledger: Ledger) -> None:
    """What was there is kept, and the crawl goes on."""
    answered(ledger, 0, Outcome.RULES, 1.0)
    ledger.flush()
    ledger._db.execute("PRAGMA max_page_count = 20")
    with captured_log() as log:
        for number in range(20_000):
            ledger.forbidden(disallowed(number), f"http://site{number}.example/x")
        ledger.flush()
    [record] = log
    assert record.levelname == "WARNING"
    assert "database or disk is full" in record.getMessage()
    assert ledger.broken
    assert ledger.total("forbidden") < 20_000
    assert ledger.outcomes()["rules"] == 1


def test_a_timeline_keeps_the_highest_value_of_each_interval() -> None:
    line = Timeline()
    for now, value in ((0.0, 1), (0.05, 2), (0.06, 3), (0.2, 4), (5.0, 0)):
        line.add(now, value)
    assert line.points == [(0.0, 3), (0.2, 4), (5.0, 0)]


def test_a_short_peak_is_seen() -> None:
    line = Timeline()
    for now, value in ((0.0, 1), (0.05, 24), (0.06, 20), (0.07, 0)):
        line.add(now, value)
    assert line.points == [(0.0, 24), (0.0, 0)]
    for second in range(1, 100_000):
        line.add(float(second), 24 if second == 70_001 else second % 5)
    assert max(value for _, value in line.points) == 24
    assert line.points[-1][1] == 99_999 % 5


def test_timeline_without_end() -> None:
    """A thousand points at most, the first and the last among them."""
    line = Timeline()
    for second in range(100_000):
        line.add(float(second), second)
    assert 300 < len(line.points) <= 2002  # the highest and the last of a thousand samples
    assert line.points[0][0] == 0.0
    assert line.points[-1][1] == 99_999
    times = [at for at, _ in line.points]
    assert times == sorted(times)
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps) < 100_000 / 200
