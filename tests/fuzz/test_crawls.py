"""Random whole crawls (`tests.fuzz.crawls`): a hundred new ones with `--hypothesis-profile=search`, else
five known ones. What fails prints its seed, its world, and how to run it again."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from tests.fuzz.crawls import verdicts
from tests.fuzz.worlds import world_of

pytestmark = [pytest.mark.slow, pytest.mark.process]
SEARCHES = settings.default.max_examples > 1000
KNOWN = [7, 17, 75, 106, 118]
"""Each takes some seconds, most of which it waits."""


def test_what_must_be_true_of_random_crawls() -> None:
    begin = random.randrange(10**9)
    seeds = range(begin, begin + 100) if SEARCHES else KNOWN
    failed = [verdict for verdict in verdicts(seeds, workers=8) if verdict.faults]
    assert not failed, "\n" + "\n".join(map(str, failed))


def test_a_seed_determines_a_world() -> None:
    assert all(world_of(seed) == world_of(seed) for seed in range(100))
    assert str(world_of(1)) != str(world_of(2))
