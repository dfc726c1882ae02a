"""A report's data as of a crawl of very many origins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Decision, Origin, Rule
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.ledger import Ledger
from scrapy_rep.reporting.report.data import ReportData, Timeline
from scrapy_rep.reporting.summary import Figures

NOW = 1_800_000_000.0


class Stats(dict[str, Any]):
    """As Scrapy's stats collectors are asked."""

    def get_value(self, key: str, default: Any = None) -> Any:
        return self.get(key, default)

    def get_stats(self) -> dict[str, Any]:
        return dict(self)


def many(
    count: int, *, rule: str = "", url: str = "x", error: str = "HTTP 503", origin: str = ""
) -> ReportData:
    """Data of *count* origins; every tenth is unreachable, every seventh has no robots.txt."""
    ledger, held = Ledger(), Timeline()
    for number in range(count):
        one = Origin("http", f"site{number}{origin}.example", 80)
        if number % 10 == 1:
            _answer(ledger, one, Outcome.UNREACHABLE, error, NOW + number)
            ledger.count(one, "held")
            held.add(NOW + number, number // 10)
            if number % 20 == 1:
                _answer(ledger, one, Outcome.RULES, None, NOW + number + number % 50)
        else:
            missing = number % 7 == 0
            _answer(ledger, one, Outcome.MISSING if missing else Outcome.RULES, None, NOW)
        line = Rule(number % 5 + 1, f"/{rule}{number if not rule else ''}", False)
        for _ in range(number % 9 + 1):
            decision = Decision(False, line, f"*{origin}")
            ledger.forbidden(RobotsDisallowed(one, decision), url)
    ledger.flush()
    held.add(NOW + count, 0)
    stats = Stats(
        {"rep/cache/hit": 100 * count, "rep/deferred": count // 10, "rep/held/max": count // 10,
         "rep/sitemaps/urls": 900, "rep/sitemaps/found": 12,
         "rep/sitemaps/rejected/of_another_host": 3}
    )  # fmt: skip
    context: Any = SimpleNamespace(stats=stats, spider=SimpleNamespace(name=f"many{origin}"))
    figures = Figures(began=NOW, ended=NOW + count + 60, forbidden=ledger.total("forbidden"))
    try:
        return ReportData(context, ledger, figures, held.points, "finished")
    finally:
        ledger.close()


def _answer(
    ledger: Ledger, origin: Origin, outcome: Outcome, error: str | None, now: float
) -> None:
    ledger.answered(
        origin, outcome, asked=True, status=None if error else 200, hops=0, error=error,
        attempts=1 if error else 0, now=now,
    )  # fmt: skip
