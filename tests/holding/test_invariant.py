"""The watch that the tests of holding keep on their crawls (`tests.helpers.invariant`) sees who is stuck."""

from __future__ import annotations

import pytest

from tests.helpers import invariant
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER
from tests.helpers.invariant import Queue
from tests.helpers.servers import Sites


@pytest.mark.parametrize(
    ("in_flight", "wake_up", "turn"),
    [(True, False, False), (False, True, False), (False, False, True), (False, False, False)],
)
async def test_whoever_has_nothing_to_wait_for_is_reported_once(
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    nobody_is_stuck: list[str],
    in_flight: bool,
    wake_up: bool,
    turn: bool,
) -> None:
    queue = Queue("http://stuck.example", 1, 2, 3, in_flight, wake_up, turn)
    monkeypatch.setattr(invariant, "queues_of", lambda middleware: [queue])
    result = await crawl(sites.add(robots=RULES).url("/page"), DEFER)
    result.assert_clean()
    reported, nobody_is_stuck[:] = [*nobody_is_stuck], []
    assert len(reported) == (not (in_flight or wake_up or turn))
    assert all("http://stuck.example" in text for text in reported)


async def test_queues_are_read_while_requests_wait(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product's names that it reads are those of today."""
    seen: list[Queue] = []
    read = invariant.queues_of

    def queues_of(middleware: object) -> list[Queue]:
        queues = list(read(middleware))
        seen.extend(queues)
        return queues

    monkeypatch.setattr(invariant, "queues_of", queues_of)
    result = await crawl(sites.add(robots=RULES).url("/page"), DEFER)
    result.assert_clean()
    assert [queue for queue in seen if queue.waiting and queue.in_flight]
