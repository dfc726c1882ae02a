"""Signal handlers connected only while needed: each slows down every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler


class Listener:
    """Calls handlers between :meth:`begin` and :meth:`end`."""

    def __init__(self, crawler: Crawler, handlers: dict[object, Callable[..., Any]]) -> None:
        """:param handlers: by signal; signals keep only weak references"""
        self._signals = crawler.signals
        self._handlers = handlers
        self._wanted = self._connected = self._leaving = False

    def begin(self) -> None:
        """Start listening."""
        self._wanted = True
        if not self._connected:
            self._connected = True
            for signal, handler in self._handlers.items():
                self._signals.connect(handler, signal)

    def end(self) -> None:
        """Stop listening on the loop's next turn: disconnecting while a signal is sent makes the next
        handler miss it."""
        self._wanted = False
        if self._connected and not self._leaving:
            self._leaving = True
            call_later(0, self._leave)

    def _leave(self) -> None:
        self._leaving = False
        if not self._wanted:
            self._connected = False
            for signal, handler in self._handlers.items():
                self._signals.disconnect(handler, signal)
