"""Sums up the record of a crawl for the report: what became of origins, rules, sitemaps
and pages.

:class:`CrawlSum` is given the lines of one crawl in turn, and keeps rows of plain
values, which `page.html` shows and `findings.py` judges. Memory is bounded. Beyond a
limit, the origins that have had nothing new for longest are only counted. Times are
seconds since the epoch; positions on the time axis are percent of its width.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import IO, Any, ClassVar, NamedTuple

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

# Limits on what is read from one line of a record, which anybody may have written.

# Bytes of a line. The lines that we write are far shorter; a longer one is read in
# pieces, and counts as unreadable.
_MAX_LINE_BYTES = 1 << 22
# Characters of a text. A longer one is cut.
_MAX_TEXT = 2000
# A larger number is cut to this one. The page's script, which sorts by numbers, has 53
# bits for them.
_MAX_NUMBER = 10**15
# Items of a list, or names of an object. Further ones are left out.
_MAX_ITEMS = 50


def lines_of(file: IO[bytes]) -> Iterator[Line | None]:
    """Yield the lines of a record; None for what can't be read as a line of it. Blank
    lines are skipped."""
    while text := file.readline(_MAX_LINE_BYTES):
        try:
            fields = json.loads(text.decode())
        except (ValueError, RecursionError):
            fields = None
        # Every line of a record has a verdict.
        verdict = fields.get("verdict") if isinstance(fields, dict) else None
        if isinstance(verdict, str):
            yield Line(fields)
        elif not text.isspace():
            yield None


class Line:
    """A line of the record, or an object within a line: JSON whose values may be
    anything. The methods return the value of a field, given the field's name."""

    __slots__ = ("fields",)

    def __init__(self, fields: object) -> None:
        self.fields: dict[str, Any] = {}
        if isinstance(fields, dict):
            self.fields = fields

    def text(self, name: str, most: int = _MAX_TEXT) -> str:
        """Return a text, cut to *most* characters; an empty one for any other value."""
        value = self.fields.get(name)
        return value[:most] if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """Return a number from 0 to 10¹⁵; 0 for any other value."""
        try:
            not_negative = max(self.fields.get(name, 0), 0)
            return int(min(not_negative, _MAX_NUMBER))
        except (TypeError, ValueError):  # ValueError: it is NaN
            return 0

    def seconds(self, name: str) -> float | None:
        """Return a time in ISO 8601 as seconds since the epoch; None for any other
        value."""
        # Python 3.10 reads no Z.
        text = self.text(name, 40).replace("Z", "+00:00")
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            return None

    def flag(self, name: str) -> bool:
        """Return whether a value is ``true``, not just something that counts as
        true."""
        return self.fields.get(name) is True

    def part(self, name: str) -> Line:
        """Return an object; an empty one for any other value."""
        return Line(self.fields.get(name))

    def items(self, name: str) -> list[Any]:
        """Return the first 50 items of a list; none of any other value."""
        value = self.fields.get(name)
        return value[:_MAX_ITEMS] if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        """Return the texts among the first 50 items of a list, each cut to size."""
        items = self.items(name)
        return [item[:_MAX_TEXT] for item in items if isinstance(item, str)]


@dataclass(slots=True)
class Period:
    """A bar on the time axis: an unbroken row of failures to fetch an origin's
    robots.txt."""

    origin: str
    began: float
    """When the first of the failed fetches began."""
    ended: float
    end: str = "open"
    """How the period ended: ``answered``; ``given_up``, when the last request was given
    up; or ``open``, if the crawl ended first."""
    fetches: int = 0
    reason: str = ""
    """The latest failure, in words."""
    requests: int = 0
    """How many requests were held in the period."""
    given_up: int = 0
    """How many of these requests failed because the period lasted too long."""

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)


# Counts of an origin that bring it to the top of the page's table.
_COUNTS_OF_TROUBLE = ("forbidden", "dropped", "given_up", "passed", "held")
# Last answers of an origin that don't bring it to the top of this table.
_USUAL_OUTCOMES = ("rules", "missing", "denied", "none")


@dataclass(slots=True)
class OriginRow:
    """What is known of an origin at the current line of the record."""

    origin: str
    outcome: str = "none"
    """Its last answer, a key of :data:`~scrapy_rep.reporting.record.ANSWERS`."""
    cause: str = ""
    """Why it is unreachable, in a word or two (``kind_of()`` in `record.py`); empty if
    it isn't unreachable."""
    reason: str = ""
    """What the record says about the last answer."""
    url: str = ""
    """Where the last answer came from, after redirects."""
    status: int = 0
    """The last answer's HTTP status; 0: none."""
    size: int | None = None
    """Bytes of the last file."""
    delay: float | None = None
    """Its crawl delay, in seconds."""
    sha256: str = ""
    """The hash of the last file that counted."""
    sitemaps: int = 0
    """How many sitemaps its robots.txt lists."""
    counts: Counter[str] = field(default_factory=Counter)
    """Its part of :attr:`CrawlSum.counts`."""
    held: int = 0
    """How many requests are held, or wait for a first answer, now."""
    waiting: int = 0
    """How many requests came to wait for a first answer since the last answer or
    failure."""
    still_waiting: int = 0
    """How many of the ``waiting`` requests have not left."""
    period: Period | None = None
    """The period of failures that goes on now; None: no period does."""

    @property
    def order(self) -> tuple[int, str]:
        """A key that sorts origins with most trouble first. Of origins with as much
        trouble, those whose last answer is unusual come first."""
        interest = 0
        for name in _COUNTS_OF_TROUBLE:
            interest += 2 * self.counts[name]  # each outweighs an unusual answer
        if self.outcome not in _USUAL_OUTCOMES:
            interest += 1
        return -interest, by_domain(self.origin)


@dataclass(slots=True)
class StatementRow:
    """One thing that pages say about themselves, and how many do."""

    subject: str
    """Why something was dropped (one of :data:`DROPS`), or a use and whether it is
    permitted."""
    text: str
    """The statement, and where it stands."""
    url: str
    """The first page that says it."""
    count: int = 0
    dropped: int = 0
    """How many requests or items were dropped because of it."""


# The time axis has a tick every so many seconds: the shortest of these steps with which
# it has at most _TICKS of them. For longer crawls, a step is some whole days.
_TICK_STEPS = (
    # Parts of a second.
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    # Seconds.
    *(1, 2, 5, 10, 20),
    # Minutes: 1, 2, 5, 10, 20.
    *(60, 120, 300, 600, 1200),
    # Hours: 1, 2, 4, 8.
    *(3600, 7200, 14400, 28800),
)
_TICKS = 7
_DAY_SECONDS = 86400
# Percent of the axis that a bar takes at least, since the shortest must be visible.
_NARROWEST = 0.3


class Axis:
    """The time axis: from the beginning of the crawl (0) to its end (100)."""

    def __init__(self, began: float, ended: float) -> None:
        self._began = began
        self._span = max(ended - began, 0.001)
        self.ticks: list[tuple[float, str]] = []
        """Position and label of each tick."""
        step = self._tick_step()
        for number in range(int(self._span / step) + 1):
            seconds = number * step
            position = self.x(began + seconds)
            words = f"{seconds:g} s" if step < 60 else duration(seconds)
            self.ticks.append((position, f"+{words}"))

    def _tick_step(self) -> float:
        """Return how many seconds are between two ticks."""
        for step in _TICK_STEPS:
            if self._span <= _TICKS * step:
                return step
        # A step of so many whole days that the axis has no more than _TICKS steps.
        days = 1 + self._span // (_DAY_SECONDS * _TICKS)
        return _DAY_SECONDS * days

    def x(self, at: float) -> float:
        """Return the position of a time, within the axis."""
        percent = 100 * (at - self._began) / self._span
        return round(min(100.0, max(0.0, percent)), 3)

    def bar(self, period: Period) -> tuple[float, float]:
        """Return where the bar of *period* begins, and its width: visible, however
        short it is."""
        left = min(self.x(period.began), 100 - _NARROWEST)
        width = max(_NARROWEST, self.x(period.ended) - left)
        return left, round(width, 3)


# A timeline that has grown beyond twice as many points is thinned out to this many.
_POINTS = 500


class Timeline:
    """How many requests are held, or wait, over time, with all peaks."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        """Each time at which the number of requests changed, and how much larger it was
        from then on than at first."""
        self._count = 0
        """The latest difference."""
        self._least = 0
        """The smallest difference so far. It is negative if requests leave that an
        earlier run held. As many requests were there from the beginning, though this
        record has no line about their arrival."""

    def change(self, at: float, difference: int) -> None:
        """Note that, from the time *at* on, *difference* more requests are held."""
        self._count += difference
        self._least = min(self._least, self._count)
        if self._points:
            latest, _ = self._points[-1]
            at = max(at, latest)  # the clock may have been set back
        self._points.append((at, self._count))
        if len(self._points) > 2 * _POINTS:
            self._thin_out()

    def _thin_out(self) -> None:
        """Replace each pair of points by a single point with the larger number, so that
        peaks stay. The last point stays as it is."""
        *points, last = self._points
        # change() calls this at 2 * _POINTS + 1 points, so the number of those before
        # the last one is even.
        pairs = zip(points[::2], points[1::2], strict=True)
        self._points = []
        for (at, count), (_, next_count) in pairs:
            self._points.append((at, max(count, next_count)))
        self._points.append(last)

    def points(self, axis: Axis) -> list[tuple[float, int]]:
        """Return positions on *axis*, and how many requests are held from there on."""
        held_before = -self._least
        points = [(0.0, held_before)]
        for at, count in self._points:
            points.append((axis.x(at), count + held_before))
        points.append((100.0, self._count + held_before))
        return points


# Limits on what is kept in memory while a record is read.

# How many origins have a row. Large crawls have more origins; those that have had
# nothing new for longest are only counted.
_KEPT_ORIGINS = 50_000
# How many origins of a rule have a row. The page shows all these rows.
_KEPT_ORIGINS_OF_A_RULE = 100
# How many rows the other tables have at most.
_KEPT_STATEMENTS = 2_000
_KEPT_PERIODS = 4_000
_KEPT_SITEMAPS = 10_000
# At most this many settings that the project changed are kept. There are fewer, unless
# somebody forged the record.
_KEPT_SETTINGS = 200
# A reason is cut to this many characters.
_REASON_LENGTH = 300
# The URL that a rule refused first is cut to this many characters.
_URL_LENGTH = 500
SHOWN_GIVEN_UP = 5_000
"""At most this many URLs are listed on the page, to be crawled again."""

# How many rows of each table the page shows: the most important ones. Browsers take
# long to lay out more rows.
SHOWN_ORIGINS = 10_000
SHOWN_RULES = 300
SHOWN_SITEMAPS = 1_000
SHOWN_PERIODS = 400
SHOWN_STATEMENTS = 200
SHOWN_CHANGES = 500

# The robots.txt of at most this many origins is quoted, since each quotation takes
# reading a file, and room on the page.
_QUOTED_ORIGINS = 250
_QUOTED_ORIGINS_OF_A_RULE = 20

# Patterns of rules that close a whole origin.
_WHOLE = frozenset({"/", "/*", "*"})
# Outcomes of fetches that brought no answer, since they were cancelled or impossible,
# or they failed.
_NO_ANSWERS = ("none", "unreachable")

DROPS = (
    "nofollow",
    "nofollow_link",
    "noindex",
    "expired",
    "usage_request",
    "usage_item",
)
"""Verdicts of lines about requests or items that were dropped because of what a page
says."""


class AnsweredOrigins(NamedTuple):
    """Origins whose answers amount to the same."""

    words: str
    """What the answers amount to, as the log's summary says it: a value of ``ANSWERS``
    in `record.py`."""
    origins: int
    """How many such origins there are."""
    outcomes: list[str]
    """The keys of ``ANSWERS`` with these words. Outcomes that no origin has are left
    out."""


def _sitemap_order(row: dict[str, Any]) -> tuple[bool, bool, str]:
    """Return a key that sorts sitemaps with problems first, then those of which nothing
    was taken."""
    has_problem = bool(row["problem"])
    was_useful = row["taken"] > 0
    return not has_problem, was_useful, row["url"]


def _longest_first(period: Period) -> float:
    return -period.seconds


def _most_frequent_first(row: StatementRow) -> int:
    return -row.count


def _as_added(_: object) -> int:
    """Return the same key for all rows, so that they stay in the order in which they
    were added."""
    return 0


class CrawlSum:
    """Sums up the record of one crawl, a line at a time, until :meth:`end`."""

    def __init__(self) -> None:
        self.name = ""
        """The spider's name."""
        self.agent = ""
        """The product tokens that the crawl goes by, in words."""
        self.version = ""
        """The version of scrapy-rep."""
        self.scrapy = ""
        """Scrapy's version."""
        self.finish_reason = ""
        self.finished = Line({})
        """The crawl's own counts, which are in its last line. Empty until then."""
        self.settings: list[tuple[str, str]] = []
        """Names and values of the settings that the project changes."""
        self.dry_run = False
        self.began = 0.0
        self.ended = 0.0
        self.counts: Counter[str] = Counter()
        """Requests by what became of them, and some totals, named as in the record.
        Those of an origin are added when its row is complete, see :meth:`_add_up`."""
        self.outcomes: Counter[str] = Counter()
        """How many origins are added up, by outcome."""
        self.reasons: Counter[str] = Counter()
        """How many of these origins were unreachable, by the reason
        (:attr:`OriginRow.cause`)."""
        self.origins: Rows[OriginRow] = Rows(
            kept=_KEPT_ORIGINS,
            shown=SHOWN_ORIGINS,
            order=attrgetter("order"),
            on_forget=self._add_up,
        )
        """The rows of origins, by name."""
        self._without_origin = OriginRow("")
        """Counts lines without an origin."""
        self.rules = RuleRows(shown=SHOWN_RULES, origins=_KEPT_ORIGINS_OF_A_RULE)
        self.sitemaps: Rows[dict[str, Any]] = Rows(
            kept=_KEPT_SITEMAPS,
            shown=SHOWN_SITEMAPS,
            order=_sitemap_order,
        )
        self.periods: Rows[Period] = Rows(
            kept=_KEPT_PERIODS,
            shown=SHOWN_PERIODS,
            order=_longest_first,
        )
        """Periods that have ended."""
        self.changes: Rows[dict[str, Any]] = Rows(
            kept=SHOWN_CHANGES,
            shown=SHOWN_CHANGES,
            order=_as_added,
        )
        """Robots.txt files that changed in the crawl."""
        self.pages: Rows[StatementRow] = Rows(
            kept=_KEPT_STATEMENTS,
            shown=SHOWN_STATEMENTS,
            order=_most_frequent_first,
        )
        """What pages say, so that requests or items were dropped."""
        self.statements: Rows[StatementRow] = Rows(
            kept=_KEPT_STATEMENTS,
            shown=SHOWN_STATEMENTS,
            order=_most_frequent_first,
        )
        """What sites and pages say about their use."""
        self.given_up: dict[str, None] = {}
        """The first URLs of requests that failed because robots.txt was unreachable."""
        # Requests that are held, or wait for a first answer.
        self._held_or_waiting = Timeline()
        # Requests that wait for a first answer.
        self._waiting = Timeline()

    def add(self, line: Line) -> None:
        """Count a line, which has a verdict (:func:`lines_of`)."""
        at = line.seconds("time")
        if at is not None:
            self.began = self.began or at
            self.ended = max(self.began, at)
        handler = self._HANDLERS.get(line.fields["verdict"])
        if handler is not None:  # else the verdict is one of a newer version, say
            handler(self, line, at or 0.0)

    def _row_of(self, line: Line) -> OriginRow:
        """Return the row of the origin that *line* is about."""
        name = line.text("origin")
        if not name:
            return self._without_origin
        return self.origins.row(name, lambda: OriginRow(name))

    # Handlers: each is given a line with the verdict that _HANDLERS names, and the
    # line's time.

    # The crawl

    def _on_start(self, line: Line, _: float) -> None:
        """The first line: who crawls, and how."""
        settings = line.part("settings")
        self.name = settings.text("spider")
        self.agent = settings.text("agent")
        self.version = settings.text("version")
        self.scrapy = settings.text("scrapy")
        changed = settings.part("changed")
        names = sorted(changed.fields)[:_KEPT_SETTINGS]
        self.settings = [(name, changed.text(name)) for name in names]
        self.dry_run = line.flag("dry_run")

    def _on_end(self, line: Line, _: float) -> None:
        """The last line. Without it, the crawl was killed, or goes on."""
        self.finished = line.part("counts")
        self.finish_reason = line.text("reason")

    # Origins

    def _on_answer(self, line: Line, at: float) -> None:
        """A robots.txt was fetched or found in the storage, or fetches of it failed."""
        origin = self._row_of(line)
        answer = line.part("answer")
        fetches = answer.number("fetches")
        outcome = answer.text("outcome")
        reason = line.text("reason", _REASON_LENGTH)
        # Fetches count, whatever came of them.
        origin.counts["fetches"] += fetches
        if origin.period is not None and outcome in _NO_ANSWERS:
            origin.period.fetches += fetches
        if (
            outcome not in OUTCOMES
            or outcome == "none"
            or origin is self._without_origin
        ):
            # The line tells nothing about robots.txt. The page shows its reason, unless
            # there is another answer.
            origin.reason = origin.reason or reason
            return
        # The line's answer, or failure, becomes the origin's last one.
        origin.url = line.text("url")
        origin.status = line.number("status")
        forbids = answer.flag("forbids")
        origin.outcome = detailed(outcome, origin.status, forbids=forbids)
        origin.reason = reason
        if outcome == "unreachable":
            origin.cause = answer.text("kind", 40) or kind_of(reason)
            self._note_failure(origin, answer, at)
        else:
            origin.cause = ""
            origin.sha256 = line.text("sha256", 64)
            self._note_answer(origin, answer, at)

    def _note_answer(
        self,
        origin: OriginRow,
        answer: Line,
        at: float,
    ) -> None:
        """Note an *answer* that counts. It ends a period of failures, and lets requests
        go on."""
        delay = answer.fields.get("crawl_delay")
        origin.delay = None
        if isinstance(delay, int | float) and 0 < delay < 10**9:
            origin.delay = delay
        has_size = answer.fields.get("bytes") is not None  # else there is no file
        origin.size = answer.number("bytes") if has_size else None
        origin.sitemaps = answer.number("sitemaps")
        self._end_period(origin, "answered", at)
        origin.counts["waited"] += origin.waiting
        origin.waiting = 0

    def _note_failure(
        self,
        origin: OriginRow,
        answer: Line,
        at: float,
    ) -> None:
        """Note a failure, after which requests that wait for a first answer count as
        held."""
        if origin.period is None:  # the failure is the first in a row
            asked = answer.seconds("asked")
            began = at if asked is None else min(asked, at)
            fetches = answer.number("fetches")
            origin.period = Period(origin.origin, began, at, fetches=fetches)
        period = origin.period
        period.ended = max(period.ended, at)
        period.reason = origin.reason or origin.cause
        # From now on, requests that wait count as held. In the timeline of both kinds,
        # _held_or_waiting, they stay.
        period.requests += origin.waiting
        origin.counts["held"] += origin.waiting
        self._waiting.change(at, -origin.still_waiting)
        origin.waiting = 0
        origin.still_waiting = 0

    def _end_period(
        self,
        origin: OriginRow,
        end: str,
        at: float,
    ) -> None:
        """End the period of failures of *origin*, if there is one; *end*: see
        :attr:`Period.end`."""
        period = origin.period
        if period is None:
            return
        origin.period = None
        period.end = end
        period.ended = max(at, period.began)
        self.periods.add(period)

    def _on_change(self, line: Line, at: float) -> None:
        """A robots.txt differs from the one that applied before."""
        change = line.part("change")
        row: dict[str, Any] = {}
        row["origin"] = line.text("origin")
        row["at"] = at
        for name in ("added", "removed"):
            row[name] = change.texts(name)
        for name in ("lines_added", "lines_removed", "turned_count"):
            row[name] = change.number(name)
        row["turned"] = turned = []
        for item in change.items("turned"):
            verdict = Line(item)
            turned.append(
                {
                    "url": verdict.text("url"),
                    "was": verdict.text("was"),
                    "now": verdict.text("now"),
                }
            )
        self.changes.add(row)

    # Requests

    def _on_allowed(self, line: Line, _: float) -> None:
        """One request was allowed for a special reason, or *count* requests were
        allowed."""
        reason = line.text("reason")
        if reason.startswith(IMPOLITE):
            name = "passed"
        elif reason == OVERRULED:
            name = "overruled"
        else:
            name = "allowed"
        times = line.number("count") if "count" in line.fields else 1
        self._row_of(line).counts[name] += times

    def _on_dropped(self, line: Line, _: float) -> None:
        """A request failed at once, because robots.txt is unreachable."""
        self._row_of(line).counts["dropped"] += 1
        self._remember_to_repeat(line)

    def _remember_to_repeat(self, line: Line) -> None:
        """Keep the URL of a request that failed. The page lists such URLs, to be
        crawled again."""
        if self.dry_run or len(self.given_up) >= SHOWN_GIVEN_UP:
            return
        url = line.text("url", _MAX_TEXT + 1)
        if 0 < len(url) <= _MAX_TEXT:  # if it were cut, it would be another URL
            self.given_up[url] = None

    def _on_disallowed(self, line: Line, _: float) -> None:
        """A rule, or a setting, refused a request."""
        origin = self._row_of(line)
        origin.counts["forbidden"] += 1
        # Without a rule, a setting decided, and the reason names it.
        rule = line.text("rule") or line.text("reason")
        robots_url = origin.url

        def describe() -> RuleOrigin:
            return RuleOrigin(
                origin.origin,
                line.number("line"),
                robots_url,
                url=line.text("url", _URL_LENGTH),
                sha256=line.text("sha256", 64),
            )

        group = line.text("group")
        self.rules.refuse(rule, group, origin.origin, describe)

    def _on_held(self, line: Line, at: float) -> None:
        """A request is held, or waits for a first answer."""
        origin = self._row_of(line)
        # The reason says whether the request waits or is held (origins/policy.py).
        waits = line.text("reason") == UNKNOWN_YET
        if line.flag("dry_run"):  # the request went on
            origin.counts["waited" if waits else "held"] += 1
            return
        self._held_or_waiting.change(at, 1)
        origin.held += 1
        # A request that waits isn't counted until the answer comes, or a failure.
        if waits:
            origin.waiting += 1
            origin.still_waiting += 1
            self._waiting.change(at, 1)
            return
        origin.counts["held"] += 1
        if origin.period is not None:
            origin.period.requests += 1

    def _on_leaving(self, line: Line, at: float) -> None:
        """A request that was held, or waited, was released or given up."""
        origin = self._row_of(line)
        verdict = line.text("verdict")
        origin.counts[verdict] += 1
        self._held_or_waiting.change(at, -1)
        # The record doesn't say whether the request was held or waited. While any of
        # the origin's requests wait, one of these is taken to have left.
        if origin.still_waiting:
            origin.still_waiting -= 1
            self._waiting.change(at, -1)
        origin.held = max(0, origin.held - 1)
        if verdict != "given_up":
            return
        self._remember_to_repeat(line)
        if origin.period is not None:
            origin.period.given_up += 1
            origin.period.ended = max(origin.period.ended, at)

    # Sitemaps, pages, usage

    def _on_sitemap(self, line: Line, _: float) -> None:
        """A sitemap was read to its end, or could not be read. Its row has the fields
        of the line, which docs/observing.md explains, and its *problem*, if there was
        one."""
        sitemap = line.part("sitemap")
        row: dict[str, Any] = {}
        row["url"] = line.text("url")
        for name in ("found", "by", "kind", "failed"):
            row[name] = sitemap.text(name)
        for name in ("entries", "taken"):
            row[name] = sitemap.number(name)
        rejected = sitemap.part("rejected")
        reasons = list(rejected.fields)[:_MAX_ITEMS]
        row["rejected"] = [(reason, rejected.number(reason)) for reason in reasons]
        row["problem"] = row["failed"] or line.text("reason")
        # A guessed sitemap is no failure: its URL is only a usual place of sitemaps.
        if row["failed"] and row["found"] != "guessed":
            self.counts["sitemaps_failed"] += 1
        self.sitemaps.add(row)

    def _on_page(self, line: Line, _: float) -> None:
        """Something was dropped because of what a page says, or would be without a dry
        run."""
        verdict = line.text("verdict")
        text = line.text("reason", _REASON_LENGTH)
        row = self._count_statement(self.pages, verdict, text, line)
        if line.flag("dry_run"):  # nothing was dropped
            return
        row.dropped += 1
        name = "usage_dropped" if verdict.startswith("usage") else "page_dropped"
        self.counts[name] += 1

    def _on_usage(self, line: Line, _: float) -> None:
        """A page came with usage preferences, its own or its site's."""
        self.counts["usage_pages"] += 1
        for item in line.part("usage").items("statements"):
            statement = Line(item)
            source = statement.text("source")
            words = statement.text("text")
            text = f"{source}: {words}"[:_REASON_LENGTH]
            says = statement.part("says")
            for use in list(says.fields)[:_MAX_ITEMS]:
                permission = says.text(use, 1)  # y: permitted; n: not permitted
                subject = f"{use[:_REASON_LENGTH]}: {permission}"
                self._count_statement(self.statements, subject, text, line)

    def _count_statement(
        self,
        rows: Rows[StatementRow],
        subject: str,
        text: str,
        line: Line,
    ) -> StatementRow:
        """Count a statement that the page of *line* makes, and return its row in
        *rows*."""

        def make() -> StatementRow:
            return StatementRow(subject, text, line.text("url"))

        row = rows.row((subject, text), make)
        row.count += 1
        return row

    _HANDLERS: ClassVar[dict[str, Callable[[CrawlSum, Line, float], object]]] = {
        "crawl_started": _on_start,
        "crawl_ended": _on_end,
        "answer": _on_answer,
        "changed": _on_change,
        "allowed_count": _on_allowed,
        "allowed": _on_allowed,
        "disallowed": _on_disallowed,
        "unreachable": _on_dropped,
        "held": _on_held,
        "released": _on_leaving,
        "given_up": _on_leaving,
        "sitemap": _on_sitemap,
        "usage": _on_usage,
        **dict.fromkeys(DROPS, _on_page),
    }
    """The method that counts a line, by the line's verdict."""

    # What the page shows besides rows

    def quoted(self) -> Iterator[RuleOrigin]:
        """Yield the origins whose robots.txt is quoted: for each rule on the page,
        those that it refused most often."""
        count = 0
        for rule in self.rules.top:
            for rule_origin in rule.origins[:_QUOTED_ORIGINS_OF_A_RULE]:
                if not rule_origin.sha256:
                    continue
                if count == _QUOTED_ORIGINS:
                    return
                count += 1
                yield rule_origin

    @property
    def answered(self) -> list[AnsweredOrigins]:
        """How origins answered, counted as in the log's summary."""
        by_words: dict[str, AnsweredOrigins] = {}
        for outcome, words in ANSWERS.items():
            count = self.outcomes[outcome]
            if not count:
                continue
            earlier = by_words.get(words, AnsweredOrigins(words, 0, []))
            outcomes = [*earlier.outcomes, outcome]
            by_words[words] = AnsweredOrigins(words, earlier.origins + count, outcomes)
        return list(by_words.values())

    @property
    def closed(self) -> list[str]:
        """Origins on the page that a rule closes to this crawler."""
        refused_whole: set[str] = set()
        for row in self.rules.top:
            _, _, pattern = row.rule.partition(":")
            if pattern.strip() in _WHOLE:
                for rule_origin in row.origins:
                    refused_whole.add(rule_origin.origin)
        closed = []
        for origin in self.origins.top:
            # If some requests were allowed, other rules make exceptions, so the origin
            # isn't closed.
            if origin.origin in refused_whole and not origin.counts["allowed"]:
                closed.append(origin.origin)
        return closed

    # The end

    def _add_up(self, origin: OriginRow) -> None:
        """Add the counts of a row to those of the crawl. The row is complete: the
        record is at its end, or the row is forgotten, since too many other origins came
        after it."""
        # The period of failures that goes on ends with the record.
        period = origin.period
        if period is not None:
            if origin.held:  # requests still wait
                self._end_period(origin, "open", self.ended)
            elif period.given_up:
                # Nobody waits any more, so nothing is known of the origin after the
                # last giving up.
                self._end_period(origin, "given_up", period.ended)
            else:
                self._end_period(origin, "open", period.ended)
        origin.counts["waited"] += origin.waiting
        self.counts.update(origin.counts)
        self.outcomes[origin.outcome] += 1
        if origin.cause:
            self.reasons[origin.cause] += 1

    def end(self) -> None:
        """Add up all origins after the last line, and make the axis and its curves."""
        for origin in self.origins.values():
            self._add_up(origin)
        self.counts.update(self._without_origin.counts)
        self.counts["origins"] = self.outcomes.total()
        # The crawl's own counts replace these, since they are exact, also where the
        # record lacks lines.
        for name in self.finished.fields:
            self.counts[name] = self.finished.number(name)
        self.axis = Axis(self.began, self.ended)
        self.timeline = self._held_or_waiting.points(self.axis)
        """How many requests are held, or wait for a first answer."""
        self.waiting = self._waiting.points(self.axis)
        """How many only wait for a first answer."""
