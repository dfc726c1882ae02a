"""From the record to the report: what became of origins, rules, sitemaps and pages, in bounded
memory. Of very many origins, those where nothing was refused or failed are only counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import IO, Any, ClassVar

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
    Rows,
    kind_of,
)
from scrapy_rep.reporting.report.data import (
    Axis,
    Change,
    OriginRow,
    Period,
    RuleOrigin,
    RuleRow,
    SaidRow,
    SitemapRow,
    Timeline,
)
from scrapy_rep.reporting.summary import PAGE_VERDICTS

_MAX_LINE = 1 << 22
_MAX_TEXT = 2000
_MAX_NUMBER = 10**15


def lines_of(file: IO[bytes]) -> Iterator[Line | None]:
    """Yield the lines of a record; None for each that is none."""
    while line := file.readline(_MAX_LINE):
        try:
            found = json.loads(line.decode())
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("verdict"), str):
            yield Line(found)
        elif not line.isspace():
            yield None


class Line:
    """A JSON object whose values may be anything."""

    __slots__ = ("fields",)

    def __init__(self, fields: object) -> None:
        self.fields: dict[str, Any] = fields if isinstance(fields, dict) else {}

    def text(self, name: str, most: int = _MAX_TEXT) -> str:
        """Return a text, cut to size; nothing for any other value."""
        value = self.fields.get(name)
        return value[:most] if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """Return a number that makes sense; 0 for any other value."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 (not a number)
            return 0
        return int(min(max(value, 0), _MAX_NUMBER))

    def seconds(self, name: str) -> float | None:
        try:
            return datetime.fromisoformat(self.text(name, 40).replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            return None

    def flag(self, name: str) -> bool:
        """Return whether a value is true itself."""
        return self.fields.get(name) is True

    def part(self, name: str) -> Line:
        """Return an object; an empty one for any other value."""
        return Line(self.fields.get(name))

    def texts(self, name: str) -> list[str]:
        """Return the texts among the first values of a list."""
        return [one[:_MAX_TEXT] for one in self.items(name, _REASONS) if isinstance(one, str)]

    def items(self, name: str, most: int) -> list[Any]:
        """Return the first values of a list; none of any other value."""
        found = self.fields.get(name)
        return found[:most] if isinstance(found, list) else []


# Limits on what is kept while a record is read, and on what the page shows.
_ORIGINS, _RULES, _SAID, _USES = 50_000, 1_000, 2_000, 50
_OF_A_RULE, _TURNED, _REASONS, _REASON_LENGTH, _SETTINGS = 100, 20, 50, 300, 200
MAX_ORIGINS, MAX_RULES, MAX_SITEMAPS, MAX_PERIODS, MAX_SAID = 10_000, 300, 1_000, 400, 200
MAX_CHANGES, _URL_LENGTH = 500, 500

_PAGES = {verdict: f"{noun}s {what}" for verdict, noun, what in PAGE_VERDICTS}


class CrawlSum:
    """Sums up the record of one crawl, a line at a time, until :meth:`end`."""

    def __init__(self) -> None:
        self.started = False
        self.finished: Line | None = None
        self.name = self.agent = self.version = self.scrapy = self.finish_reason = ""
        """The spider, what it goes by, of which versions; why it ended."""
        self.settings: list[tuple[str, str]] = []
        """Those that the project sets."""
        self.dry_run = False
        self.began = self.ended = 0.0
        self.counts: Counter[str] = Counter()
        """Requests by what became of them, and some totals, as in the record."""
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many origins there are, by outcome and why; before the end, only forgotten ones."""
        self.known: Rows[OriginRow] = Rows(_ORIGINS, MAX_ORIGINS, attrgetter("order"), self._forget)
        self.rules: Rows[RuleRow] = Rows(
            _RULES, MAX_RULES, lambda row: (-row.times, row.rule, row.group)
        )
        self._seen = BoundedSet()
        self.sitemaps: Rows[SitemapRow] = Rows(
            2 * MAX_SITEMAPS, MAX_SITEMAPS, lambda row: (not row.failed, bool(row.taken), row.url)
        )
        self.periods: Rows[Period] = Rows(2 * MAX_PERIODS, MAX_PERIODS, lambda one: -one.seconds)
        self.changes: Rows[Change] = Rows(2 * MAX_CHANGES, MAX_CHANGES, lambda _: 0)
        self.pages: Rows[SaidRow] = Rows(_SAID, MAX_SAID, lambda row: -row.count)
        self.statements: Rows[SaidRow] = Rows(_SAID, MAX_SAID, lambda row: -row.count)
        self.usage: Rows[Counter[str]] = Rows(_USES, _USES, lambda said: -said.total())
        """What was said about each purpose, and what was dropped."""
        self.usage_pages = 0
        self._held_by_time = Timeline()

    def add(self, line: Line) -> None:
        """Count a line, which has a verdict."""
        at = line.seconds("time")
        if at is not None:
            self.began = self.began or at
            self.ended = max(self.began, at)
        handler = self._HANDLERS.get(line.fields["verdict"])
        if handler is not None:
            handler(self, line, at or 0.0)

    def _of(self, line: Line) -> OriginRow | None:
        name = line.text("origin")
        return self.known.row(name, lambda: OriginRow(name)) if name else None

    def _forget(self, origin: OriginRow) -> None:
        self.outcomes[origin.outcome, origin.kind] += 1

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
            if origin.period is not None:
                origin.period.fetches += fetches
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
            self._answers(origin, about, began, at)
            origin.sha256 = line.text("sha256", 64) or None

    def _answers(self, origin: OriginRow, about: Line, began: float, at: float) -> None:
        """Note an answer that counts: requests that waited have it."""
        origin.kind = ""
        delay = about.fields.get("crawl_delay")
        origin.delay = None
        if isinstance(delay, int | float) and 0 < delay < 10**9:
            origin.delay = float(delay)
        origin.size = None if about.fields.get("bytes") is None else about.number("bytes")
        origin.sitemaps = about.number("sitemaps")
        if (period := origin.period) is not None and period.end == "waited":
            period.began = min(began, period.began)
            period.requests, period.reason = origin.unclear, OUTCOMES[origin.outcome]
        self._end_period(origin, "answered", at)
        origin.requests["waited"] += origin.unclear
        origin.unclear = 0

    def _fails(self, origin: OriginRow, began: float, at: float, fetches: int) -> None:
        """Note a failure: requests that wait are held from now on."""
        if origin.period is None or origin.period.end == "waited":
            origin.period = Period(origin.origin, began, at)
        period = origin.period
        period.ended = max(period.ended, at)
        period.fetches += fetches
        period.reason = origin.reason or origin.kind
        period.requests += origin.unclear
        origin.requests["held"] += origin.unclear
        if origin.open_waiting:
            self._held_by_time.change(at, origin.open_waiting, -origin.open_waiting)
        origin.open_held += origin.open_waiting
        origin.open_waiting = origin.unclear = 0

    def _end_period(self, origin: OriginRow, end: str, at: float) -> None:
        period, origin.period = origin.period, None
        if period is not None:
            period.end = end if period.end == "open" else period.end
            period.ended = max(at, period.began)
            self.periods.add(period)

    def _changed(self, line: Line, at: float) -> None:
        about = line.part("change")
        change = Change(line.text("origin"), at=at)
        change.added, change.removed = map(about.texts, ("added", "removed"))
        change.lines_added = about.number("lines_added")
        change.lines_removed = about.number("lines_removed")
        change.turned_count = about.number("turned_count")
        turned = map(Line, about.items("turned", _TURNED))
        change.turned = [{name: one.text(name) for name in ("url", "was", "now")} for one in turned]
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
        rule, name = self.rules.row(key, lambda: RuleRow(*key)), origin.origin
        rule.times += 1
        if name not in rule.known:
            rule.all_origins += self._seen.add((key, name))
            if len(rule.known) >= _OF_A_RULE:
                return
            where = origin.url or f"{name}/robots.txt"
            url, sha256 = line.text("url", _URL_LENGTH), line.text("sha256", 64) or None
            rule.known[name] = RuleOrigin(name, where, line.number("line"), url, sha256)
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
            origin.period = origin.period or Period(origin.origin, at, at, "waited")
        else:
            origin.requests["held"] += 1
            origin.open_held += 1
            if origin.period is not None:
                origin.period.requests += 1

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
        if verdict == "given_up" and origin.period is not None:
            origin.period.given_up += 1
            origin.period.ended = max(origin.period.ended, at)

    # Sitemaps, pages, usage

    def _sitemap(self, line: Line, _: float) -> None:
        about = line.part("sitemap")
        found, by, kind, failed = map(about.text, ("found", "by", "kind", "failed"))
        entries, taken = map(about.number, ("entries", "taken"))
        rejected = about.part("rejected")
        reasons = [(words, rejected.number(words)) for words in list(rejected.fields)[:_REASONS]]
        why = failed or line.text("reason")
        self.counts["sitemaps_failed"] += bool(failed) and found != "guessed"
        self.counts["sitemaps_useless"] += not failed and entries > 0 and not taken
        self.sitemaps.add(
            SitemapRow(line.text("url"), found, by, kind, entries, taken, reasons, why, not failed)
        )

    def _page(self, line: Line, _: float) -> None:
        what, text = line.text("verdict"), line.text("reason", _REASON_LENGTH)
        row = self.pages.row((what, text), lambda: SaidRow(_PAGES[what], text, line.text("url")))
        dropped = not line.flag("dry_run")
        row.count += 1
        row.dropped += dropped
        self.counts["page_dropped"] += dropped

    def _said(self, line: Line, _: float) -> None:
        usage, url = line.part("usage"), line.text("url")
        self.usage_pages += 1
        for name, said in usage.fields.items():
            if said in ("y", "n"):
                self._purpose(name)["yes" if said == "y" else "no"] += 1
        for one in map(Line, usage.items("statements", _REASONS)):
            where = f"{one.text('source')}: {one.text('text')}"[:_REASON_LENGTH]
            for name in list(one.part("says").fields)[:_USES]:
                new = partial(SaidRow, name[:_REASONS], where, url)
                self.statements.row((name[:_REASONS], where), new).count += 1

    def _usage_dropped(self, line: Line, _: float) -> None:
        if not line.flag("dry_run"):
            self.counts["usage_dropped"] += 1
            name = line.text("reason").partition(":")[0]
            self._purpose(name)[line.text("verdict")] += 1

    def _purpose(self, name: str) -> Counter[str]:
        return self.usage.row(name[:_REASONS], Counter)

    # Verdicts, each with what counts it.
    _HANDLERS: ClassVar[dict[str, Callable[[CrawlSum, Line, float], object]]] = {
        STARTED: _started, ENDED: _ended, ANSWER: _answer, CHANGED: _changed, SITEMAP: _sitemap,
        ALLOWED_COUNT: _allowed, "allowed": _allowed, "disallowed": _disallowed,
        "unreachable": _dropped, "held": _held, "released": _left, "given_up": _left,
        "usage": _said, "usage_request": _usage_dropped, "usage_item": _usage_dropped,
        **dict.fromkeys(_PAGES, _page),
    }  # fmt: skip

    # The end

    def end(self) -> None:
        """After the last line, end what is still going on, and add up."""
        for origin in self.known.values():
            if (period := origin.period) is not None:
                if period.end == "waited":
                    period.end, period.reason = "unanswered", OUTCOMES["none"]
                    period.requests = origin.unclear
                gave_up = period.given_up > 0 and not origin.open_held
                goes_on = origin.open_held or origin.open_waiting
                ended = self.ended if goes_on else period.ended
                self._end_period(origin, "given_up" if gave_up else "open", ended)
            origin.requests["waited"] += origin.unclear
        told, outcomes = self.finished or Line({}), self.outcomes
        outcomes.update((one.outcome, one.kind) for one in self.known.values())
        self.counts["origins"] = outcomes.total()
        for name in ("held", "waited"):
            self.counts[name] = sum(one.requests[name] for one in self.known.values())
        # The crawl's own, if it came to an end.
        self.counts.update({name: told.number(name) - self.counts[name] for name in told.fields})
        by_key = {key: sum(n for one, n in outcomes.items() if one[0] == key) for key in OUTCOMES}
        self.answers = {key: count for key, count in by_key.items() if count}
        reasons = [(kind, n) for (key, kind), n in outcomes.items() if key == "unreachable"]
        self.reasons = sorted(reasons, key=lambda reason: (-reason[1], reason[0]))
        self.axis = Axis(self.began, self.ended)
        self.timeline = self._held_by_time.points(self.began, self.ended, self.axis)
