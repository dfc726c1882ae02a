"""Google's time-line, whole (REP.md sections 4 and 5): real crawls one after the other, each of
which knows of the others only by what the storage keeps, on a clock that the test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import signals as scrapy_signals

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry
from tests.helpers.behaviours import RULES, RULES_BYTES, answer, in_turn, redirect
from tests.helpers.crawling import DAY, DOWN, NO, OK, SLOW, Clock, CrawlResult, StepSpider, crawl
from tests.helpers.held import Record, assert_clean, origin_of
from tests.helpers.recorded import Discovered
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import FolderStorage, in_a_file, open_

NEWER = "User-agent: *\nDisallow: /x\n"


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Settings. That the storages keep the same is for tests/storages."""
    return in_a_file(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().install(monkeypatch)


class Crawls:
    """Crawls of two pages of a site, one after the other."""

    def __init__(self, site: Site, clock: Clock, settings: dict[str, Any]) -> None:
        self.site, self.clock, self.settings = site, clock, {**SLOW, **settings}
        self.result: CrawlResult | None = None

    async def next(self, seconds: float = 0) -> tuple[list[str], int]:
        """So much later: what became of /private and /x, and how often robots.txt was asked for
        until then."""
        self.clock.now += seconds
        steps = [self.site.url("/private"), self.site.url("/x")]
        self.result = await crawl(StepSpider, self.settings, steps=steps, clock=self.clock)
        assert_clean(self.result)
        assert isinstance(self.result.spider, StepSpider)
        return self.result.spider.outcomes, self.site.count("/robots.txt")

    @property
    def attempts(self) -> list[int]:
        """How often robots.txt was asked for in vain, as the errbacks were told."""
        assert self.result is not None
        return [error.attempts for _, error in self.result.spider.errors]  # type: ignore


async def test_the_last_copy_is_applied_while_the_site_is_down(
    sites: Sites, clock: Clock, stored: dict[str, Any]
) -> None:
    site = sites.add(robots=in_turn(RULES, NEWER, 503))
    run = Crawls(site, clock, stored)
    assert await run.next() == ([NO, OK], 1)
    assert await run.next(DAY - 1) == ([NO, OK], 1), "fresh to its last second"
    assert await run.next(2) == ([OK, NO], 2), "stale, and fetched again"
    # Unreachable: the copy goes on being applied, and the clock runs on from crawl to crawl.
    assert await run.next(DAY + 1) == ([OK, NO], 3)
    assert await run.next(74) == ([OK, NO], 3)
    assert await run.next(27) == ([OK, NO], 4)
    assert await run.next(149) == ([OK, NO], 4), "it doubles"
    assert await run.next(31 * DAY) == ([OK, NO], 5), "more than 30 days: the last copy applies"
    site.set("/robots.txt", RULES)
    assert await run.next(801) == ([NO, OK], 6)


async def test_nothing_is_crawled_without_a_copy(
    sites: Sites, clock: Clock, stored: dict[str, Any]
) -> None:
    """Nothing is crawled for 30 days from the first failure, whoever saw it."""
    site = sites.add(robots=answer("busy", 503, [("Retry-After", "500")]))
    run = Crawls(site, clock, stored)
    assert await run.next() == ([DOWN, DOWN], 1)
    assert await run.next(499) == ([DOWN, DOWN], 1), "Retry-After"
    assert run.attempts == [1, 1]
    assert await run.next(2) == ([DOWN, DOWN], 2)
    assert run.attempts == [2, 2]
    for fetched in range(3, 7):
        assert await run.next(7 * DAY) == ([DOWN, DOWN], fetched)
    assert await run.next(2 * DAY + 1000) == ([OK, OK], 7)


# What is recalled


def kept(site: Site, stored: dict[str, Any]) -> Entry:
    storage = open_(stored)
    entry = storage.load(origin_of(site))
    storage.close()
    assert entry is not None
    return entry


async def test_what_is_kept(sites: Sites, clock: Clock, stored: dict[str, Any]) -> None:
    other = sites.add(pages={"/final": answer(RULES)})
    site = sites.add(robots=redirect("/hop"))
    site.set("/hop", redirect(other.url("/final")))
    await Crawls(site, clock, stored).next()
    began = clock.now
    entry = kept(site, stored)
    assert entry.check(origin_of(site)).body == RULES_BYTES
    assert (entry.url, entry.hops, entry.status) == (other.url("/final"), 2, 200)
    assert (entry.outcome, entry.fetched_at, entry.fresh_until) == (
        Outcome.RULES,
        began,
        began + DAY,
    )
    assert (entry.unreachable_since, entry.attempts, entry.error) == (None, 0, None)

    site.set("/robots.txt", 503)
    await Crawls(site, clock, stored).next(DAY + 1)
    failed = kept(site, stored)
    assert failed.body == RULES_BYTES
    assert (failed.url, failed.hops, failed.status, failed.fetched_at) == (
        other.url("/final"),
        2,
        200,
        began,
    )
    assert (failed.unreachable_since, failed.updated_at) == (clock.now, clock.now)
    assert (failed.attempts, failed.dead_attempts) == (1, 0)
    assert 75 <= failed.next_attempt_at - clock.now <= 100
    assert failed.error == "HTTP 503"
    assert failed.sha256 == entry.sha256


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
    parsed: list[Any] = []

    def robots_parsed(robotparser: Any, request: Any) -> None:
        parsed.append((robotparser.allowed(site.url("/private"), "any"), request.url))

    for number in range(2):
        record, discovered = Record(), Discovered()
        handlers = {**record.handlers, **discovered.handlers}
        if hasattr(scrapy_signals, "robots_parsed"):
            handlers[scrapy_signals.robots_parsed] = robots_parsed
        result = await crawl(
            [site.url("/x"), site.url("/private")], settings, signal_handlers=handlers
        )
        assert_clean(result)
        assert result.status(site.url("/x")) == 200
        assert [type(one).__name__ for one in result.failures.values()] == [NO]
        assert result.stat("rep/cache/recalled") == (1 if number else 0)
        assert result.stat("robotstxt/request_count") == (0 if number else 1)
        assert len(record.resolved) == (0 if number else 1)
        assert discovered.urls == [sitemap]
        assert result.stat("rep/sitemaps/found") == 1
        assert site.count("/sitemap.xml") == number + 1
    if hasattr(scrapy_signals, "robots_parsed"):
        assert [one[0] for one in parsed] == [False] * 2
        assert {one[1] for one in parsed} <= {site.url("/x"), site.url("/private")}
    assert site.count("/robots.txt") == 1


async def test_what_nobody_asked_for_in_90_days(sites: Sites, clock: Clock, tmp_path: Path) -> None:
    stored = in_a_file(tmp_path)
    old, new = sites.add(robots=RULES), sites.add(robots=404)
    await Crawls(old, clock, stored).next()
    sha256 = kept(old, stored).sha256
    assert sha256 is not None
    await Crawls(new, clock, stored).next(89 * DAY)
    assert kept(old, stored).body == RULES_BYTES
    await Crawls(new, clock, stored).next(2 * DAY)
    storage = open_(stored)
    assert storage.load(origin_of(old)) is None
    assert storage.body(sha256) is None
    assert storage.load(origin_of(new)) is not None
    storage.close()


@pytest.mark.parametrize("site_has", [RULES, 503], ids=["rules", "unreachable"])
async def test_somebody_whose_clock_is_years_ahead(
    sites: Sites, clock: Clock, tmp_path: Path, site_has: Any
) -> None:
    """What it keeps is not believed for longer than it could be true here."""
    site = sites.add(robots=site_has)
    run = Crawls(site, clock, in_a_file(tmp_path))
    (_, count) = await run.next(3650 * DAY)
    assert count == 1
    clock.now -= 3650 * DAY
    (outcomes, count) = await run.next()
    assert count == 2
    assert outcomes == ([NO, OK] if site_has == RULES else [DOWN, DOWN])
    assert (await run.next(1))[1] == 2, "what is kept now is of today"
