"""From the record to the report: what became of origins, rules, sitemaps and pages, in bounded memory.

Of very many origins, those where nothing was refused or failed are only counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from scrapy_rep.engine.log import BoundedSet
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
    OriginRow,
    OutcomeRow,
    PageRow,
    Period,
    RuleOrigin,
    RuleRow,
    SitemapRow,
    StatementRow,
    Top,
    UsageRow,
)
from scrapy_rep.reporting.report.findings import Timeline, axis_of, findings
from scrapy_rep.reporting.report.lines import Line, number, seconds, text
from scrapy_rep.reporting.summary import PAGE_VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from scrapy_rep.reporting.report.data import Axis, Finding, TimePoint

KeyT = TypeVar("KeyT", bound="Hashable")
RowT = TypeVar("RowT")

# Limits on what is kept while a record is read. At the first two, the less interesting half is dropped.
_ORIGINS, _RULES, _SAID = 50_000, 5_000, 2_000
_OF_A_RULE, _TURNED, _REASONS, _REASON_LENGTH = 200, 20, 50, 300
# And on what the page shows.
MAX_ORIGINS, MAX_RULES, MAX_SITEMAPS, MAX_PERIODS, MAX_SAID = 10_000, 300, 1_000, 400, 200
MAX_CHANGES, _SETTINGS = 500, 200

_PAGES = {verdict: f"{noun}s {what}" for verdict, noun, what in PAGE_VERDICTS}


class CrawlSum:
    """Sums up the record of one crawl, a line at a time, and shows it after :meth:`end`."""

    def __init__(self) -> None:
        self.started = False
        self.finished: Line | None = None
        self.name = self.agent = self.version = self.scrapy = self.finish_reason = ""
        """The spider, what it goes by, of which versions; why it ended."""
        self.settings: list[tuple[str, str]] = []
        """Those that differ from the defaults."""
        self.dry_run = False
        self._first = self._last = ""
        """Times, as they stand in the record."""
        self.counts = Counts()
        self.known: dict[str, OriginRow] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many origins there are, by outcome and why; before the end, without those known."""
        self._rules: dict[tuple[str, str], RuleRow] = {}
        self.all_rules = 0
        self._seen = BoundedSet()
        self.sitemaps: Top[SitemapRow] = Top(MAX_SITEMAPS, lambda row: row.order)
        self.periods: Top[Period] = Top(MAX_PERIODS, lambda period: -period.seconds)
        self.changes: Top[MidChange] = Top(MAX_CHANGES, lambda _: 0)
        self._pages: dict[tuple[str, str], PageRow] = {}
        self._other_pages = PageRow("others", "", "")
        self._usage: dict[str, UsageRow] = {}
        self.usage_pages = 0
        self._statements: dict[tuple[str, str], StatementRow] = {}
        self._held_by_time = Timeline()
        self._handlers: dict[str, Callable[[Line, str], None]] = {
            STARTED: self._started, ENDED: self._ended, ANSWER: self._answer, CHANGED: self._changed,
            SITEMAP: self._sitemap, ALLOWED_COUNT: self._allowed, "allowed": self._allowed,
            "disallowed": self._disallowed, "unreachable": self._dropped, "held": self._held,
            "released": self._left, "given_up": self._left, "usage": self._said,
            "usage_request": self._usage_dropped, "usage_item": self._usage_dropped,
            **dict.fromkeys(_PAGES, self._page),
        }  # fmt: skip

    def add(self, line: Line) -> None:
        """Count a line."""
        verdict = line.fields["verdict"]
        if time := line.text("time"):
            self._first = self._first or time
            self._last = time
        handler = self._handlers.get(verdict)
        if handler is not None:
            handler(line, verdict)

    def _of(self, line: Line) -> OriginRow | None:
        name = line.text("origin")
        if not name:
            return None
        found = self.known.get(name)
        if found is None:
            if len(self.known) >= _ORIGINS:
                self._forget()
            found = self.known[name] = OriginRow(name)
        return found

    def _forget(self) -> None:
        """Only count those that are least interesting."""
        order = sorted(self.known.values(), key=lambda one: (one.busy, one.interest))
        for one in order[: _ORIGINS // 2]:
            self.outcomes[one.outcome, one.kind] += 1
            del self.known[one.origin]

    # The crawl

    def _started(self, line: Line, _: str) -> None:
        about = line.part("settings")
        self.started = True
        self.name, self.agent = about.text("spider"), about.text("agent")
        self.version, self.scrapy = about.text("version"), about.text("scrapy")
        changed = about.part("changed").fields
        self.settings = sorted((name, text(value)) for name, value in changed.items())[:_SETTINGS]
        self.dry_run = line.flag("dry_run")

    def _ended(self, line: Line, _: str) -> None:
        self.finished = line.part("counts")
        self.finish_reason = line.text("reason")

    # Origins

    def _answer(self, line: Line, _: str) -> None:
        origin, about = self._of(line), line.part("answer")
        if origin is None:
            return
        at = line.seconds("time") or 0.0
        asked = about.seconds("asked")
        began = at if asked is None else min(asked, at)
        fetches, outcome = about.number("fetches"), about.text("outcome")
        reason = line.text("reason", _REASON_LENGTH)
        origin.fetches += fetches
        self.counts.fetches += fetches
        if outcome not in OUTCOMES or outcome == "none":
            if origin.spell is not None:
                origin.spell.fetches += fetches
            if about.text("kind") == CONFIGURATION:
                origin.kind, origin.reason = CONFIGURATION, reason
            return
        origin.outcome, origin.url = outcome, line.text("url")
        origin.reason = reason or origin.reason
        origin.status = line.number("status") or None
        if outcome == "unreachable":
            origin.kind = about.text("kind", 40) or kind_of(origin.reason)
            self._fails(origin, began, at, fetches)
        else:
            self._answers(origin, line, about)
            self._get(origin, began, at)

    def _fails(self, origin: OriginRow, began: float, at: float, fetches: int) -> None:
        """Those that wait are held from now on."""
        if origin.spell is None:
            origin.spell = Period(origin.origin, began, at)
        spell = origin.spell
        spell.ended = max(spell.ended, at)
        spell.fetches += fetches
        spell.reason = origin.reason or origin.kind
        spell.requests += origin.unclear
        origin.held += origin.unclear
        if origin.open_waiting:
            self._held_by_time.change(at, origin.open_waiting, -origin.open_waiting)
        origin.open_held += origin.open_waiting
        origin.open_waiting = origin.unclear = 0
        origin.wait = None

    def _answers(self, origin: OriginRow, line: Line, about: Line) -> None:
        delay = about.fields.get("crawl_delay")
        origin.delay = None
        if isinstance(delay, int | float) and 0 < delay < 10**9:
            origin.delay = float(delay)
        origin.size = None if about.fields.get("bytes") is None else about.number("bytes")
        origin.sitemaps = about.number("sitemaps")
        origin.sha256 = line.text("sha256", 64) or None
        origin.kind = ""

    def _get(self, origin: OriginRow, began: float, at: float) -> None:
        """Those that waited have an answer."""
        wait, origin.wait = origin.wait, None
        if wait is not None:
            wait.began, wait.ended = min(began, wait.began), at
            wait.requests, wait.end, wait.reason = origin.unclear, "waited", origin.words
            self.periods.add(wait)
        origin.waited += origin.unclear
        origin.unclear = 0
        self._end_spell(origin, "answered", at)

    def _end_spell(self, origin: OriginRow, end: str, at: float) -> None:
        spell, origin.spell = origin.spell, None
        if spell is not None:
            spell.end, spell.ended = end, max(at, spell.began)
            self.periods.add(spell)

    def _changed(self, line: Line, _: str) -> None:
        about = line.part("change")
        turned = [Line(one) for one in about.items("turned", _TURNED)]
        change = MidChange(
            line.text("origin"),
            about.texts("added", _REASONS),
            about.texts("removed", _REASONS),
            about.number("lines_added"),
            about.number("lines_removed"),
            line.seconds("time") or 0.0,
            [{name: one.text(name) for name in ("url", "was", "now")} for one in turned],
            about.number("turned_count"),
        )
        self.changes.add(change)

    # Requests

    def _count(self, line: Line, name: str, times: int = 1) -> OriginRow | None:
        """Count requests in the field *name*, here and at their origin."""
        origin = self._of(line)
        for one in (self.counts, origin):
            if one is not None:
                setattr(one, name, getattr(one, name) + times)
        return origin

    def _allowed(self, line: Line, verdict: str) -> None:
        passed = line.text("reason").startswith(IMPOLITE)
        times = line.number("count") if verdict == ALLOWED_COUNT else 1
        self._count(line, "passed" if passed else "allowed", times)

    def _dropped(self, line: Line, _: str) -> None:
        self._count(line, "dropped")

    def _disallowed(self, line: Line, _: str) -> None:
        origin = self._count(line, "forbidden")
        if origin is None:
            return
        # Without a rule, a setting decided, and the reason names it.
        key = line.text("rule") or line.text("reason"), line.text("group")
        rule = self._rules.get(key)
        if rule is None:
            if len(self._rules) >= _RULES:
                kept = sorted(self._rules.items(), key=lambda one: -one[1].times)
                self._rules = dict(kept[: _RULES // 2])
            rule = self._rules[key] = RuleRow(*key)
            self.all_rules += self._seen.add(key)
        rule.times += 1
        name = origin.origin
        if name not in rule.known:
            rule.all_origins += self._seen.add((key, name))
            if len(rule.known) >= _OF_A_RULE:
                return
            where = origin.url or origin.robots_url
            about = line.number("line"), line.text("url"), line.text("sha256", 64) or None
            rule.known[name] = RuleOrigin(name, where, *about)
        rule.known[name].times += 1

    def _held(self, line: Line, _: str) -> None:
        origin, at = self._of(line), line.seconds("time") or 0.0
        waits, went_on = line.text("reason") == UNKNOWN_YET, line.flag("dry_run")
        if not went_on:
            self._held_by_time.change(at, not waits, waits)
        if origin is None:
            return
        if went_on:
            origin.waited += waits
            origin.held += not waits
        elif waits:
            origin.unclear += 1
            origin.open_waiting += 1
            origin.wait = origin.wait or Period(origin.origin, at, at)
        else:
            origin.held += 1
            origin.open_held += 1
            if origin.spell is not None:
                origin.spell.requests += 1

    def _left(self, line: Line, verdict: str) -> None:
        origin, at = self._count(line, verdict), line.seconds("time") or 0.0
        if origin is None:
            return
        if origin.open_waiting:
            origin.open_waiting -= 1
            self._held_by_time.change(at, 0, -1)
        else:
            self._held_by_time.before += not origin.open_held
            origin.open_held = max(0, origin.open_held - 1)
            self._held_by_time.change(at, -1, 0)
        if verdict == "given_up" and origin.spell is not None:
            origin.spell.given_up += 1
            origin.spell.ended = max(origin.spell.ended, at)

    # Sitemaps, pages, usage

    def _sitemap(self, line: Line, _: str) -> None:
        about = line.part("sitemap")
        rejected = list(about.part("rejected").fields.items())[:_REASONS]
        failed = about.text("failed")
        row = SitemapRow(
            line.text("url"),
            about.text("found"),
            about.text("by"),
            about.text("kind"),
            about.number("entries"),
            about.number("taken"),
            [(text(words), number(count)) for words, count in rejected],
            failed or line.text("reason"),
            not failed,
        )
        self.sitemaps.add(row)

    def _page(self, line: Line, verdict: str) -> None:
        reason, url = line.text("reason", _REASON_LENGTH), line.text("url")
        new = PageRow(_PAGES[verdict], reason, url)
        row = _row(self._pages, (verdict, reason), new) or self._other_pages
        row.count += 1
        row.dropped += not line.flag("dry_run")
        self.counts.page_dropped += not line.flag("dry_run")

    def _said(self, line: Line, _: str) -> None:
        usage, url = line.part("usage"), line.text("url")
        self.usage_pages += 1
        for name, said in usage.fields.items():
            if said in ("y", "n") and (use := self._purpose(name)) is not None:
                use.yes += said == "y"
                use.no += said == "n"
        for one in map(Line, usage.items("statements", _REASONS)):
            where = f"{one.text('source')}: {one.text('text')}"[:_REASON_LENGTH]
            for name in one.part("says").fields:
                purpose = name[:_REASONS]
                row = StatementRow(purpose, where, url)
                if (known := _row(self._statements, (purpose, where), row)) is not None:
                    known.pages += 1

    def _usage_dropped(self, line: Line, verdict: str) -> None:
        if line.flag("dry_run"):
            return
        self.counts.usage_dropped += 1
        row = self._purpose(line.text("reason").partition(":")[0])
        if row is not None:
            row.requests_dropped += verdict == "usage_request"
            row.items_dropped += verdict == "usage_item"

    def _purpose(self, name: str) -> UsageRow | None:
        name = name[:_REASONS]
        return _row(self._usage, name, UsageRow(name), _REASONS)

    # The end

    def end(self) -> None:
        """There are no more lines: end what is still going on."""
        for origin in self.known.values():
            origin.waited += origin.unclear
            origin.unclear = 0
            if origin.spell is not None:
                gave_up = origin.spell.given_up > 0 and not origin.open_held
                ended = self.ended if origin.open_held else origin.spell.ended
                self._end_spell(origin, "given_up" if gave_up else "open", ended)
        self.outcomes.update((one.outcome, one.kind) for one in self.known.values())
        for rows in (self.sitemaps, self.periods, self.changes):
            rows.cut()
        counts, told = self.counts, self.finished or Line({})
        counts.held = sum(one.held for one in self.known.values())
        counts.waited = sum(one.waited for one in self.known.values())
        counts.origins = self.all_origins
        for field in fields(Counts):  # the crawl's own, if it came to an end
            if field.name in told.fields:
                setattr(counts, field.name, told.number(field.name))

    @property
    def began(self) -> float:
        """When the crawl began."""
        return seconds(self._first) or 0.0

    @property
    def ended(self) -> float:
        """When it ended."""
        return max(self.began, seconds(self._last) or 0.0)

    @cached_property
    def origins(self) -> list[OriginRow]:
        """The most interesting first."""
        return sorted(self.known.values(), key=lambda one: (-one.interest, one.origin))[
            :MAX_ORIGINS
        ]

    @property
    def all_origins(self) -> int:
        """How many there are."""
        return self.outcomes.total()

    @property
    def answers(self) -> list[OutcomeRow]:
        """How many origins answered how."""
        counts = Counter[str]()
        for (outcome, _), count in self.outcomes.items():
            counts[outcome] += count
        return [
            OutcomeRow(key, words, counts[key], counts[key] / counts.total())
            for key, words in OUTCOMES.items()
            if counts[key]
        ]

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Why so many origins are unreachable."""
        found = [
            (kind, n) for (outcome, kind), n in self.outcomes.items() if outcome == "unreachable"
        ]
        return sorted(found, key=lambda kind: (-kind[1], kind[0]))

    @cached_property
    def findings(self) -> list[Finding]:
        """What needs a look."""
        return findings(self)

    @cached_property
    def axis(self) -> Axis:
        """The time axis."""
        return axis_of(self.began, self.ended)

    @cached_property
    def timeline(self) -> list[TimePoint]:
        """How many requests were held, and waited, when."""
        return self._held_by_time.points(self.axis)

    @cached_property
    def rules(self) -> list[RuleRow]:
        """Those that refused most first."""
        rows = sorted(self._rules.values(), key=lambda row: (-row.times, row.rule, row.group))
        return rows[:MAX_RULES]

    @property
    def pages(self) -> list[PageRow]:
        """What most pages said first, and the rest in one row."""
        rows = sorted(self._pages.values(), key=lambda row: -row.count)[:MAX_SAID]
        return [*rows, self._other_pages] if self._other_pages.count else rows

    @cached_property
    def usage(self) -> list[UsageRow]:
        """By purpose."""
        for row in self._usage.values():
            row.unknown = max(0, self.usage_pages - row.yes - row.no)
        return list(self._usage.values())

    @property
    def usage_statements(self) -> list[StatementRow]:
        """Those of most pages first."""
        return sorted(self._statements.values(), key=lambda row: -row.pages)[:MAX_SAID]


def _row(rows: dict[KeyT, RowT], key: KeyT, new: RowT, most: int = _SAID) -> RowT | None:
    """Return the row of *key*, which may be the *new* one; None if there are too many others."""
    return rows.setdefault(key, new) if key in rows or len(rows) < most else None
