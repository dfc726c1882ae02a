"""Where a host may lead the crawler: a public host never to a private address
(SECURITY.md).

Hosts name other hosts in redirects of robots.txt and in sitemaps. A host that a public
one names is looked up, and refused if it has a private address. Its address may change
between the look-up and the connection. So from then on nothing in this process connects
to a private address of that host, whichever download handler makes the connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
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

_SPECIAL_4 = (
    # Azure's agent, which only Azure's own machines can reach.
    IPv4Network("168.63.129.16/32"),
    # IETF protocol assignments (RFC 6890). Oracle's metadata service is among them.
    IPv4Network("192.0.0.0/24"),
    # Relays of 6to4 (RFC 7526).
    IPv4Network("192.88.99.0/24"),
)
"""IPv4 networks that aren't public although ``ipaddress`` doesn't know that."""

_GLOBAL_6 = IPv6Network("2000::/3")
"""Global unicast (RFC 4291), the only part of IPv6 that is public. Outside are
loopback, link-local fe80::/10, unique local fc00::/7, multicast, local translation
64:ff9b:1::/48, and what nobody has."""

_SPECIAL_6 = (
    # Protocol assignments (RFC 2928).
    IPv6Network("2001::/23"),
    # Documentation (RFC 3849).
    IPv6Network("2001:db8::/32"),
    # Documentation (RFC 9637).
    IPv6Network("3fff::/20"),
)
"""Parts of :data:`_GLOBAL_6` that aren't public."""

_EMBEDDED = (
    # Addresses mapped to IPv6 (RFC 4291).
    (IPv6Network("::ffff:0:0/96"), 0),
    # NAT64 (RFC 6052).
    (IPv6Network("64:ff9b::/96"), 0),
    # 6to4 (RFC 3056).
    (IPv6Network("2002::/16"), 80),
)
"""IPv6 networks whose addresses contain an IPv4 address, each with the number of bits
to the right of it."""

_TEREDO = IPv6Network("2001::/32")
"""Teredo (RFC 4380). Its addresses contain two IPv4 addresses: a server's, and a
client's, inverted."""

_PRIVATE_NAMES = (".localhost", ".local", ".home.arpa", ".internal")
"""Ends of names that are private: by RFC 6761, RFC 6762 and RFC 8375; ICANN reserves
.internal for private use."""


def is_private_address(text: str) -> bool | None:
    """Return whether the address *text* is loopback, link-local, private or otherwise
    not public; None if *text* is no address but a name."""
    try:
        # IPv6 may have brackets around it, and the name of a network interface.
        without_zone = text.strip("[]").partition("%")[0]
        address = ip_address(without_zone)
    except ValueError:
        try:
            # Operating systems accept 127.1, 0x7f000001 and 2130706433 as addresses,
            # too.
            address = IPv4Address(socket.inet_aton(text))
        except (OSError, ValueError):
            return None
    if isinstance(address, IPv4Address):
        return _is_private_4(address)
    embedded = _embedded_addresses(address)
    if embedded:  # packets to *address* are sent to these
        return any(map(_is_private_4, embedded))
    return address not in _GLOBAL_6 or _is_in(address, _SPECIAL_6)


def _embedded_addresses(address: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that *address* contains."""
    number = int(address)
    if address in _TEREDO:
        # The server's is in bits 64 to 95; the client's is in the lowest 32, inverted.
        return [_lowest_32_bits(number >> 64), _lowest_32_bits(~number)]
    return [
        _lowest_32_bits(number >> bits)
        for network, bits in _EMBEDDED
        if address in network
    ]


def _lowest_32_bits(number: int) -> IPv4Address:
    return IPv4Address(number & 0xFFFFFFFF)


def _is_in(
    address: IPv4Address | IPv6Address, networks: Iterable[IPv4Network | IPv6Network]
) -> bool:
    return any(address in network for network in networks)


def _is_private_4(address: IPv4Address) -> bool:
    is_special = _is_in(address, _SPECIAL_4)
    return is_special or address.is_multicast or not address.is_global


def is_private_host(host: str) -> bool | None:
    """Return whether the *host* of an :class:`Origin` is private; None if only a
    look-up can tell."""
    name = host.rstrip(".")
    is_private = is_private_address(name)
    if is_private is not None:
        return is_private
    is_single_word = "." not in name  # as many names in private networks
    if is_single_word or f".{name}".endswith(_PRIVATE_NAMES):
        return True
    return None


logger = get_logger(__name__)


class Targets:
    """Decides which hosts another host may name, and which addresses of these may be
    connected to."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """*private_hosts*: whether the user lets public hosts name private ones
        (``REP_PRIVATE_HOSTS``)."""
        self._all_allowed = private_hosts
        self._crawler = crawler
        self._proxies: dict[str, str] = {}
        """The proxies of the environment by scheme, as HttpProxyMiddleware uses
        them."""
        if crawler.settings.getbool("HTTPPROXY_ENABLED"):
            self._proxies = getproxies()
        self._watched = BoundedSet()
        """Hosts that public hosts named. To these, no connection is made at a private
        address."""
        self._public = BoundedSet()
        """Hosts that have resolved to a public address."""
        self._private = BoundedSet()
        """Hosts that have resolved to a private address. A host may be in both sets."""
        self._log = Limiter(logger, "connections refused")
        if not private_hosts:
            crawler.signals.connect(self._opened, scrapy_signals.spider_opened)
            crawler.signals.connect(self.unwatch, scrapy_signals.engine_stopped)

    def _opened(self) -> None:
        # CrawlerProcess installs Scrapy's resolver only after `spider_opened`, and our
        # resolver has to be around Scrapy's.
        call_later(0, self.watch)

    def watch(self) -> None:
        """Be asked about connections from now on (:meth:`check_address`). To be called
        again when something may have replaced our resolver, as CrawlerProcess does."""
        _watchers.add(self)
        _update_resolvers()

    def unwatch(self) -> None:
        """Be asked about connections no more."""
        _watchers.discard(self)
        _update_resolvers()

    async def refuses(self, target: Origin, source: Origin) -> bool:
        """Return whether *target*, which the origin *source* has named, is refused, so
        that nothing is requested from it: *target* is private, and *source* isn't. A
        *target* that can't be resolved now is not refused. From now on, connections to
        a *target* that isn't refused are watched."""
        if self._all_allowed:
            return False
        self.watch()  # something may have replaced our resolver
        if await self._is_inside(source):
            # A host in the user's own network may name whatever it likes.
            return False
        self.keep(source)
        if target.host == source.host:
            return False
        is_private = is_private_host(target.host)
        if is_private is None:
            is_private = await self._resolves_to_private(target)
        elif not is_private:  # the host is a public address itself: nothing to watch
            return False
        if not is_private:
            self._watched.add(_name(target))
        return is_private

    async def _resolves_to_private(self, target: Origin) -> bool:
        """Return whether the name of *target* has a private address. It is looked up,
        unless it is watched already and has had no private address so far."""
        host = _name(target)
        if host in self._watched and host not in self._private:
            return False
        addresses = await self._look_up(target)
        if addresses:
            return any(map(is_private_address, addresses))
        # The look-up failed. If the name had a private address before, that still
        # counts.
        return host in self._private

    def keep(self, origin: Origin) -> None:
        """Watch connections to *origin* from now on, if it has a public address.
        :meth:`refuses` lets it name whatever it likes on its own host, so its address
        must not become private later."""
        host = _name(origin)
        if host in self._public:
            self._watched.add(host)

    async def _is_inside(self, origin: Origin) -> bool:
        """Return whether all addresses of *origin* that were seen are private."""
        host = _name(origin)
        is_private = is_private_host(origin.host)
        if is_private is not None:
            return is_private
        if host not in self._public and host not in self._private:
            await self._look_up(origin)
        return host in self._private and host not in self._public

    async def _look_up(self, origin: Origin) -> Sequence[str]:
        """Record and return the addresses of *origin*; none if there is a proxy for it,
        which looks its name up itself, and may get other addresses than we would."""
        has_proxy = bool(self._proxies.get(origin.scheme))
        if has_proxy and not proxy_bypass(origin.host):
            return ()
        host = _name(origin)
        addresses = await look_up(host)
        for address in addresses:
            # Our resolver has recorded each address already, unless that resolver
            # couldn't be installed (_update_resolvers()).
            hosts = self._private if is_private_address(address) else self._public
            hosts.add(host)
        return addresses

    def check_address(self, host: str, address: str) -> bool:
        """Record that *host* has resolved to *address*. Return whether to connect to
        it. If a public host has named *host*, and *address* is private, return False,
        and log that. This is called whenever a name is resolved."""
        if host == address:  # no name was resolved
            return True
        name = host.rstrip(".")
        is_private = is_private_address(address)
        hosts = self._private if is_private else self._public
        hosts.add(name)
        if not is_private or name not in self._watched:
            return True
        self._log.log(
            "Not connecting to %(host)s at %(address)s: another host's redirect or sitemap leads "
            "there, and the address is private. To allow that, set REP_PRIVATE_HOSTS.",
            {"host": name, "address": address},
            self._crawler.spider,
        )
        return False

    def check_answer(self, request: Request, response: Response) -> None:
        """Check the address that *response* came from, since a download handler may
        look names up in its own way. Raises ``CannotResolveHostError`` if a public host
        has led us to a private one."""
        if self._all_allowed or response.ip_address is None:
            return
        if request.meta.get("proxy"):
            return  # the address is the proxy's
        host = urlparse_cached(request).hostname or ""
        if not self.check_address(host, str(response.ip_address)):
            raise CannotResolveHostError(f"{host} answered from a private address")


def _name(origin: Origin) -> str:
    """Return the host of *origin* as the sets of :class:`Targets` have it: without the
    dot that may end it."""
    return origin.host.rstrip(".")


# Names are resolved in two places. Twisted's reactor lets anyone install a resolver
# (IReactorPluggableNameResolver). Whatever uses asyncio calls its event loop's
# getaddrinfo(): httpx (through anyio), and aiohttp without aiodns. Both hooks are
# documented. That httpx and aiohttp use the loop's method is not documented:
# tests/origins/test_resolution.py fails if they stop.


_watchers: WeakSet[Targets] = WeakSet()
"""The targets that are asked about connections. A crawl may end without calling
``unwatch()``."""


def _check_by_all(host: str, address: str) -> bool:
    """Return whether all watchers let *address* of *host* be connected to. Each watcher
    is asked, even after another's no, since each records the address."""
    is_allowed = True
    for targets in list(_watchers):
        if not targets.check_address(host.lower(), address):
            is_allowed = False
    return is_allowed


@implementer(IHostnameResolver)
class _Resolver:
    """Stands in for the reactor's resolver as long as anyone watches: passes on only
    the addresses that all watchers let be connected to."""

    def __init__(self, inner: Any) -> None:
        """*inner*: the resolver that was there before."""
        self.inner = inner

    def resolveHostName(
        self, resolutionReceiver: Any, hostName: str, *args: Any, **kwargs: Any
    ) -> IHostResolution:
        def resolved(address: IAddress) -> None:
            text = str(getattr(address, "host", ""))
            # A host that is an address itself is nothing to check.
            if text == hostName or _check_by_all(hostName, text):
                resolutionReceiver.addressResolved(address)

        receiver = SimpleNamespace(
            resolutionBegan=resolutionReceiver.resolutionBegan,
            addressResolved=resolved,
            resolutionComplete=resolutionReceiver.resolutionComplete,
        )
        resolution: IHostResolution = self.inner.resolveHostName(
            receiver, hostName, *args, **kwargs
        )
        return resolution


class _Getaddrinfo:
    """Stands in for an event loop's method ``getaddrinfo`` as :class:`_Resolver` does
    for the reactor's resolver."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, host: Any, port: Any, **kwargs: Any) -> list[Any]:
        infos: list[Any] = await self.inner(host, port, **kwargs)
        name = str(host or "")
        if isinstance(host, bytes):
            name = host.decode("latin-1")
        allowed_infos = []
        for info in infos:
            address = _address_in(info)
            # A host that is an address itself is nothing to check.
            if address == name or _check_by_all(name, address):
                allowed_infos.append(info)
        if infos and not allowed_infos:
            raise socket.gaierror(
                socket.EAI_NONAME,
                "another host leads to it, and its address is private",
            )
        return allowed_infos


def _address_in(info: Any) -> str:
    """Return the address in one of the tuples that ``getaddrinfo()`` returns."""
    *_, socket_address = info
    return str(socket_address[0])


def _update_resolvers() -> None:
    """Put our resolvers around those of the reactor and of the event loop while anyone
    watches; remove ours if nobody does."""
    if is_reactor_installed():
        from twisted.internet import reactor

        reactor.installNameResolver(_wrapped(reactor.nameResolver, _Resolver))
    # RuntimeError: there is no asyncio loop. AttributeError: its method can't be
    # replaced.
    with suppress(RuntimeError, AttributeError):
        loop: Any = asyncio.get_running_loop()
        loop.getaddrinfo = _wrapped(loop.getaddrinfo, _Getaddrinfo)


def _wrapped(resolver: Any, wrapper: type[Any]) -> Any:
    """Return *resolver* in a *wrapper* while anyone watches, else without it."""
    is_wrapped = isinstance(resolver, wrapper)
    if is_wrapped == bool(_watchers):
        return resolver
    if is_wrapped:
        return resolver.inner
    return wrapper(resolver)


async def look_up(host: str) -> Sequence[str]:
    """Return the addresses that a connection to *host* would use (with a reactor, from
    Scrapy's DNS cache); none if they can't be found out now."""
    with suppress(OSError, ValueError):  # ValueError: *host* is no valid name
        if is_reactor_installed():
            return await _look_up_with_reactor(host)
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM
        )
        return list(map(_address_in, infos))
    return []


async def _look_up_with_reactor(host: str) -> Sequence[str]:
    """Return the addresses of *host*: the reactor's resolver calls a receiver with each
    (Twisted's IResolutionReceiver), and then to say that there are no more."""
    from twisted.internet import reactor

    addresses: list[str] = []
    done: Deferred[None] = Deferred()

    def resolved(address: IAddress) -> None:
        addresses.append(str(getattr(address, "host", "")))

    def completed() -> None:
        done.callback(None)

    receiver = SimpleNamespace(
        resolutionBegan=_ignore,
        addressResolved=resolved,
        resolutionComplete=completed,
    )
    reactor.nameResolver.resolveHostName(receiver, host)
    await maybe_deferred_to_future(done)
    return addresses


def _ignore(resolution: IHostResolution) -> None:
    """Do nothing, since it doesn't matter when a resolution begins."""
