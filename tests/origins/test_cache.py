"""REP.md sections 4 and 5 in real crawls, on a clock that the test moves: how long an answer
holds, the clock of an unreachable origin, the 30 days, and whose entries leave."""

from __future__ import annotations

import itertools
from email.utils import formatdate
from typing import Any

import pytest

from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import RULES, answer, in_turn
from tests.helpers.crawling import (
    DAY,
    DOWN,
    NO,
    OK,
    SLOW,
    Clock,
    CrawlResult,
    Step,
    StepSpider,
    crawl,
)
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

# What is held asks once more what is known, which counts again.
pytestmark = pytest.mark.usefixtures("in_time")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().install(monkeypatch)


async def run(
    clock: Clock, *steps: Step, settings: dict[str, Any] | None = None, **kwargs: Any
) -> tuple[list[str], CrawlResult]:
    """What became of the requests among *steps*, and of the crawl."""
    result = await crawl(StepSpider, settings, steps=list(steps), clock=clock, **kwargs)
    result.assert_clean()
    assert isinstance(result.spider, StepSpider)
    return result.spider.outcomes, result


Plan = list[tuple[float, Step]]


async def run_plans(
    clock: Clock, plans: list[Plan], settings: dict[str, Any] | None = None
) -> tuple[dict[str, list[str]], CrawlResult]:
    """One crawl of steps that come at their own seconds after its start. What became of the
    requests for each URL, and of the crawl."""
    steps: list[Step] = []
    now = 0.0
    for moment, step in sorted(itertools.chain(*plans), key=lambda one: one[0]):
        steps += [moment - now, step]
        now = moment
    outcomes, result = await run(clock, *steps, settings=settings)
    found: dict[str, list[str]] = {}
    urls = [step for step in steps if isinstance(step, str)]
    for url, outcome in zip(urls, outcomes, strict=True):
        found.setdefault(url, []).append(outcome)
    return found, result


class Asked:
    """A step: notes how often robots.txt was asked for so far."""

    def __init__(self, site: Site) -> None:
        self.site, self.counts = site, []  # type: ignore[var-annotated]

    def __call__(self) -> None:
        self.counts.append(self.site.count("/robots.txt"))


FRESH: list[tuple[str, dict[str, str], int]] = [
    ("nothing said", {}, DAY),
    ("max-age", {"Cache-Control": "public, max-age=3600"}, 3600),
    ("longer than a day", {"Cache-Control": "max-age=172800"}, 2 * DAY),
    ("under the floor", {"Cache-Control": "max-age=0"}, 300),
    ("over the ceiling", {"Cache-Control": "max-age=31536000"}, 7 * DAY),
    ("no-store", {"Cache-Control": "no-store"}, 300),
    ("no-cache", {"Cache-Control": "no-cache, max-age=3600"}, 300),
    ("Age is subtracted", {"Cache-Control": "max-age=3600", "Age": "600"}, 3000),
    ("Age alone says nothing", {"Age": "600"}, DAY),
    ("nonsense", {"Cache-Control": "max-age=long", "Age": "old"}, DAY),
    ("Expires is not looked at", {"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, DAY),
]


@pytest.mark.parametrize(
    ("settings", "control", "seconds"),
    [
        ({"REP_CACHE_TTL": 1000}, "private", 1000),
        ({"REP_CACHE_MIN_TTL": 20}, "max-age=10", 20),
        ({"REP_CACHE_MAX_TTL": 5000}, "max-age=6000", 5000),
    ],
)
async def test_settings_say_how_long_an_answer_is_fresh(
    sites: Sites, clock: Clock, settings: dict[str, Any], control: str, seconds: int
) -> None:
    site = sites.add(robots=answer(RULES, headers=[("Cache-Control", control)]))
    asked, page = Asked(site), site.url("/x")
    await run(clock, page, seconds - 1, page, asked, 2, page, asked, settings=settings)
    assert asked.counts == [1, 2]


async def test_an_answer_is_fresh_as_long_as_its_headers_say(sites: Sites, clock: Clock) -> None:
    """An answer that there is no file is one too."""
    table, plans = [], []
    for status, (name, headers, seconds) in itertools.product((200, 404), FRESH):
        site = sites.add(robots=answer(RULES, status, headers.items()))
        asked, page = Asked(site), site.url("/private")
        table.append((status, name, page, asked))
        times = (0, seconds - 1, seconds + 1, 2 * seconds)
        plans.append([(moment, step) for moment in times for step in (page, asked)])
    outcomes, result = await run_plans(clock, plans)
    with every_row() as row:
        for status, name, page, asked in table:
            with row(f"{status}, {name}"):
                assert asked.counts == [1, 1, 2, 2]
                assert outcomes[page] == [NO if status == 200 else OK] * 4
    counts = [result.stat(f"rep/cache/{name}") for name in ("miss", "hit", "refresh", "stale")]
    assert counts == [count * len(table) for count in (1, 4, 1, 0)]


async def test_a_stale_copy_is_applied_while_the_origin_is_unreachable(
    sites: Sites, clock: Clock
) -> None:
    """However old it is; and the clock keeps running."""
    site = sites.add(robots=in_turn(RULES, 503, 503, RULES))
    asked, resolved = Asked(site), Resolved()
    both = [site.url("/private"), site.url("/x")]
    outcomes, result = await run(
        clock,
        *[*both, asked, DAY + 1, *both, asked],  # asked again, in vain
        *[74, *both, asked],  # not yet
        *[27, *both, asked],  # 101 s after the first failure: again in vain
        *[201, *both, asked, 100, *both, asked],  # there again, and fresh
        settings=SLOW,
        signal_handlers=resolved.handlers,
    )
    assert outcomes == [NO, OK] * 6
    assert asked.counts == [1, 2, 2, 3, 4, 4]
    assert [(one["outcome"], one["attempts"]) for one in resolved.all] == [
        (Outcome.RULES, 0),
        (Outcome.UNREACHABLE, 1),
        (Outcome.UNREACHABLE, 2),
        (Outcome.RULES, 0),
    ]
    names = ("rep/cache/stale", "rep/cache/refresh", "rep/unreachable/dropped")
    assert [result.stat(name) for name in names] == [6, 3, 0]
    assert result.log.count("so an older copy applies") == 2


async def test_a_missing_file_is_no_copy(sites: Sites, clock: Clock) -> None:
    """Who had no robots.txt yesterday and answers 503 today has trouble: wait. An answer ends the row
    of failures: the next one has a short back-off."""
    site = sites.add(robots=in_turn(503, 503, 404, 503, 503))
    asked, page = Asked(site), site.url("/x")
    outcomes, result = await run(
        clock,
        *[page, 101, page, 201, page, asked],
        *[DAY + 1, page, asked, 74, page, asked, 27, page, asked],
        settings=SLOW,
    )
    assert outcomes == [DOWN, DOWN, OK, DOWN, DOWN, DOWN]
    assert asked.counts == [3, 4, 4, 5]
    attempts = [error.attempts for _, error in result.spider.errors]  # type: ignore[attr-defined]
    assert attempts == [1, 2, 1, 1, 2]


async def test_an_unreachable_origin_is_asked_ever_less_often(sites: Sites, clock: Clock) -> None:
    """Doubles up to the ceiling, less a quarter at most. One clock, whoever asks."""
    site = sites.add(robots=503)
    asked, page = Asked(site), site.url("/x")
    waits = [(100, 75), (200, 150), (400, 300), (800, 600), (800, 600)]
    steps: list[Step] = [page]
    for longest, shortest in waits:
        steps += [shortest - 1, page, page, asked, longest - shortest + 1, page, asked]
    outcomes, result = await run(clock, *steps, settings=SLOW)
    assert set(outcomes) == {DOWN}
    assert asked.counts == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    attempts = [error.attempts for _, error in result.spider.errors]  # type: ignore[attr-defined]
    assert attempts == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6]
    assert "(asked 6 times): HTTP 503" in str(result.spider.errors[-1][1])


RETRY_AFTER = [
    ("500", 500),
    ("date", 500),
    ("9999", 800),  # within the ceiling
    ("10", 75),  # a lower bound: the back-off goes on
    ("-5", 75),
    ("soon", 75),
]


async def test_retry_after_holds_within_the_ceiling(sites: Sites, clock: Clock) -> None:
    table, plans = [], []
    date = formatdate(clock.now + 500, usegmt=True)
    for status, (value, seconds) in itertools.product((429, 503), RETRY_AFTER):
        headers = [("Retry-After", date if value == "date" else value)]
        site = sites.add(robots=in_turn(answer("busy", status, headers), RULES))
        asked, page = Asked(site), site.url("/x")
        table.append((status, value, page, asked))
        times = (0, seconds - 1, seconds + 26)
        plans.append([(moment, step) for moment in times for step in (page, asked)])
    outcomes, _ = await run_plans(clock, plans, SLOW)
    with every_row() as row:
        for status, value, page, asked in table:
            with row(f"{status}, {value}"):
                assert outcomes[page] == [DOWN, DOWN, OK]
                assert asked.counts == [1, 1, 2]


async def test_after_30_days_unreachable_only_a_copy_still_forbids(
    sites: Sites, clock: Clock
) -> None:
    """The first site fails a day after its answer, the second from the start."""
    wanted = {"with a copy": [NO, OK] * 9, "without a copy": [DOWN, DOWN] * 6 + [OK, OK] * 2}
    copied, never = sites.add(robots=in_turn(RULES, 503)), sites.add(robots=503)
    table = {"with a copy": copied, "without a copy": never}
    weeks = [7 * DAY * number for number in range(5)]  # time in which nobody asks is no evidence
    since_failure = [*weeks, 30 * DAY - 1000, 30 * DAY + 1000, 330 * DAY]
    times = [(copied, moment) for moment in (0, *(DAY + one for one in since_failure))]
    times += [(never, moment) for moment in since_failure]
    plans: list[Plan] = [
        [(moment, site.url(path)) for path in ("/private", "/x")] for site, moment in times
    ]
    outcomes, _ = await run_plans(clock, plans, SLOW)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                both = zip(outcomes[site.url("/private")], outcomes[site.url("/x")], strict=True)
                assert list(itertools.chain(*both)) == wanted[name]


async def test_the_limit_needs_attempts(sites: Sites, clock: Clock) -> None:
    """Five at least: time in which nobody asks is no evidence, however long it is."""
    site = sites.add(robots=503)
    page = site.url("/private")
    outcomes, _ = await run(clock, *[page, 365 * DAY] * 4, page, 1, page, settings=SLOW)
    assert outcomes == [DOWN] * 4 + [OK, OK]
    assert site.count("/robots.txt") == 5
