"""From the record to the report: what became of origins, rules, sitemaps and pages, in bounded memory.

Of very many origins, those where nothing was refused or failed are only counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import BoundedSet
from scrapy_rep.engine.stat_counter import CappedCounter
from scrapy_rep.reporting.record import (
    ALLOWED_COUNT,
    ANSWER,
    CHANGED,
    CONFIGURATION,
    ENDED,
    IMPOLITE,
    OUTCOMES,
    SITEMAP,
    STARTED,
    UNKNOWN_YET,
    kind_of,
)
from scrapy_rep.reporting.report.data import (
    Counts,
    MidChange,
    RuleOrigin,
    SitemapRow,
    Spell,
    Turned,
    UsageRow,
    Wait,
)
from scrapy_rep.reporting.report.findings import Timeline
from scrapy_rep.reporting.report.lines import (
    Line,
    mapping,
    number,
    seconds,
    text,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Limits on what is kept while a record is read. At a limit, the less interesting half is dropped.
_ORIGINS, _RULES, _PERIODS, _SITEMAPS, _SAID = 50_000, 5_000, 2_000, 5_000, 2_000
_OF_A_RULE = 200
_CHANGES, _TURNED, _REASONS, _REASON_LENGTH = 500, 20, 50, 300

_REFUSED = {"disallowed": "forbidden", "unreachable": "dropped"}
_REQUESTS = ("allowed", "forbidden", "dropped", "passed", "released", "given_up")
_PAGES = frozenset({"nofollow", "nofollow_link", "noindex", "expired"})


class OriginSum:
    """What is on record of one origin."""

    __slots__ = (
        "delay", "fetches", "held", "hops", "kind", "open_held", "open_waiting", "outcome", "reason",
        "requests", "sha256", "sitemaps", "size", "spell", "status", "unclear", "url", "wait", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        self.outcome, self.kind, self.reason, self.url = "none", "", "", ""
        self.status: int | None = None
        self.size: int | None = None
        self.delay: float | None = None
        self.sha256: str | None = None
        """Of the last file that counted."""
        self.hops = self.fetches = self.sitemaps = 0
        self.requests: Counter[str] = Counter()
        self.held = self.waited = 0
        self.unclear = 0
        """How many are held without an answer so far."""
        self.open_held = self.open_waiting = 0
        """How many are there now."""
        self.spell: Spell | None = None
        self.wait: Wait | None = None

    @property
    def interest(self) -> int:
        """How much a reader wants to see it."""
        requests = self.requests
        refused = requests["forbidden"] + requests["dropped"] + requests["given_up"]
        trouble = self.outcome not in ("rules", "missing", "none")
        return 2 * (refused + requests["passed"] + self.held) + trouble

    @property
    def busy(self) -> bool:
        """Whether more is to come."""
        return self.spell is not None or self.wait is not None


class CrawlSum:
    """Sums up the record of one crawl."""

    def __init__(self, crawl: str) -> None:
        self.id = crawl
        self.started: dict[str, Any] = {}
        self.finished: dict[str, Any] | None = None
        self.reason = ""
        self.dry_run = False
        self.first = self.last = ""
        """Times, as they stand in the record."""
        self.requests: Counter[str] = Counter()
        self.fetches = self.page_dropped = self.usage_dropped = 0
        self.origins: dict[str, OriginSum] = {}
        self.gone: Counter[tuple[str, str]] = Counter()
        """Origins that are only counted, by outcome and why."""
        self.rules: dict[tuple[str, str], list[Any]] = {}
        """How often, on how many origins, and which, by rule and group."""
        self.all_rules = self.all_sitemaps = self.all_changes = self.all_spells = self.all_waits = 0
        self._seen = BoundedSet()
        self.sitemaps: list[SitemapRow] = []
        self.pages: CappedCounter[tuple[str, str]] = CappedCounter(_SAID)
        self.page_examples: dict[tuple[str, str], list[Any]] = {}
        self.usage: dict[str, UsageRow] = {}
        self.usage_pages = 0
        self.statements: CappedCounter[tuple[str, str]] = CappedCounter(_SAID)
        self.statement_examples: dict[tuple[str, str], str] = {}
        self.spells: list[Spell] = []
        self.waits: list[Wait] = []
        self.timeline = Timeline()
        self.changes: list[MidChange] = []
        self._handlers: dict[str, Callable[[Line, str], None]] = {
            STARTED: self._started, ENDED: self._ended, ANSWER: self._answer, CHANGED: self._changed,
            SITEMAP: self._sitemap, ALLOWED_COUNT: self._allowed_count, "allowed": self._allowed,
            "disallowed": self._disallowed, "unreachable": self._dropped, "held": self._held,
            "released": self._left, "given_up": self._left, "usage": self._usage,
            "usage_request": self._usage_dropped, "usage_item": self._usage_dropped,
            **dict.fromkeys(_PAGES, self._page),
        }  # fmt: skip

    def add(self, line: Line) -> None:
        """Count a line."""
        verdict, time = line["verdict"], line.get("time")
        if isinstance(time, str):
            self.first = self.first or time
            self.last = time
        handler = self._handlers.get(verdict)
        if handler is not None:
            handler(line, verdict)

    def _of(self, line: Line) -> OriginSum | None:
        name = line.get("origin")
        if not isinstance(name, str) or not name:
            return None
        found = self.origins.get(name)
        if found is None:
            if len(self.origins) >= _ORIGINS:
                self._forget()
            found = self.origins[text(name)] = OriginSum()
        return found

    def _forget(self) -> None:
        """Only count those that are least interesting."""
        order = sorted(self.origins.items(), key=lambda one: (one[1].busy, one[1].interest))
        for name, one in order[: _ORIGINS // 2]:
            self.gone[one.outcome, one.kind] += 1
            del self.origins[name]

    # The crawl

    def _started(self, line: Line, _: str) -> None:
        self.started = mapping(line.get("settings"))
        self.dry_run = line.get("dry_run") is True

    def _ended(self, line: Line, _: str) -> None:
        self.finished = mapping(line.get("counts"))
        self.reason = text(line.get("reason"))

    # Origins

    def _answer(self, line: Line, _: str) -> None:
        origin, about = self._of(line), mapping(line.get("answer"))
        if origin is None:
            return
        at = seconds(line.get("time")) or 0.0
        fetches, outcome = number(about.get("fetches")), text(about.get("outcome"))
        origin.fetches += fetches
        self.fetches += fetches
        if outcome not in OUTCOMES or outcome == "none":
            if origin.spell is not None:
                origin.spell.fetches += fetches
            if about.get("kind") == CONFIGURATION:
                origin.kind, origin.reason = (
                    CONFIGURATION,
                    text(line.get("reason"))[:_REASON_LENGTH],
                )
            return
        origin.outcome, origin.url = outcome, text(line.get("url"))
        origin.reason = text(line.get("reason"))[:_REASON_LENGTH] or origin.reason
        origin.status = number(line.get("status")) or None
        origin.hops = number(about.get("hops"))
        asked = seconds(about.get("asked"))
        began = at if asked is None else min(asked, at)
        if outcome == "unreachable":
            origin.kind = text(about.get("kind"))[:40] or kind_of(origin.reason)
            self._fails(line, origin, (began, at), fetches)
        else:
            self._answers(line, origin, about, (began, at))

    def _fails(
        self, line: Line, origin: OriginSum, when: tuple[float, float], fetches: int
    ) -> None:
        spell = origin.spell
        if spell is None:
            spell = origin.spell = Spell(text(line["origin"]), when[0], when[1])
        spell.ended = max(spell.ended, when[1])
        spell.fetches += fetches
        spell.kind, spell.reason = origin.kind, origin.reason
        origin.held += origin.unclear
        spell.held += origin.unclear
        if origin.open_waiting:
            self.timeline.change(when[1], origin.open_waiting, -origin.open_waiting)
        origin.open_held += origin.open_waiting
        origin.open_waiting = origin.unclear = 0
        origin.wait = None

    def _answers(
        self, line: Line, origin: OriginSum, about: dict[str, Any], when: tuple[float, float]
    ) -> None:
        origin.kind = ""
        size, delay = about.get("bytes"), about.get("crawl_delay")
        origin.size = number(size) if size is not None else None
        origin.delay = float(number(delay)) if isinstance(delay, int) else None
        if isinstance(delay, float) and 0 < delay < 10**9:
            origin.delay = delay
        origin.sitemaps = number(about.get("sitemaps"))
        origin.sha256 = text(line.get("sha256"))[:64] or None
        origin.waited += origin.unclear
        wait, origin.wait = origin.wait, None
        if wait is not None:
            wait.began, wait.ended = min(when[0], wait.began), when[1]
            wait.requests, wait.outcome = origin.unclear, origin.outcome
            self.all_waits += 1
            _keep(self.waits, wait)
        origin.unclear = 0
        self._end_spell(origin, "answered", when[1])

    def _end_spell(self, origin: OriginSum, end: str, at: float) -> None:
        spell, origin.spell = origin.spell, None
        if spell is not None:
            spell.end, spell.ended = end, max(at, spell.began)
            self.all_spells += 1
            _keep(self.spells, spell)

    def _changed(self, line: Line, _: str) -> None:
        about = mapping(line.get("change"))
        self.all_changes += 1
        if len(self.changes) >= _CHANGES:
            return
        listed = about.get("turned")
        turned = [mapping(one) for one in listed[:_TURNED]] if isinstance(listed, list) else []
        self.changes.append(
            MidChange(
                seconds(line.get("time")) or 0.0,
                text(line.get("origin")),
                text(line.get("url")),
                texts(about.get("added"), _REASONS),
                texts(about.get("removed"), _REASONS),
                number(about.get("lines_added")),
                number(about.get("lines_removed")),
                [
                    Turned(*(text(one.get(name)) for name in ("url", "was", "now")))
                    for one in turned
                ],
                number(about.get("turned_count")),
            )
        )

    # Requests

    def _count(self, line: Line, name: str, times: int = 1) -> OriginSum | None:
        self.requests[name] += times
        origin = self._of(line)
        if origin is not None:
            origin.requests[name] += times
        return origin

    def _allowed_count(self, line: Line, _: str) -> None:
        self._count(line, "allowed", number(line.get("count")))

    def _allowed(self, line: Line, _: str) -> None:
        passed = text(line.get("reason")).startswith(IMPOLITE)
        self._count(line, "passed" if passed else "allowed")

    def _dropped(self, line: Line, _: str) -> None:
        self._count(line, "dropped")

    def _disallowed(self, line: Line, _: str) -> None:
        origin = self._count(line, "forbidden")
        if origin is None:
            return
        # Without a rule, a setting decided, and the reason names it.
        why = text(line.get("rule")) or text(line.get("reason"))
        name, key = text(line["origin"]), (why, text(line.get("group")))
        rule = self.rules.get(key)
        if rule is None:
            self._drop_rules()
            rule = self.rules[key] = [0, 0, {}]
            self.all_rules += self._seen.add(key)
        rule[0] += 1
        known = rule[2].get(name)
        if known is not None:
            known.times += 1
            return
        rule[1] += self._seen.add((key, name))
        if len(rule[2]) < _OF_A_RULE:
            sha256, url = text(line.get("sha256"))[:64] or None, text(line.get("url"))
            where = origin.url or f"{name}/robots.txt"
            rule[2][name] = RuleOrigin(name, where, number(line.get("line")), 1, url, sha256)

    def _drop_rules(self) -> None:
        if len(self.rules) >= _RULES:
            kept = sorted(self.rules.items(), key=lambda one: -one[1][0])[: _RULES // 2]
            self.rules = dict(kept)

    def _held(self, line: Line, _: str) -> None:
        origin, at = self._count(line, "held"), seconds(line.get("time")) or 0.0
        waits = line.get("reason") == UNKNOWN_YET
        if line.get("dry_run") is True:  # it went on at once
            if origin is not None:
                origin.waited += waits
                origin.held += not waits
            return
        self.timeline.change(at, 0 if waits else 1, 1 if waits else 0)
        if origin is None:
            return
        if not waits:
            origin.held += 1
            origin.open_held += 1
            if origin.spell is not None:
                origin.spell.held += 1
            return
        origin.unclear += 1
        origin.open_waiting += 1
        if origin.wait is None:
            origin.wait = Wait(text(line["origin"]), at, at)

    def _left(self, line: Line, verdict: str) -> None:
        origin, at = self._count(line, verdict), seconds(line.get("time")) or 0.0
        if origin is None:
            return
        if origin.open_waiting:
            origin.open_waiting -= 1
            self.timeline.change(at, 0, -1)
        else:
            if origin.open_held:
                origin.open_held -= 1
            else:
                self.timeline.before += 1
            self.timeline.change(at, -1, 0)
        if verdict == "given_up" and origin.spell is not None:
            origin.spell.given_up += 1
            origin.spell.ended = max(origin.spell.ended, at)

    # Sitemaps, pages, usage

    def _sitemap(self, line: Line, _: str) -> None:
        about = mapping(line.get("sitemap"))
        rejected = mapping(about.get("rejected"))
        failed = text(about.get("failed"))
        self.all_sitemaps += 1
        row = SitemapRow(
            text(line.get("url")),
            text(line.get("origin")),
            text(about.get("found")),
            text(about.get("by")),
            text(about.get("kind")),
            number(about.get("entries")),
            number(about.get("taken")),
            [(text(words), number(count)) for words, count in list(rejected.items())[:_REASONS]],
            failed or text(line.get("reason")),
            not failed,
        )
        self.sitemaps.append(row)
        if len(self.sitemaps) > _SITEMAPS:
            self.sitemaps = sorted(self.sitemaps, key=sitemap_order)[: _SITEMAPS // 2]

    def _page(self, line: Line, verdict: str) -> None:
        key = verdict, text(line.get("reason"))[:_REASON_LENGTH]
        self.pages.add(key)
        dropped = line.get("dry_run") is not True
        self.page_dropped += dropped
        example = self.page_examples.get(key)
        if example is None and len(self.page_examples) < 2 * _SAID:
            example = self.page_examples[key] = [text(line.get("url")), 0]
        if example is not None:
            example[1] += dropped

    def _purpose(self, name: str) -> UsageRow | None:
        if name not in self.usage and len(self.usage) < _REASONS:
            self.usage[name] = UsageRow(name)
        return self.usage.get(name)

    def _usage(self, line: Line, _: str) -> None:
        usage = mapping(line.get("usage"))
        self.usage_pages += 1
        for name, said in usage.items():
            if said in ("y", "n") and (row := self._purpose(text(name)[:_REASONS])) is not None:
                row.yes += said == "y"
                row.no += said == "n"
        statements = usage.get("statements")
        for one in map(mapping, statements[:_REASONS] if isinstance(statements, list) else ()):
            where = f"{text(one.get('source'))}: {text(one.get('text'))}"[:_REASON_LENGTH]
            for purpose in mapping(one.get("says")):
                key = text(purpose)[:_REASONS], where
                self.statements.add(key)
                if len(self.statement_examples) < 2 * _SAID:
                    self.statement_examples.setdefault(key, text(line.get("url")))

    def _usage_dropped(self, line: Line, verdict: str) -> None:
        if line.get("dry_run") is True:
            return
        self.usage_dropped += 1
        row = self._purpose(text(line.get("reason")).partition(":")[0][:_REASONS])
        if row is not None:
            row.requests_dropped += verdict == "usage_request"
            row.items_dropped += verdict == "usage_item"

    # The end

    def end(self) -> None:
        """There are no more lines: end what is still going on."""
        ended = seconds(self.last) or 0.0
        for origin in self.origins.values():
            origin.waited += origin.unclear
            origin.unclear = 0
            if origin.spell is not None:
                gave_up = origin.spell.given_up > 0 and not origin.open_held
                end = "given_up" if gave_up else "open"
                self._end_spell(origin, end, ended if origin.open_held else origin.spell.ended)

    def counts(self) -> Counts:
        """Return the totals: the crawl's own, if it came to an end."""
        told = self.finished or {}
        sums = {name: self.requests[name] for name in _REQUESTS}
        origins = self.origins.values()
        sums |= {
            "held": sum(one.held for one in origins),
            "waited": sum(one.waited for one in origins),
            "fetches": self.fetches,
            "origins": len(self.origins) + self.gone.total(),
            "page_dropped": self.page_dropped,
            "usage_dropped": self.usage_dropped,
        }
        names = Counts.__dataclass_fields__
        return Counts(**{name: number(told.get(name, sums.get(name, 0))) for name in names})

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return the number of origins by outcome and why."""
        found = Counter((one.outcome, one.kind) for one in self.origins.values())
        return found + self.gone


def sitemap_order(row: SitemapRow) -> tuple[bool, bool, str]:
    """Those that failed come first."""
    return not row.failed, bool(row.taken), row.url


def _keep(periods: list[Any], one: Any) -> None:
    periods.append(one)
    if len(periods) > _PERIODS:
        periods.sort(key=lambda period: -period.seconds)
        del periods[_PERIODS // 2 :]
