"""``Request-rate`` is a delay where ``REP_CRAWL_DELAY`` is on; ``Visit-time`` is reported alone (REP.md
section 12)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scrapy_rep.inspection.lint import lint
from scrapy_rep.protocol import RobotsTxt
from tests.helpers.crawling import crawl
from tests.helpers.held import NEVER, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.scrapy_api

RATES = {
    "1/10": 10.0,
    "1/10 0600-0845": 10.0,
    "1 / 10s  0600 - 0845": 10.0,
    "4/1": 0.25,
    "1/2m": 120.0,
    "60/1H": 60.0,
    "0/10": None,
    "1/0": 0.0,
    "1/-5": None,
    "10": None,
    "1/10 6:00-8:45": None,
    "1/10 0600": None,
    "1/10" + " " * 9999 + "x": None,
    "1/" + "9" * 400: None,
    "\u0661/10": None,
}


def test_rates_are_read_and_others_have_no_effect() -> None:
    with every_row() as checking:
        for value, seconds in RATES.items():
            with checking(value[:20]):
                body = f"User-agent: *\nRequest-rate: {value} # so\n".encode()
                robots = RobotsTxt.parse(body)
                slowest = robots.pace("FooBot").slowest
                assert (slowest and slowest.seconds) == seconds
                assert robots.crawl_delay("FooBot") is None
                [found] = [one for one in lint(body) if one.line == 2]
                assert found.code == ("bad-delay" if seconds is None else "other-field")


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


def least_gap(site: Site) -> float:
    times = [hit.time for hit in site.requests if hit.path != "/robots.txt"]
    return min(late - early for early, late in pairwise(times))


@pytest.mark.slow
async def test_a_crawl_keeps_to_the_rate_and_tells_of_visit_times(sites: Sites) -> None:
    timed = "User-agent: *\nRequest-rate: 4/1 0600-0845\nVisit-time: 0600-0845\nDisallow: /x\n"
    slow, limited = sites.add(robots=timed), sites.add(robots="User-agent: *\nRequest-rate: 1/1h")
    every = [*urls(slow, 4), *urls(limited, 2)]
    result = await crawl(every, {"REP_CRAWL_DELAY": 0.3, "REP_DEFER_GRACE": NEVER})
    result.assert_clean()
    assert len(result.responses) == 6
    assert least_gap(slow) >= 0.25
    assert least_gap(limited) >= 0.3
    origin = slow.url("").removesuffix("/")
    assert (
        f"Waiting 0.25 s between requests to {origin}: request-rate in line 2 of its robots.txt"
        in result.log
    )
    assert "asks for 3600 s, more than REP_CRAWL_DELAY allows" in result.log
    assert "asks for visits at 0600-0845 UTC alone (line 3), which is not obeyed" in result.log
    assert (
        "crawl-delay of 2 origins: 0.3 s at most\nvisit-time of 1 origin, not obeyed" in result.log
    )
    assert result.stat("rep/visit_time/origins") == 1


async def test_neither_does_anything_unless_asked_for(sites: Sites) -> None:
    site = sites.add(robots="User-agent: *\nRequest-rate: 1/1h\nVisit-time: 0600-0845")
    result = await crawl(urls(site, 6))
    assert len(result.responses) == 6
    assert "request-rate" not in result.log
    assert "visit" not in result.log
