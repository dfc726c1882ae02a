"""REP.md sections 4 and 5 in real crawls, on a clock that the test moves: how long an answer holds, the
clock of an unreachable origin, the 30 days; Google's time-line over several crawls, each of which knows of the
others only by what the storage keeps; and one fetch for a whole fleet: another process has the lease of an origin."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import NotSupported

from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.queue import Flight
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.client import Claim
from tests.helpers.behaviours import (
    RULES,
    RULES_BYTES,
    after,
    answer,
    in_turn,
    redirect,
    reset,
)
from tests.helpers.crawling import DAY, DOWN, NO, OK, crawl
from tests.helpers.held import NEVER, Record, assert_clean, later, origin_of
from tests.helpers.log import lines
from tests.helpers.recorded import Discovered
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import FolderStorage, in_a_file, open_, rules
from tests.origins.conftest import Runs

# Of the headers tests/protocol/test_freshness.py has all there is. The answer's header, seconds by default,
# seconds with settings.
CHOSEN = {"REP_CACHE_TTL": 1000, "REP_CACHE_MIN_TTL": 20, "_REP_CACHE_MAX_TTL": 5000}
FRESH: list[tuple[str, str, int, int]] = [
    ("Cache-Control", "private", DAY, 1000),
    ("Cache-Control", "public, max-age=3600", 3600, 3600),
    ("Cache-Control", "max-age=10", 300, 20),
    ("Cache-Control", "max-age=31536000", 7 * DAY, 5000),
    ("Expires", "Thu, 01 Jan 1970 00:00:00 GMT", DAY, 1000),  # not looked at
]


@pytest.mark.parametrize("settings", [{}, CHOSEN], ids=["default", "chosen"])
async def test_an_answer_is_fresh_as_long_as_its_headers_and_settings_say(
    sites: Sites, runs: Runs, settings: dict[str, Any]
) -> None:
    """No file is an answer too; after a failure, Retry-After is a lower bound, if not too high."""
    table: list[tuple[int, str, int, Site]] = []
    for status, (name, value, default, chosen) in itertools.product((200, 404), FRESH):
        site = sites.add(robots=answer(RULES, status, [(name, value), ("Age", "0")]))
        table.append((status, value, chosen if settings else default, site))
    date = formatdate(runs.clock.now + 500, usegmt=True)
    rows = [("500", 500), (date, 500), ("9999", 800), ("10", 75)]
    for status, (value, seconds) in itertools.product((429, 503), rows):
        site = sites.add(robots=answer("busy", status, [("Retry-After", value)]))
        table.append((status, value, seconds, site))
    await runs.next(*(row[-1].url("/x") for row in table), **settings)
    with every_row() as checking:
        for status, value, seconds, site in table:
            with checking((status, value)):
                entry, more = runs.kept(site), 25 if value == "10" else 0
                until = (
                    entry.fresh_until if status in (200, 404) else entry.next_attempt_at
                )
                assert seconds <= until - runs.clock.now <= seconds + more


async def test_pages_of_scrapys_http_cache_obey_the_rules_of_today(
    sites: Sites, tmp_path: Path
) -> None:
    settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    site = sites.add(robots="")
    for robots, answered in (("", {"/x", "/private"}), (RULES, {"/x"})):
        site.set("/robots.txt", robots)
        result = await crawl([site.url("/x"), site.url("/private")], settings)
        assert {url.removeprefix(site.url("")) for url in result.responses} == answered
        says = "HTTP cache keeps no robots.txt", "scrapy_rep.storages.SqliteStorage"
        assert len(lines(result, *says, level="INFO")) == 1
    assert (site.robots_fetches, site.count("/x")) == (2, 1)


@pytest.mark.parametrize("later", [1, 40 * DAY], ids=["fresh", "expired"])
async def test_a_crawl_is_replayed_while_its_site_is_gone(
    sites: Sites, runs: Runs, tmp_path: Path, later: int
) -> None:
    """By its robots.txt in a storage and its pages in Scrapy's HTTP cache."""
    runs.settings |= {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path / "pages"),
    }
    site = sites.add(robots=RULES)
    pages = site.url("/x"), site.url("/private")
    assert await runs.next(*pages) == [OK, NO]
    asked = len(site.requests)
    for path in ("/robots.txt", "/x"):
        site.set(path, reset())
    runs.clock.now += later
    assert await runs.next(*pages, HTTPCACHE_IGNORE_MISSING=True) == [OK, NO]
    assert "HTTP cache keeps no robots.txt" not in runs.result.log
    assert {hit.path for hit in site.requests[asked:]} <= {"/robots.txt"}


@pytest.mark.parametrize("status", [200, 404])
async def test_what_is_fresh_is_not_asked_for_again(
    sites: Sites, runs: Runs, status: int
) -> None:
    site, asked = sites.add(robots=answer(RULES, status)), list[int]()
    steps = [site.url("/private"), lambda: asked.append(site.robots_fetches)]
    outcomes = await runs.next(*steps, DAY - 1, *steps, 2, *steps, DAY - 1, *steps)
    assert outcomes == [NO if status == 200 else OK] * 4
    assert asked == [1, 1, 2, 2]
    names = ("miss", "hit", "refresh", "stale")
    assert [runs.result.stat(f"rep/cache/{name}") for name in names] == [1, 4, 1, 0]


async def test_a_missing_file_is_no_copy(sites: Sites, runs: Runs) -> None:
    """503 after 404 is trouble: wait. An answer ends the failures: the next back-off is short."""
    site, asked = sites.add(robots=in_turn(503, 503, 404, 503, 503)), list[int]()
    page, look = site.url("/x"), lambda: asked.append(site.robots_fetches)
    first = [page, 101, page, 201, page, look]
    outcomes = await runs.next(
        *first, DAY + 1, page, look, 74, page, look, 27, page, look
    )
    assert outcomes == [DOWN, DOWN, OK, DOWN, DOWN, DOWN]
    assert asked == [3, 4, 4, 5]
    attempts = [error.attempts for _, error in runs.result.spider.errors]  # type: ignore[attr-defined]
    assert attempts == [1, 2, 1, 1, 2]


async def test_after_30_days_unreachable_only_a_copy_still_forbids(
    sites: Sites, runs: Runs
) -> None:
    """The first site fails a day after its answer, the second from the start."""
    copied, never = sites.add(robots=in_turn(RULES, 503)), sites.add(robots=503)
    every = [
        copied.url("/private"),
        copied.url("/x"),
        never.url("/private"),
        never.url("/x"),
    ]
    week = 7 * DAY  # a gap between attempts doesn't count as downtime
    later = [*[week] * 4, 2 * DAY - 1000, 2000, 300 * DAY]
    steps = [
        *every[:2],
        DAY,
        *every,
        *(step for time in later for step in (time, *every)),
    ]
    assert await runs.next(*steps) == [
        NO,
        OK,
        *[NO, OK, DOWN, DOWN] * 6,
        *[NO, OK, OK, OK] * 2,
    ]


NEWER = "User-agent: *\nDisallow: /x\n"


# Seconds since the crawl before, what becomes of /private and /x, and how often robots.txt was asked for by then.
COPY: dict[str, tuple[int, list[str], int]] = {
    "the first": (0, [NO, OK], 1),
    "fresh to its last second": (DAY - 1, [NO, OK], 1),
    "stale, and fetched again": (2, [OK, NO], 2),
    "unreachable: the copy still applies": (DAY + 1, [OK, NO], 3),
    "the back-off, from crawl to crawl": (74, [OK, NO], 3),
    "it is over": (27, [OK, NO], 4),
    "it doubles": (149, [OK, NO], 4),
    "more than 30 days: the last copy applies": (31 * DAY, [OK, NO], 5),
}


async def test_the_last_copy_is_applied_while_the_site_is_down(
    sites: Sites, runs: Runs
) -> None:
    site = sites.add(robots=in_turn(RULES, NEWER, 503))
    for name, (seconds, *wanted) in COPY.items():
        assert [*await runs.both(site, seconds)] == wanted, name
    site.set("/robots.txt", RULES)
    assert await runs.both(site, 801) == ([NO, OK], 6)


async def test_what_is_kept_of_an_answer_and_of_a_failure_beside_it(
    sites: Sites, runs: Runs
) -> None:
    other = sites.add(pages={"/final": answer(RULES)})
    site, clock = sites.add(robots=redirect("/hop")), runs.clock
    site.set("/hop", redirect(other.url("/final")))
    copy = {"url": other.url("/final"), "hops": 2, "status": 200, "outcome": Outcome.RULES,
            "body": RULES_BYTES, "fetched_at": clock.now, "fresh_until": clock.now + DAY}  # fmt: skip
    good = {
        "updated_at": clock.now,
        "unreachable_since": None,
        "attempts": 0,
        "error": None,
    }
    await runs.both(site)
    entry = runs.kept(site)
    assert entry.check(origin_of(site)) is entry
    assert {name: getattr(entry, name) for name in (*copy, *good)} == {**copy, **good}
    site.set("/robots.txt", 503)
    await runs.both(site, DAY + 1)
    down = {"updated_at": clock.now, "unreachable_since": clock.now, "attempts": 1, "dead_attempts": 0,
            "error": "HTTP 503", "sha256": entry.sha256}  # fmt: skip
    failed = runs.kept(site)
    assert {name: getattr(failed, name) for name in (*copy, *down)} == {**copy, **down}
    assert 75 <= failed.next_attempt_at - clock.now <= 100


@pytest.mark.usefixtures("in_time")
async def test_what_is_recalled_works_like_a_fetch(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a fetch it is as if there had been one: rules, sitemaps, Scrapy's own signal. With a
    class of the user's, too."""
    monkeypatch.chdir(tmp_path)
    site = sites.add()
    sitemap = site.url("/sitemap.xml")
    site.set("/robots.txt", f"{RULES}Sitemap: {sitemap}\n")
    settings = {"REP_CACHE_STORAGE": FolderStorage, "REP_SITEMAPS": True}
    parsed: list[bool] = []
    signal = getattr(scrapy_signals, "robots_parsed", None)  # of newer Scrapy

    def robots_parsed(robotparser: Any) -> None:
        parsed.append(robotparser.allowed(site.url("/private"), "any"))

    for number in range(2):
        record, discovered = Record(), Discovered()
        handlers = {**record.handlers, **discovered.handlers}
        if signal is not None:
            handlers[signal] = robots_parsed
        pages = [site.url("/x"), site.url("/private")]
        result = await crawl(pages, settings, signal_handlers=handlers)
        assert_clean(result)
        assert result.status(pages[0]) == 200
        assert result.disallowed(pages[1])
        names = ("cache/recalled", "sitemaps/found")
        assert [result.stat(f"rep/{name}") for name in names] == [number, 1]
        assert (
            result.stat("robotstxt/request_count") == len(record.resolved) == 1 - number
        )
        assert discovered.urls == [sitemap]
        assert site.count("/sitemap.xml") == number + 1
    assert parsed == ([False] * 2 if signal else [])
    assert site.robots_fetches == 1


async def test_what_nobody_asked_for_in_90_days(sites: Sites, runs: Runs) -> None:
    old, new = sites.add(robots=RULES), sites.add(robots=404)
    await runs.both(old)
    entry = runs.kept(old)
    await runs.both(new, 89 * DAY)
    assert runs.kept(old) == entry
    await runs.both(new, 2 * DAY)
    assert runs.kept(old) is None
    assert runs.kept(new) is not None
    storage = open_(runs.settings)
    assert storage.body(entry.sha256) is None
    storage.close()


@pytest.mark.parametrize("site_has", [RULES, 503], ids=["rules", "unreachable"])
async def test_somebody_whose_clock_is_years_ahead(
    sites: Sites, runs: Runs, site_has: Any
) -> None:
    """What it keeps is not believed for longer than it could be true here."""
    site = sites.add(robots=site_has)
    assert (await runs.both(site, 3650 * DAY))[1] == 1
    wanted = [NO, OK] if site_has == RULES else [DOWN, DOWN]
    assert await runs.both(site, -3650 * DAY) == (wanted, 2)
    assert await runs.both(site, 1) == (wanted, 2), "what is kept now is of today"


# Seconds. Longer than these crawls take, and a lease that may well be.
LEASE = 60.0


class OtherProcess:
    def __init__(self, settings: dict[str, Any], site: Site) -> None:
        self.settings, self.site, self.storage = settings, site, open_(settings)

    def lease(self, seconds: float = LEASE) -> bool:
        return self.storage.lease(origin_of(self.site), "other", seconds)

    def answers(self) -> None:
        self.storage.save(rules(origin_of(self.site), at=time.time()))
        self.storage.release(origin_of(self.site), "other")

    async def crawl_beside(self, record: Record, **settings: Any) -> list[int]:
        """Crawl by the answer of either: how often robots.txt was asked for, and recalled."""
        pages = [self.site.url("/private"), self.site.url("/x")]
        result = await record.crawl(pages, **self.settings, **settings)
        assert_clean(result)
        assert result.responses == {pages[1]: 200}
        assert list(result.failures) == [pages[0]]
        return [self.site.robots_fetches, result.stat("rep/cache/recalled")]


@pytest.fixture
def other(sites: Sites, tmp_path: Path) -> Iterator[OtherProcess]:
    found = OtherProcess(in_a_file(tmp_path), sites.add(robots=503))
    yield found
    found.storage.close()


@pytest.mark.loop
@pytest.mark.parametrize("grace", [0.05, 30.0], ids=["held", "in place"])
async def test_another_process_asks(other: OtherProcess, grace: float) -> None:
    """Its answer is used as soon as it is there."""
    assert other.lease()
    record = Record()
    if grace < 1:
        record.on_held = lambda _, count: (
            later(0.1, other.answers) if count == 2 else None
        )
    else:
        record.handlers[scrapy_signals.spider_opened] = lambda: later(
            0.2, other.answers
        )
    assert await other.crawl_beside(record, _REP_HOLD_GRACE=grace) == [0, 1]
    assert len(record.released) == (2 if grace < 1 else 0)


@pytest.mark.parametrize("dies", [False, True], ids=["answers", "dies"])
async def test_another_process_has_the_next_tick(
    other: OtherProcess, dies: bool
) -> None:
    """An unreachable site is asked by one process a tick: the second waits for what the first hears, and asks
    itself if that is nothing. It looks up what is kept once, not again and again."""
    record = Record()

    def take_the_lease() -> None:
        if len(record.resolved) > 1:
            return
        until = time.monotonic() + LEASE
        while not other.lease(0.3 if dies else LEASE):
            assert time.monotonic() < until
            time.sleep(0.001)  # what was heard is being written down, in a thread
        other.site.set("/robots.txt", RULES)
        if not dies:
            later(0.3, other.answers)  # several ticks, in which nothing may be asked

    record.on_resolved = take_the_lease
    assert await other.crawl_beside(record) == ([2, 0] if dies else [1, 1])


async def test_a_process_that_stops_leaves_no_lease(other: OtherProcess) -> None:
    """Ctrl-C in the middle of a fetch: the next process asks at once."""
    other.site.set("/robots.txt", after(NEVER, RULES))
    record = Record(on_held=lambda *_: record.close())
    result = await record.crawl(other.site.url("/x"), **other.settings)
    assert result.reason == "enough"
    assert other.lease()


@pytest.mark.parametrize(
    "error", [NotSupported("no handler"), asyncio.CancelledError()], ids=repr
)
async def test_a_fetch_without_an_answer_gives_its_lease_back(
    error: BaseException,
) -> None:
    """Prevented by the project, or broken off."""
    given_back: list[str] = []

    async def claim(*_: Any) -> Claim:
        return Claim(None, granted=True)

    async def fetch(*_: Any) -> None:
        raise error

    some: Any = SimpleNamespace(
        claim=claim, fetch=fetch, give_back_lease=given_back.append
    )
    cache = RobotsCache(RepSettings(), some, time.time, some)
    flight = Flight(Origin("http", "a.example", 80), Request("http://a.example"))
    flight.is_abandoned = isinstance(error, asyncio.CancelledError)
    with pytest.raises(type(error)):
        await cache.ask(flight)
    assert given_back == ["http://a.example"]
