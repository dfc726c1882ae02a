"""Sees each address that this process is about to connect to, and can refuse it, whatever the
download handler. Registrable domains, too, by the Public Suffix List that comes with tldextract.

Twisted's reactor lets anyone install a name resolver (``IReactorPluggableNameResolver``), and
whatever uses asyncio asks its loop's ``getaddrinfo()``: httpx (through anyio), aiohttp without
aiodns. Both hooks are documented; that httpx and aiohttp use the loop's is not:
`tests/engine/test_resolution.py` fails if they stop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol
from weakref import WeakSet

from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_reactor_installed
from tldextract import TLDExtract
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution
from zope.interface import implementer


class Watcher(Protocol):
    def may_connect(self, host: str, address: str) -> bool:
        """Whether connections may be made to an *address* of *host*."""


class _Watched:
    """Stands in for a resolver as long as anyone watches it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.watchers: WeakSet[Watcher] = WeakSet()  # a crawl may end without saying so

    def lets(self, host: str, address: str) -> bool:
        """Whether all watchers let connections be made. Each is asked: it may keep a record."""
        may = True
        for one in self.watchers:
            may = one.may_connect(host.lower(), address) and may
        return may


@implementer(IHostnameResolver)
class _Resolver(_Watched):
    def resolveHostName(
        self, resolutionReceiver: Any, hostName: str, *args: Any, **kwargs: Any
    ) -> IHostResolution:
        def resolved(address: IAddress) -> None:
            if self.lets(hostName, str(getattr(address, "host", ""))):
                resolutionReceiver.addressResolved(address)

        ours = SimpleNamespace(
            resolutionBegan=resolutionReceiver.resolutionBegan,
            addressResolved=resolved,
            resolutionComplete=resolutionReceiver.resolutionComplete,
        )
        found: IHostResolution = self.inner.resolveHostName(ours, hostName, *args, **kwargs)
        return found


class _Getaddrinfo(_Watched):
    async def __call__(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:
        found: list[Any] = await self.inner(host, port, **kwargs)
        name = host.decode("latin-1") if isinstance(host, bytes) else str(host or "")
        left = [place for place in found if self.lets(name, str(place[4][0]))]
        if found and not left:
            raise socket.gaierror(
                socket.EAI_NONAME, "another host leads to it, and its address is private"
            )
        return left


def watch(watcher: Watcher) -> None:
    """Ask *watcher* from now on, unless the event loop can't be changed. Call it again when
    something may have replaced our resolver."""
    for one in _places(install=True):
        one.watchers.add(watcher)


def unwatch(watcher: Watcher) -> None:
    for one in _places(install=False):
        one.watchers.discard(watcher)
        if not one.watchers:
            if isinstance(one, _Resolver):
                from twisted.internet import reactor

                reactor.installNameResolver(one.inner)
            elif loop := _loop():
                loop.getaddrinfo = one.inner


def _places(*, install: bool) -> Iterator[_Watched]:
    """Yield our stand-ins for the resolvers of this process."""
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


def _loop() -> Any:
    """Return asyncio's running event loop; None with another reactor."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


async def look_up(host: str) -> Sequence[str]:
    """Return the addresses that a connection to *host* would use (with a reactor, from Scrapy's DNS
    cache); none if they can't be found out now."""
    found: list[str] = []
    with suppress(OSError, ValueError):  # no valid name, say
        if not is_reactor_installed():
            places = await asyncio.get_running_loop().getaddrinfo(
                host, None, type=socket.SOCK_STREAM
            )
            return [str(place[4][0]) for place in places]
        from twisted.internet import reactor

        done: Deferred[None] = Deferred()
        receiver = SimpleNamespace(
            resolutionBegan=lambda _: None,
            addressResolved=lambda address: found.append(str(getattr(address, "host", ""))),
            resolutionComplete=lambda: done.callback(None),
        )
        reactor.nameResolver.resolveHostName(receiver, host)
        await maybe_deferred_to_future(done)
    return found


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of *host* (``www.shop.example.co.uk``: ``example.co.uk``); None
    for IP addresses and public suffixes. The first call takes 0.1 s."""
    found = _extractor()(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else None


@cache
def _extractor() -> TLDExtract:
    # No URLs: never the network. No folder: never another program's copy of the list. With private
    # domains: two users of github.io are two sites.
    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
