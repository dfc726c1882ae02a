from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.seeding.spools import close_spools


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_spools()
