"""A scheduler that fails while held requests are released: nothing is lost, all is tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.core.scheduler import Scheduler

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import DEFER, Gate, Record, urls
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


class Refusing(Scheduler):
    """Refuses one released request, at least once and until the others have been answered."""

    refused = False
    others_answered = False

    def enqueue_request(self, request: Request) -> bool:
        bad = "_rep_held" in request.meta and request.url.endswith("/bad")
        if bad and not (self.refused and self.others_answered):
            self.refused = True
            raise ValueError("no such request")
        return super().enqueue_request(request)


@pytest.mark.usefixtures("in_time")
async def test_a_request_that_is_refused_holds_up_no_other_origin(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.holding.release._RETRY_SECONDS", 0.01)
    gate = Gate(503, RULES)
    bad, *others = [sites.add(robots=gate) for _ in range(10)]
    # The first of an origin goes ahead of the scheduler.
    wanted = [bad.url("/first"), bad.url("/bad")]
    rest = [page for site in others for page in urls(site, 2)]

    class Watching(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> None:
            super().parse(response, **kwargs)
            if set(rest) <= {one.url for one in self.responses}:
                record.engine._slot.scheduler.others_answered = True

    record = Record(on_deferred=lambda _, count: gate.open() if count == 20 else None)
    result = await crawl(
        Watching,
        {**DEFER, "SCHEDULER": Refusing},
        requests=[*wanted, *rest],
        signal_handlers=record.handlers,
    )
    assert sorted(one.url for one in result.spider.responses) == sorted([*wanted, *rest])
    errors = [one.getMessage() for one in result.records if one.levelname == "ERROR"]
    assert errors == ["Can't release held requests, retrying: ValueError: no such request"]
