"""Where a site may send us: a public one never to a private address (SECURITY.md)."""

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

# RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal for private use.
_PRIVATE_NAMES = (".localhost", ".local", ".home.arpa", ".internal")

# Its last four bytes are an IPv4 address (RFC 6052).
_NAT64 = IPv6Network("64:ff9b::/96")

# Hosts.
_REMEMBERED = 10_000


def is_private_address(text: str) -> bool | None:
    """Whether an address is loopback, link-local, private or otherwise not public; None for a name."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            # Operating systems accept 127.1, 0x7f000001 and 2130706433.
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
    """Whether an :class:`Origin`'s *host* is private; None if only a look-up can tell."""
    name = host.rstrip(".")
    local = "." not in name or f".{name}".endswith(_PRIVATE_NAMES)
    private = is_private_address(name)
    return True if private is None and local else private


class Targets:
    """Says which hosts a site may name."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """:param private_hosts: whether the user lets public sites name private hosts"""
        self._all = private_hosts
        settings = crawler.settings
        self._reactor = settings.getbool("TWISTED_REACTOR_ENABLED", True)
        # A proxy looks names up itself, and may get other addresses than we would.
        self._looks_up = not (settings.getbool("HTTPPROXY_ENABLED") and getproxies())
        self._known: dict[str, bool] = {}

    async def refuses(self, target: Origin, by: Origin) -> bool:
        """Whether not to request anything from *target*, since it was *by* that named it."""
        if self._all or target.host == by.host or not await self._is_private(target.host):
            return False
        return not await self._is_private(by.host)

    async def _is_private(self, host: str) -> bool:
        private = is_private_host(host)
        if private is not None or not self._looks_up:
            return bool(private)
        if host not in self._known:
            private = any(map(is_private_address, await self._look_up(host)))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[host] = private
        return self._known[host]

    async def _look_up(self, host: str) -> list[str]:
        """Return the addresses that Scrapy connects to, from its DNS cache."""
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
