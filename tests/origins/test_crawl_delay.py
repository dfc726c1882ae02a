"""REP_CRAWL_DELAY (REP.md section 12): one request at a time with a pause between, in real time."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_rep.inspection.lint import lint
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.robotstxt import Groups
from tests.helpers.behaviours import after, answer, in_turn, redirect, reset
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import HOLD, NEVER, origin_of, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import in_a_file

DELAY = 0.3
LONG = 3 * DELAY
"""Seconds: what comes at once comes sooner, on a slow machine too."""
ON: dict[str, Any] = {
    "REP_CRAWL_DELAY": LONG,
    "CONCURRENT_REQUESTS": 100,
    "_REP_HOLD_GRACE": NEVER,
}


def asking(seconds: float, agent: str = "*") -> str:
    return f"User-agent: {agent}\nDisallow: /private\nCrawl-delay: {seconds}\n"


def gaps(*sites: Site, path: str = "") -> list[float]:
    hits = [hit for site in sites for hit in site.requests if hit.path != "/robots.txt"]
    times = sorted(hit.time for hit in hits if not path or hit.path == path)
    return [late - early for early, late in pairwise(times)]


def assert_paced(site: Site, seconds: float, requests: int) -> None:
    assert len(gaps(site)) == requests - 1
    assert min(gaps(site)) >= seconds


class Following(ListSpider):
    async def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        meta = response.meta
        assert self.crawler.engine is not None
        for url in meta.pop("direct", ()):  # as media pipelines do
            await self.crawler.engine.download_async(Request(response.url + url))
        if then := meta.pop("then", ()):
            yield following(self, *then)
        if link := meta.pop("inherits", None):
            yield self.recorded(Request(link, meta=meta))


def following(
    spider: ListSpider | None, first: str | Request, *then: str | Request
) -> Request:
    request = Request(first) if isinstance(first, str) else first
    request.meta["then"] = then
    return request if spider is None else spider.recorded(request)


Case = Generator[list[Any], CrawlResult, None]
"""Yields requests, and looks at the result when all are done."""


RATE = (
    "User-agent: *\nRequest-rate: 4/1 0600-0845\nVisit-time: 0600-0845\nDisallow: /x\n"
)
FREE = {"dont_obey_robotstxt": True}
# What robots.txt says (in turn), how many pages are requested with this meta, how many requests
# that makes, and the least seconds between two of them (0: two come together).
ROWS: dict[str, tuple[list[Any], int, dict[str, Any], int, float]] = {
    "a delay": ([asking(DELAY)], 3, {}, 3, DELAY),
    "a delay of zero": ([asking(0)], 6, {}, 6, 0),
    "a delay for another agent": ([asking(DELAY, "otherbot")], 6, {}, 6, 0),
    "dont_obey_robotstxt": ([asking(100)], 6, FREE, 6, 0),
    "no longer than the setting": ([asking(100)], 2, {}, 2, LONG),
    "a rate is a delay": ([RATE], 3, {}, 3, 0.25),
    "what was held": ([503, 503, asking(DELAY)], 4, {}, 4, DELAY),
    "direct downloads": ([asking(DELAY)], 2, {"direct": ["/1", "/2"]}, 6, DELAY),
    # What takes longer than the delay is a site in need: the delay begins at the end of a page.
    "slow pages": ([asking(DELAY)], 2, {"slow": True}, 2, 2 * DELAY),
}


def each_row(sites: Sites) -> Case:
    table, requests = dict[str, Site](), []
    for name, (robots, count, meta, _, _) in ROWS.items():
        site = table[name] = sites.add(robots=in_turn(*robots))
        if "slow" in meta:
            site.pages |= dict.fromkeys(("/page0", "/page1"), after(DELAY, "slow"))
        requests += [Request(url, meta=dict(meta)) for url in urls(site, count)]
    result = yield requests
    for name, (_, _, _, count, seconds) in ROWS.items():
        assert len(gaps(table[name])) == count - 1, name
        least = min(gaps(table[name]))
        assert least >= seconds if seconds else least < DELAY, name
    assert table["what was held"].robots_fetches == 3
    says = "Waiting {} s between requests to {}: {} of its robots.txt{}\n"
    asked, limited, rate = (
        origin_of(table[name])
        for name in ("a delay", "no longer than the setting", "a rate is a delay")
    )
    more = " asks for 100 s, more than REP_CRAWL_DELAY allows"
    for line in (
        says.format(f"{DELAY:g}", asked, "crawl-delay in line 3", ""),
        says.format(f"{LONG:g}", limited, "crawl-delay in line 3", more),
        says.format(0.25, rate, "request-rate in line 2", ""),
        "\nVisit times, which are not obeyed: 1",
    ):
        assert line in result.log
    stats = ("rep/crawl_delay/limited", "rep/visit_time/origins")
    assert [result.stat(name) for name in stats] == [1, 1]


def redirects_and_retries_wait_their_turn(sites: Sites) -> Case:
    target, start = sites.add(robots=asking(DELAY)), sites.add(robots=asking(0))
    start.set("/to", redirect(target.url("/from")))
    target.set("/again", in_turn(503, "fine"))
    target.set("/moved", redirect("/moved-1"))
    yield [start.url("/to"), target.url("/again"), target.url("/moved")]
    assert_paced(target, DELAY, 5)


def failed_requests_count_too(sites: Sites) -> Case:
    delay = 2 * DELAY
    # Twisted and aiohttp may repeat the first by themselves, at once.
    site = sites.add(
        robots=asking(delay), pages={"/a": in_turn(reset(), reset(), "fine")}
    )
    yield [site.url("/a"), site.url("/b")]
    # At least two pauses, from the start of a failure: the server may have looked up late.
    assert sum(gaps(site)) >= 1.5 * delay


def changing(*bodies: str) -> Any:
    return in_turn(
        *(answer(body, headers=[("Cache-Control", "max-age=0")]) for body in bodies)
    )


def robots_txt_does_not_wait_for_pages(sites: Sites) -> Case:
    site = sites.add(robots=changing(asking(LONG)))
    yield [following(None, *urls(site, 3))]
    assert_paced(site, LONG, 3)
    # After a page robots.txt at once, and the next page when its time has come.
    hits = [
        (early, late)
        for early, late in pairwise(site.requests)
        if early.path != late.path
    ]
    waits = [
        late.time - early.time for early, late in hits if late.path == "/robots.txt"
    ]
    assert len(waits) == 2
    assert min(waits) < LONG


def a_site_that_changes_its_mind_is_followed(sites: Sites) -> Case:
    slower = sites.add(robots=changing(asking(0), asking(DELAY)))
    faster = sites.add(robots=changing(asking(LONG), asking(LONG), asking(0)))
    yield [following(None, *urls(slower, 4)), following(None, *urls(faster, 5))]
    assert min(gaps(slower)[1:]) >= DELAY
    assert gaps(faster)[0] >= LONG
    assert min(gaps(faster)[1:]) < LONG


def the_slowest_of_the_agents_in_use_counts(sites: Sites) -> Case:
    """Whoever comes first, and whichever of the two is the project's own."""
    some, chains = [], []
    for slow, quick in (("testbot", "quickbot"), ("slowbot", "testbot")):
        site = sites.add(robots=asking(DELAY, slow) + asking(0, quick))
        some.append(site)
        requests = []
        for path, name in (
            [("/slow", slow)] + [("/quick", quick)] * 2 + [("/slow", slow)]
        ):
            meta = {} if name == "testbot" else {"rep_user_agent": name}
            requests.append(Request(site.url(path), meta=meta))
        chains.append(following(None, *requests))
    unused = sites.add(robots=asking(LONG, "slowbot") + asking(0, "testbot"))
    yield [*chains, *urls(unused, 4)]
    for site in some:
        assert_paced(site, DELAY, 4)
    assert min(gaps(unused)) < DELAY


def the_slowest_counts_where_origins_share_a_slot(sites: Sites) -> Case:
    """By their meta, or as two ports of a host. The slow one is asked first."""
    pairs, chains = [], []
    for meta in ({"download_slot": "shared"}, {}):
        slow = sites.add(robots=asking(DELAY))
        fast = sites.add(robots=asking(DELAY / 3), host=None if meta else slow.host)
        requests = [Request(url, meta=meta) for url in [*urls(slow, 1), *urls(fast, 2)]]
        pairs.append((slow, fast))
        chains.append(following(None, *requests))
    yield chains
    for pair in pairs:
        assert len(gaps(*pair)) == 2
        assert min(gaps(*pair)) >= DELAY


def links_that_inherit_meta_leave_the_others_slot(sites: Sites) -> Case:
    """``meta=response.meta`` carries the slot that Scrapy noted down for another host."""
    slow, start = sites.add(robots=asking(DELAY)), sites.add(robots=asking(0))
    links = zip(urls(start, 2), urls(slow, 2, "/link"), strict=True)
    yield [
        *(Request(url, meta={"inherits": link}) for url, link in links),
        *urls(slow, 2),
    ]
    assert_paced(slow, DELAY, 4)


CASES = [
    each_row,
    redirects_and_retries_wait_their_turn,
    failed_requests_count_too,
    robots_txt_does_not_wait_for_pages,
    a_site_that_changes_its_mind_is_followed,
    the_slowest_of_the_agents_in_use_counts,
    the_slowest_counts_where_origins_share_a_slot,
    links_that_inherit_meta_leave_the_others_slot,
]


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize("takes_turns", [False, True])
async def test_one_request_at_a_time_with_the_sites_delay(
    sites: Sites, tmp_path: Path, takes_turns: bool
) -> None:
    """All cases in one crawl: their pauses are at the same time. Also by turns, of one process."""
    table = [(case.__name__, case(sites)) for case in CASES]
    settings = {
        **ON,
        **(in_a_file(tmp_path) if takes_turns else {}),
        "REP_CACHE_MIN_TTL": 0.0,
        "REP_UNREACHABLE": "hold",
        "REP_RETRY_DELAY": 0.1,
        "REP_RETRY_MAX_DELAY": 0.2,
    }
    every = [request for _, case in table for request in next(case)]
    result = await crawl(Following, settings, requests=every)
    result.assert_clean()
    assert result.failures == {}
    with every_row() as row:
        for name, case in table:
            with row(name), suppress(StopIteration):
                case.send(result)


SKIP = {"REP_CRAWL_DELAY": {"most": DELAY, "beyond": "skip"}}


async def test_sites_that_ask_for_more_are_not_crawled(
    sites: Sites, tmp_path: Path
) -> None:
    """Neither pages, nor direct downloads, nor what is held, nor sitemaps; by name in log and report."""
    paced, slow = (
        sites.add(robots=asking(DELAY)),
        sites.add(robots=in_turn(503, asking(100))),
    )
    rated = sites.add(robots="User-agent: *\nRequest-rate: 1/2m")
    others = sites.add(robots=asking(100, "otherbot") + asking(0))
    listing = sites.add()
    listing.set("/robots.txt", f"{asking(100)}Sitemap: {listing.url('/map.xml')}\n")
    refused, report = [slow, rated, listing], tmp_path / "report.html"
    requests = [url for site in (paced, *refused, others) for url in urls(site, 2)]
    settings = {**ON, **SKIP, **HOLD, "REP_SITEMAPS": True, "REP_REPORT": str(report)}
    result = await crawl(requests, settings)
    result.assert_clean()
    assert set(result.responses) == {*urls(paced, 2), *urls(others, 2)}
    assert all(result.disallowed(url) for site in refused for url in urls(site, 2))
    assert [site.pages_asked for site in refused] == [[]] * 3
    why = "line 2: request-rate: 1/2m, more than REP_CRAWL_DELAY allows, group *"
    assert (
        str(result.failure(rated.url("/page0"))) == f"Forbidden by robots.txt ({why})"
    )
    for site, line in (
        (slow, "crawl-delay in line 3"),
        (rated, "request-rate in line 2"),
    ):
        assert (
            f"INFO Not crawling {origin_of(site)}: {line} of its robots.txt asks for "
            in result.log
        )
    assert result.stat("rep/crawl_delay/skipped") == 3
    assert "Crawl delays: 1 obeyed, 3 sites skipped, at most 0.3 s" in result.log
    page = report.read_text()
    assert "crawl-delay: 100, more than REP_CRAWL_DELAY allows" in page
    assert [
        page.count(f"<td>{seconds}<td class=t>") for seconds in (0.3, 100, 120)
    ] == [1, 2, 1]


async def test_another_agent_and_a_dry_run_are_not_refused(sites: Sites) -> None:
    site = sites.add(robots=asking(100, "slowbot") + asking(0))
    slow = Request(site.url("/slow"), meta={"rep_user_agent": "slowbot"})
    free = Request(site.url("/free"), meta={"rep_user_agent": "slowbot", **FREE})
    for settings in ({}, {"REP_DRY_RUN": True}):
        result = await crawl([site.url("/a"), slow, free], {**ON, **SKIP, **settings})
        assert result.disallowed(slow.url) is not bool(settings)
        assert {site.url("/a"), free.url} <= {*result.responses}


@pytest.mark.parametrize("dry_run", [False, True])
async def test_delays_are_ignored_unless_asked_for(sites: Sites, dry_run: bool) -> None:
    """A dry run tells of them, and slows nothing."""
    slow = (
        "User-agent: *\nCrawl-delay: 100\nRequest-rate: 1/1h\nVisit-time: 0600-0845\n"
    )
    site = sites.add(robots=slow)
    result = await crawl(urls(site, 6), {**ON, "REP_DRY_RUN": True} if dry_run else {})
    assert len(result.responses) == 6
    assert (
        any(word in result.log for word in ("crawl-delay", "request-rate", "visit"))
        == dry_run
    )
    assert result.stat("rep/crawl_delay/origins") == dry_run


AUTOTHROTTLE = {
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 0.01,
    "AUTOTHROTTLE_MAX_DELAY": 0.05,  # less than the site asks for, however slow the machine is
}


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ({"DOWNLOAD_DELAY": DELAY, "RANDOMIZE_DOWNLOAD_DELAY": False}, DELAY),
        ({"DOWNLOAD_DELAY": 2 * DELAY, "RANDOMIZE_DOWNLOAD_DELAY": False}, 2 * DELAY),
        (
            {"DOWNLOAD_DELAY": 1.2 * DELAY},
            1.2 * DELAY,
        ),  # that could be 0.6 of the site's
        ({"DOWNLOAD_DELAY": 4 * DELAY}, 2 * DELAY),  # half of it is more: chance stays
        (AUTOTHROTTLE, DELAY),
    ],
)
@pytest.mark.scrapy_api
@pytest.mark.filterwarnings("ignore:.*RANDOMIZE_DOWNLOAD_DELAY")
async def test_the_longer_delay_counts(
    sites: Sites, own: dict[str, Any], seconds: float
) -> None:
    """The project's own or the site's."""
    throttled = own is AUTOTHROTTLE
    site, count = sites.add(robots=asking(DELAY)), 4 if throttled else 2
    fast, pages = sites.add(robots=asking(0)), 6 if throttled else 0
    result = await crawl([*urls(site, count), *urls(fast, pages)], {**ON, **own})
    assert_paced(site, seconds, count)
    if throttled:
        assert len(gaps(fast)) == pages - 1
        assert min(gaps(fast)) < DELAY  # two come together, on a slow machine too
    assert ("crawl-delay" in result.log) is throttled


async def test_log_stays_short_and_summary_and_report_show_the_delays(
    sites: Sites, tmp_path: Path
) -> None:
    slow = [sites.add(robots=asking(DELAY)) for _ in range(13)]
    slower, quick = sites.add(robots=asking(0.6)), sites.add(robots=asking(0))
    every, report = (
        [site.url("/a") for site in (*slow, slower, quick)],
        tmp_path / "report.html",
    )
    result = await crawl(every, {**ON, "REP_REPORT": str(report)})
    levels = [
        one.levelname for one in result.records if "crawl-delay in" in one.getMessage()
    ]
    assert levels == ["INFO"] * 10 + ["DEBUG"] * 4
    assert "Crawl delays: 14 obeyed, at most 0.6 s" in result.log
    assert result.stat("rep/crawl_delay/max") == 0.6
    page = report.read_text()
    assert "crawl-delay, s" in page
    assert [page.count(f"<td>{seconds}<td class=t>") for seconds in (0.3, 0.6)] == [
        13,
        1,
    ]


async def test_a_large_file_is_read_once_and_in_a_thread(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetched, and found in a storage by the next crawl."""
    read_in: list[threading.Thread] = []
    pace_of = Groups.pace_of

    def watched(groups: Groups, token: str) -> Any:
        read_in.append(threading.current_thread())
        return pace_of(groups, token)

    monkeypatch.setattr(Groups, "pace_of", watched)
    site = sites.add(robots=asking(DELAY) + "Disallow: /x\n" * 10_000)
    for number in (1, 2):
        await crawl(urls(site, 2), {**ON, **in_a_file(tmp_path)})
        assert len(read_in) == number
    assert threading.main_thread() not in read_in
    assert site.robots_fetches == 1
    first, _, second = gaps(site)  # the other is that between the two crawls
    assert min(first, second) >= DELAY


RATES: dict[float | None, list[str]] = {
    10.0: ["1/10", "1/10 0600-0845", "1 / 10s  0600 - 0845"],
    0.25: ["4/1"],
    120.0: ["1/2m"],
    60.0: ["60/1H"],
    0.0: ["1/0"],
    None: [
        *("0/10", "1/-5", "10", "1/10 6:00-8:45", "1/10 0600", "\u0661/10"),
        *("1/10" + " " * 9999 + "x", "1/" + "9" * 400),
    ],
}


def test_rates_are_read_and_others_have_no_effect() -> None:
    with every_row() as checking:
        for seconds, value in ((one, value) for one in RATES for value in RATES[one]):
            with checking(value[:20]):
                body = f"User-agent: *\nRequest-rate: {value} # so\n".encode()
                robots = RobotsTxt.parse(body)
                slowest = robots.pace("FooBot").slowest
                assert (slowest and slowest.seconds) == seconds
                assert robots.crawl_delay("FooBot") is None
                [found] = [one for one in lint(body) if one.line == 2]
                assert found.code == ("bad-delay" if seconds is None else "other-delay")


def test_the_slowest_line_of_the_group_counts() -> None:
    body = (
        b"User-agent: a\nRequest-rate: 1/60\nUser-agent: FooBot\nUser-agent: *\nCrawl-delay: 5\n"
        b"request-rate: 1/20 0600-0845\nVisit-time: 0600-0845\nVisit-time: never\nDisallow: /x\n"
    )
    pace = RobotsTxt.parse(body).pace("FooBot")
    assert pace.slowest is not None
    assert pace.visit_time is not None
    assert pace.slowest[:3] == (20.0, 6, "request-rate")
    assert pace.crawl_delay is not None
    assert pace.crawl_delay[:2] == (5.0, 5)
    assert pace.visit_time[1:] == (7, "visit-time", "0600-0845")
