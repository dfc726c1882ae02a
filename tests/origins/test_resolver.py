"""Who is told of an answer, or that there will be none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from twisted.internet.defer import CancelledError

from scrapy_rep.origins.flights import Flight, ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.protocol import Origin
from tests.helpers.recorded import context_of

ORIGIN = Origin("http", "a.example", 80)


class Cancelled:
    """A cache whose fetch is broken off: with asyncio by another error than with Twisted."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def ask(self, *_: Any) -> None:
        raise self._error


class Told(ResolutionListener):
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def failed(self, origin: Origin, error: Exception) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("error", [CancelledError(), asyncio.CancelledError()])
async def test_a_fetch_that_is_broken_off_is_told(error: BaseException) -> None:
    cache: Any = Cancelled(error)
    origins, listener = Origins(context_of()), Told()
    origins.cache = cache
    origins.listeners.append(listener)
    with pytest.raises(type(error)):
        await origins.ask(Flight(ORIGIN, None))
    assert [type(one) for one in listener.errors] == [CancelledError]
