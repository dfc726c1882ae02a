"""From the record to the report: what became of origins, rules, sitemaps and pages, in bounded memory.

Of very many origins, those where nothing was refused or failed are only counted.
"""

from __future__ import annotations

from collections import Counter
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
    Change,
    OriginRow,
    OutcomeRow,
    Period,
    RuleOrigin,
    RuleRow,
    SaidRow,
    SitemapRow,
    Top,
)
from scrapy_rep.reporting.report.findings import Timeline, axis_of, findings
from scrapy_rep.reporting.report.lines import Line
from scrapy_rep.reporting.summary import PAGE_VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

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
        self.began = self.ended = 0.0
        self.counts: Counter[str] = Counter()
        """Requests by what became of them, and some totals, as in the record."""
        self.known: dict[str, OriginRow] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many origins there are, by outcome and why; before the end, without those known."""
        self._rules: dict[tuple[str, str], RuleRow] = {}
        self.all_rules = 0
        self._seen = BoundedSet()
        self.sitemaps: Top[SitemapRow] = Top(MAX_SITEMAPS, _order)
        self.periods: Top[Period] = Top(MAX_PERIODS, lambda period: -period.seconds)
        self.changes: Top[Change] = Top(MAX_CHANGES, lambda _: 0)
        self._pages: dict[tuple[str, str], SaidRow] = {}
        self._other_pages = SaidRow("others", "", "")
        self.usage: dict[str, Counter[str]] = {}
        """What was said about each purpose, and what was dropped."""
        self.usage_pages = 0
        self._statements: dict[tuple[str, str], SaidRow] = {}
        self._held_by_time = Timeline()
        self._handlers: dict[str, Callable[[Line, float], None]] = {
            STARTED: self._started, ENDED: self._ended, ANSWER: self._answer, CHANGED: self._changed,
            SITEMAP: self._sitemap, ALLOWED_COUNT: self._allowed, "allowed": self._allowed,
            "disallowed": self._disallowed, "unreachable": self._dropped, "held": self._held,
            "released": self._left, "given_up": self._left, "usage": self._said,
            "usage_request": self._usage_dropped, "usage_item": self._usage_dropped,
            **dict.fromkeys(_PAGES, self._page),
        }  # fmt: skip

    def add(self, line: Line) -> None:
        """Count a line."""
        at = line.seconds("time")
        if at is not None:
            self.began = self.began or at
            self.ended = max(self.began, at)
        handler = self._handlers.get(line.fields["verdict"])
        if handler is not None:
            handler(line, at or 0.0)

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
        order = sorted(
            self.known.values(), key=lambda one: (bool(one.spell or one.wait), one.interest)
        )
        for one in order[: _ORIGINS // 2]:
            self.outcomes[one.outcome, one.kind] += 1
            del self.known[one.origin]

    # The crawl

    def _started(self, line: Line, _: float) -> None:
        about = line.part("settings")
        self.started = True
        self.name, self.agent = about.text("spider"), about.text("agent")
        self.version, self.scrapy = about.text("version"), about.text("scrapy")
        changed = about.part("changed")
        self.settings = sorted((name, changed.text(name)) for name in changed.fields)[:_SETTINGS]
        self.dry_run = line.flag("dry_run")

    def _ended(self, line: Line, _: float) -> None:
        self.finished = line.part("counts")
        self.finish_reason = line.text("reason")

    # Origins

    def _answer(self, line: Line, at: float) -> None:
        origin, about = self._of(line), line.part("answer")
        if origin is None:
            return
        asked = about.seconds("asked")
        began = at if asked is None else min(asked, at)
        fetches, outcome = about.number("fetches"), about.text("outcome")
        reason = line.text("reason", _REASON_LENGTH)
        origin.fetches += fetches
        self.counts["fetches"] += fetches
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
        origin.requests["held"] += origin.unclear
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
            wait.requests, wait.end, wait.reason = (
                origin.unclear,
                "waited",
                OUTCOMES[origin.outcome],
            )
            self.periods.add(wait)
        origin.requests["waited"] += origin.unclear
        origin.unclear = 0
        self._end_spell(origin, "answered", at)

    def _end_spell(self, origin: OriginRow, end: str, at: float) -> None:
        spell, origin.spell = origin.spell, None
        if spell is not None:
            spell.end, spell.ended = end, max(at, spell.began)
            self.periods.add(spell)

    def _changed(self, line: Line, at: float) -> None:
        about = line.part("change")
        turned = about.parts("turned", _TURNED)
        change = Change(
            line.text("origin"),
            about.texts("added", _REASONS),
            about.texts("removed", _REASONS),
            about.number("lines_added"),
            about.number("lines_removed"),
            at,
            [{name: one.text(name) for name in ("url", "was", "now")} for one in turned],
            about.number("turned_count"),
        )
        self.changes.add(change)

    # Requests

    def _count(self, line: Line, name: str, times: int = 1) -> OriginRow | None:
        self.counts[name] += times
        origin = self._of(line)
        if origin is not None:
            origin.requests[name] += times
        return origin

    def _allowed(self, line: Line, _: float) -> None:
        passed = line.text("reason").startswith(IMPOLITE)
        times = line.number("count") if "count" in line.fields else 1
        self._count(line, "passed" if passed else "allowed", times)

    def _dropped(self, line: Line, _: float) -> None:
        self._count(line, "dropped")

    def _disallowed(self, line: Line, _: float) -> None:
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
            where = origin.url or f"{name}/robots.txt"
            about = line.number("line"), line.text("url"), line.text("sha256", 64) or None
            rule.known[name] = RuleOrigin(name, where, *about)
        rule.known[name].times += 1

    def _held(self, line: Line, at: float) -> None:
        origin = self._of(line)
        waits, went_on = line.text("reason") == UNKNOWN_YET, line.flag("dry_run")
        if not went_on:
            self._held_by_time.change(at, not waits, waits)
        if origin is None:
            return
        if went_on:
            origin.requests["waited" if waits else "held"] += 1
        elif waits:
            origin.unclear += 1
            origin.open_waiting += 1
            origin.wait = origin.wait or Period(origin.origin, at, at)
        else:
            origin.requests["held"] += 1
            origin.open_held += 1
            if origin.spell is not None:
                origin.spell.requests += 1

    def _left(self, line: Line, at: float) -> None:
        verdict = line.text("verdict")
        origin = self._count(line, verdict)
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

    def _sitemap(self, line: Line, _: float) -> None:
        about = line.part("sitemap")
        rejected = about.part("rejected")
        failed = about.text("failed")
        row = SitemapRow(
            line.text("url"),
            about.text("found"),
            about.text("by"),
            about.text("kind"),
            about.number("entries"),
            about.number("taken"),
            [(words, rejected.number(words)) for words in list(rejected.fields)[:_REASONS]],
            failed or line.text("reason"),
            not failed,
        )
        self.sitemaps.add(row)

    def _page(self, line: Line, _: float) -> None:
        key = line.text("verdict"), line.text("reason", _REASON_LENGTH)
        new = SaidRow(_PAGES[key[0]], key[1], line.text("url"))
        row = _row(self._pages, key, new) or self._other_pages
        dropped = not line.flag("dry_run")
        row.count += 1
        row.dropped += dropped
        self.counts["page_dropped"] += dropped

    def _said(self, line: Line, _: float) -> None:
        usage, url = line.part("usage"), line.text("url")
        self.usage_pages += 1
        for name, said in usage.fields.items():
            if said in ("y", "n") and (use := self._purpose(name)) is not None:
                use["yes" if said == "y" else "no"] += 1
        for one in usage.parts("statements", _REASONS):
            where = f"{one.text('source')}: {one.text('text')}"[:_REASON_LENGTH]
            for name in one.part("says").fields:
                new = SaidRow(name[:_REASONS], where, url)
                if (row := _row(self._statements, (new.about, where), new)) is not None:
                    row.count += 1

    def _usage_dropped(self, line: Line, _: float) -> None:
        if line.flag("dry_run"):
            return
        self.counts["usage_dropped"] += 1
        use = self._purpose(line.text("reason").partition(":")[0])
        if use is not None:
            use[line.text("verdict")] += 1

    def _purpose(self, name: str) -> Counter[str] | None:
        return _row(self.usage, name[:_REASONS], Counter(), _REASONS)

    # The end

    def end(self) -> None:
        """There are no more lines."""
        self._end_periods()
        self._add_up()
        known = self.known.values()
        self.origins = sorted(known, key=lambda one: (-one.interest, one.origin))[:MAX_ORIGINS]
        rules = sorted(self._rules.values(), key=lambda row: (-row.times, row.rule, row.group))
        self.rules = rules[:MAX_RULES]
        for rows in (self.sitemaps, self.periods, self.changes):
            rows.cut()
        self.pages = _most(self._pages)
        if self._other_pages.count:
            self.pages.append(self._other_pages)
        self.usage_statements = _most(self._statements)
        self.axis = axis_of(self.began, self.ended)
        self.timeline = self._held_by_time.points(self.axis)
        self.findings = findings(self)

    def _end_periods(self) -> None:
        """End what is still going on."""
        for origin in self.known.values():
            origin.requests["waited"] += origin.unclear
            if origin.spell is not None:
                gave_up = origin.spell.given_up > 0 and not origin.open_held
                ended = self.ended if origin.open_held else origin.spell.ended
                self._end_spell(origin, "given_up" if gave_up else "open", ended)

    def _add_up(self) -> None:
        known, told = self.known.values(), self.finished or Line({})
        outcomes = self.outcomes
        outcomes.update((one.outcome, one.kind) for one in known)
        self.all_origins = self.counts["origins"] = outcomes.total()
        for name in ("held", "waited"):
            self.counts[name] = sum(one.requests[name] for one in known)
        # The crawl's own, if it came to an end.
        self.counts.update({name: told.number(name) - self.counts[name] for name in told.fields})
        by_key = {key: sum(n for one, n in outcomes.items() if one[0] == key) for key in OUTCOMES}
        self.answers = [
            OutcomeRow(key, OUTCOMES[key], count, count / self.all_origins)
            for key, count in by_key.items()
            if count
        ]
        reasons = [(kind, n) for (key, kind), n in outcomes.items() if key == "unreachable"]
        self.reasons = sorted(reasons, key=lambda reason: (-reason[1], reason[0]))


def _order(row: SitemapRow) -> tuple[bool, bool, str]:
    """Those that failed come first."""
    return not row.failed, bool(row.taken), row.url


def _most(rows: dict[KeyT, SaidRow]) -> list[SaidRow]:
    return sorted(rows.values(), key=lambda row: -row.count)[:MAX_SAID]


def _row(rows: dict[KeyT, RowT], key: KeyT, new: RowT, most: int = _SAID) -> RowT | None:
    """Return the row of *key*, which may be the *new* one; None if there are too many others."""
    return rows.setdefault(key, new) if key in rows or len(rows) < most else None
