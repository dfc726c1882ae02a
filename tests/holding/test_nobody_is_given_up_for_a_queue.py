"""Only time in which something is done about an origin counts against the requests that wait for it: from
when its robots.txt is sent, while the crawl runs, until they may leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from tests.helpers.behaviours import RULES, Behaviour, after, answer, in_turn, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import HOLD, NEVER, Bounded, InParts, a_while, urls
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.slow]
SECONDS = 25.0
"""In which each of these crawls should end by far."""
PACED: dict[str, Any] = {"DOWNLOAD_DELAY": 0.2, "DOWNLOAD_DELAY_JITTER": 0}


@pytest.fixture(params=[False, True], ids=["memory", "JOBDIR"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {"JOBDIR": str(tmp_path)} if request.param else {}


def valid(seconds: int) -> Behaviour:
    """There is no robots.txt, and so much for so long."""
    return answer("none", 404, [("Cache-Control", f"max-age={seconds}")])


async def test_the_first_robots_txt_may_queue_behind_pages_of_its_download_slot(
    sites: Sites, folder: dict[str, Any]
) -> None:
    """Two origins of one host, as http and https are."""
    first = sites.add()
    second, record = sites.add(host=first.host), Bounded(SECONDS)
    wanted = urls(second, 5)
    parts = [first.url("/"), lambda: first.pages_asked, *urls(first, 25), 0.5, *wanted]
    result = await record.crawl(
        InParts, parts=parts, **folder, **PACED, REP_HOLD_MAX_WAIT=1.5
    )
    assert result.reason == "finished"
    assert result.failures == {}
    assert set(wanted) <= set(result.responses)


async def test_a_later_robots_txt_may_queue_behind_pages_of_its_site(
    sites: Sites, folder: dict[str, Any]
) -> None:
    site, record = sites.add(robots=RULES), Bounded(SECONDS)
    settings = {
        **PACED,
        "DOWNLOAD_DELAY": 0.3,
        "REP_CACHE_TTL": 1.0,
        "REP_HOLD_MAX_WAIT": 2.0,
    }
    result = await record.crawl(urls(site, 40), **settings, **folder)
    assert result.reason == "finished"
    assert result.failures == {}


async def test_autothrottle_may_delay_robots_txt(sites: Sites) -> None:
    first = sites.add(
        pages={f"/page{number}": after(0.4, "slow") for number in range(17)}
    )
    second, record = sites.add(host=first.host), Bounded(SECONDS)
    wanted = urls(second, 2)
    parts = [
        *urls(first, 1),
        lambda: first.pages_asked,
        1.0,
        *urls(first, 17)[1:],
        0.5,
        *wanted,
    ]
    result = await record.crawl(
        InParts,
        parts=parts,
        AUTOTHROTTLE_ENABLED=True,
        AUTOTHROTTLE_START_DELAY=0.4,
        REP_HOLD_MAX_WAIT=2.0,
    )
    assert result.reason == "finished"
    assert result.failures == {}


async def test_whoever_is_given_up_was_asked(
    sites: Sites, folder: dict[str, Any]
) -> None:
    """However many silent origins are asked first. (Without a reactor, one at a time.)"""
    silent = [sites.add(robots=silence()) for _ in range(6)]
    healthy, record = [sites.add() for _ in range(3)], Bounded(SECONDS)
    wanted = [site.url("/page") for site in healthy]
    result = await record.crawl(
        [*(site.url("/page") for site in silent), *wanted],
        **folder,
        CONCURRENT_REQUESTS=2,
        REP_DOWNLOAD_TIMEOUT=0.5,
        REP_HOLD_MAX_WAIT=1.5,
        _REP_HOLD_GRACE=0.05,
        REP_RETRY_DELAY=0.3,
        REP_RETRY_MAX_DELAY=1.0,
        # As they came.
        SCHEDULER_PRIORITY_QUEUE="scrapy.pqueues.ScrapyPriorityQueue",
        SCHEDULER_MEMORY_QUEUE="scrapy.squeues.FifoMemoryQueue",
        SCHEDULER_DISK_QUEUE="scrapy.squeues.PickleFifoDiskQueue",
    )
    assert result.reason == "finished"
    assert set(result.responses) == set(wanted)
    assert all(site.robots_fetches for site in silent)


@pytest.mark.parametrize("later", [404, 503])
async def test_no_attempt_follows_a_good_answer(
    sites: Sites, folder: dict[str, Any], later: int
) -> None:
    """The last attempt came before the origin's next one was due."""
    site, record = sites.add(robots=in_turn(503, 404, later, 404)), Bounded(SECONDS)
    result = await record.crawl(
        urls(site, 15),
        **folder,
        **PACED,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
        REP_HOLD_MAX_WAIT=1.0,
        REP_RETRY_DELAY=2.0,
        REP_RETRY_MAX_DELAY=2.0,
    )
    assert result.reason == "finished"
    assert len(result.responses) == 15
    assert site.robots_fetches == 2


async def test_the_time_after_a_release_does_not_count(
    sites: Sites, folder: dict[str, Any]
) -> None:
    """An outage of a moment, later, while they leave at their pace."""
    site, record = (
        sites.add(robots=in_turn(503, valid(2), 503, valid(60))),
        Bounded(SECONDS),
    )
    result = await record.crawl(
        urls(site, 40),
        **folder,
        **PACED,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
        REP_HOLD_MAX_WAIT=2.0,
        REP_RETRY_DELAY=0.2,
        REP_CACHE_MIN_TTL=0,
    )
    assert result.reason == "finished"
    assert result.failures == {}
    assert site.robots_fetches == 4


class Pausing(ListSpider):
    """Pauses the engine for some seconds as soon as its requests are held."""

    seconds = 2.0

    async def start(self) -> Any:
        async for request in super().start():
            yield request
        await a_while(0.2)  # past the grace: no event says that a request waits on
        engine: Any = self.crawler.engine
        engine.pause()
        await a_while(self.seconds)  # the time that must not count
        engine.unpause()


async def test_the_time_of_a_pause_does_not_count(
    sites: Sites, folder: dict[str, Any]
) -> None:
    back, slow = (
        sites.add(robots=in_turn(503, 503, 404)),
        sites.add(robots=after(0.8, 404)),
    )
    wanted, record = [*urls(back, 5), *urls(slow, 5)], Bounded(SECONDS)
    result = await record.crawl(
        Pausing,
        requests=wanted,
        **folder,
        REP_HOLD_MAX_WAIT=1.5,
        _REP_HOLD_GRACE=0.05,
        REP_RETRY_DELAY=0.4,
    )
    assert result.reason == "finished"
    assert set(result.responses) == set(wanted)


class LateMiddleware:
    """A middleware of the project: a request waits in it, after the gate, while others go on."""

    url = ""
    until: Any = None

    async def process_request(self, request: Request) -> None:
        while request.url == LateMiddleware.url and not LateMiddleware.until():
            await a_while(0.01)


async def test_a_page_whose_origin_was_forgotten_after_the_gate_is_not_lost(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its robots.txt is silent then, and Ctrl-C comes."""
    site, other = (
        sites.add(robots=in_turn(RULES, silence(), RULES)),
        sites.add(robots=RULES),
    )
    wanted, record = site.url("/wanted"), Bounded(SECONDS)
    monkeypatch.setattr(LateMiddleware, "url", wanted)
    monkeypatch.setattr(LateMiddleware, "until", lambda: other.pages_asked)
    settings = {
        "JOBDIR": str(tmp_path),
        "REP_CACHE_MAX_ORIGINS": 1,
        "REP_DOWNLOAD_TIMEOUT": NEVER,
        "_REP_HOLD_GRACE": 0.05,
        "REP_HOLD_MAX_WAIT": NEVER,
        "DOWNLOADER_MIDDLEWARES": {LateMiddleware: 50},
    }
    parts = [
        site.url("/first"),
        lambda: site.pages_asked,
        wanted,
        0.2,
        other.url("/page"),
    ]
    done = [lambda: other.pages_asked, 0.5, lambda: record.close() or True, NEVER]
    first = await record.crawl(InParts, parts=[*parts, *done], **settings)
    second = await crawl([], {**HOLD, **settings})
    assert wanted in {**first.responses, **second.responses}


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param((503, RULES), id="was unreachable"),
        pytest.param(
            (after(0.4, RULES),),
            id="was slow",
        ),
    ],
)
async def test_pages_that_leave_after_their_origin_was_forgotten_are_not_lost(
    sites: Sites, tmp_path: Path, answers: tuple[Any, ...]
) -> None:
    """The answer that lets them go counts, though another origin's has taken its place in the cache."""
    slow = {f"/page{number}": after(0.4, "slow") for number in range(3)}
    site = sites.add(robots=in_turn(*answers, silence(), RULES), pages=slow)
    other, record = sites.add(robots=RULES), Bounded(SECONDS)
    wanted = urls(site, 3)
    settings = {
        "JOBDIR": str(tmp_path),
        "REP_CACHE_MAX_ORIGINS": 1,
        "REP_DOWNLOAD_TIMEOUT": NEVER,
        "_REP_HOLD_GRACE": 0.05,
        "REP_HOLD_MAX_WAIT": NEVER,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    }
    parts = [
        *wanted,
        lambda: site.pages_asked,
        other.url("/page"),
        lambda: other.pages_asked,
    ]
    done = [1.0, lambda: record.close() or True, NEVER]
    first = await record.crawl(InParts, parts=[*parts, *done], **settings)
    second = await crawl([], {**HOLD, **settings})
    assert set(wanted) <= {*first.responses, *second.responses}
    assert site.robots_fetches == len(answers)


async def test_a_page_that_passed_the_gate_does_not_fail_for_a_later_outage(
    sites: Sites, folder: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer by which it came through the gate counts until it is sent: it can't be held any more."""
    site, record = (
        sites.add(robots=in_turn(valid(1), 503, 503, 503, valid(60))),
        Bounded(SECONDS),
    )
    wanted, later = site.url("/wanted"), site.url("/later")
    monkeypatch.setattr(LateMiddleware, "url", wanted)
    monkeypatch.setattr(LateMiddleware, "until", lambda: site.robots_fetches >= 2)
    result = await record.crawl(
        InParts,
        parts=[site.url("/first"), lambda: site.pages_asked, wanted, 1.2, later],
        **folder,
        DOWNLOADER_MIDDLEWARES={LateMiddleware: 50},
        REP_CACHE_MIN_TTL=0,
        REP_HOLD_MAX_WAIT=5.0,
        REP_RETRY_DELAY=0.3,
    )
    assert result.reason == "finished"
    assert result.failures == {}


async def test_the_time_after_a_release_does_not_count_in_the_next_run(
    sites: Sites, tmp_path: Path
) -> None:
    """Ctrl-C comes while they leave, and the next run begins in an outage."""
    site, record = sites.add(robots=in_turn(503, valid(60), 503, 404)), Bounded(SECONDS)
    wanted = urls(site, 25)
    settings = {
        **PACED,
        "JOBDIR": str(tmp_path),
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "REP_HOLD_MAX_WAIT": 2.0,
        "_REP_HOLD_GRACE": 0.05,
        "REP_RETRY_DELAY": 0.3,
    }
    close = [lambda: site.pages_asked, 2.5, lambda: record.close() or True, NEVER]
    first = await record.crawl(InParts, parts=[*wanted, *close], **settings)
    second = await crawl([], {**HOLD, **settings})
    assert first.failures == second.failures == {}
    assert sorted([*first.responses, *second.responses]) == sorted(wanted)


async def test_pages_that_may_pass_an_outage_wait_for_no_later_attempt(
    sites: Sites,
) -> None:
    """They have left the gate by the answer before. The next attempt, which is silent, is due while
    they wait for their turn in the download slot."""
    site = sites.add(robots=in_turn(after(1, 503), silence()))
    record, wanted = Bounded(SECONDS), urls(site, 6)
    result = await record.crawl(
        wanted,
        **PACED,
        CONCURRENT_REQUESTS=2,
        REP_UNREACHABLE="allow",
        REP_RETRY_DELAY=0.5,
        REP_DOWNLOAD_TIMEOUT=60,
        DOWNLOAD_TIMEOUT=60,
    )
    assert result.reason == "finished"
    assert set(wanted) <= set(result.responses)
