"""Counts for the summary: exact totals, and details of the most frequent things, in bounded memory."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.stat_counter import CappedCounter
from scrapy_rep.engine.words import clean
from scrapy_rep.reporting.record import ALLOWED_COUNT, ANSWER, IMPOLITE, Listener, Record

if TYPE_CHECKING:
    import logging

    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.engine.log import Isolation
    from scrapy_rep.protocol import Rule

# Origins whose latest outcome is known. Of older ones, it is final: one that comes back counts twice.
_ORIGINS = 100_000
_RULES = 5_000
_RULE_LENGTH = 500

_NAMES = {"disallowed": "forbidden", "unreachable": "dropped"}


class DecidingRule(NamedTuple):
    """A rule that refused requests."""

    rule: str
    group: str
    times: int
    origins: int
    """How many origins have it."""
    first: tuple[str, int]
    """The first of these origins, and the line there."""


class Counts(Listener):
    """Counts what is on record."""

    part = "count for the summary"

    def __init__(self, isolated: Isolation) -> None:
        super().__init__(isolated)
        self.began = 0.0
        self.requests: Counter[str] = Counter()
        """By what became of them."""
        self.fetches = 0
        self._latest: dict[int, tuple[str, str]] = {}
        """By the hash of an origin: a third of the memory."""
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self._settled: Counter[tuple[str, str]] = Counter()
        self._rules: CappedCounter[tuple[str, str]] = CappedCounter(_RULES)
        self._firsts: dict[tuple[str, str], list[Any]] = {}
        self._seen = Recent()

    def emit(self, record: logging.LogRecord) -> None:
        """Count *record*."""
        assert isinstance(record, Record)
        verdict, origin = record.verdict, record.origin
        if verdict == ANSWER and origin is not None:
            about = record.more["answer"]
            self.fetches += about["fetches"]
            if about["outcome"] != "none":
                self._note(origin, about["outcome"], about.get("kind") or "")
        elif verdict == ALLOWED_COUNT:
            self.requests["allowed"] += record.more["count"]
        elif verdict == "allowed" and (record.more.get("reason") or "").startswith(IMPOLITE):
            self.requests["passed"] += 1
        else:
            self.requests[_NAMES.get(verdict, verdict)] += 1
            decision = record.basis.decision
            if verdict == "disallowed" and decision is not None and decision.rule is not None:
                self._decided(record.origin, decision.rule, decision.agent or "")
        if origin is not None and hash(origin) not in self._latest:
            self._note(origin, "none", "")

    def _note(self, origin: str, outcome: str, kind: str) -> None:
        key = outcome, kind
        self._latest[hash(origin)] = self._known.setdefault(key, key)
        if len(self._latest) > _ORIGINS:
            for oldest in list(islice(self._latest, _ORIGINS // 10)):
                self._settled[self._latest.pop(oldest)] += 1

    def _decided(self, origin: str | None, rule: Rule, group: str) -> None:
        key = clean(str(rule)[:_RULE_LENGTH]), group
        new = self._seen.add((key, origin))
        if key not in self._rules:
            self._firsts[key] = [origin, rule.line, 0]
        first = self._firsts[key]
        first[:2] = min(first[:2], [origin, rule.line])
        first[2] += new
        self._rules.add(key)
        if len(self._firsts) > 2 * _RULES:
            self._firsts = {key: one for key, one in self._firsts.items() if key in self._rules}

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return the number of origins by outcome (a key of :data:`~answers.OUTCOMES`) and, of those
        unreachable, why."""
        return Counter(self._latest.values()) + self._settled

    def top_rules(self, count: int) -> list[DecidingRule]:
        """Return the rules that refused most requests."""
        found = []
        for key, times in self._rules.most(_RULES):
            origin, line, origins = self._firsts[key]
            found.append(DecidingRule(*key, times, origins, (origin, line)))
        return sorted(found, key=lambda one: (-one.times, one.first))[:count]

    def all(self, stats: StatsCollector) -> dict[str, Any]:
        """Return how many requests were allowed, held and so on. Of those held, some ``waited`` only
        for a first answer."""

        def stat(name: str) -> int:
            return int(stats.get_value(f"rep/{name}", 0))

        requests = self.requests
        held = stat("deferred/unreachable")
        names = ("allowed", "forbidden", "dropped", "passed", "released", "given_up")
        return {
            **{name: requests[name] for name in names},
            "held": held,
            "waited": stat("deferred") - held,
            "held_max": stat("held/max"),
            "handed_back": stat("handed_back"),
            "kept": stat("held"),
            "fetches": self.fetches,
            "origins": self.outcomes().total(),
            "page_dropped": stat("page/dropped"),
            "usage_dropped": stat("usage/items") + stat("usage/requests"),
        }
