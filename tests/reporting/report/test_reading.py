"""From a record to what the report shows."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from io import BytesIO
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.reporting.report import reading as module
from scrapy_rep.reporting.report import render
from scrapy_rep.reporting.report.data import ReportData
from scrapy_rep.reporting.report.findings import axis_of
from scrapy_rep.reporting.report.reading import CrawlSum
from tests.helpers.report import NOW, answer, data_of, ended, line, many_lines, started

A, B, C = "http://a.example", "http://b.example", "http://c.example"
NO_ANSWER = "no answer yet"


def refused(origin: str, at: float = 2.0, rule: str = "Disallow: /x", **more: Any) -> bytes:
    about = {"url": f"{origin}/x", "rule": rule, "line": 3, "group": "*", "sha256": "ab" * 32}
    return line("disallowed", at, origin, **{**about, **more})


def down(at: float, origin: str = A, **about: Any) -> bytes:
    return answer("unreachable", at, origin, reason="HTTP 503", status=503, about=about)


def texts(crawl: CrawlSum) -> dict[str, str]:
    return {one.kind: one.text for one in crawl.findings}


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
    found = {one.origin: one for one in crawl.periods}
    assert [(found[name].end, found[name].fetches) for name in (A, B, C)] == [
        ("answered", 3), ("given_up", 2), ("open", 0),
    ]  # fmt: skip
    assert (found[A].began - NOW, found[A].ended - NOW) == (pytest.approx(0.8), 9)
    assert (found[B].requests, found[B].given_up, found[B].ended - NOW) == (1, 1, 8)
    assert {row.origin: row.fetches for row in crawl.origins} == {A: 4, B: 2, C: 0}
    assert crawl.reasons == [("HTTP 503", 2)]
    for left, width in map(crawl.axis.bar, crawl.periods):
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
        ended(10),
    ).crawl
    assert [crawl.counts[name] for name in ("held", "waited", "released")] == [2, 2, 4]
    [spell, wait] = sorted(crawl.periods, key=lambda one: one.end)
    assert (spell.origin, spell.requests, spell.end, wait.end) == (B, 2, "open", "waited")
    assert (wait.origin, wait.requests, wait.reason, wait.ended - NOW) == (A, 2, "with rules", 3)
    steps = [(round(one.at - NOW), one.held, one.waiting) for one in crawl.timeline]
    assert [step for step in steps if step[0] == 5] == [(5, 2, 0)]
    assert steps[0] == (0, 0, 0) and steps[-1] == (10, 0, 0)
    assert max(waiting for _, _, waiting in steps) == 4


def test_what_an_earlier_run_held_was_there_from_the_beginning() -> None:
    crawl = data_of(started(), down(1), *[line("released", 4, A)] * 2, ended(9)).crawl
    assert [one.held for one in crawl.timeline] == [2, 1, 0, 0]


def test_a_rule_is_counted_over_all_origins() -> None:
    lines = [refused(A), refused(A, line=9, rule="Disallow: /y"), refused(B), refused(B)]
    data = data_of(started(), *lines, line("allowed_count", 5, A, count=6), ended(9))
    first, second = data.crawl.rules
    assert (first.rule, first.group, first.times, first.all_origins) == ("Disallow: /x", "*", 3, 2)
    assert [(one.origin, one.times, one.line) for one in first.origins] == [(B, 2, 3), (A, 1, 3)]
    assert (second.rule, second.times) == ("Disallow: /y", 1)
    shares = {row.origin: row.share for row in data.crawl.origins}
    assert shares == {A: 0.25, B: 1.0}
    data.fill(lambda origin, _: b"#\r\nUser-agent: *\r\nDisallow: /x\r\n" if origin == B else None)
    [of_b, of_a] = first.origins
    assert [text for _, text, marked in of_b.excerpt if marked] == ["Disallow: /x"]
    assert of_b.excerpt[0][0] == 1
    assert of_a.excerpt == []


def test_the_crawl_s_own_totals_count() -> None:
    """Some of its record may be lost."""
    counts = data_of(started(), refused(A), ended(9, forbidden=5, kept=2)).crawl.counts
    assert [counts[name] for name in ("forbidden", "kept", "origins")] == [5, 2, 1]


def test_not_every_file_is_quoted() -> None:
    """Of all rules, and of one."""
    rules = [
        (f"http://{one}.example", f"Disallow: /{rule}") for rule in range(20) for one in range(30)
    ]
    data = data_of(started(), *[refused(site, rule=rule) for site, rule in rules])
    assert len(list(data.wanted())) == 250


def test_what_needs_a_look_is_said_in_sentences() -> None:
    starts = {"refused": 2, "passed": False, "url": f"{A}/x", "why": "line 3", "command": "scrapy"}
    listed = {"found": "listed", "by": f"{A}/robots.txt"}
    crawl = data_of(
        started(),
        answer("rules", 1, A),
        refused(A, rule="Disallow: /"),
        *[answer("rules", 1, B), refused(B, rule="Disallow: /")],
        line("allowed_count", 5, B, count=1),
        *[
            answer(kind, 1, f"http://{kind}.example")
            for kind in ("html", "challenge", "redirected")
        ],
        down(1, C),
        line("sitemap", 3, A, url=f"{A}/s.xml", sitemap={**listed, "failed": "HTTP 404"}),
        line("sitemap", 3, A, url=f"{A}/t.xml", sitemap={**listed, "entries": 3, "taken": 0}),
        line("noindex", 4, A, url=f"{A}/1", reason="meta robots: noindex"),
        line("usage_item", 4, A, url=f"{A}/1", reason="train-ai: robots.txt, line 3"),
        line("changed", 5, A, change={"added": ["Disallow: /"], "lines_added": 1}),
        ended(9, start_requests=starts, page_dropped=1, usage_dropped=1),
    ).crawl
    found = texts(crawl)
    assert found["start_requests"].startswith(
        "robots.txt refused every start request (2). The first"
    )
    assert found["closed"] == "1 origin entirely closed to this crawler: 1 request refused."
    assert found["down"] == "1 origin unreachable at the end: 1 HTTP 503."
    assert set(found) == {
        *("start_requests", "closed", "down", "html", "challenge", "redirects"),
        *("sitemaps", "pages", "usage", "changed"),
    }
    levels = [one.level for one in crawl.findings]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    assert [row.key for row in crawl.answers] == [
        "rules", "html", "challenge", "redirected", "unreachable",
    ]  # fmt: skip


def test_what_the_project_itself_prevents_is_an_error() -> None:
    about = {"kind": "configuration", "fetches": 0}
    lines = [
        answer("none", 1, one, reason="NotSupported: no handler", about=about) for one in (A, B)
    ]
    [finding] = data_of(started(), *lines, ended(2)).crawl.findings
    assert (finding.kind, finding.count, finding.items) == ("configuration", 2, [A, B])
    assert finding.text.endswith("from 2 origins: NotSupported: no handler.")


def test_nothing_needs_a_look() -> None:
    assert data_of(started(), answer("rules", 1, A), ended(2)).crawl.findings == []
    assert "killed" in texts(data_of(started(), answer("rules", 1, A)).crawl)


def test_usage_preferences_are_counted_by_purpose() -> None:
    said = {
        "source": "robots.txt",
        "text": "Content-Signal: ai-train=no",
        "says": {"train-ai": "n"},
    }
    usage = {"train-ai": "n", "search": "y", "tdm": None, "statements": [said]}
    pages = [line("usage", 1, A, url=f"{A}/{number}", usage=usage) for number in range(3)]
    dropped = line("usage_request", 2, A, reason="train-ai: robots.txt, line 3: …")
    crawl = data_of(started(), *pages, dropped, ended(3)).crawl
    assert crawl.usage == {"train-ai": {"no": 3, "usage_request": 1}, "search": {"yes": 3}}
    [statement] = crawl.usage_statements
    assert (statement.count, statement.text) == (3, "robots.txt: Content-Signal: ai-train=no")


# -- several crawls --------------------------------------------------------------------------


def test_crawls_are_side_by_side_with_what_changed(tmp_path: Path) -> None:
    """From one file to which both were appended, or from two."""
    old, new = "0" * 64, "1" * 64
    first = [started("one"), answer("rules", 1, A, sha256=old), answer("missing", 1, B), ended(2)]
    second = [
        line_of_crawl(one, "second", 100)
        for one in (started("two"), answer("rules", 1, A, sha256=new), answer("missing", 1, B))
    ]
    bodies = {old: b"Disallow: /a\nDisallow: /b\n", new: b"Disallow: /b\r\nDisallow: /c\r\n"}
    (tmp_path / "1.jsonl").write_bytes(b"".join(first))
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(b"".join(second)))
    files = [tmp_path / "2.jsonl.gz", tmp_path / "1.jsonl"]
    for record in ([BytesIO(b"".join(first + second))], files):
        data = ReportData.read(record, lambda _, sha256: bodies.get(sha256))  # type: ignore[arg-type]
        assert [one.name for one in data.crawls] == ["one", "two"]
        [change] = data.changes
        assert (change.origin, change.crawls) == (A, (0, 1))
        assert (change.added, change.removed) == (["Disallow: /c"], ["Disallow: /a"])
        assert change.known
    [change] = ReportData.read(files).changes
    assert not change.known


def line_of_crawl(text: bytes, crawl: str, later: float) -> bytes:
    fields = json.loads(text)
    moved = fields["time"].replace("T08:00", f"T{8 + later / 100:02.0f}:00")
    return json.dumps({**fields, "crawl": crawl, "time": moved}).encode() + b"\n"


# -- hostile records -------------------------------------------------------------------------


VALUES: list[Any] = [
    None, True, -1, 10**400, 1e308, float("nan"), "", "x" * 5000, "\ud800\x1b[2J", [], [[]], {}, {"a": 1}
]  # fmt: skip


def test_any_value_anywhere_is_read() -> None:
    """Records are files of anybody's: a wrong value costs what it says."""
    lines = [
        *{json.loads(one)["verdict"]: one for one in many_lines(12)}.values(),
        line("usage", 1, A, usage={"train-ai": "n", "statements": [{"says": {"tdm": "y"}}]}),
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


def test_what_is_no_record_is_skipped_and_told() -> None:
    broken = [
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"[1]\n",
        b'{"a": 1}\n',
        b"x" * 5_000_000 + b"\n",
    ]
    data = data_of(started("ours"), *broken, b"\n", refused(A), b'{"verdict": "disallo')
    assert data.notes == ["Lines of the record that could not be read: 6."]
    assert data.crawl.counts["forbidden"] == 1
    cut = gzip.compress(b"".join(many_lines(50)))[:-30]
    assert ReportData.read([BytesIO(cut)]).notes == [
        "The record ends in the middle of a packed file."
    ]
    assert ReportData.read([BytesIO(b"")]).notes == ["The record is empty."]


def test_the_record_of_an_earlier_version_is_read() -> None:
    """Without an id, a beginning or an end."""
    lines = [json.loads(refused(A)), json.loads(line("held", 3, B, reason="HTTP 503"))]
    text = "".join(
        json.dumps({k: v for k, v in one.items() if k != "crawl"}) + "\n" for one in lines
    )
    crawl = ReportData.read([BytesIO(text.encode())]).crawl
    assert (crawl.counts["forbidden"], crawl.counts["held"], crawl.all_origins) == (1, 1, 2)
    assert "killed" not in texts(crawl)


@pytest.mark.slow
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many origins, those with the most refusals are kept; all are counted."""
    for name in ("_ORIGINS", "_RULES", "MAX_PERIODS", "_SAID"):
        monkeypatch.setattr(module, name, 50)
    record = BytesIO(b"".join(many_lines(500)))
    tracemalloc.start()
    try:
        large = ReportData.read([record])
        assert tracemalloc.get_traced_memory()[1] < 800_000
    finally:
        tracemalloc.stop()
    assert large.crawl.all_origins == 500
    assert large.crawl.counts["allowed"] == 50_000


# -- the time axis ---------------------------------------------------------------------------


@pytest.mark.parametrize("span", [0.0, 0.4, 5, 59, 61, 600, 3700, 86000, 90000, 4e6])
def test_ticks_are_round_times_and_say_so(span: float) -> None:
    for began in (NOW, NOW + 0.4995, NOW + 1799.9996):
        assert_round(began, span)


def assert_round(began: float, span: float) -> None:
    axis = axis_of(began, began + span)
    assert 1 <= len(axis.ticks) <= 9
    for one in axis.ticks:
        assert 0 <= one.x <= 100
        if span >= 60:
            assert one.at == round(one.at)
    gaps = {round(b.at - a.at, 3) for a, b in pairwise(axis.ticks)}
    assert len(gaps) <= 1
    texts = [one.text for one in axis.ticks]
    assert len(set(texts)) == len(texts)


def test_a_peak_is_seen_however_long_the_crawl() -> None:
    held = [line("held", at, A, reason="HTTP 503") for at in range(24)]
    left = [line("released", 24, A)] * 24
    later = [
        one
        for at in range(100, 2600)
        for one in (line("held", at, A, reason="HTTP 503"), line("released", at + 0.5, A))
    ]
    points = data_of(started(), *held, *left, *later, ended(3000)).crawl.timeline
    assert len(points) <= 1000
    assert max(one.held for one in points) == 24
    assert points[-1].held == 0
