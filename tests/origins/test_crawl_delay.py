"""REP_CRAWL_DELAY: sites that ask for it get one request at a time, with a pause between two (REP.md
section 12). Each server writes down when requests came. Real delays, since it is about these."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep.protocol.groups import Groups
from tests.helpers.behaviours import after, answer, in_turn, redirect, reset
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import NEVER, urls
from tests.helpers.servers import Site, Sites

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

DELAY = 0.3
ON: dict[str, Any] = {
    "REP_CRAWL_DELAY": True,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "REP_DEFER_GRACE": NEVER,
}


def asking(seconds: float, agent: str = "*") -> str:
    return f"User-agent: {agent}\nDisallow: /private\nCrawl-delay: {seconds}\n"


def gaps(site: Site, path: str | None = None) -> list[float]:
    """Seconds between any two requests for pages of *site*."""
    times = [hit.time for hit in site.requests if hit.path != "/robots.txt"]
    if path is not None:
        times = [hit.time for hit in site.hits(path)]
    return [late - early for early, late in pairwise(times)]


def assert_paced(site: Site, seconds: float, requests: int) -> None:
    assert len(gaps(site)) == requests - 1
    assert min(gaps(site)) >= seconds


def assert_unpaced(site: Site, requests: int, slow: Site) -> None:
    """All come before the third page of *slow*, on a slow machine too: who pauses as *slow* does has
    no more than three by then."""
    assert len(gaps(site)) == requests - 1
    assert site.requests[-1].time < slow.requests[3].time


@pytest.mark.loop
async def test_one_request_at_a_time_with_the_sites_delay(sites: Sites) -> None:
    slow, fast = sites.add(robots=asking(DELAY)), sites.add(robots=asking(0))
    other = sites.add(robots=asking(DELAY, "otherbot"))
    every = [url for site in (slow, fast, other) for url in urls(site, 6)]
    result = await crawl(every, {**ON, "CONCURRENT_REQUESTS": 48})
    result.assert_clean()
    assert len(result.responses) == 18
    assert_paced(slow, DELAY, 6)
    assert_unpaced(fast, 6, slow)
    assert_unpaced(other, 6, slow)
    assert result.stat("rep/crawl_delay/origins") == 1
    assert result.stat("rep/crawl_delay/max") == DELAY
    assert result.stat("rep/crawl_delay/limited") == 0
    [line] = [one for one in result.records if "crawl-delay in line" in one.getMessage()]
    assert (line.levelname, line.name) == ("INFO", "scrapy_rep.origins")
    origin = slow.url("").removesuffix("/")
    assert line.getMessage() == (
        f"Waiting 0.3 s between requests to {origin}: crawl-delay in line 3 of its robots.txt"
    )


async def test_delays_are_ignored_unless_asked_for(sites: Sites) -> None:
    site = sites.add(robots=asking(100))
    result = await crawl(urls(site, 6))
    assert len(result.responses) == 6
    assert "crawl-delay" not in result.log
    assert not [name for name in result.stats if "crawl_delay" in name]


async def test_the_setting_is_the_longest_delay(sites: Sites) -> None:
    site = sites.add(robots=asking(100))
    result = await crawl(urls(site, 4), {**ON, "REP_CRAWL_DELAY": DELAY})
    assert_paced(site, DELAY, 4)
    assert result.stat("rep/crawl_delay/limited") == 1
    assert "asks for 100 s, more than REP_CRAWL_DELAY allows" in result.log


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ({"DOWNLOAD_DELAY": 2 * DELAY, "RANDOMIZE_DOWNLOAD_DELAY": False}, 2 * DELAY),
        ({"DOWNLOAD_DELAY": 1.2 * DELAY}, 1.2 * DELAY),  # that could be 0.6 of the site's
        ({"DOWNLOAD_DELAY": 4 * DELAY}, 2 * DELAY),  # half of it is more: chance stays
    ],
)
@pytest.mark.filterwarnings("ignore:.*RANDOMIZE_DOWNLOAD_DELAY")
async def test_the_projects_longer_delay_stays(
    sites: Sites, own: dict[str, Any], seconds: float
) -> None:
    site = sites.add(robots=asking(DELAY))
    result = await crawl(urls(site, 3), {**ON, **own})
    assert_paced(site, seconds, 3)
    assert "crawl-delay" not in result.log


async def test_autothrottle_never_goes_below_the_delay(sites: Sites) -> None:
    autothrottle = {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 0.01,
        "AUTOTHROTTLE_MAX_DELAY": 0.05,  # less than the site asks for, however slow the machine is
    }
    slow, fast = sites.add(robots=asking(DELAY)), sites.add(robots=asking(0))
    await crawl([*urls(slow, 5), *urls(fast, 5)], {**ON, **autothrottle})
    assert_paced(slow, DELAY, 5)
    assert_unpaced(fast, 5, slow)


@pytest.mark.loop
async def test_redirects_and_retries_wait_their_turn(sites: Sites) -> None:
    target = sites.add(robots=asking(DELAY))
    start = sites.add(robots=asking(0))
    for number in range(3):
        start.set(f"/to{number}", redirect(target.url(f"/from{number}")))
        target.set(f"/again{number}", in_turn(503, "fine"))
        target.set(f"/moved{number}", redirect(f"/moved-{number}"))
    wanted = [start.url(f"/to{number}") for number in range(3)]
    wanted += [target.url(f"/{what}{number}") for number in range(3) for what in ("again", "moved")]
    result = await crawl(wanted, ON)
    assert len(result.responses) == 9
    assert_paced(target, DELAY, 15)
    assert_unpaced(start, 3, target)


async def test_failed_requests_count_too(sites: Sites) -> None:
    delay = 2 * DELAY
    site = sites.add(robots=asking(delay), pages={"/a": in_turn(reset(), "fine")})
    await crawl([site.url("/a"), site.url("/b")], ON)
    # Without a reactor Scrapy's handler repeats a GET by itself.
    asked = [gap for gap in gaps(site) if gap > delay / 3]
    assert len(asked) >= 1
    assert min(asked) >= delay / 2  # counted from its start, and the server may look up late


async def test_pages_that_load_slowly_are_not_followed_at_once(sites: Sites) -> None:
    """Counted from the end of each: a page that takes longer than the delay is a site in need."""
    site = sites.add(robots=asking(DELAY), pages={f"/{n}": after(DELAY, "slow") for n in range(3)})
    await crawl([site.url(f"/{number}") for number in range(3)], ON)
    assert min(gaps(site)) >= 2 * DELAY


@pytest.mark.loop
async def test_held_and_released_requests_keep_the_delay(sites: Sites) -> None:
    site = sites.add(robots=in_turn(503, 503, asking(DELAY)))
    settings = {"REP_UNREACHABLE": "defer", "REP_RETRY_DELAY": 0.1, "REP_RETRY_MAX_DELAY": 0.2}
    result = await crawl(urls(site, 8), {**ON, **settings})
    assert result.stat("rep/deferred") > 0
    assert len(result.responses) == 8
    assert_paced(site, DELAY, 8)


@pytest.mark.loop
async def test_direct_downloads_keep_the_delay(sites: Sites) -> None:
    site = sites.add(robots=asking(DELAY))

    class Spider(ListSpider):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            super().parse(response)
            for number in range(2):
                await self.crawler.engine.download_async(Request(f"{response.url}-{number}"))

    await crawl(Spider, ON, requests=urls(site, 2))
    assert_paced(site, DELAY, 6)


async def test_robots_txt_does_not_wait_for_pages(sites: Sites) -> None:
    site = sites.add(robots=changing(asking(DELAY)))
    spider = {"requests": urls(site, 4)}
    result = await crawl(Patient, {**ON, "REP_CACHE_MIN_TTL": 0.0}, **spider)
    assert site.robots_fetches == len(result.responses) == 4
    assert_paced(site, DELAY, 4)
    times = [hit.time for hit in site.requests]
    waits = [after - before for before, after in pairwise(times)]
    # page, robots.txt at once, and the next page when its time has come
    assert min(waits[1::2]) < DELAY


AGENTS = asking(DELAY, "testbot") + asking(0, "quickbot")


@pytest.mark.parametrize("first", ["testbot", "quickbot"])
async def test_another_agent_is_not_slowed_down(sites: Sites, first: str) -> None:
    site = sites.add(robots=AGENTS)
    slow = [Request(site.url("/slow"), meta={"n": n}) for n in range(4)]
    quick = [Request(site.url("/quick"), meta={"rep_user_agent": "quickbot"}) for _ in range(6)]
    requests = slow + quick if first == "testbot" else quick + slow
    result = await crawl([requests[0]], ON)  # robots.txt alone first, to see that it does
    result = await crawl(requests, ON)
    assert len(result.spider.responses) == 10
    assert min(gaps(site, "/slow")[-3:]) >= DELAY
    assert site.hits("/quick")[-1].time < site.hits("/slow")[-2].time


async def test_an_agents_own_delay_slows_only_that_agent(sites: Sites) -> None:
    site = sites.add(robots=asking(0, "testbot") + asking(DELAY, "slowbot"))
    slow = [Request(site.url("/slow"), meta={"rep_user_agent": "slowbot"}) for _ in range(4)]
    await crawl([*slow, *(site.url(f"/quick?{n}") for n in range(6))], ON)
    assert min(gaps(site, "/slow")) >= DELAY
    assert site.hits("/quick")[-1].time < site.hits("/slow")[-2].time


async def test_the_slowest_counts_where_origins_share_a_slot(sites: Sites) -> None:
    slow, fast = sites.add(robots=asking(DELAY)), sites.add(robots=asking(DELAY / 3))
    meta = {"download_slot": "shared"}
    wanted = [Request(url, meta=meta) for site in (slow, fast) for url in urls(site, 3)]
    result = await crawl(wanted, ON)
    assert len(result.responses) == 6
    hits = sorted([*slow.requests, *fast.requests], key=lambda hit: hit.time)
    times = [hit.time for hit in hits if hit.path != "/robots.txt"]
    assert min(late - early for early, late in pairwise(times)) >= DELAY / 3
    since = slow.requests[1].time  # from when the slower one is known
    late_times = [time for time in times if time >= since]
    assert min(late - early for early, late in pairwise(late_times)) >= DELAY


async def test_two_ports_of_a_host_share_its_slot(sites: Sites) -> None:
    slow = sites.add(robots=asking(DELAY))
    same = sites.add(robots=asking(0), host=slow.host)
    await crawl([*urls(slow, 3), *urls(same, 3)], ON)
    times = [hit.time for site in (slow, same) for hit in site.requests[1:]]
    known = [time for time in sorted(times) if time >= slow.requests[1].time]
    assert min(late - early for early, late in pairwise(known)) >= DELAY


@pytest.mark.skipif(not is_reactor_installed(), reason="needs Scrapy's DNS cache")
@pytest.mark.filterwarnings("ignore:.*CONCURRENT_REQUESTS_PER_IP")
async def test_two_names_of_an_address_share_its_slot(sites: Sites) -> None:
    slow = sites.add(robots=asking(DELAY), name="slow.test")
    fast = sites.add(robots=asking(0), name="fast.test", host=slow.host)
    by_address = {
        "CONCURRENT_REQUESTS_PER_IP": 8,
        # The default one does without.
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
    }
    result = await crawl([*urls(slow, 4), *urls(fast, 4)], {**ON, **by_address})
    assert len(result.responses) == 8
    times = sorted(hit.time for site in (slow, fast) for hit in site.requests[1:])
    known = [time for time in times if time >= slow.requests[1].time]
    assert min(late - early for early, late in pairwise(known)) >= DELAY


async def test_links_that_inherit_meta_leave_the_others_slot(sites: Sites) -> None:
    """``meta=response.meta`` carries the slot that Scrapy noted down for another host."""
    slow, start = sites.add(robots=asking(DELAY)), sites.add(robots=asking(0))

    class Spider(ListSpider):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            super().parse(response)
            if response.url.startswith(start.url()):
                yield self.recorded(Request(slow.url(f"/{response.url[-1]}"), meta=response.meta))

    await crawl(Spider, ON, requests=[*urls(start, 3), *urls(slow, 3)])
    assert_paced(slow, DELAY, 6)


class Patient(ListSpider):
    """Asks for the next page when the last has come."""

    async def start(self) -> AsyncIterator[Any]:
        yield self.recorded(self.requests[0])

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        if len(self.responses) < len(self.requests):
            yield self.recorded(self.requests[len(self.responses)])


def changing(*bodies: str) -> Any:
    headers = [("Cache-Control", "max-age=0")]
    return in_turn(*(answer(body, headers=headers) for body in bodies))


async def test_a_site_that_changes_its_mind_is_followed(sites: Sites) -> None:
    settings = {**ON, "REP_CACHE_MIN_TTL": 0.0}
    slower = sites.add(robots=changing(asking(0), asking(0), asking(DELAY)))
    await crawl(Patient, settings, requests=urls(slower, 5))
    assert min(gaps(slower)[-3:]) >= DELAY
    faster = sites.add(robots=changing(asking(DELAY), asking(DELAY), asking(0)))
    await crawl(Patient, settings, requests=urls(faster, 5))
    assert min(gaps(faster)[:1]) >= DELAY
    assert min(gaps(faster)[-2:]) < DELAY


async def test_a_dry_run_tells_and_slows_nothing(sites: Sites) -> None:
    site = sites.add(robots=asking(100))
    result = await crawl(urls(site, 6), {**ON, "REP_DRY_RUN": True})
    assert len(result.responses) == 6
    assert result.stat("rep/crawl_delay/origins") == 1


async def test_what_does_not_obey_slows_nothing(sites: Sites) -> None:
    site = sites.add(robots=asking(100))
    wanted = [Request(url, meta={"dont_obey_robotstxt": True}) for url in urls(site, 6)]
    result = await crawl([*wanted, "data:,nothing"], ON)
    assert len(result.responses) == 7
    result.assert_clean()


def delays_logged(result: CrawlResult) -> list[str]:
    return [one.levelname for one in result.records if "crawl-delay in" in one.getMessage()]


async def test_log_of_many_slow_sites_stays_short(sites: Sites) -> None:
    slow = [sites.add(robots=asking(DELAY)) for _ in range(14)]
    result = await crawl([site.url("/a") for site in slow], ON)
    assert delays_logged(result) == ["INFO"] * 10 + ["DEBUG"] * 4
    assert result.stat("rep/crawl_delay/origins") == 14


async def test_summary_and_report_show_the_delays(sites: Sites, tmp_path: Path) -> None:
    slow, slower = sites.add(robots=asking(DELAY)), sites.add(robots=asking(2 * DELAY))
    quick, report = sites.add(robots=asking(0)), tmp_path / "report.html"
    every = [site.url("/a") for site in (slow, slower, quick)]
    result = await crawl(every, {**ON, "REP_REPORT": str(report)})
    assert "crawl-delay of 2 origins: 0.6 s at most" in result.log
    page = report.read_text()
    assert "crawl-delay, s" in page
    assert [page.count(f"<td>{seconds}<td class=t>") for seconds in (0.3, 0.6)] == [1, 1]
    result = await crawl(every, {"REP_REPORT": str(report)})
    assert "crawl-delay" not in result.log + report.read_text()


async def test_a_large_file_is_read_once_and_in_a_thread(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetched, and found in a storage by the next crawl."""
    read_in: list[threading.Thread] = []
    asks_of = Groups.asks_of

    def watched(groups: Groups, token: str) -> Any:
        read_in.append(threading.current_thread())
        return asks_of(groups, token)

    monkeypatch.setattr(Groups, "asks_of", watched)
    site = sites.add(robots=asking(DELAY) + "Disallow: /x\n" * 10_000)
    settings = {
        **ON,
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": str(tmp_path / "robots.sqlite"),
    }
    for number in (1, 2):
        await crawl(urls(site, 2), settings)
        assert len(read_in) == number
    assert threading.main_thread() not in read_in
    assert site.robots_fetches == 1
    first, _, second = gaps(site)  # the other is that between the two crawls
    assert min(first, second) >= DELAY
