"""REP.md section 4, "deferred": requests of an unreachable origin are held, and come back when
an answer comes. In real crawls."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scrapy.signals import response_received

import scrapy_rep
from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn
from tests.helpers.crawling import crawl
from tests.helpers.held import (
    DEFER,
    NEVER,
    Gate,
    Record,
    assert_clean,
    assert_nothing_dropped,
    origin_of,
    silent_until_open,
    urls,
)
from tests.helpers.log import lines
from tests.helpers.servers import Sites


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_unreachable_for_a_while(sites: Sites) -> None:
    """All are held, none is lost, none is told anything; one robots.txt request a tick."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    wanted = urls(site, 60)
    record = Record(on_deferred=lambda _, count: gate.open() if count == 60 else None)
    result = await record.crawl(wanted)
    assert sorted(result.responses) == sorted(record.deferred) == sorted(wanted)
    assert sorted(site.pages_asked) == sorted(url.removeprefix(site.url("")) for url in wanted)
    assert_nothing_dropped(result, record)
    assert record.released == record.deferred
    # Each of them was a tick of the origin's clock, and the last one was answered.
    asked = site.count("/robots.txt")
    assert asked == len(record.resolved) == result.stat("robotstxt/request_count") < 100
    assert [one["attempts"] for one in record.resolved] == [*range(1, asked), 0]
    assert result.stat("rep/deferred") == result.stat("rep/released") == 60
    assert (result.stats["rep/held/max"], result.stats["rep/held"]) == (60, 0)
    assert record.origins == {origin_of(site)}
    assert await record.concurrency() == [16, 16]
    assert_clean(result)


async def test_silent_at_first(sites: Sites) -> None:
    """The one request for robots.txt, answered long after the grace, lets all of them go."""
    robots = silent_until_open()
    site = sites.add(robots=robots)
    record = Record(on_deferred=lambda _, count: robots.open() if count == 50 else None)
    result = await record.crawl(urls(site, 50), REP_DEFER_GRACE=0.1)
    assert len(result.responses) == 50
    assert record.released == record.deferred
    assert site.count("/robots.txt") == 1
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_answer_within_the_grace(sites: Sites) -> None:
    """A request or two wait where they are, and nothing is said of it."""
    site = sites.add(robots=after(0.1, RULES))
    record = Record()
    result = await record.crawl(urls(site, 4), REP_DEFER_GRACE=NEVER)
    assert len(result.responses) == 4
    assert record.deferred == record.released == []
    assert "rep/held" not in result.stats
    assert lines(result) == []
    assert_clean(result)


async def test_each_origin_has_a_clock_of_its_own(sites: Sites) -> None:
    """One is back at once, one a little later; of one host, but of two origins."""
    first, back = sites.add(robots=in_turn(503, RULES)), Gate(503, RULES)
    second = sites.add(robots=back, host=first.host)
    record = Record()
    record.handlers[response_received] = lambda: (
        back.open() if len(first.requests) == 2 + 5 else None
    )
    wanted = [*urls(first, 5), *urls(second, 5)]
    result = await record.crawl(wanted)
    assert len(result.responses) == 10
    assert first.count("/robots.txt") == 2
    fetched = [
        [hit.time for hit in site.requests if "page" in hit.path] for site in (first, second)
    ]
    assert max(fetched[0]) < min(fetched[1])
    assert_clean(result)


async def test_one_line_in_the_log_at_the_beginning_and_one_at_the_end(sites: Sites) -> None:
    silent = silent_until_open()
    several = [sites.add(robots=in_turn(503, 503, silent)) for _ in range(3)]
    several.append(sites.add(robots=silent))
    begun: list[logging.LogRecord] = []

    def look(*_: object) -> None:
        """Answer when all that is to be said is said: who is answered sooner gets no lines."""
        if len(begun) == len(several) and len(record.deferred) == 40:
            silent.open()

    def see(line: logging.LogRecord) -> bool:
        if line.getMessage().startswith("Holding requests to"):
            begun.append(line)
            look()
        return True

    record = Record(on_deferred=look)
    logger = logging.getLogger("scrapy_rep.holding")
    logger.addFilter(see)
    try:
        result = await crawl(
            [url for site in several for url in urls(site, 10)],
            {**DEFER, "REP_DEFER_GRACE": 0.2},  # a status comes sooner, on slow machines too
            signal_handlers=record.handlers,
        )
    finally:
        logger.removeFilter(see)
    for site in several:
        ours = lines(result, f"equests to {origin_of(site)}")
        assert len(ours) == 2, ours
        why = " until its robots.txt can be fetched"
        if site is several[-1]:  # it has not failed
            why = ": its robots.txt has not answered yet"
        assert ours[0] == f"Holding requests to {origin_of(site)}{why}"
        assert ours[1].startswith(f"Released 10 requests to {origin_of(site)} after")
    assert not lines(result, level="WARNING")
    # Beside these there is the news of the first failure, once an origin that failed.
    idle = lines(result, "Nothing left to do but wait: ")
    assert len(lines(result)) - len(idle) == 4 * 2 + 3
    assert_clean(result)


@pytest.mark.parametrize(("choice", "robots"), [("drop", 503), ("drop", RULES), ("allow", 503)])
async def test_other_policies_and_silence(sites: Sites, choice: str, robots: Any) -> None:
    """They too are held beyond the grace, but only until it is known what came of the request."""
    site = sites.add(robots=after(0.3, robots))
    record = Record()
    result = await crawl(
        urls(site, 30),
        {"REP_UNREACHABLE": choice, "REP_DEFER_GRACE": 0.1, "REP_RETRY_DELAY": NEVER,
         "REP_RETRY_MAX_DELAY": NEVER},
        signal_handlers=record.handlers,
    )  # fmt: skip
    if robots == RULES or choice == "allow":
        assert len(result.responses) == 30
    else:
        assert result.responses == {}
        assert len(result.failures) == 30
        assert all(isinstance(error, RobotsUnreachable) for error in result.failures.values())
    assert site.count("/robots.txt") == 1
    assert record.released == record.deferred != []
    assert not record.dropped
    assert "rep/given_up" not in result.stats
    assert_clean(result)


async def test_an_answer_that_must_not_be_kept(sites: Sites, tmp_path: Any) -> None:
    """It releases all that waits for it, once; in the middleware nothing is asked again."""
    gate = Gate(503, 404)
    site = sites.add(robots=gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == 30 else None)
    ask_always = {"REP_CACHE_TTL": 0, "REP_CACHE_MIN_TTL": 0}
    result = await record.crawl(urls(site, 30), **ask_always, JOBDIR=str(tmp_path))
    assert len(result.responses) == 30
    assert result.stat("rep/outcome/missing") == 1
    assert sorted(record.released) == sorted(record.deferred)
    assert result.stats["rep/held"] == 0
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_a_console_asks_a_running_crawl_what_it_holds(sites: Sites) -> None:
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    seen: list[list[dict[str, Any]]] = []

    def deferred(spider: Any, **_: Any) -> None:
        middleware = spider.crawler.get_downloader_middleware(scrapy_rep.RepMiddleware)
        seen.append(middleware.held())
        if len(seen) == 3:
            gate.open()

    result = await crawl(
        urls(site, 3), DEFER, signal_handlers={scrapy_rep.signals.request_deferred: deferred}
    )
    result.assert_clean()
    [held] = seen[-1]
    assert (held["origin"], held["requests"], held["error"]) == (site.url(""), 3, "HTTP 503")
    assert 0 <= held["held_seconds"] < 60
    assert held["next_attempt_at"].endswith("Z")
    assert held["unreachable_since"].endswith("Z")
    assert held["attempts"] == 1
