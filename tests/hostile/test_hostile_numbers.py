"""Numbers that are too large for what counts, dates or stores them: from status lines, stored entries
and clocks. None takes the reports down, or a request, or what is held. Clocks that jump, and leases without an
end: the 30 days of REP.md section 4 are attempts that were made, spread over that time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.protocol.freshness import unreachable_seconds
from scrapy_rep.reporting.audit_trail import AuditTrail
from scrapy_rep.reporting.changes import ChangeWatch
from scrapy_rep.reporting.record import Counts
from scrapy_rep.reporting.recorder import Recorder, StartRequests
from scrapy_rep.reporting.report import Report
from scrapy_rep.seeding.discovery import Discovery
from scrapy_rep.storages import Entry, UnreadableEntry
from scrapy_rep.storages.entry import MAX_TEXT, MAX_TIME
from tests.helpers.behaviours import RULES, Behaviour, in_turn, raw
from tests.helpers.crawling import DAY, DOWN, OK, ONE_ATTEMPT, SLOW, Clock, Step, StepSpider, crawl
from tests.helpers.held import DEFER
from tests.helpers.log import lines
from tests.helpers.log import summary as summary_of
from tests.helpers.recorded import decisions
from tests.helpers.redisserver import RedisServer
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.storing import A, in_a_file, rules
from tests.reporting.report.records import data_of, ended, line, started

pytestmark = pytest.mark.slow


def with_status(status: bytes) -> Behaviour:
    return raw(b"HTTP/1.1 " + status + b" Fine\r\nConnection: close\r\n\r\nUser-agent: *\n")


# -- status lines ----------------------------------------------------------------------------


@pytest.mark.download
@pytest.mark.usefixtures("in_time")
async def test_a_status_that_is_none(sites: Sites, tmp_path: Path) -> None:
    """Invalid HTTP (REP.md section 3); a crawl that meets it is reported as any other."""
    statuses = [b"99999999999999999999999", b"1000", b"99", b"0", b"9" * 4000]
    bad = [sites.add(robots=with_status(status)) for status in statuses]
    good, path, report = sites.add(robots=RULES), tmp_path / "d.jsonl", tmp_path / "report.html"
    result = await crawl(
        [*(site.url("/x") for site in bad), good.url("/x"), good.url("/private")],
        {**ONE_ATTEMPT, "REP_DECISIONS": str(path), "REP_REPORT": str(report)},
    )
    result.assert_clean()
    assert result.responses == {good.url("/x"): 200}
    failures = {type(result.failure(site.url("/x"))).__name__ for site in bad}
    assert failures == {"RobotsUnreachable"}
    verdicts = sorted(one["verdict"] for one in decisions(path))
    assert verdicts == ["disallowed", *["unreachable"] * len(bad)]
    assert "6 origins: 1 with rules, 5 unreachable" in summary_of(result)[0]
    assert report.stat().st_size > 1000
    ours = [name for name in result.stats if name.startswith("robotstxt/response_status_count/")]
    assert ours == ["robotstxt/response_status_count/200"]


# -- stored entries --------------------------------------------------------------------------

TIMES = ["updated_at", "fetched_at", "fresh_until", "unreachable_since", "unreachable_for",
         "next_attempt_at", "not_before"]  # fmt: skip
COUNTS = ["hops", "attempts", "dead_attempts", "proxy_attempts"]
WRONG = [
    *[(name, value) for name in TIMES for value in (1e300, -1.0, MAX_TIME + 1, 10**30)],
    *[("status", value) for value in (0, 99, 1000, 10**30, -200)],
    *[(name, value) for name in COUNTS for value in (-1, 10**30)],
    *[(name, "x" * (MAX_TEXT + 1)) for name in ("url", "error")],
    *[("sha256", value) for value in ("x", "A" * 64, "../../etc/passwd")],
]


@pytest.mark.python
def test_a_value_out_of_range() -> None:
    """Whether it comes as JSON, or from a class of the user's that keeps objects."""
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
    for header in ('{"schema":1,"origin":["%s"]}', '{"schema":1,"origin":"a","outcome":"%s"}'):
        with pytest.raises(UnreadableEntry) as caught:
            Entry.from_parts(header % ("x" * 10_000))
        assert len(str(caught.value)) < 200
    with pytest.raises(UnreadableEntry, match="too large"):
        Entry.from_parts('{"schema":1,"origin":"' + "x" * 10_000_000 + '"}')


# -- clocks and settings ---------------------------------------------------------------------
@pytest.mark.parametrize("now", [1e300, -1e9])
async def test_a_clock_out_of_its_mind(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    clock = Clock().install(monkeypatch)
    clock.now = now
    many, path = [sites.add(robots=RULES) for _ in range(3)], tmp_path / "d.jsonl"
    pages = [one.url(page) for _ in range(2) for one in many for page in ("/private", "/x")]
    result = await crawl(
        StepSpider,
        {
            "REP_DECISIONS": str(path),
            "REP_REPORT": str(tmp_path / "report.html"),
            "REP_CACHE_MAX_ORIGINS": 2,
            "REP_CACHE_TTL": 1e300,
        },
        steps=pages,
        clock=clock,
    )
    result.assert_clean()
    assert len(decisions(path)) == 6
    assert lines(result, level="ERROR") == []
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert set(result.responses) == {one.url("/x") for one in many}


# -- a part that fails -----------------------------------------------------------------------

PARTS: list[list[tuple[type, str]]] = [
    [
        *(
            (Counts, "answered"),
            (Report, "add"),
            (ChangeWatch, "look"),
            (StartRequests, "refused"),
        ),
        *((Recorder, "_log_failure"), (Discovery, "resolved")),
    ],
    [(Counts, "outcomes"), (AuditTrail, "add"), (Recorder, "_send")],
    [(AuditTrail, "end"), (Recorder, "_count")],
]


@pytest.mark.parametrize("parts", PARTS, ids=len)
async def test_parts_that_fail(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[tuple[type, str]]
) -> None:
    """A line for each that names it as a bug of ours; requests, and the other parts, go on."""

    def broken(self: Any, *_: Any, **__: Any) -> Any:
        raise OverflowError("Python int too large to convert to SQLite INTEGER")

    def closes_its_file(self: Any, *_: Any, **__: Any) -> Any:
        self._file.close()
        self._stop_timer()  # else it writes, in the middle of the next test
        broken(self)

    for owner, name in parts:
        monkeypatch.setattr(owner, name, closes_its_file if name == "end" else broken)
    site, other = sites.add(robots=in_turn(503, RULES)), sites.add(robots=RULES)
    path = tmp_path / "d.jsonl"
    pages = [one.url(page) for one in (site, other) for page in ("/x", "/private", "/private/2")]
    report = tmp_path / "report.html"
    result = await crawl(pages, {**DEFER, "REP_DECISIONS": str(path), "REP_REPORT": str(report)})
    assert result.reason == "finished"
    assert set(result.responses) == {site.url("/x"), other.url("/x")}
    assert {type(error).__name__ for error in result.failures.values()} == {"RobotsDisallowed"}
    assert len(lines(result, "Bug in scrapy-rep", level="ERROR")) == len(parts), result.log
    assert [one for one in result.records if one.levelname == "ERROR" and "signal" in one.msg] == []
    assert report.stat().st_size > 1000
    broken_ones = {owner for owner, _ in parts}
    if AuditTrail not in broken_ones:
        assert len(decisions(path)) >= 4
    if Counts not in broken_ones:
        assert summary_of(result) != []


async def test_a_bug_on_the_way_to_an_answer(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be decided then; a request fails as any other, and none is stuck."""
    from scrapy_rep.origins.cache import RobotsCache

    def broken(*_: Any, **__: Any) -> Any:
        raise OverflowError("too large")

    monkeypatch.setattr(RobotsCache, "_learn", broken)
    site = sites.add(robots=RULES)
    result = await crawl(site.url("/x"), {**DEFER, "REP_DEFER_GRACE": 0})
    assert result.reason == "finished"
    assert type(result.failure(site.url("/x"))).__name__ == "RobotsUnreachable"
    assert len(lines(result, "Bug in scrapy-rep", level="ERROR")) == 1


# -- clocks that jump --------------------------------------------------------------------------


LIMIT = 30.0 * DAY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().install(monkeypatch)


# -- the 30 days -----------------------------------------------------------------------------


def after(*gaps: float, limit: float = LIMIT) -> float:
    """How long a row of failures counts, with these seconds between them."""
    counted = unreachable_seconds(0.0, 0, 0.0, limit)
    for attempts, gap in enumerate(gaps, 1):
        counted = unreachable_seconds(counted, attempts, gap, limit)
    return counted


@pytest.mark.parametrize(
    ("gaps", "over"),
    [
        ([], False),
        ([31 * DAY], False),
        ([56 * 365 * DAY], False),
        ([1e300] * 3, False),
        ([-1e300, 1e300, -1e300, 1e300], False),
        ([10.0 * DAY] * 4, True),
        ([7.0 * DAY] * 4, False),
        ([7.0 * DAY] * 5, True),
        ([600.0] * 4319, False),
        ([600.0] * 4320, True),
    ],
)
def test_attempts_count_and_not_time(gaps: list[float], over: bool) -> None:
    assert (after(*gaps) >= LIMIT) is over


def test_other_limits_than_30_days() -> None:
    assert after(limit=0.0) >= 0.0, "REP_UNREACHABLE_LIMIT = 0: at once, as ever"
    assert after(9.0, 9.0, 9.0, limit=20.0) < 20.0
    assert after(9.0, 9.0, 9.0, 9.0, limit=20.0) >= 20.0
    assert after(1e9, 1e9, 1e9, 1e9, limit=float("inf")) < float("inf")


def test_a_kept_figure_is_no_evidence_of_its_own() -> None:
    """As large as the attempts that came with it can account for."""
    assert unreachable_seconds(1e12, 2, 0.0, LIMIT) <= LIMIT / 4


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_clock_that_began_in_1970(
    sites: Sites, clock: Clock, tmp_path: Path, runs: int
) -> None:
    """And is set right after three seconds, or in the next run."""
    site = sites.add(robots=503)
    now, clock.now = clock.now, 3.0
    page = site.url("/x")
    steps: list[Step] = [page, lambda: setattr(clock, "now", now), page, 250, page]
    outcomes = []
    for some in [steps] if runs == 1 else [steps[:2], steps[2:]]:
        result = await crawl(StepSpider, {**SLOW, **in_a_file(tmp_path)}, steps=some, clock=clock)
        assert isinstance(result.spider, StepSpider)
        outcomes += result.spider.outcomes
    assert outcomes == [DOWN, DOWN, DOWN]
    assert site.robots_fetches == 3


async def test_weekly_crawls_get_there(sites: Sites, clock: Clock, tmp_path: Path) -> None:
    site, stored = sites.add(robots=503), in_a_file(tmp_path)
    outcomes = []
    for _ in range(6):
        result = await crawl(StepSpider, {**SLOW, **stored}, steps=[site.url("/x")], clock=clock)
        assert isinstance(result.spider, StepSpider)
        outcomes += result.spider.outcomes
        clock.now += 7 * DAY
    assert outcomes == [DOWN] * 5 + [OK]


# -- figures ---------------------------------------------------------------------------------


def test_the_time_line_goes_on() -> None:
    """A clock that is set back by hours: the points stay in order, as the chart wants them."""
    site = "http://a.example"
    held = [line("held", at, site, reason="HTTP 503") for at in (0, 1, -6 * 3600, -6 * 3600 + 5)]
    crawl_data = data_of(started(), *held, ended(2)).crawl
    assert [point.held for point in crawl_data.timeline] == [0, 1, 2, 3, 4, 4]
    times = [point.at for point in crawl_data.timeline[:-1]]
    assert times == sorted(times)
    assert all(0 <= point.x <= 100 for point in crawl_data.timeline)


# -- leases ----------------------------------------------------------------------------------


@pytest.mark.needs_redis
def test_a_lease_of_nobody(redis_server: RedisServer) -> None:
    """A restored dump has lost its end, or its owner's clock had: taken over at once, as nobody else's
    is."""
    import redis

    from scrapy_rep.storages import RedisStorage

    storage = RedisStorage(redis_server.url, "leased", 3600.0)
    client: Any = redis.Redis.from_url(redis_server.url)
    key = f"leased:lease:{A}"
    with client:
        for orphan in (
            lambda: client.rpush(key, "x"),
            lambda: client.set(key, "dead"),
            lambda: client.set(key, "dead", ex=10 * 365 * DAY),
        ):
            orphan()
            assert storage.lease(A, "one", 30)
            assert not storage.lease(A, "two", 30)
            assert not storage.lease(A, "two", 5), "its own may be shorter"
            storage.release(A, "one")
            assert client.get(key) is None, "given back"
    storage.close()
