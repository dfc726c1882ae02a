"""Ctrl-C while requests are held (REP.md section 4): the crawl ends at once. With JOBDIR the next
run goes on with every request, exactly once each; without it the errbacks get to know.

Ctrl-C ends a process, and the next run is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import silence
from tests.helpers.held import NEVER, silent_until_open
from tests.helpers.process import Crawl, Town
from tests.helpers.servers import Sites

pytestmark = pytest.mark.process

PAGES = 30
SEED = 9309

# A robots.txt that is silent would be waited for: no test goes on for so long.
PATIENT = {"REP_DOWNLOAD_TIMEOUT": NEVER}

# A site that is silent is asked again soon, so that the second run gets on.
QUICK = {"REP_DOWNLOAD_TIMEOUT": 0.5}


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    """`Crawl` in a folder of the test; none outlives it."""
    crawls: list[Crawl] = []

    def start(*args: Any, **kwargs: Any) -> Crawl:
        crawls.append(Crawl(tmp_path / "runs", *args, **kwargs))
        return crawls[-1]

    yield start
    for one in crawls:
        one.close()


def end(crawl: Crawl) -> None:
    crawl.interrupt()
    crawl.join()


@pytest.mark.scrapy_api
def test_a_second_ctrl_c_loses_nothing(
    sites: Sites, tmp_path: Path, crawl: Callable[..., Crawl]
) -> None:
    town = Town(sites, page_seconds=NEVER)  # so that the first Ctrl-C can't end the run
    settings = {**QUICK, "JOBDIR": tmp_path / "job"}
    first = crawl(town.pages(PAGES), settings)
    first.wait_for("deferred", PAGES)
    town.up()
    first.wait_for("reached")
    first.interrupt()
    first.wait_until(lambda: "Closing spider" in first.log, "Scrapy to hear it")
    first.interrupt()
    first.join()
    assert first.reason is None, "it was no unclean end"

    town.page_seconds = 0
    town.pages(PAGES)
    second = crawl((), settings).join()
    assert second.reason == "finished"
    assert set(first.urls("deferred")) - set(town.asked) == set()
    downloaded = first.urls("downloaded") + second.urls("downloaded")
    assert set(first.urls("deferred")) - set(downloaded) == set()
    second.assert_clean()


# Without


def test_without_jobdir_the_errbacks_get_the_reason(
    sites: Sites, crawl: Callable[..., Crawl]
) -> None:
    silent, busy = sites.add(robots=silence()), sites.add(robots=503)
    urls = [site.url(f"/{number}") for number in range(20) for site in (silent, busy)]
    run = crawl(urls, {**PATIENT, "REP_DEFER_GRACE": 0.05}, reactor="none")
    run.wait_for("deferred", 40)
    run.wait_for("refused", 3)
    end(run)
    assert run.reason == "shutdown"
    reasons = {event.url: event.detail for event in run.of("failed")}
    assert sorted(run.urls("failed")) == sorted(set(reasons)), "an errback was called twice"
    assert all(reason.startswith("RobotsUnreachable: ") for reason in reasons.values())
    assert "HTTP 503" in reasons[busy.url("/0")]
    assert "the crawl ended" in reasons[busy.url("/0")]
    assert len(reasons) == int(run.stats["rep/given_up"]) == len(urls)
    assert run.stats["rep/held"] == "0"
    run.assert_clean()


# Scrapy's own queue


def warned_of_kill(run: Crawl) -> int:
    return run.log.count("was killed. Scrapy saves its queue")


def test_after_a_kill_the_next_run_tells_of_the_broken_queue(
    sites: Sites, crawl: Callable[..., Crawl], tmp_path: Path
) -> None:
    site = sites.add(robots="", pages={"/hang": silence()})
    settings = {"JOBDIR": tmp_path / "job", "CONCURRENT_REQUESTS": 1, "REP_DEFER_GRACE": 5}
    # More than may wait at the gate for the first answer.
    urls = [site.url("/hang"), *(site.url(f"/{number}") for number in range(20))]
    run = crawl(urls, settings)
    run.wait_until(lambda: site.count("/hang"), "the first page")
    run.kill()
    assert warned_of_kill(run) == 0
    site.set("/hang", "answered")
    after = crawl(urls, settings).join()
    assert after.reason == "finished"
    assert warned_of_kill(after) == 1


def test_an_orderly_stop_is_no_kill(
    sites: Sites, crawl: Callable[..., Crawl], tmp_path: Path
) -> None:
    gate = silent_until_open("answered")
    site = sites.add(robots="", pages={"/hang": gate})
    settings = {"JOBDIR": tmp_path / "job", "CONCURRENT_REQUESTS": 1, "REP_DEFER_GRACE": 5}
    run = crawl([site.url("/hang"), *(site.url(f"/{n}") for n in range(20))], settings)
    run.wait_until(lambda: site.count("/hang"), "the first page")
    run.interrupt()
    run.wait_until(lambda: "Closing spider" in run.log, "Scrapy to hear it")
    gate.open()
    assert run.join().reason == "shutdown"
    queue = tmp_path / "job" / "requests.queue"
    assert any(one.is_file() and one.name != "active.json" for one in queue.rglob("*"))
    assert warned_of_kill(crawl([], settings).join()) == 0
