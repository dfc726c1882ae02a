"""From a record to what the report shows."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from io import BytesIO
from itertools import product
from typing import Any

import pytest

from scrapy_rep.reporting.report import ReportData, render
from scrapy_rep.reporting.report import reading as module
from scrapy_rep.reporting.report.reading import Axis, Timeline
from tests.reporting.report.records import (
    NOW,
    answer,
    data_of,
    ended,
    line,
    many_lines,
    started,
)

A, B, C = "http://a.example", "http://b.example", "http://c.example"
NO_ANSWER = "no answer yet"


def refused(
    origin: str, at: float = 2.0, rule: str = "Disallow: /x", **more: Any
) -> bytes:
    about = {
        "url": f"{origin}/x",
        "rule": rule,
        "line": 3,
        "group": "*",
        "sha256": "ab" * 32,
    }
    return line("disallowed", at, origin, **{**about, **more})


def down(at: float, origin: str = A, **about: Any) -> bytes:
    return answer("unreachable", at, origin, reason="HTTP 503", status=503, about=about)


# -- what happened ---------------------------------------------------------------------------


def test_an_outage_begins_with_its_first_fetch_and_counts_all() -> None:
    """What came back looks other than what was given up, or is still down."""
    crawl = data_of(
        started(),
        *[down(at, A) for at in (1, 3, 7)],
        answer("rules", 9, A, status=200),
        down(2, B, fetches=2),
        line("held", 2.1, B, reason="HTTP 503"),
        line("given_up", 8, B, reason="HTTP 503; held for 6 s"),
        down(4, C, stored=True, fetches=0, asked=None),
        ended(10),
    ).crawl
    found = {one.origin: one for one in crawl.periods.top}
    assert [(found[name].end, found[name].fetches) for name in (A, B, C)] == [
        ("answered", 3), ("given_up", 2), ("open", 0),
    ]  # fmt: skip
    assert (found[A].began - NOW, found[A].ended - NOW) == (pytest.approx(0.8), 9)
    assert (found[B].requests, found[B].given_up, found[B].ended - NOW) == (1, 1, 8)
    assert {row.origin: row.counts["fetches"] for row in crawl.origins.top} == {
        A: 4,
        B: 2,
        C: 0,
    }
    assert crawl.reasons == {"HTTP 503": 2}
    for left, width in map(crawl.axis.bar, crawl.periods.top):
        assert 0 <= left <= 100 and 0 < width <= 100 - left + 0.3


def test_waiting_for_a_first_answer_is_not_being_held() -> None:
    """Until the answer is a failure: then they are."""
    crawl = data_of(
        started(),
        *[line("held", at, one, reason=NO_ANSWER) for one in (A, B) for at in (1, 1)],
        answer("rules", 3, A, about={"asked": "2027-01-15T08:00:00.500Z"}),
        *[line("released", 4, A)] * 2,
        down(5, B),
        *[line("released", 8, B)] * 2,
        line("held", 9, C, reason=NO_ANSWER),  # goes on
        ended(10),
    ).crawl
    assert [crawl.counts[name] for name in ("held", "waited", "released")] == [2, 3, 4]
    [spell] = crawl.periods.top
    assert (spell.origin, spell.requests, spell.end) == (B, 2, "open")
    waited = {row.origin: row.counts["waited"] for row in crawl.origins.top}
    assert waited == {A: 2, B: 0, C: 1}
    assert crawl.timeline == [
        (0, 0), *((10, count) for count in range(1, 5)), (40, 3), (40, 2), (80, 1), (80, 0), (90, 1),
        (100, 1),
    ]  # fmt: skip
    assert crawl.waiting == [
        (0, 0), *((10, count) for count in range(1, 5)), (40, 3), (40, 2), (50, 0), (90, 1), (100, 1)
    ]  # fmt: skip


def test_what_an_earlier_run_held_was_there_from_the_beginning() -> None:
    crawl = data_of(started(), down(1), *[line("released", 4, A)] * 2, ended(9)).crawl
    assert [held for _, held in crawl.timeline] == [2, 1, 0, 0]


def test_a_rule_is_counted_over_all_origins() -> None:
    lines = [
        refused(A),
        refused(A, line=9, rule="Disallow: /y"),
        refused(B),
        refused(B),
    ]
    data = data_of(started(), *lines, line("allowed_count", 5, A, count=6), ended(9))
    first, second = data.crawl.rules.top
    assert (first.rule, first.group, first.times, first.all_origins) == (
        "Disallow: /x",
        "*",
        3,
        2,
    )
    assert [(one.origin, one.times, one.line) for one in first.origins] == [
        (B, 2, 3),
        (A, 1, 3),
    ]
    assert (second.rule, second.times) == ("Disallow: /y", 1)
    counts = {row.origin: row.counts for row in data.crawl.origins.top}
    assert counts == {A: Counter(allowed=6, forbidden=2), B: Counter(forbidden=2)}
    data.add_texts(
        lambda origin, _: (
            b"#\r\nUser-agent: *\r\nDisallow: /x\r\n" if origin == B else None
        )
    )
    [of_b, of_a] = first.origins
    assert [text for _, text, marked in of_b.excerpt if marked] == ["Disallow: /x"]
    assert of_b.excerpt[0][0] == 1
    assert of_a.excerpt == []


def test_all_origins_of_a_rule_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_ORIGINS_OF_A_RULE", 1)
    [rule] = data_of(started(), refused(A), *[refused(B)] * 2, ended(9)).crawl.rules.top
    assert (rule.times, rule.all_origins, [one.origin for one in rule.origins]) == (
        3,
        2,
        [A],
    )


def test_the_crawl_s_own_totals_count() -> None:
    """Some of its record may be lost."""
    counts = data_of(started(), refused(A), ended(9, forbidden=5, kept=2)).crawl.counts
    assert [counts[name] for name in ("forbidden", "kept", "origins")] == [5, 2, 1]


def test_not_every_file_is_quoted() -> None:
    """Of all rules, and of one."""
    rules = product((f"http://{one}.example" for one in range(30)), range(20))
    lines = [refused(site, rule=f"Disallow: /{one}", line=9) for site, one in rules]
    data = data_of(started(), *lines)
    data.add_texts(lambda *_: b"\n" * 20)
    quoted = list(data.crawl.quoted())
    assert len(quoted) == 250
    assert [number for number, _, _ in quoted[0].excerpt] == list(range(5, 14))


def test_usage_preferences_are_counted_by_purpose() -> None:
    text, says = "Content-Signal: ai-train=no", {"train-ai": "n"}
    said = {"source": "robots.txt", "text": text, "says": says}
    usage = {"train-ai": "n", "search": "y", "tdm": None, "statements": [said]}
    pages = [
        line("usage", 1, A, url=f"{A}/{number}", usage=usage) for number in range(3)
    ]
    dropped = line("usage_request", 2, A, reason="train-ai: robots.txt, line 3: …")
    not_dropped = line("usage_item", 2, A, reason="train-ai: …", dry_run=True)
    crawl = data_of(started(), *pages, dropped, not_dropped, ended(3)).crawl
    assert crawl.counts["usage_pages"] == 3
    [statement] = crawl.statements.top
    assert (statement.subject, statement.count) == ("train-ai: n", 3)
    assert statement.text == "robots.txt: Content-Signal: ai-train=no"
    drops = [(row.subject, row.text, row.count, row.dropped) for row in crawl.pages.top]
    assert drops == [
        ("usage_request", "train-ai: robots.txt, line 3: …", 1, 1), ("usage_item", "train-ai: …", 1, 0)
    ]  # fmt: skip


def test_rows_with_more_to_say_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_STATEMENTS", 1)
    crawl = data_of(
        started(),
        *[answer(kind, 1, one) for kind, one in (("rules", A), ("html", B), ("rules", C))],
        refused(C),
        *[line("noindex", 1, A, reason=why) for why in ("once", "twice", "twice")],
        *[down(at, B) for at in (2, 9)],
        line("held", 2, A, reason="HTTP 503"),
        *[line("sitemap", 3, A, url=url, sitemap={"failed": why, "taken": 0}) for url, why in (
            ("read", None), ("gone", "HTTP 404"))],
        ended(10),
    ).crawl  # fmt: skip
    assert [row.origin for row in crawl.origins.top] == [A, C, B]
    assert [row.text for row in crawl.pages.top] == ["twice"]
    assert crawl.pages.ever_added == 2
    assert [row["url"] for row in crawl.sitemaps.top] == ["gone", "read"]


def test_very_many_crawls_are_not_all_shown() -> None:
    data = data_of(*[started(str(number), crawl=str(number)) for number in range(60)])
    assert [crawl.name for crawl in data.crawls] == [
        str(number) for number in range(50)
    ]
    assert data.notes == ["Only the first 50 crawls on record are shown."]


# -- hostile records -------------------------------------------------------------------------


VALUES: list[Any] = [
    None, True, -1, 10**400, 1e308, float("nan"), "", "x" * 5000, "\ud800\x1b[2J", [], [[]], {}, {"a": 1}
]  # fmt: skip


def test_any_value_anywhere_is_read() -> None:
    """Records are files of anybody's: a wrong value costs what it says."""
    lines = [
        *{json.loads(one)["verdict"]: one for one in many_lines(12)}.values(),
        line(
            "usage",
            1,
            A,
            usage={"train-ai": "n", "statements": [{"says": {"tdm": "y"}}]},
        ),
        line("changed", 1, A, change={"turned": [{"url": "x"}], "turned_count": 1}),
        line("held", 1, A, reason=NO_ANSWER),
    ]
    found = [started()]
    for fields in map(json.loads, lines):
        changed = [{**fields, name: value} for name, value in product(fields, VALUES)]
        for name, value in product(fields, VALUES):
            about = fields[name] if isinstance(fields[name], dict) else {}
            changed += [{**fields, name: {**about, key: value}} for key in about]
        found += [json.dumps(one).encode() + b"\n" for one in changed]
    assert render(data_of(*found))


def test_answers_of_no_origin_say_nothing_of_others() -> None:
    lines = down(1, ""), answer("rules", 2, "", status=200), refused("")
    crawl = data_of(started(), *lines, ended(3)).crawl
    assert not crawl.periods and crawl.counts["fetches"] == 2
    assert [one.robots_url for row in crawl.rules.top for one in row.origins] == [""]


def test_what_is_no_record_is_skipped_and_told() -> None:
    broken = [b"\xff\xfe", b"[" * 100_000, b"[1]", b'{"a": 1}', b"x" * 5_000_000]
    broken = [one + b"\n" for one in broken]
    data = data_of(started("ours"), *broken, b"\n", refused(A), b'{"verdict": "disallo')
    assert data.notes == ["Lines of the record that could not be read: 7."]
    assert data.crawl.counts["forbidden"] == 1
    assert data_of(b"").notes == ["The record is empty."]


@pytest.mark.slow
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many origins, the latest are kept; all are counted."""
    for name in ("_KEPT_ORIGINS", "_KEPT_PERIODS", "_KEPT_STATEMENTS"):
        monkeypatch.setattr(module, name, 50)
    monkeypatch.setattr("scrapy_rep.reporting.record._KEPT_RULES", 50)
    record = BytesIO(b"".join(many_lines(500)))
    tracemalloc.start()
    try:
        large = ReportData.read([record])
        assert tracemalloc.get_traced_memory()[1] < 800_000
    finally:
        tracemalloc.stop()
    counts = [large.crawl.counts[name] for name in ("origins", "allowed", "held")]
    assert (counts, large.crawl.periods.ever_added) == ([500, 50_000, 50], 50)
    assert large.crawl.origins.top[0].counts["forbidden"] == 9


# -- the time axis ---------------------------------------------------------------------------


def test_ticks_are_round_times_and_say_so() -> None:
    spans = (0.0, 0.4, 5, 59, 61, 600, 3700, 86000, 90000, 4e6)
    for span, began in product(spans, (NOW, NOW + 0.4995, NOW + 1799.9996)):
        ticks = Axis(began, began + span).ticks
        assert 1 <= len(ticks) <= 8
        assert all(0 <= x <= 100 for x, _ in ticks)
        assert span < 1 or ticks[-1][0] > 50
        assert len({text for _, text in ticks}) == len(ticks)
    assert [text for _, text in Axis(NOW, NOW + 600).ticks][:3] == [
        "+0 s",
        "+2 min",
        "+4 min",
    ]
    assert Axis(NOW, NOW + 0.4).ticks[1] == (25, "+0.1 s")


def test_a_peak_is_seen_however_long_the_crawl() -> None:
    record = [line("held", at, A, reason="HTTP 503") for at in range(24)]
    record += [line("released", 24, A)] * 24
    for at in range(100, 2600):
        record += [
            line("held", at, A, reason="HTTP 503"),
            line("released", at + 0.5, A),
        ]
    points = data_of(started(), *record, ended(3000)).crawl.timeline
    assert len(points) <= 1003
    assert max(held for _, held in points) == 24
    assert points[-1] == (100, 0)


def test_the_last_value_is_as_it_is() -> None:
    """However many there were before, and though the clock is set back."""
    timeline = Timeline()
    for at in range(1000):
        timeline.change(at, 1)
    timeline.change(5, -1000)
    points = timeline.points(Axis(0, 999))
    assert points[-2:] == [(100, 0), (100, 0)]
    assert max(held for _, held in points) == 1000
