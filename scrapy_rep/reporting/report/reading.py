"""From the record to the report: what became of origins, rules, sitemaps and pages, in rows of plain
values and in bounded memory. Beyond a limit, the origins that have had nothing new for longest are
only counted. Times are seconds since the epoch, positions on the time axis percent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import IO, Any, ClassVar

from scrapy_rep.origins.policy import UNKNOWN_YET
from scrapy_rep.reporting.record import (
    ANSWERS,
    IMPOLITE,
    OUTCOMES,
    OVERRULED,
    Rows,
    RuleOrigin,
    RuleRows,
    by_domain,
    detailed,
    kind_of,
)
from scrapy_rep.text import duration

_MAX_LINE = 1 << 22
_MAX_TEXT = 2000
_MAX_NUMBER = 10**15
_ITEMS = 50


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
        try:
            return int(min(max(self.fields.get(name, 0), 0), _MAX_NUMBER))
        except (TypeError, ValueError):
            return 0

    def seconds(self, name: str) -> float | None:
        try:
            return datetime.fromisoformat(
                self.text(name, 40).replace("Z", "+00:00")
            ).timestamp()
        except (ValueError, OverflowError):
            return None

    def flag(self, name: str) -> bool:
        """Return whether a value is true itself."""
        return self.fields.get(name) is True

    def part(self, name: str) -> Line:
        """Return an object; an empty one for any other value."""
        return Line(self.fields.get(name))

    def items(self, name: str) -> list[Any]:
        """Return the first values of a list; none of any other value."""
        found = self.fields.get(name)
        return found[:_ITEMS] if isinstance(found, list) else []

    def texts(self, name: str) -> list[str]:
        return [one[:_MAX_TEXT] for one in self.items(name) if isinstance(one, str)]


_INTERESTING = ("forbidden", "dropped", "given_up", "passed", "held")


@dataclass(slots=True)
class Period:
    """A bar on the time axis: an unbroken row of failures to fetch a robots.txt, from the start of
    the first fetch. Its *end*: ``answered``, ``given_up``, ``open``."""

    origin: str
    began: float
    ended: float
    end: str = "open"
    fetches: int = 0
    reason: str = ""
    requests: int = 0
    given_up: int = 0

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)


@dataclass(slots=True)
class OriginRow:
    origin: str
    outcome: str = "none"
    """Its last answer, a key of :data:`~scrapy_rep.reporting.record.ANSWERS`."""
    kind: str = ""
    reason: str = ""
    url: str = ""
    status: int = 0
    size: int | None = None
    delay: float | None = None
    sha256: str = ""
    """Of the last file that counted."""
    sitemaps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """As :attr:`CrawlSum.counts`."""
    held: int = 0
    """How many are held, or wait, now."""
    waiting: int = 0
    """How many were held without an answer so far."""
    still_waiting: int = 0
    """How many of them have not left."""
    period: Period | None = None
    """The one that goes on."""

    @property
    def order(self) -> tuple[int, str]:
        """Sorts those refused most first, and those whose answer is unusual."""
        refused = sum(self.counts[name] for name in _INTERESTING)
        interest = 2 * refused + (
            self.outcome not in ("rules", "missing", "denied", "none")
        )
        return -interest, by_domain(self.origin)


@dataclass(slots=True)
class StatementRow:
    """What pages said about themselves: against which requests or items, or about which use."""

    about: str
    text: str
    url: str
    count: int = 0
    dropped: int = 0


# Seconds between two ticks; for longer crawls, whole days.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
    *(60, 120, 300, 600, 1200, 3600, 7200, 14400, 28800),
)
_TICKS = 7


class Axis:
    """Time since the beginning of the crawl."""

    def __init__(self, began: float, ended: float) -> None:
        self._began = began
        self._span = span = max(ended - began, 0.001)
        days = 86400 * (1 + span // (86400 * _TICKS))
        step = next((one for one in _STEPS if span <= _TICKS * one), days)
        moments = [number * step for number in range(int(span / step) + 1)]
        texts = [f"+{at:g} s" if step < 60 else f"+{duration(at)}" for at in moments]
        self.ticks = [
            (self.x(began + at), text) for at, text in zip(moments, texts, strict=True)
        ]
        """Where they are, and what they say."""

    def x(self, at: float) -> float:
        return round(min(100.0, max(0.0, 100 * (at - self._began) / self._span)), 3)

    def bar(self, one: Period) -> tuple[float, float]:
        """Return where a bar begins, and its width: visible, however short it is."""
        left = min(self.x(one.began), 100 - _NARROWEST)
        return left, round(max(_NARROWEST, self.x(one.ended) - left), 3)


_NARROWEST = 0.3
_POINTS = 500


class Timeline:
    """How many requests are held, or wait, over time, with all peaks."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        self._now = self._least = 0

    def change(self, at: float, by: int) -> None:
        """Note that this many more are held from then on."""
        self._now += by
        self._least = min(self._least, self._now)
        if self._points:
            at = max(at, self._points[-1][0])  # the clock may be set back
        self._points.append((at, self._now))
        if len(self._points) > 2 * _POINTS:
            # Keep half of them: the larger values of two, and the last one.
            *points, last = self._points
            pairs = zip(points[::2], points[1::2], strict=True)
            self._points = [
                (at, max(held, more)) for (at, held), (_, more) in pairs
            ] + [last]

    def points(self, axis: Axis) -> list[tuple[float, int]]:
        """Return where the values begin, and the values. What an earlier run has held was there from
        the beginning."""
        found = [
            (0.0, 0),
            *((axis.x(at), held) for at, held in self._points),
            (100.0, self._now),
        ]
        return [(x, held - self._least) for x, held in found]


# Limits on what is kept while a record is read, and on what the page shows.
_KEPT_ORIGINS, _KEPT_STATEMENTS, _KEPT_PERIODS, _KEPT_SITEMAPS = (
    50_000,
    2_000,
    4_000,
    10_000,
)
_KEPT_ORIGINS_OF_A_RULE, _REASON_LENGTH, _SETTINGS = 100, 300, 200
MAX_ORIGINS, MAX_RULES, MAX_SITEMAPS, MAX_PERIODS, MAX_STATEMENTS = (
    10_000,
    300,
    1_000,
    400,
    200,
)
MAX_CHANGES, _URL_LENGTH = 500, 500
MAX_GIVEN_UP = 5_000

# Origins whose robots.txt is quoted: of one rule, of all.
_QUOTED_OF_A_RULE, _QUOTED = 20, 250
# Rules that close a whole origin.
_WHOLE = frozenset({"/", "/*", "*"})
# Verdicts of what pages say, if something is dropped for it.
DROPS = (
    "nofollow",
    "nofollow_link",
    "noindex",
    "expired",
    "usage_request",
    "usage_item",
)


class CrawlSum:
    """Sums up the record of one crawl, a line at a time, until :meth:`end`."""

    def __init__(self) -> None:
        self.name = self.agent = self.version = self.scrapy = self.finish_reason = ""
        """The spider, what it goes by, of which versions; why it ended."""
        self.finished = Line({})
        """The crawl's own counts, if it came to an end."""
        self.settings: list[tuple[str, str]] = []
        """Those that the project sets."""
        self.dry_run = False
        self.began = self.ended = 0.0
        self.counts: Counter[str] = Counter()
        """Requests by what became of them, and some totals, as in the record. Those of an origin are
        added when it leaves."""
        self.outcomes: Counter[str] = Counter()
        """How many origins have left, by outcome."""
        self.reasons: Counter[str] = Counter()
        """Why some of them were unreachable."""
        self.origins: Rows[OriginRow] = Rows(
            _KEPT_ORIGINS, MAX_ORIGINS, attrgetter("order"), self._leaves
        )
        self._nowhere = OriginRow("")
        """Counts lines without an origin."""
        self.rules = RuleRows(MAX_RULES, _KEPT_ORIGINS_OF_A_RULE)
        self.sitemaps: Rows[dict[str, Any]] = Rows(
            _KEPT_SITEMAPS,
            MAX_SITEMAPS,
            lambda row: (not row["problem"], row["taken"] > 0, row["url"]),
        )
        self.periods: Rows[Period] = Rows(
            _KEPT_PERIODS, MAX_PERIODS, lambda one: -one.seconds
        )
        self.changes: Rows[dict[str, Any]] = Rows(MAX_CHANGES, MAX_CHANGES, lambda _: 0)
        self.pages: Rows[StatementRow] = Rows(
            _KEPT_STATEMENTS, MAX_STATEMENTS, lambda row: -row.count
        )
        self.statements: Rows[StatementRow] = Rows(
            _KEPT_STATEMENTS, MAX_STATEMENTS, lambda row: -row.count
        )
        self.given_up: dict[str, None] = {}
        """URLs of requests that failed because robots.txt was unreachable, the first of them."""
        self._held_or_waiting, self._waiting = Timeline(), Timeline()

    def add(self, line: Line) -> None:
        """Count a line, which has a verdict."""
        at = line.seconds("time")
        if at is not None:
            self.began = self.began or at
            self.ended = max(self.began, at)
        handler = self._HANDLERS.get(line.fields["verdict"])
        if handler is not None:
            handler(self, line, at or 0.0)

    def _of(self, line: Line) -> OriginRow:
        name = line.text("origin")
        return (
            self.origins.row(name, lambda: OriginRow(name)) if name else self._nowhere
        )

    # The crawl

    def _started(self, line: Line, _: float) -> None:
        about = line.part("settings")
        self.name, self.agent = about.text("spider"), about.text("agent")
        self.version, self.scrapy = about.text("version"), about.text("scrapy")
        changed = about.part("changed")
        self.settings = sorted((name, changed.text(name)) for name in changed.fields)[
            :_SETTINGS
        ]
        self.dry_run = line.flag("dry_run")

    def _ended(self, line: Line, _: float) -> None:
        self.finished, self.finish_reason = line.part("counts"), line.text("reason")

    # Origins

    def _answer(self, line: Line, at: float) -> None:
        origin, about = self._of(line), line.part("answer")
        fetches, outcome = about.number("fetches"), about.text("outcome")
        reason = line.text("reason", _REASON_LENGTH)
        origin.counts["fetches"] += fetches
        if origin.period is not None and outcome in ("none", "unreachable"):
            origin.period.fetches += fetches
        if outcome not in OUTCOMES or outcome == "none" or origin is self._nowhere:
            origin.reason = origin.reason or reason
            return
        origin.url, origin.status = line.text("url"), line.number("status")
        forbids = about.flag("forbids")
        origin.outcome = detailed(outcome, origin.status, forbids=forbids)
        origin.reason, origin.kind = reason, ""
        if outcome == "unreachable":
            origin.kind = about.text("kind", 40) or kind_of(reason)
            self._fails(origin, about.seconds("asked"), at, fetches)
        else:
            self._answers(origin, about, at)
            origin.sha256 = line.text("sha256", 64)

    def _answers(self, origin: OriginRow, about: Line, at: float) -> None:
        delay = about.fields.get("crawl_delay")
        origin.delay = (
            delay if isinstance(delay, int | float) and 0 < delay < 10**9 else None
        )
        origin.size = (
            None if about.fields.get("bytes") is None else about.number("bytes")
        )
        origin.sitemaps = about.number("sitemaps")
        self._end_period(origin, "answered", at)
        origin.counts["waited"] += origin.waiting
        origin.waiting = 0

    def _fails(
        self, origin: OriginRow, asked: float | None, at: float, fetches: int
    ) -> None:
        """Note a failure: requests that wait for an answer are held from now on."""
        if origin.period is None:
            began = at if asked is None else min(asked, at)
            origin.period = Period(origin.origin, began, at, fetches=fetches)
        period = origin.period
        period.ended = max(period.ended, at)
        period.reason = origin.reason or origin.kind
        period.requests += origin.waiting
        origin.counts["held"] += origin.waiting
        self._waiting.change(at, -origin.still_waiting)
        origin.waiting = origin.still_waiting = 0

    def _end_period(self, origin: OriginRow, end: str, at: float) -> None:
        period, origin.period = origin.period, None
        if period is not None:
            period.end, period.ended = end, max(at, period.began)
            self.periods.add(period)

    def _changed(self, line: Line, at: float) -> None:
        about, names = line.part("change"), ("url", "was", "now")
        change: dict[str, Any] = {
            name: about.texts(name) for name in ("added", "removed")
        }
        for name in ("lines_added", "lines_removed", "turned_count"):
            change[name] = about.number(name)
        turned = map(Line, about.items("turned"))
        change["turned"] = [{name: one.text(name) for name in names} for one in turned]
        self.changes.add({"origin": line.text("origin"), "at": at, **change})

    # Requests

    def _allowed(self, line: Line, _: float) -> None:
        reason, kind = line.text("reason"), "allowed"
        if reason.startswith(IMPOLITE):
            kind = "passed"
        elif reason == OVERRULED:
            kind = "overruled"
        times = line.number("count") if "count" in line.fields else 1
        self._of(line).counts[kind] += times

    def _dropped(self, line: Line, _: float) -> None:
        self._of(line).counts["dropped"] += 1
        self._give_up(line)

    def _give_up(self, line: Line) -> None:
        """Note a URL to crawl again."""
        url = line.text("url", _MAX_TEXT + 1)
        if (
            0 < len(url) <= _MAX_TEXT
            and len(self.given_up) < MAX_GIVEN_UP
            and not self.dry_run
        ):
            self.given_up[url] = None

    def _disallowed(self, line: Line, _: float) -> None:
        origin = self._of(line)
        origin.counts["forbidden"] += 1
        # Without a rule, a setting decided, and the reason names it.
        rule, robots_url = line.text("rule") or line.text("reason"), origin.url

        def describe() -> RuleOrigin:
            where = RuleOrigin(origin.origin, line.number("line"), robots_url)
            where.url, where.sha256 = (
                line.text("url", _URL_LENGTH),
                line.text("sha256", 64),
            )
            return where

        self.rules.refuse(rule, line.text("group"), origin.origin, describe)

    def _held(self, line: Line, at: float) -> None:
        origin, waits = self._of(line), line.text("reason") == UNKNOWN_YET
        if line.flag("dry_run"):  # it went on
            origin.counts["waited" if waits else "held"] += 1
            return
        self._held_or_waiting.change(at, 1)
        origin.held += 1
        if waits:
            origin.waiting += 1
            origin.still_waiting += 1
            self._waiting.change(at, 1)
            return
        origin.counts["held"] += 1
        if origin.period is not None:
            origin.period.requests += 1

    def _left(self, line: Line, at: float) -> None:
        origin, verdict = self._of(line), line.text("verdict")
        origin.counts[verdict] += 1
        self._held_or_waiting.change(at, -1)
        if origin.still_waiting:
            origin.still_waiting -= 1
            self._waiting.change(at, -1)
        origin.held = max(0, origin.held - 1)
        if verdict == "given_up":
            self._give_up(line)
        if verdict == "given_up" and origin.period is not None:
            origin.period.given_up += 1
            origin.period.ended = max(origin.period.ended, at)

    # Sitemaps, pages, usage

    def _sitemap(self, line: Line, _: float) -> None:
        about = line.part("sitemap")
        row: dict[str, Any] = {
            name: about.text(name) for name in ("found", "by", "kind", "failed")
        }
        row |= {name: about.number(name) for name in ("entries", "taken")}
        rejected = about.part("rejected")
        row["rejected"] = [
            (why, rejected.number(why)) for why in list(rejected.fields)[:_ITEMS]
        ]
        row["problem"] = row["failed"] or line.text("reason")
        self.counts["sitemaps_failed"] += (
            bool(row["failed"]) and row["found"] != "guessed"
        )
        self.sitemaps.add({"url": line.text("url"), **row})

    def _page(self, line: Line, _: float) -> None:
        verdict, dropped = line.text("verdict"), not line.flag("dry_run")
        self.counts[
            "usage_dropped" if verdict.startswith("usage") else "page_dropped"
        ] += dropped
        text = line.text("reason", _REASON_LENGTH)
        self._say(self.pages, verdict, text, line).dropped += dropped

    def _said(self, line: Line, _: float) -> None:
        self.counts["usage_pages"] += 1
        for one in map(Line, line.part("usage").items("statements")):
            says, text = one.part("says"), f"{one.text('source')}: {one.text('text')}"
            for name in list(says.fields)[:_ITEMS]:
                about = f"{name[:_REASON_LENGTH]}: {says.text(name, 1)}"
                self._say(self.statements, about, text[:_REASON_LENGTH], line)

    def _say(
        self, rows: Rows[StatementRow], about: str, text: str, line: Line
    ) -> StatementRow:
        row = rows.row(
            (about, text), lambda: StatementRow(about, text, line.text("url"))
        )
        row.count += 1
        return row

    # Verdicts, each with what counts it.
    _HANDLERS: ClassVar[dict[str, Callable[[CrawlSum, Line, float], object]]] = {
        "crawl_started": _started, "crawl_ended": _ended, "answer": _answer, "changed": _changed,
        "allowed_count": _allowed, "allowed": _allowed, "disallowed": _disallowed,
        "unreachable": _dropped, "held": _held, "released": _left, "given_up": _left,
        "sitemap": _sitemap, "usage": _said, **dict.fromkeys(DROPS, _page),
    }  # fmt: skip

    def quoted(self) -> Iterator[RuleOrigin]:
        """Yield the origins whose robots.txt is quoted, with the line that decided."""
        some = (
            one for rule in self.rules.top for one in rule.origins[:_QUOTED_OF_A_RULE]
        )
        return islice((one for one in some if one.sha256), _QUOTED)

    @property
    def answered(self) -> list[tuple[str, int, list[str]]]:
        """How origins answered, in the words of the log's summary: for each how many origins, and the
        outcomes that amount to it."""
        outcomes: dict[str, list[str]] = {}
        for key, words in ANSWERS.items():
            if self.outcomes[key]:
                outcomes.setdefault(words, []).append(key)
        return [
            (words, sum(self.outcomes[key] for key in keys), keys)
            for words, keys in outcomes.items()
        ]

    @property
    def closed(self) -> list[str]:
        """Origins that a rule closes to this crawler."""
        whole = (
            row
            for row in self.rules.top
            if row.rule.partition(":")[2].strip() in _WHOLE
        )
        names = {one.origin for row in whole for one in row.origins}
        found = (row for row in self.origins.top if row.origin in names)
        return [row.origin for row in found if not row.counts["allowed"]]

    # The end

    def _leaves(self, origin: OriginRow) -> None:
        """Add up an origin that is forgotten, or that there is no more to say of."""
        if (period := origin.period) is not None:
            gave_up = period.given_up > 0 and not origin.held
            ended = self.ended if origin.held else period.ended
            self._end_period(origin, "given_up" if gave_up else "open", ended)
        origin.counts["waited"] += origin.waiting
        self.counts.update(origin.counts)
        self.outcomes[origin.outcome] += 1
        if origin.kind:
            self.reasons[origin.kind] += 1

    def end(self) -> None:
        """After the last line, add up."""
        for origin in self.origins.values():
            self._leaves(origin)
        self.counts.update(self._nowhere.counts)
        self.counts["origins"] = self.outcomes.total()
        for name in self.finished.fields:
            self.counts[name] = self.finished.number(name)
        self.axis = Axis(self.began, self.ended)
        self.timeline = self._held_or_waiting.points(self.axis)
        self.waiting = self._waiting.points(self.axis)
