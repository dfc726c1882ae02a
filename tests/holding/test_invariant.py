"""The watch that the tests of holding keep on their crawls (`tests.helpers.invariant`) sees who is stuck."""

from __future__ import annotations

import pytest

from tests.helpers import invariant
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import HOLD
from tests.helpers.invariant import Standing
from tests.helpers.servers import Sites

NOTHING = Standing("http://stuck.example", 0, 0, 0, 1, False, False, False)


@pytest.mark.parametrize(
    ("standing", "is_stuck"),
    [
        (NOTHING, True),
        (NOTHING._replace(is_asked=True), False),
        (NOTHING._replace(has_wakeup=True), False),
        (NOTHING._replace(has_turn=True), False),
        (NOTHING._replace(has_turn=True, held=1), True),
    ],
)
async def test_whoever_has_nothing_to_wait_for_is_reported_once(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    nobody_is_stuck: list[str],
    standing: Standing,
    is_stuck: bool,
) -> None:
    monkeypatch.setattr(invariant, "queues_of", lambda middleware: [standing])
    result = await crawl(sites.add(robots=RULES).url("/page"), HOLD)
    result.assert_clean()
    reported, nobody_is_stuck[:] = [*nobody_is_stuck], []
    assert len(reported) == is_stuck
    assert all(standing.origin in text for text in reported)


async def test_queues_are_read_while_requests_wait(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product's names that it reads are those of today."""
    seen: list[Standing] = []
    read = invariant.queues_of

    def queues_of(middleware: object) -> list[Standing]:
        queues = list(read(middleware))
        seen.extend(queues)
        return queues

    monkeypatch.setattr(invariant, "queues_of", queues_of)
    result = await crawl(sites.add(robots=RULES).url("/page"), HOLD)
    result.assert_clean()
    assert [queue for queue in seen if queue.waiting and queue.is_asked]
