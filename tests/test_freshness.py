"""REP.md sections 4 and 5 in real crawls, with a clock that the tests set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol.availability import Outcome
from tests.behaviours import answer
from tests.crawling import CrawlResult, ListSpider, crawl
from tests.servers import Site, Sites
from tests.test_status_table import Resolved

HOUR, DAY = 3600, 86400
RULES = "User-agent: *\nDisallow: /private\n"
NEW_RULES = "User-agent: *\nDisallow: /new\n"


class Clock:
    """Seconds since the epoch, for the middleware."""

    def __init__(self) -> None:
        self.now = self.start = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def at(self, seconds: float) -> None:
        """Set the time, counted from the start of the test."""
        self.now = self.start + seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(RepMiddleware, "clock", staticmethod(clock))
    return clock


class StepSpider(ListSpider):
    """Takes one step after the other: calls it, and requests the URL that it returns.

    `fates` says what became of each: "fetched", "disallowed" or "unreachable".
    """

    def __init__(self, steps: list[Callable[[], str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = steps
        self.fates: list[str] = []

    async def start(self) -> Any:
        yield self.recorded(self.steps.pop(0)())

    def parse(self, response: Any, **kwargs: Any) -> Any:
        return self._next("fetched")

    def failed(self, failure: Any) -> Any:
        kinds = {RobotsDisallowed: "disallowed", RobotsUnreachable: "unreachable"}
        return self._next(kinds[failure.type])

    def _next(self, fate: str) -> Any:
        self.fates.append(fate)
        if self.steps:
            yield self.recorded(self.steps.pop(0)())


async def run(
    clock: Clock,
    site: Site,
    *steps: tuple[float, str] | tuple[float, str, Any],
    settings: dict[str, Any] | None = None,
) -> tuple[CrawlResult, list[tuple[str, int]], Resolved]:
    """Each step: the time, the path to request, and optionally the robots.txt from then on.

    Returns, for each step, its fate and how often robots.txt had been asked for by then.
    """
    counts: list[int] = []

    def step(seconds: float, path: str, *robots: Any) -> Callable[[], str]:
        def take() -> str:
            if seconds:
                counts.append(site.count("/robots.txt"))
            clock.at(seconds)
            for one in robots:
                site.set("/robots.txt", one)
            return site.url(path)

        return take

    resolved = Resolved()
    result = await crawl(
        StepSpider,
        {"REP_UNREACHABLE": "drop", **(settings or {})},
        steps=[step(*one) for one in steps],
        signal_handlers=resolved.handlers,
    )
    counts.append(site.count("/robots.txt"))
    result.assert_clean()
    return result, list(zip(result.spider.fates, counts, strict=True)), resolved


@pytest.mark.parametrize("robots", [RULES, 404], ids=["rules", "missing"])
async def test_fresh_for_24_hours(sites: Sites, clock: Clock, robots: str | int) -> None:
    site = sites.add(robots=robots)
    result, fates, _ = await run(
        clock, site, (0, "/new"), (DAY - 1, "/new", NEW_RULES), (DAY + 1, "/new"), (DAY + 2, "/x")
    )
    assert fates == [("fetched", 1), ("fetched", 1), ("disallowed", 2), ("fetched", 2)]
    assert result.stat("rep/cache/miss") == 1
    assert result.stat("rep/cache/refresh") == 1
    assert result.stat("rep/cache/hit") == 2


LIFETIMES = [
    ("max-age=600", None, 600),
    ("public, MAX-AGE=600", None, 600),
    ("max-age=172800", None, 2 * DAY),
    ("max-age=0", None, 300),
    ("max-age=600", "200", 400),
    ("max-age=600", "599", 300),
    ("no-store", None, 300),
    ("no-cache, max-age=600", None, 300),
    ("max-age=99999999999", None, 7 * DAY),
    ("max-age=soon", None, DAY),
    ("private", None, DAY),
]


@pytest.mark.parametrize(("control", "age", "seconds"), LIFETIMES)
async def test_cache_control(
    sites: Sites, clock: Clock, control: str, age: str | None, seconds: int
) -> None:
    headers = [("Cache-Control", control), *([("Age", age)] if age else [])]
    site = sites.add(robots=answer(RULES, headers=headers))
    _, fates, _ = await run(clock, site, (0, "/x"), (seconds - 1, "/x"), (seconds + 1, "/x"))
    assert [count for _, count in fates] == [1, 1, 2]


async def test_a_stale_copy_is_better_than_a_guess(sites: Sites, clock: Clock) -> None:
    """Its rules go on being applied while the origin is unreachable, and the clock runs."""
    site = sites.add(robots=RULES)
    result, fates, resolved = await run(
        clock,
        site,
        (0, "/private"),
        (DAY + 1, "/private", 503),
        (DAY + 2, "/x"),
        (DAY + HOUR, "/private"),
        (DAY + 2 * HOUR, "/new", NEW_RULES),
    )
    assert fates == [
        ("disallowed", 1),
        ("disallowed", 2),
        ("fetched", 2),
        ("disallowed", 3),
        ("disallowed", 4),
    ]
    assert [(one["outcome"], one["attempts"]) for one in resolved.all] == [
        (Outcome.RULES, 0),
        (Outcome.UNREACHABLE, 1),
        (Outcome.UNREACHABLE, 2),
        (Outcome.RULES, 0),
    ]
    assert result.stat("rep/unreachable/dropped") == 0


async def test_a_404_is_no_copy(sites: Sites, clock: Clock) -> None:
    """There are no rules in it to go on with: unreachable is unreachable."""
    site = sites.add(robots=404)
    _, fates, _ = await run(clock, site, (0, "/x"), (DAY + 1, "/x", 503), (DAY + 2, "/x"))
    assert fates == [("fetched", 1), ("unreachable", 2), ("unreachable", 2)]


@pytest.mark.parametrize(
    ("headers", "silent_until"),
    [
        ([], 2),
        ([("Retry-After", "120")], 119),
        ([("Retry-After", "Tue, 14 Nov 2023 22:15:20 GMT")], 119),
        ([("Retry-After", "86400")], 590),
    ],
    ids=["none", "seconds", "date", "beyond the ceiling"],
)
async def test_the_clock_of_an_unreachable_origin(
    sites: Sites, clock: Clock, headers: list[tuple[str, str]], silent_until: float
) -> None:
    """Requests do not make it tick faster; its ceiling is REP_RETRY_MAX_DELAY."""
    site = sites.add(robots=answer("busy", 503, headers))
    _, fates, _ = await run(
        clock, site, (0, "/x"), (1, "/x"), (silent_until, "/x"), (601, "/x", RULES), (602, "/x")
    )
    assert [count for _, count in fates] == [1, 1, 1, 2, 2]
    assert [fate for fate, _ in fates] == ["unreachable"] * 3 + ["fetched"] * 2


async def test_back_off_grows_to_the_ceiling(sites: Sites, clock: Clock) -> None:
    """A request every 10 seconds for two hours is not an attempt every 10 seconds."""
    site = sites.add(robots=503)
    _, fates, resolved = await run(clock, site, *[(10 * n, "/x") for n in range(720)])
    assert {fate for fate, _ in fates} == {"unreachable"}
    # From 5 s doubling to 600 s, with jitter: some 8 in the first 20 minutes, then 6 an hour.
    assert 12 <= site.count("/robots.txt") <= 40
    attempts = [one["attempts"] for one in resolved.all]
    assert attempts == list(range(1, len(attempts) + 1))


@pytest.mark.parametrize("copy", [RULES, None], ids=["a copy", "no copy"])
async def test_unreachable_for_30_days(sites: Sites, clock: Clock, copy: str | None) -> None:
    """The last copy goes on, and without one there are no restrictions any more."""
    site = sites.add(robots=copy or 503)
    _, fates, _ = await run(
        clock,
        site,
        (0, "/private", copy or 503),
        (2 * DAY, "/private", 503),
        (29 * DAY, "/private"),
        (33 * DAY, "/private"),
        (33 * DAY + 1, "/x"),
    )
    assert [fate for fate, _ in fates] == (
        ["disallowed"] * 4 + ["fetched"] if copy else ["unreachable"] * 3 + ["fetched"] * 2
    )


async def test_the_least_recently_used_origin_leaves(sites: Sites) -> None:
    one, two, three = (sites.add(robots=RULES) for _ in range(3))
    urls = [site.url("/x") for site in (one, two, one, three, one, two)]
    settings = {"REP_CACHE_MAX_ORIGINS": 2}
    result = await crawl(StepSpider, settings, steps=[lambda url=url: url for url in urls])
    assert [site.count("/robots.txt") for site in (one, two, three)] == [1, 2, 1]
    result.assert_clean()
