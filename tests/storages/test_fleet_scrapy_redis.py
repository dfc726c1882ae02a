"""Crawlers with scrapy-redis, one queue: what one of them holds outlives it (REP.md section 4). That each
robots.txt is fetched once for all of them is shown in test_example_fleet.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES
from tests.helpers.held import urls
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Fleet
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Sites

pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")

pytestmark = [pytest.mark.process, needs_server]

PAGES = 10


@pytest.fixture
def fleet(tmp_path: Path, redis_server: RedisServer) -> Iterator[Fleet]:
    """As docs/cache.md has it, but for the timeout: who is killed may be asking at that moment."""
    settings: dict[str, Any] = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REDIS_URL": redis_server.url,
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_DOWNLOAD_TIMEOUT": 2,
    }
    one = Fleet(tmp_path, settings)
    yield one
    one.close()


def test_a_kill_in_the_middle_of_a_release_loses_nothing(
    sites: Sites, fleet: Fleet, tmp_path: Path
) -> None:
    """What was released stays in the JOBDIR until it is dealt with."""
    site = sites.add(robots=503)
    pages = urls(site, PAGES)
    killed = fleet.add(pages, JOBDIR=tmp_path / "job", ends="SIGKILL released 4")
    killed.wait_for("deferred", PAGES)
    site.set("/robots.txt", RULES)
    killed.join()
    assert killed.reason is None
    fleet.crawls.remove(killed)

    before = len(site.pages_asked)
    again = fleet.add([], JOBDIR=tmp_path / "job")
    fleet.join()
    assert {site.url(path) for path in site.pages_asked} == set(pages)
    assert len(site.pages_asked) <= PAGES + before
    assert {page.detail for page in again.of("page")} == {PAGE_AS_EVER}
