"""The log: an origin's first refusal, start requests that were all refused, the summary."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from scrapy import Request, Spider

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Decision, Origin, Rule
from scrapy_rep.reporting import record as module
from scrapy_rep.reporting.summary import STATS, Counts, parts_of
from tests.helpers.behaviours import in_turn, silence
from tests.helpers.crawling import CrawlResult, ListSpider, StepSpider, crawl
from tests.helpers.held import (
    HOLD,
    NEVER,
    Record,
    as_soon_as,
    assert_clean,
    origin_of,
    urls,
)
from tests.helpers.log import lines, remember, summary
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import lists_two
from tests.helpers.storing import missing, rules, state_with

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]
RULES = "User-agent: *\nDisallow: /private\nDisallow: /x\n"


def warned(result: CrawlResult, words: str = "every start request") -> list[str]:
    return lines(result, words, level="WARNING")


async def test_the_first_that_is_forbidden_of_each_origin(sites: Sites) -> None:
    some = [sites.add(robots=RULES) for _ in range(3)]
    wanted = [
        site.url(f"{path}{n}")
        for site in some
        for n in range(5)
        for path in ("/x", "/y")
    ]
    result = await crawl(wanted)
    told = lines(result, "Forbidden by")
    assert len(told) == len(lines(result)) == 3
    forbidden = "Forbidden by robots.txt (line 3: Disallow: /x, group *): <GET "
    for site in some:
        [line] = [one for one in told if f"{origin_of(site)}/" in one]
        assert line.startswith(f"{forbidden}{origin_of(site)}/x")
        assert line.endswith(">; more for this origin at DEBUG level")
    # And no second line for the first.
    others = lines(result, forbidden, level="DEBUG")
    assert len(others) == 12
    assert all(one.endswith(">") for one in others)
    assert_clean(result)


async def test_the_first_that_is_dropped_of_each_origin(sites: Sites) -> None:
    site = sites.add(robots=503)
    result = await crawl(urls(site, 20))  # REP_UNREACHABLE is "drop"
    assert (
        len(lines(result, "robots.txt unreachable: HTTP 503: <GET ", "more for this"))
        == 1
    )
    assert (
        len(lines(result, "robots.txt unreachable: HTTP 503: <GET ", level="DEBUG"))
        == 19
    )


async def test_a_forgotten_origin_is_told_of_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(monkeypatch, 1)
    first, second, third = [sites.add(robots=RULES) for _ in range(3)]
    several = [first, first, second, third, first]
    result = await crawl(StepSpider, steps=[site.url("/x") for site in several])
    told = lines(result, "Forbidden by")
    assert [
        site.url("/x>") in line for site, line in zip(several[1:], told, strict=True)
    ] == [True] * 4


@pytest.mark.parametrize(
    ("agent", "suggested"),
    [
        ("OtherBot", "OtherBot"),
        (["Other-Image", "Other"], "Other-Image,Other"),
        (None, "'*'"),
    ],
)
async def test_every_start_request_is_forbidden(
    sites: Sites, agent: Any, suggested: str
) -> None:
    """The command names the request's agent: by another, its answer could contradict the crawl."""
    site = sites.add(robots=RULES)
    meta = {"rep_user_agent": agent} if agent else {}
    url = site.url("/private/it's")
    requests = [Request(one, meta=meta) for one in (url, site.url("/x"))]
    result = await crawl(
        requests, {"CONCURRENT_REQUESTS": 1, "USER_AGENT": "Mozilla/5.0"}
    )
    quoted = shlex.quote(url)
    assert quoted.startswith("'")
    [line] = warned(result)
    assert line == (
        "robots.txt refused every start request (2). If the crawl found nothing, that is why; your "
        f"spider may be fine. The first was {url}: Forbidden by robots.txt "
        "(line 2: Disallow: /private, group *). For details: scrapy robots --explain "
        f"--agent {suggested} {quoted}"
    )


async def test_every_start_request_was_given_up(sites: Sites) -> None:
    down = sites.refused()
    settings = {**HOLD, "_REP_HOLD_DEAD_HOST_TRIES": 2}
    result = await crawl([f"{down}/1", f"{down}/2"], settings)
    [line] = warned(result)
    assert line.startswith(
        "robots.txt was unreachable for every start request (2). If the crawl"
    )
    assert "robots.txt unreachable" in line
    assert summary(result)[1] == "Requests: 0 allowed, 0 forbidden, 2 held, 2 given up"
    assert_clean(result)


async def test_some_start_requests_were_forbidden_and_some_given_up(
    sites: Sites,
) -> None:
    """Of the latter, robots.txt has refused nothing."""
    site, down = sites.add(robots=RULES), sites.add(robots=503)
    result = await crawl([site.url("/x"), *urls(down, 2)])  # REP_UNREACHABLE is "drop"
    [line] = warned(result, "")
    assert line.startswith(
        "robots.txt refused 1 start request, and was unreachable for the other 2. If the crawl found "
        "nothing, that is why; your spider may be fine. The first was "
    )


class RequestsInErrback(ListSpider):
    other = ""

    def failed(self, failure: Any) -> Any:
        super().failed(failure)
        return Request(self.other, callback=self.parse)


@pytest.mark.parametrize("path", ["/private", "/page"])
async def test_what_is_requested_later_is_no_start_request(
    sites: Sites, path: str
) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(
        RequestsInErrback, requests=[site.url("/x")], other=site.url(path)
    )
    [line] = warned(result)
    assert "every start request (1)" in line


async def test_a_start_request_that_need_not_obey_gets_through(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    free = Request(site.url("/private"), meta={"dont_obey_robotstxt": True})
    result = await crawl([site.url("/x"), free])
    assert len(result.failures) == 1
    assert warned(result) == []


@pytest.mark.parametrize("page", [404, silence()], ids=["404", "silent"])
async def test_a_start_request_that_fails_is_none_that_is_refused(
    sites: Sites, page: Any
) -> None:
    site = sites.add(robots=RULES, pages={"/page": page})
    settings = {"DOWNLOAD_TIMEOUT": 0.2, "RETRY_ENABLED": False}
    result = await crawl(
        [site.url("/x"), site.url("/page"), site.url("/private")], settings
    )
    assert warned(result) == []


async def test_start_requests_kept_for_the_next_run(
    sites: Sites, tmp_path: Any
) -> None:
    """The user has stopped the crawl: others may have got through."""
    site, other = sites.add(robots=503), sites.add(robots=RULES)
    settings = {**HOLD, "JOBDIR": str(tmp_path),
                "REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}  # fmt: skip

    def stop(spider: Spider, count: int) -> None:
        stats = spider.crawler.stats
        assert stats is not None
        if count == 2:
            as_soon_as(lambda: stats.get_value("robotstxt/forbidden"), record.close)

    record = Record(on_held=stop)
    wanted = [*urls(site, 2), other.url("/x")]
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert warned(result) == []
    requests = "Requests: 0 allowed, 1 forbidden, 2 held, 2 kept for the next run"
    assert summary(result)[1] == requests


async def test_the_summary_counts_without_stats(sites: Sites) -> None:
    none = {"STATS_CLASS": "scrapy.statscollectors.DummyStatsCollector"}
    result = await crawl(
        [sites.add(robots=RULES).url(path) for path in ("/x", "/page")], none
    )
    assert summary(result)[1] == "Requests: 1 allowed, 1 forbidden"


async def test_the_summary_counts_origins_requests_and_lines(sites: Sites) -> None:
    site, other = (
        sites.add(robots=RULES),
        sites.add(robots="User-agent: testbot\nDisallow: /"),
    )
    none, away = sites.add(robots=404), sites.add(robots=in_turn(503, 503, RULES))
    wanted = [
        *urls(site, 4, "/private/"), *urls(site, 2, "/x"), *urls(site, 7, "/page"),
        *urls(other, 3), *urls(none, 5), *urls(away, 6), f"{sites.refused()}/1",
    ]  # fmt: skip
    result = await crawl(
        StepSpider, {**HOLD, "_REP_HOLD_DEAD_HOST_TRIES": 1}, steps=wanted
    )
    assert summary(result) == [
        "robots.txt of 5 origins: 3 with rules, 1 without restrictions, 1 unreachable (refused)",
        "Requests: 18 allowed, 9 forbidden, 1 dropped (robots.txt unreachable), 1 held, 1 released",
        "Lines that decided most often:",
        f"  4 × {origin_of(site)}, line 2: Disallow: /private (group *)",
        f"  3 × {origin_of(other)}, line 2: Disallow: / (group testbot)",
        f"  2 × {origin_of(site)}, line 3: Disallow: /x (group *)",
    ]
    assert len(result.responses) == 18
    assert_clean(result)


async def test_the_summary_tells_of_stats_in_words_and_in_order(sites: Sites) -> None:
    """What was found, read, taken; not the stats' names from A to Z."""
    site = lists_two(sites.add())
    result = await crawl([site.url("/")], {"REP_SITEMAPS": True})
    told = summary(result)[2:]
    assert told == [
        "Sitemaps: 2 found, 1 read, 1 failed",
        "Entries of sitemaps: 3 read, 2 scheduled as pages, rejected (1 invalid)",
    ]
    stats = {"rep/usage/n/search": 2, "rep/usage/n/train-ai": 1200, "rep/usage/pages": 1300,
             "rep/crawl_delay/max": 2.5, "rep/crawl_delay/origins": 3, "rep/page/dropped": 0}  # fmt: skip
    assert [
        parts_of(stats, words) for words in STATS.values() if parts_of(stats, words)
    ] == [
        ["3 obeyed", "at most 2.5 s"],
        ["1,300 recorded", "disallowed (1,200 train-ai, 2 search)"],
    ]


async def test_no_line_tells_a_thing_twice(sites: Sites) -> None:
    """The URL of a timeout, the time of what was given up; none promises an attempt."""
    silent = sites.add(robots=silence())
    settings = {**HOLD, "REP_DOWNLOAD_TIMEOUT": 0.2, "REP_HOLD_MAX_WAIT": 0.6}
    result = await crawl(urls(silent, 2), settings)
    [first, *_] = lines(result, "is unreachable (")
    name = origin_of(silent)
    assert re.fullmatch(
        rf"robots.txt of {name} is unreachable \(DownloadTimeoutError: took longer than 0\.2 seconds\); "
        r"no attempt is due for \d+\.\d s; more for this origin at DEBUG level",
        first,
    )
    [gave_up] = lines(result, "Gave up")
    assert re.fullmatch(
        rf"Gave up 2 requests to {name}: DownloadTimeoutError: took longer than 0\.2 seconds; held for "
        r"[\d.]+ s \(\d attempts? at robots\.txt\)",
        gave_up,
    )
    for error in result.failures.values():
        assert str(error).count("held for") == 1
        assert name not in str(error)


async def test_summaries_of_one_origin(sites: Sites) -> None:
    site, down = sites.add(robots=RULES), sites.add(robots=503)
    for wanted, settings, said in (
        (
            [site.url("/x1"), site.url("/page")],
            {},
            [
                "robots.txt of 1 origin: 1 with rules",
                "Requests: 1 allowed, 1 forbidden",
                "The line that decided:",
                f"  1 × {origin_of(site)}, line 3: Disallow: /x (group *)",
            ],
        ),
        (
            urls(down, 3),
            {"REP_UNREACHABLE": "allow"},
            [
                "robots.txt of 1 origin: 1 unreachable (HTTP 503)",
                "Requests: 0 allowed, 0 forbidden, 3 allowed though robots.txt was unreachable",
            ],
        ),
        (
            site.url("/x"),
            {"DOWNLOAD_HANDLERS": {"http": None}},
            [
                "robots.txt of 1 origin: 1 without an answer",
                "Requests: 0 allowed, 0 forbidden, 1 dropped (robots.txt unreachable)",
            ],
        ),
        ([], {}, []),
    ):
        assert summary(await crawl(wanted, settings)) == said


def forbids(counts: Counts, origin: Origin, line: int, pattern: str = "/x") -> None:
    decision = Decision(False, Rule(line, pattern, False), "*")
    counts.count_refusal(RobotsDisallowed(origin, decision), str(origin))


def test_rules_are_counted_over_all_origins() -> None:
    """What a setting forbids has no rule."""
    counts = Counts()
    town = [Origin("http", f"site{number}.example", 80) for number in range(3)]
    for number, origin in enumerate(town):
        for _ in range(number + 1):
            forbids(counts, origin, 5 - number)
    forbids(counts, town[0], 9, "/y")
    counts.count_refusal(
        RobotsDisallowed(town[0], Decision(False, None, None), "REP_FORBIDDEN"),
        str(town[0]),
    )
    first, second = counts.rules.top
    assert (first.rule, first.times, first.all_origins) == ("Disallow: /x", 6, 3)
    assert (second.rule, second.first_origins[str(town[0])].line) == ("Disallow: /y", 9)


def test_very_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each origin once, though it leaves memory again and again."""
    monkeypatch.setattr(module, "_KEPT_RULES", 50)
    counts = Counts()
    for number in range(1000):
        origin = Origin("http", "site", number)
        counts.note_unanswered(origin)
        entry = rules(str(origin)) if number % 4 == 0 else missing(str(origin))
        for _ in range(2):
            counts.count_origin(state_with(entry, origin))
        counts.note_unanswered(origin)  # a later fetch was cancelled
        forbids(counts, origin, 1, f"/{number % 300}")
        forbids(counts, origin, 1)
    assert counts.outcomes == {
        ("with rules", ""): 250,
        ("without restrictions", ""): 750,
    }
    assert counts.rules.top[0].times == counts.rules.top[0].all_origins == 1000
    assert len(counts.rules) <= 50
