"""A scheduler that several processes share: scrapy-redis, with a real Redis server. Sitemaps and what
they list go through its queue (REP.md section 9).

Processes share it: one goes on when another has ended, or both go on together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.process import Crawl
from tests.helpers.process.seeded import SETTINGS, SPIDER, Listed
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Sites

pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")

pytestmark = [pytest.mark.process, needs_server]


@pytest.fixture
def start(redis_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    crawls: list[Crawl] = []

    def one(listed: Listed, ends: str = "") -> Crawl:
        settings = {
            **SETTINGS,
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "SCHEDULER_PERSIST": True,
            "REDIS_URL": redis_server.url,
        }
        folder = tmp_path / "runs"
        urls = [listed.site.url("/start")]
        crawls.append(Crawl(folder, urls, settings, spider=SPIDER, ends=ends))
        return crawls[-1]

    yield one
    for crawl in crawls:
        crawl.close()


def test_after_a_stop_another_process_goes_on(sites: Sites, start: Callable[..., Crawl]) -> None:
    """What waits on disk is handed over when a process ends in order: another goes on with it."""
    listed = Listed(sites)
    runs = [start(listed, ends).join() for ends in ("SIGINT page 1", "SIGINT page 30", "")]
    assert [run.reason for run in runs] == ["shutdown", "shutdown", "finished"]
    listed.check(runs)
    assert listed.site.count("/index.xml") == 1


def test_two_processes_share_the_sitemaps_and_the_pages(
    sites: Sites, start: Callable[..., Crawl]
) -> None:
    """Both find the same sitemaps; the dupe filter that they share gives each to one of them."""
    listed = Listed(sites)
    runs = [start(listed), start(listed)]
    for run in runs:
        run.join()
    assert [run.reason for run in runs] == ["finished", "finished"]
    listed.check(runs)
    assert listed.site.count("/index.xml") == 1
