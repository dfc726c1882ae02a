"""A scheduler that outlives the process: scrapy-redis, with a real Redis server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.behaviours import RULES
from tests.helpers.held import urls as pages_of
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.redisserver import RedisServer, fleet_settings, needs_server
from tests.helpers.servers import Sites

redis = pytest.importorskip("redis", reason="needs scrapy-redis, from PyPI")
pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")
pytestmark = [pytest.mark.process, needs_server]
PAGES = 30


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Any]:
    client = redis.Redis.from_url(redis_server.url)
    yield client
    client.close()


def test_another_process_fetches_what_was_held(
    sites: Sites, redis_server: RedisServer, queue: Any, crawl: Callable[..., Crawl]
) -> None:
    """One story, since it takes two processes: what the first leaves, and what the second makes of it."""
    site = sites.add(robots=503)
    urls = sorted(pages_of(site, PAGES))
    settings = fleet_settings(redis_server)

    def pages_asked() -> list[str]:
        return sorted(map(site.url, site.pages_asked))

    def queued() -> tuple[int, int]:
        return queue.zcard("pages:requests"), queue.scard("pages:dupefilter")

    first = crawl(urls, settings)
    first.wait_for("held", PAGES)
    first.wait_for("refused")
    first.interrupt()
    assert first.join().reason == "shutdown", first.log
    assert first.urls("failed") == pages_asked() == []
    stats = [first.stats[f"rep/{name}"] for name in ("held/now", "handed_back")]
    assert stats == ["0", str(PAGES)]
    assert f", {PAGES} handed back to the scheduler" in first.log
    assert queued() == (PAGES, PAGES)
    site.set("/robots.txt", RULES)
    second = crawl(urls, settings).join()  # it requests the same pages once more
    assert second.reason == "finished"
    assert pages_asked() == sorted(second.urls("dropped")) == urls
    assert {page.detail for page in second.of("page")} == {PAGE_AS_EVER}
    assert queued() == (0, PAGES)
    for one in (first, second):
        one.assert_clean()
