"""Where a host may lead the crawler: a public host never to a private address (SECURITY.md).

A host named by a public one is looked up, and refused if it has a private address. Its address may
change before the connection: from then on nothing in this process connects to a private address of
it, whatever the download handler.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from types import SimpleNamespace
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CannotResolveHostError
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution
from zope.interface import implementer

from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.protocol import Origin

# Not public, beside what Python knows of IANA's special-purpose addresses (RFC 6890).
_SPECIAL_4 = (
    IPv4Network(
        "168.63.129.16/32"
    ),  # Azure's agent, which its machines alone can reach
    IPv4Network("192.0.0.0/24"),  # Oracle's metadata service is among them
    IPv4Network("192.88.99.0/24"),  # relays of 6to4: RFC 7526
)
# Of IPv6, only global unicast (RFC 4291) is public: no loopback, link-local fe80::/10, unique local
# fc00::/7, multicast, local translation 64:ff9b:1::/48, nor what nobody has. And of that not:
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = (
    IPv6Network("2001::/23"),  # protocol assignments: RFC 2928
    IPv6Network("2001:db8::/32"),  # documentation: RFC 3849
    IPv6Network("3fff::/20"),  # documentation: RFC 9637
)
# Networks whose addresses contain an IPv4 address, and the bits to its right.
_EMBEDDED = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped: RFC 4291
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64: RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4: RFC 3056
)
_TEREDO = IPv6Network("2001::/32")  # RFC 4380: a server, and the inverse of a client

# RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal for private use.
_PRIVATE_NAMES = (".localhost", ".local", ".home.arpa", ".internal")


def is_private_address(text: str) -> bool | None:
    """Whether an address (None: a name) is loopback, link-local, private or otherwise not public."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            # Operating systems accept 127.1, 0x7f000001 and 2130706433.
            address = IPv4Address(socket.inet_aton(text))
        except (OSError, ValueError):
            return None
    if isinstance(address, IPv4Address):
        return _is_private_4(address)
    number = int(address)
    inner = [number >> bits for network, bits in _EMBEDDED if address in network]
    if address in _TEREDO:
        inner = [number >> 64, ~number]
    if inner:  # packets are sent there
        return any(_is_private_4(IPv4Address(one & 0xFFFFFFFF)) for one in inner)
    return address not in _GLOBAL_6 or any(address in network for network in _SPECIAL_6)


def _is_private_4(address: IPv4Address) -> bool:
    special = any(address in network for network in _SPECIAL_4)
    return special or address.is_multicast or not address.is_global


def is_private_host(host: str) -> bool | None:
    """Whether an :class:`Origin`'s *host* is private; None if only a look-up can tell."""
    name = host.rstrip(".")
    local = "." not in name or f".{name}".endswith(_PRIVATE_NAMES)
    private = is_private_address(name)
    return True if private is None and local else private


logger = get_logger(__name__)


class Targets:
    """Says which hosts another host may name, and watches connections to them."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """*private_hosts*: whether the user lets public hosts name private ones."""
        self._all = private_hosts
        self._crawler = crawler
        # What HttpProxyMiddleware goes by.
        self._proxies = (
            getproxies() if crawler.settings.getbool("HTTPPROXY_ENABLED") else {}
        )
        self._watched = BoundedSet()  # hosts that public hosts named
        self._public, self._private = (
            BoundedSet(),
            BoundedSet(),
        )  # hosts that resolved so
        self._log = Limiter(logger, "connections refused")
        if not private_hosts:
            crawler.signals.connect(self._opened, scrapy_signals.spider_opened)
            crawler.signals.connect(self.unwatch, scrapy_signals.engine_stopped)

    def _opened(self) -> None:
        call_later(
            0, self.watch
        )  # CrawlerProcess installs Scrapy's resolver after that

    def watch(self) -> None:
        """Be asked about connections from now on. Call it again when something may have replaced our
        resolver, as CrawlerProcess does."""
        _watchers.add(self)
        _update_resolvers()

    def unwatch(self) -> None:
        _watchers.discard(self)
        _update_resolvers()

    async def refuses(self, target: Origin, by: Origin) -> bool:
        """Whether to request nothing from *target*, which *by* named: it is private, and *by* isn't.
        A name that can't be resolved now passes: connections to it are watched."""
        if self._all:
            return False
        self.watch()
        if await self._is_inside(
            by
        ):  # in the user's own network: it may name whatever it likes
            return False
        self.keep(by)
        host, private = _name(target), is_private_host(target.host)
        if target.host == by.host or private is False:
            return False
        if private is None and (host not in self._watched or host in self._private):
            found = await self._look_up(target)
            # DNS errs, too: a private address counts until there is another.
            private = any(map(is_private_address, found)) or (
                not found and host in self._private
            )
        if private:
            return True
        self._watched.add(host)
        return False

    def keep(self, origin: Origin) -> None:
        """Keep *origin* outside, if it is there: it may name whatever it likes of its own."""
        host = _name(origin)
        if host in self._public:
            self._watched.add(host)

    async def _is_inside(self, origin: Origin) -> bool:
        """Whether all known addresses of *origin* are private."""
        host, private = _name(origin), is_private_host(origin.host)
        if private is not None:
            return private
        if host not in self._public and host not in self._private:
            await self._look_up(origin)
        return host in self._private and host not in self._public

    async def _look_up(self, origin: Origin) -> Sequence[str]:
        """Record and return the addresses of *origin*; none if there is a proxy for it, which looks
        its name up itself, and may get others than we would."""
        if self._proxies.get(origin.scheme) and not proxy_bypass(origin.host):
            return ()
        found = await look_up(_name(origin))
        for address in found:
            self.may_connect(
                _name(origin), address
            )  # if nothing asks: see _update_resolvers()
        return found

    def may_connect(self, host: str, address: str) -> bool:
        """Whether to connect to an *address* of *host*: asked whenever a name is resolved."""
        if host == address:
            return True
        host, private = host.rstrip("."), is_private_address(address)
        (self._private if private else self._public).add(host)
        if not private or host not in self._watched:
            return True
        self._log.log(
            "Not connecting to %(host)s at %(address)s: another host's redirect or sitemap leads "
            "there, and the address is private. To allow that, set REP_PRIVATE_HOSTS.",
            {"host": host, "address": address},
            self._crawler.spider,
        )
        return False

    def check_answer(self, request: Request, response: Response) -> None:
        """Check the address that *response* came from, since a download handler may look names up
        in its own way; ``CannotResolveHostError`` if a public host has led us to a private one."""
        if (
            not self._all
            and response.ip_address is not None
            and not request.meta.get("proxy")
        ):
            host = urlparse_cached(request).hostname or ""
            if not self.may_connect(host, str(response.ip_address)):
                raise CannotResolveHostError(f"{host} answered from a private address")


def _name(origin: Origin) -> str:
    return origin.host.rstrip(".")


# What resolves names. Twisted's reactor lets anyone install a resolver
# (IReactorPluggableNameResolver), and whatever uses asyncio asks its loop's getaddrinfo(): httpx
# (through anyio), aiohttp without aiodns. Both hooks are documented; that httpx and aiohttp use the
# loop's is not: tests/origins/test_resolution.py fails if they stop.


_watchers: WeakSet[Targets] = WeakSet()  # a crawl may end without saying so


def _may_connect(host: str, address: str) -> bool:
    """Whether all watchers let connections be made. Each is asked: it may keep a record."""
    may = True
    for one in list(_watchers):
        may = one.may_connect(host.lower(), address) and may
    return may


@implementer(IHostnameResolver)
class _Resolver:
    """Stands in for the reactor's resolver as long as anyone watches."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def resolveHostName(
        self, resolutionReceiver: Any, hostName: str, *args: Any, **kwargs: Any
    ) -> IHostResolution:
        def resolved(address: IAddress) -> None:
            if _may_connect(hostName, str(getattr(address, "host", ""))):
                resolutionReceiver.addressResolved(address)

        ours = SimpleNamespace(
            resolutionBegan=resolutionReceiver.resolutionBegan,
            addressResolved=resolved,
            resolutionComplete=resolutionReceiver.resolutionComplete,
        )
        found: IHostResolution = self.inner.resolveHostName(
            ours, hostName, *args, **kwargs
        )
        return found


class _Getaddrinfo:
    """The same for an event loop's method."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:
        found: list[Any] = await self.inner(host, port, **kwargs)
        name = host.decode("latin-1") if isinstance(host, bytes) else str(host or "")
        left = [place for place in found if _may_connect(name, str(place[4][0]))]
        if found and not left:
            raise socket.gaierror(
                socket.EAI_NONAME,
                "another host leads to it, and its address is private",
            )
        return left


def _update_resolvers() -> None:
    if is_reactor_installed():
        from twisted.internet import reactor

        reactor.installNameResolver(_current(reactor.nameResolver, _Resolver))
    # No loop of asyncio's, or one that can't be changed.
    with suppress(RuntimeError, AttributeError):
        loop: Any = asyncio.get_running_loop()
        loop.getaddrinfo = _current(loop.getaddrinfo, _Getaddrinfo)


def _current(found: Any, ours: type[Any]) -> Any:
    """Return *found* in one of *ours* while anyone watches, else without it."""
    if isinstance(found, ours) == bool(_watchers):
        return found
    return ours(found) if _watchers else found.inner


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
            addressResolved=lambda address: found.append(
                str(getattr(address, "host", ""))
            ),
            resolutionComplete=lambda: done.callback(None),
        )
        reactor.nameResolver.resolveHostName(receiver, host)
        await maybe_deferred_to_future(done)
    return found
