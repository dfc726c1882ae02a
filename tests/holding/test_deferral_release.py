"""A scheduler that fails while held requests are released: nothing is lost, all is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request
from scrapy.core.scheduler import Scheduler

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, urls
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api]


class Stumbling(Scheduler):
    """Fails once, at the third request that is released."""

    released = 0

    def enqueue_request(self, request: Request) -> bool:
        if "_rep_held" in request.meta:
            Stumbling.released += 1
            if Stumbling.released == 3:
                raise ConnectionError("the queue's server is gone")
        return super().enqueue_request(request)


@pytest.mark.parametrize("jobdir", [False, True])
async def test_nothing_is_lost(
    sites: Sites, tmp_path: Path, jobdir: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stumbling, "released", 0)
    monkeypatch.setattr("scrapy_rep.holding.release._RETRY_SECONDS", 0.1)
    site = sites.add(robots=in_turn(503, 503, RULES))
    wanted = urls(site, 10)
    result = await crawl(
        wanted,
        {**DEFER, "SCHEDULER": Stumbling, "JOBDIR": str(tmp_path) if jobdir else None},
    )
    assert result.reason == "finished"
    assert set(result.responses) == set(wanted)
    assert len(result.spider.responses) == 10  # each once
    assert result.failures == {}
    assert Stumbling.released == 10  # one twice, and one went ahead
    assert result.stat("rep/held") == 0
