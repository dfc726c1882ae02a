"""Where one site may send us: what a public site names never leads to a private address
(SECURITY.md)."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IResolutionReceiver
from zope.interface import implementer

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.interfaces import IAddress

    from scrapy_rep.protocol import Origin

# RFC 6761, RFC 6762, RFC 8375, and what ICANN has reserved for private use.
_PRIVATE_NAMES = (".localhost", ".local", ".home.arpa", ".internal")

# Addresses that carry an IPv4 address in their last four bytes (RFC 6052).
_NAT64 = IPv6Network("64:ff9b::/96")

# This many hosts are remembered.
_REMEMBERED = 10_000


def is_private_address(text: str) -> bool | None:
    """Whether an address is loopback, link-local, private or otherwise not public; None if *text*
    is a name."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            # 127.1, 0x7f000001 and 2130706433, which operating systems take for addresses.
            address = IPv4Address(socket.inet_aton(text))
        except (OSError, ValueError):
            return None
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return not address.is_global or address.is_multicast


def is_private_host(host: str) -> bool | None:
    """Whether *host*, as an :class:`Origin` has it, is private; None if only a look-up can tell."""
    name = host.rstrip(".")
    private = is_private_address(name)
    if private is None and ("." not in name or f".{name}".endswith(_PRIVATE_NAMES)):
        return True
    return private


class Targets:
    """Says which hosts a site may name."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """:param private_hosts: whether the user lets public sites name private hosts"""
        self._all = private_hosts
        settings = crawler.settings
        self._reactor = settings.getbool("TWISTED_REACTOR_ENABLED", True)
        # It is the proxy that looks names up then, and ours may mean something else.
        self._looks_up = not (settings.getbool("HTTPPROXY_ENABLED") and getproxies())
        self._known: dict[str, bool] = {}

    async def refuses(self, target: Origin, by: Origin) -> bool:
        """Whether we do not ask *target* for anything because *by* has named it."""
        if self._all or target.host == by.host or not await self._is_private(target.host):
            return False
        return not await self._is_private(by.host)

    async def _is_private(self, host: str) -> bool:
        private = is_private_host(host)
        if private is None and self._looks_up:
            private = self._known.get(host)
            if private is None:
                addresses = await self._look_up(host)
                private = any(is_private_address(address) for address in addresses)
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[host] = private
        return bool(private)

    async def _look_up(self, host: str) -> list[str]:
        """Return the addresses of *host*: those that Scrapy connects to, from its DNS cache."""
        if not self._reactor:
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, None)
            except (OSError, UnicodeError):
                return []
            return [str(place[4][0]) for place in found]
        from twisted.internet import reactor

        receiver = _Receiver()
        try:
            reactor.nameResolver.resolveHostName(receiver, host)
        except (OSError, ValueError):  # a name that none can be
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
