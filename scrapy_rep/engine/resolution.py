"""Sees each address that this process is about to connect to, and can refuse it, whatever the download
handler.

Twisted's reactor lets anyone install a name resolver (``IReactorPluggableNameResolver``), and whatever
uses asyncio asks its loop's ``getaddrinfo()``: httpx (through anyio), aiohttp without aiodns. Both hooks
are documented. That httpx and aiohttp use the loop's is not; `tests/engine/test_resolution.py` fails if
they stop.

Registrable domains, too, by the Public Suffix List that comes with tldextract.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_reactor_installed
from tldextract import TLDExtract
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver, IResolutionReceiver
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twisted.internet.interfaces import IAddress, IHostResolution


class Watcher(Protocol):
    """Is asked about each address of each name that is resolved."""

    def may_connect(self, host: str, address: str) -> bool:
        """Whether connections may be made to an *address* of *host*."""


class _Watched:
    """What stands in for a resolver, as long as anyone watches it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.watchers: WeakSet[Watcher] = WeakSet()  # a crawl may end without saying so

    def _lets(self, host: str, address: str) -> bool:
        """Whether all let connections be made. Each is asked: it may keep a record."""
        answers = [one.may_connect(host.lower(), address) for one in self.watchers]
        return all(answers)


@implementer(IHostnameResolver)
class _Resolver(_Watched):
    """In the place of a reactor's resolver."""

    def resolveHostName(
        self, resolutionReceiver: Any, hostName: str, *args: Any, **kwargs: Any
    ) -> IHostResolution:
        receiver = _Filter(resolutionReceiver, lambda address: self._lets(hostName, address))
        found: IHostResolution = self.inner.resolveHostName(receiver, hostName, *args, **kwargs)
        return found


@implementer(IResolutionReceiver)
class _Filter:
    def __init__(self, receiver: Any, lets: Any) -> None:
        self._lets = lets
        self.resolutionBegan = receiver.resolutionBegan
        self.resolutionComplete = receiver.resolutionComplete
        self._resolved = receiver.addressResolved

    def addressResolved(self, address: IAddress) -> None:
        if self._lets(str(getattr(address, "host", ""))):
            self._resolved(address)


class _Getaddrinfo(_Watched):
    """In the place of a loop's ``getaddrinfo()``."""

    async def __call__(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:
        found: list[Any] = await self.inner(host, port, **kwargs)
        name = host.decode("latin-1") if isinstance(host, bytes) else str(host or "")
        left = [place for place in found if self._lets(name, str(place[4][0]))]
        if found and not left:
            raise socket.gaierror(
                socket.EAI_NONAME, "another host leads to it, and its address is private"
            )
        return left


def watch(watcher: Watcher) -> None:
    """Ask *watcher* from now on, unless the event loop can't be changed. Call it again when something else may have taken our place."""
    for one in _places(install=True):
        one.watchers.add(watcher)


def unwatch(watcher: Watcher) -> None:
    """Stop asking it."""
    for one in _places(install=False):
        one.watchers.discard(watcher)
        if not one.watchers:
            _remove(one)


def _places(*, install: bool) -> Iterator[_Watched]:
    """Yield what stands in for the resolvers of this process."""
    if is_reactor_installed():
        from twisted.internet import reactor

        resolver: Any = reactor.nameResolver
        if install and not isinstance(resolver, _Resolver):
            resolver = _Resolver(resolver)
            reactor.installNameResolver(resolver)
        if isinstance(resolver, _Resolver):
            yield resolver
    if loop := _loop():
        asks: Any = loop.getaddrinfo
        if install and not isinstance(asks, _Getaddrinfo):
            asks = _Getaddrinfo(asks)
            with suppress(AttributeError):  # a loop that can't be changed
                loop.getaddrinfo = asks
        if isinstance(asks, _Getaddrinfo):
            yield asks


def _remove(one: _Watched) -> None:
    if isinstance(one, _Resolver):
        from twisted.internet import reactor

        reactor.installNameResolver(one.inner)
    elif loop := _loop():
        loop.getaddrinfo = one.inner


def _loop() -> Any:
    """Return the running event loop of asyncio; None with another reactor."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def look_up(host: str) -> Sequence[str]:
    """Return the addresses that a connection to *host* would use: with a reactor, from Scrapy's DNS
    cache; none if they can't be found out now."""
    if not is_reactor_installed():
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, None, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError):
            return []
        return [str(place[4][0]) for place in found]
    from twisted.internet import reactor

    receiver = _Receiver()
    try:
        reactor.nameResolver.resolveHostName(receiver, host)
    except (OSError, ValueError):  # no valid name
        return []
    return await maybe_deferred_to_future(receiver.done)


@implementer(IResolutionReceiver)
class _Receiver:
    def __init__(self) -> None:
        self._addresses: list[str] = []
        self.done: Deferred[list[str]] = Deferred()

    def resolutionBegan(self, resolution: Any) -> None:
        pass

    def addressResolved(self, address: IAddress) -> None:
        self._addresses.append(str(getattr(address, "host", "")))

    def resolutionComplete(self) -> None:
        self.done.callback(self._addresses)


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of *host* (``www.shop.example.co.uk``: ``example.co.uk``); None if
    it has none, as IP addresses and public suffixes. The first call takes a tenth of a second."""
    found = _extractor()(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else None


@cache
def _extractor() -> TLDExtract:
    # No URLs: never the network. No folder: never another program's copy of the list. With private
    # domains: two users of github.io are two sites.
    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
