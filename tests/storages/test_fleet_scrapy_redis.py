"""Crawlers with scrapy-redis, one queue: each robots.txt is fetched once for all of them,
and what one holds outlives it (REP.md sections 2 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES
from tests.helpers.held import silent_until_open
from tests.helpers.process import Crawl
from tests.helpers.process.fleet import Fleet, wait_until
from tests.helpers.process.recorder import PAGE_AS_EVER
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Site, Sites

pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")

pytestmark = [pytest.mark.process, needs_server]

PROCESSES = 2
PAGES = 10
CLOSED = 3


@pytest.fixture
def settings(redis_server: RedisServer) -> dict[str, Any]:
    """As docs/cache.md has them, but for the timeout: who is killed may be asking at that moment."""
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REDIS_URL": redis_server.url,
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_DOWNLOAD_TIMEOUT": 2,
    }


@pytest.fixture
def fleet(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Fleet]:
    one = Fleet(tmp_path, settings)
    yield one
    one.close()


def pages(*some: Site) -> list[str]:
    return sorted(site.url(f"/page-{number}") for site in some for number in range(PAGES))


def closed(*some: Site) -> list[str]:
    return sorted(site.url(f"/private-{number}") for site in some for number in range(CLOSED))


def fetched(*some: Site) -> list[str]:
    """What sites were asked for, in order of the URLs."""
    hits = [(site, hit) for site in some for hit in list(site.requests)]
    return sorted(site.url(hit.target) for site, hit in hits if hit.path != "/robots.txt")


def all_of(crawls: list[Crawl], kind: str) -> list[str]:
    return sorted(url for crawl in crawls for url in crawl.urls(kind))


def test_each_robots_txt_is_fetched_once_for_all(
    sites: Sites, fleet: Fleet, tmp_path: Path
) -> None:
    """Whoever gets a page from the queue decides alike; whoever holds one lets it go."""
    silent = silent_until_open(RULES)
    quick, slow = sites.add(robots=RULES), sites.add(robots=silent)
    missing, down = sites.add(robots=404), sites.add(robots=503)
    every = (quick, slow, missing, down)
    page = silent_until_open("a page")
    for site in every:
        for number in range(PAGES):
            site.set(f"/page-{number}", page)
    for number in range(PROCESSES):
        fleet.add(
            pages(*every) + closed(*every),
            go="go",
            JOBDIR=tmp_path / f"job-{number}",
            REP_DOWNLOAD_TIMEOUT=30,
        )
    fleet.go()
    # However late one of them begins, there is something left for it.
    wait_until(lambda: all(crawl.urls("reached") for crawl in fleet.crawls), "all to take part")
    page.open()
    held = {*pages(slow, down), *closed(slow, down)}
    wait_until(lambda: {*all_of(fleet.crawls, "deferred")} >= held, "all to be held")
    wait_until(lambda: down.robots_fetches >= 3, "three attempts")
    silent.open()
    down.set("/robots.txt", RULES)
    fleet.join()

    assert [site.robots_fetches for site in (quick, slow, missing)] == [1, 1, 1]
    assert fleet.sum("robotstxt/request_count") == 3 + down.robots_fetches
    assert fetched(*every) == sorted(pages(*every) + closed(missing))
    assert all_of(fleet.crawls, "failed") == closed(quick, slow, down)
    for crawl in fleet.crawls:
        assert crawl.urls("page"), "it had no part in it"


def test_a_kill_in_the_middle_of_a_release_loses_nothing(
    sites: Sites, fleet: Fleet, tmp_path: Path
) -> None:
    """What was released stays in the JOBDIR until it is dealt with."""
    site = sites.add(robots=503)
    killed = fleet.add(pages(site), JOBDIR=tmp_path / "job", ends="SIGKILL released 4")
    killed.wait_for("deferred", PAGES)
    site.set("/robots.txt", RULES)
    killed.join()
    assert killed.reason is None
    fleet.crawls.remove(killed)

    before = fetched(site)
    again = fleet.add([], JOBDIR=tmp_path / "job")
    fleet.join()
    assert sorted(set(fetched(site))) == pages(site)
    assert len(fetched(site)) - len(pages(site)) <= len(before)
    assert {page.detail for page in again.of("page")} == {PAGE_AS_EVER}
