"""Numbers too large for what counts, dates or stores them, jumping clocks, leases without end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.protocol.freshness import unreachable_seconds
from scrapy_rep.reporting.record import ChangeWatch
from scrapy_rep.reporting.record_file import RecordFile
from scrapy_rep.reporting.recorder import Recorder, Signals
from scrapy_rep.reporting.report import Report
from scrapy_rep.reporting.summary import Counts
from scrapy_rep.storages import Entry, UnreadableEntry
from scrapy_rep.storages.base import MAX_ENTRY_TEXT, MAX_TIME
from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import DAY, DOWN, OK, SLOW, Clock, StepSpider, crawl
from tests.helpers.held import HOLD
from tests.helpers.log import lines
from tests.helpers.log import summary as summary_of
from tests.helpers.recorded import decisions
from tests.helpers.redisserver import RedisServer
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.storing import A, in_a_file, rules

pytestmark = pytest.mark.slow

TIMES = ["updated_at", "fetched_at", "fresh_until", "unreachable_since", "unreachable_for",
         "next_attempt_at", "not_before"]  # fmt: skip
COUNTS = ["hops", "attempts", "dead_attempts", "proxy_attempts"]
WRONG = [
    *[(name, value) for name in TIMES for value in (1e300, -1.0, MAX_TIME + 1, 10**30)],
    *[("status", value) for value in (0, 99, 1000, 10**30, -200)],
    *[(name, value) for name in COUNTS for value in (-1, 10**30)],
    *[(name, "x" * (MAX_ENTRY_TEXT + 1)) for name in ("url", "error")],
    *[("sha256", value) for value in ("x", "A" * 64, "../../etc/passwd")],
]


@pytest.mark.python
def test_a_value_out_of_range() -> None:
    with every_row() as row:
        for name, value in WRONG:
            with row(f"{name}={value!r}"[:40]):
                words = rf"^broken: {name} is .{{0,100}}$"
                header = json.dumps({**json.loads(rules().header()), name: value})
                with pytest.raises(UnreadableEntry, match=words):
                    Entry.from_parts(header, rules().packed)
                with pytest.raises(UnreadableEntry, match=words):
                    rules(**{name: value}).check(A)


def test_a_long_story_is_cut() -> None:
    for header in (
        '{"schema":1,"origin":["%s"]}',
        '{"schema":1,"origin":"a","outcome":"%s"}',
    ):
        with pytest.raises(UnreadableEntry) as caught:
            Entry.from_parts(header % ("x" * 10_000))
        assert len(str(caught.value)) < 200
    with pytest.raises(UnreadableEntry, match="too large"):
        Entry.from_parts('{"schema":1,"origin":"' + "x" * 10_000_000 + '"}')


@pytest.mark.parametrize(("now", "ttl", "fetches"), [(1e300, 1e300, 4), (-1e9, DAY, 2)])
async def test_a_clock_out_of_its_mind(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: float,
    ttl: float,
    fetches: int,
) -> None:
    clock = Clock().install(monkeypatch)
    clock.now = now
    many, path = [sites.add(robots=RULES) for _ in range(3)], tmp_path / "d.jsonl"
    pages = [
        one.url(page) for _ in range(2) for one in many for page in ("/private", "/x")
    ]
    settings = {"REP_DECISIONS": str(path), "REP_REPORT": str(tmp_path / "report.html")}
    settings |= {"REP_CACHE_MAX_ORIGINS": 2, "REP_CACHE_TTL": ttl}
    result = await crawl(StepSpider, settings, steps=pages, clock=clock)
    result.assert_clean()
    assert {one.robots_fetches for one in many} == {fetches}
    assert len(decisions(path)) == 6
    assert lines(result, level="ERROR") == []
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert set(result.responses) == {one.url("/x") for one in many}


PARTS: list[list[tuple[type, str]]] = [
    [
        *((Counts, "count_origin"), (Report, "add"), (ChangeWatch, "find_change")),
        (Recorder, "_log_failure"),
    ],
    [(ChangeWatch, "remember_refusal"), (RecordFile, "add"), (Signals, "resolved")],
    [(RecordFile, "end"), (Recorder, "_count_answer")],
]


@pytest.mark.parametrize("parts", PARTS, ids=len)
async def test_parts_that_fail(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: list[tuple[type, str]],
) -> None:
    """A line for each that names it as a bug of ours; requests, and the other parts, go on."""

    def broken(self: Any, *_: Any, **__: Any) -> Any:
        raise OverflowError("Python int too large to convert to SQLite INTEGER")

    def closes_its_file(self: Any, *_: Any, **__: Any) -> Any:
        self._write_loop.stop()
        self._write()
        self._file.close()
        broken(self)

    for owner, name in parts:
        monkeypatch.setattr(owner, name, closes_its_file if name == "end" else broken)
    site, other = sites.add(robots=in_turn(503, RULES)), sites.add(robots=RULES)
    path, report = tmp_path / "d.jsonl", tmp_path / "report.html"
    pages = [
        one.url(page)
        for one in (site, other)
        for page in ("/x", "/private", "/private/2")
    ]
    result = await crawl(
        pages, {**HOLD, "REP_DECISIONS": str(path), "REP_REPORT": str(report)}
    )
    assert result.reason == "finished"
    assert set(result.responses) == {site.url("/x"), other.url("/x")}
    assert {type(error).__name__ for error in result.failures.values()} == {
        "RobotsDisallowed"
    }
    assert len(lines(result, "Bug in scrapy-rep", level="ERROR")) == len(parts), (
        result.log
    )
    assert [
        one
        for one in result.records
        if one.levelname == "ERROR" and "signal" in one.msg
    ] == []
    assert report.stat().st_size > 1000
    owners = {owner for owner, _ in parts}
    assert RecordFile in owners or len(decisions(path)) >= 4
    assert Counts in owners or summary_of(result)


async def test_a_bug_on_the_way_to_an_answer(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be decided then; a request fails as any other, and none is stuck."""

    def broken(*_: Any, **__: Any) -> Any:
        raise OverflowError("too large")

    monkeypatch.setattr(RobotsCache, "_learn", broken)
    site = sites.add(robots=RULES)
    result = await crawl(site.url("/x"), {**HOLD, "_REP_HOLD_GRACE": 0})
    assert result.reason == "finished"
    assert type(result.failure(site.url("/x"))).__name__ == "RobotsUnreachable"
    assert len(lines(result, "Bug in scrapy-rep", level="ERROR")) == 1


LIMIT = 30.0 * DAY
# Seconds between failures in a row, the limit, and whether they reach it.
GAPS: list[tuple[list[float], float, bool]] = [
    ([], LIMIT, False),
    ([31 * DAY], LIMIT, False),
    ([56 * 365 * DAY], LIMIT, False),
    ([1e300] * 3, LIMIT, False),
    ([-1e300, 1e300, -1e300, 1e300], LIMIT, False),
    ([10.0 * DAY] * 4, LIMIT, True),
    ([10.0 * DAY, -1e300, *[10.0 * DAY] * 3], LIMIT, True),
    ([7.0 * DAY] * 4, LIMIT, False),
    ([7.0 * DAY] * 5, LIMIT, True),
    ([600.0] * 4319, LIMIT, False),
    ([600.0] * 4320, LIMIT, True),
    ([], 0.0, True),  # REP_UNREACHABLE_LIMIT = 0: at once, as ever
    ([9.0] * 3, 20.0, False),
    ([9.0] * 4, 20.0, True),
    ([1e9] * 4, float("inf"), False),
]


@pytest.mark.parametrize(("gaps", "limit", "over"), GAPS)
def test_attempts_count_and_not_time(
    gaps: list[float], limit: float, over: bool
) -> None:
    counted = unreachable_seconds(0.0, 0, 0.0, limit)
    for attempts, gap in enumerate(gaps, 1):
        counted = unreachable_seconds(counted, attempts, gap, limit)
    assert (counted >= limit) is over


def test_a_kept_figure_is_no_evidence_of_its_own() -> None:
    assert unreachable_seconds(1e12, 2, 0.0, LIMIT) <= LIMIT / 4


# The clock begins in 1970. Runs with one cache, and how each attempt at the page ended.
RUNS: dict[str, tuple[list[list[Any]], list[str]]] = {
    "set right in the run": ([["page", "set", "page", 250, "page"]], [DOWN] * 3),
    "set right before the next": ([["page", "set"], ["page", 250, "page"]], [DOWN] * 3),
    "weekly": ([["set", "page", 7 * DAY], *[["page", 7 * DAY]] * 5], [DOWN] * 5 + [OK]),
}


@pytest.mark.parametrize("name", RUNS)
async def test_how_long_it_is_unreachable(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    runs, expected = RUNS[name]
    clock = Clock().install(monkeypatch)
    now, clock.now = clock.now, 3.0
    site, outcomes = sites.add(robots=503), []
    meant = {"page": site.url("/x"), "set": lambda: setattr(clock, "now", now)}
    for run in runs:
        steps = [meant.get(step, step) for step in run]
        result = await crawl(
            StepSpider, {**SLOW, **in_a_file(tmp_path)}, steps=steps, clock=clock
        )
        assert isinstance(result.spider, StepSpider)
        outcomes += result.spider.outcomes
    assert outcomes == expected
    assert site.robots_fetches == len(expected)


@pytest.mark.needs_redis
def test_a_lease_of_nobody(redis_server: RedisServer) -> None:
    """A restored dump has lost its end, or its owner's clock had: taken over at once."""
    import redis

    from scrapy_rep.storages import RedisStorage

    storage = RedisStorage(redis_server.url, "leased", 3600.0)
    key = f"leased:lease:{A}"
    with redis.Redis.from_url(redis_server.url) as client:
        for orphan in (
            "RPUSH {} x",
            "SET {} dead",
            f"SET {{}} dead EX {10 * 365 * DAY}",
        ):
            client.execute_command(*orphan.format(key).split())
            assert storage.lease(A, "one", 30)
            assert not storage.lease(A, "two", 30)
            assert not storage.lease(A, "two", 5), "its own may be shorter"
            storage.release(A, "one")
            assert client.get(key) is None, "given back"
    storage.close()
