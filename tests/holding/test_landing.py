"""Requests that come to the gate while an answer is being announced: known already, but not yet to
those that wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep import signals
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, Gate, Record, a_while, assert_clean, urls
from tests.helpers.servers import Sites

pytestmark = pytest.mark.loop


@pytest.mark.parametrize("jobdir", [False, True])
async def test_a_request_that_comes_while_a_failure_is_announced(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    """All are held, each counts once, and the log and stats say so."""
    gate = Gate(503, RULES)
    site, record = sites.add(robots=gate), Record()
    wanted, more = urls(site, 5), urls(site, 3, "/more")

    async def resolved(**_: Any) -> None:
        record.resolved.append(_)
        if len(record.resolved) == 1:
            for url in more:
                record.engine.crawl(record.spider.recorded(url))  # type: ignore[union-attr]
            await a_while(0.1)
            gate.open()

    record.handlers[signals.robots_resolved] = resolved
    settings = {"JOBDIR": str(tmp_path)} if jobdir else {}
    result = await crawl(wanted, {**DEFER, **settings}, signal_handlers=record.handlers)
    assert result.failures == {}
    assert set(result.responses) == {*wanted, *more}
    assert sorted(record.deferred) == sorted(record.released) == sorted([*wanted, *more])
    assert result.stat("rep/deferred") == result.stat("rep/released") == 8
    assert (result.stats["rep/held"], result.stats["rep/held/max"]) == (0, 8)
    assert_clean(result)
