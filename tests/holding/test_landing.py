"""The moment in which a robots.txt turns out to be unreachable: requests come meanwhile, and there is room
for some of those that wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scrapy_rep import signals
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import DEFER, NEVER, Gate, Record, a_while, assert_clean, urls
from tests.helpers.log import lines
from tests.helpers.servers import Sites


def crawl_more_meanwhile(record: Record, gate: Gate, more: list[str]) -> None:
    """While the first failure is announced, schedule *more*; then open *gate*."""

    async def resolved(**told: Any) -> None:
        record.resolved.append(told)
        if len(record.resolved) == 1:
            for url in more:
                record.engine.crawl(record.spider.recorded(url))  # type: ignore[union-attr]
            await a_while(0.1)
            gate.open()

    record.handlers[signals.robots_resolved] = resolved


@pytest.mark.loop
async def test_a_request_that_comes_while_a_failure_is_announced(
    sites: Sites, tmp_path: Path
) -> None:
    """All are held, each counts once, and the log and stats say so."""
    gate = Gate(503, RULES)
    site, record = sites.add(robots=gate), Record()
    wanted, more = urls(site, 5), urls(site, 3, "/more")

    crawl_more_meanwhile(record, gate, more)
    settings = {**DEFER, "JOBDIR": str(tmp_path)}
    result = await record.crawl(wanted, **settings)
    assert result.failures == {}
    assert set(result.responses) == {*wanted, *more}
    assert sorted(record.deferred) == sorted(record.released) == sorted([*wanted, *more])
    assert result.stat("rep/deferred") == result.stat("rep/released") == 8
    assert (result.stats["rep/held"], result.stats["rep/held/max"]) == (0, 8)
    assert_clean(result)


async def test_those_that_wait_have_the_room(sites: Sites) -> None:
    """Not a request that comes while the failure is announced: no more are held than may be."""
    gate = Gate(after(0.2, 503), RULES)
    site, record = sites.add(robots=gate), Record()
    wanted, more = urls(site, 5), urls(site, 3, "/more")

    crawl_more_meanwhile(record, gate, more)
    settings = {**DEFER, "REP_DEFER_GRACE": NEVER, "REP_DEFER_MAX_REQUESTS": 5}
    result = await record.crawl(wanted, **settings)
    assert set(result.responses) == set(wanted)
    assert set(result.failures) == set(more)
    assert result.stat("rep/deferred") == result.stat("rep/held/max") == 5
    assert result.stat("rep/unreachable/dropped") == 3
    assert_clean(result)


async def test_room_for_some_of_those_that_wait(sites: Sites) -> None:
    """The first are held and fetched later, the others fail at once. An origin of which none is held is
    forgotten: its robots.txt keeps nobody waiting."""
    gate = Gate(503, RULES)
    site, late = sites.add(robots=gate), sites.add(robots=after(0.3, 503))
    first, others, last = urls(site, 5), urls(site, 15, "/other"), urls(late, 2)

    class Spider(ListSpider):
        def failed(self, failure: Any) -> None:
            super().failed(failure)
            if len(self.errors) == len(others) + len(last):
                gate.open()

    result = await crawl(
        Spider, {**DEFER, "REP_DEFER_MAX_REQUESTS": 5}, requests=[*first, *others, *last]
    )
    assert set(result.responses) == set(first)
    assert set(result.failures) == {*others, *last}
    assert result.stat("rep/deferred") == result.stat("rep/released") == 5
    assert result.stat("rep/unreachable/dropped") == 17
    assert "rep/given_up" not in result.stats
    assert len(lines(result, "REP_DEFER_MAX_REQUESTS reached", level="WARNING")) == 1
    assert late.count("/robots.txt") == 1
    assert_clean(result)
