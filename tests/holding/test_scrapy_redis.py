"""A scheduler that outlives the process: scrapy-redis, with a real Redis server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.held import urls as pages_of
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Site, Sites

redis = pytest.importorskip("redis", reason="needs scrapy-redis, from PyPI")
pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")

pytestmark = [pytest.mark.process, needs_server]

PAGES = 30
UP = "User-agent: *\nDisallow: /private\n"

START_URLS_SPIDER = """
from scrapy_redis.spiders import RedisSpider
from tests.helpers.pages_spider import record_page

class StartUrlsSpider(RedisSpider):
    name = "pages"
    redis_key = "start"

    def __init__(self, urls, **kwargs):
        super().__init__(**kwargs)

    def parse(self, response):
        record_page(response)
"""


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Any]:
    """A client of the server, whose queue is empty."""
    client = redis.Redis.from_url(redis_server.url)
    yield client
    client.close()


@pytest.fixture
def settings(redis_server: RedisServer) -> dict[str, Any]:
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": redis_server.url,
    }


def pages_asked(site: Site) -> list[str]:
    return sorted(map(site.url, site.pages_asked))


def test_another_process_fetches_what_was_held(
    sites: Sites, queue: Any, settings: dict[str, Any], crawl: Callable[..., Crawl]
) -> None:
    """One story, since it takes two processes: what the first leaves, and what the second makes of it."""
    site = sites.add(robots=503)
    urls = sorted(pages_of(site, PAGES))

    def queued() -> tuple[int, int]:
        """Requests, and those that the dupe filter knows: each of them, once."""
        return queue.zcard("pages:requests"), queue.scard("pages:dupefilter")

    first = crawl(urls, settings)
    first.wait_for("deferred", PAGES)
    first.wait_for("refused")
    first.interrupt()
    assert first.join().reason == "shutdown", first.log
    assert first.urls("failed") == pages_asked(site) == []
    stats = [first.stats[f"rep/{name}"] for name in ("held", "handed_back")]
    assert stats == ["0", str(PAGES)]
    assert f"({PAGES} handed back to the scheduler)" in first.log
    assert queued() == (PAGES, PAGES)

    site.set("/robots.txt", UP)
    second = crawl(urls, settings).join()  # it requests the same pages once more
    assert second.reason == "finished"
    assert pages_asked(site) == sorted(second.urls("dropped")) == urls
    assert {page.detail for page in second.of("page")} == {PAGE_AS_EVER}
    assert queued() == (0, PAGES)
    for one in (first, second):
        one.assert_clean()


def test_start_urls_are_read_while_something_is_held(
    sites: Sites, queue: Any, settings: dict[str, Any], crawl: Callable[..., Crawl], tmp_path: Path
) -> None:
    """It reads them when the spider is idle, and closes it when it was for a second."""
    spider = tmp_path / "start_urls_spider.py"
    spider.write_text(START_URLS_SPIDER)
    down, up = sites.add(robots=503), sites.add(robots=UP)

    def push(site: Site) -> None:
        queue.rpush("start", *(json.dumps({"url": url}) for url in pages_of(site, PAGES)))

    push(down)
    run = crawl([], {**settings, "MAX_IDLE_TIME_BEFORE_CLOSE": 1}, spider=spider)
    run.wait_for("deferred", PAGES)
    time.sleep(1.2)
    assert run.reason is None, "closed while something was held"
    push(up)
    run.wait_for("page", PAGES)
    assert pages_asked(up) == sorted(pages_of(up, PAGES))
    assert run.reason is None, "closed while something was held"

    down.set("/robots.txt", UP)
    run.join()
    assert run.reason == "finished"
    assert pages_asked(down) == sorted(pages_of(down, PAGES))
    # scrapy-redis makes start requests so itself.
    assert {page.detail for page in run.of("page")} == {"dont_filter=True marks=[]"}
    run.assert_clean()
