"""How ``Request-rate`` and ``Visit-time`` are read (REP.md section 12). What a crawl makes of them is in
test_crawl_delay.py."""

from __future__ import annotations

from scrapy_rep.inspection.lint import lint
from scrapy_rep.protocol import RobotsTxt
from tests.helpers.rows import every_row

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
