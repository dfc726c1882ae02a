"""Where a host may lead the crawler: a public host never to a private address (SECURITY.md).

A host named by a public one is looked up, and refused if it has a private address. Its address may
change before the connection: from then on nothing connects to a private address of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.exceptions import CannotResolveHostError, NotConfigured
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from scrapy.utils.httpobj import urlparse_cached

from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.engine.resolution import look_up, unwatch, watch
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.protocol import Origin

# Not public, beside what Python knows of IANA's special-purpose addresses (RFC 6890).
_SPECIAL_4 = (
    IPv4Network("168.63.129.16/32"),  # Azure's agent, which its machines alone can reach
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

# Seconds that a refusal is remembered. DNS errs, too; but a sitemap may list 50,000 pages of a host.
_REFUSED_SECONDS = 5.0
# Hosts.
_REMEMBERED = 10_000


class Refusal(Enum):
    """Why not to request what a host names."""

    PRIVATE = "the address is private"
    UNRESOLVED = "the name can't be resolved, so its address may be private"


class Targets:
    """Says which hosts another host may name, and watches connections to them."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """*private_hosts*: whether the user lets public hosts name private ones."""
        self._all = private_hosts
        self._crawler = crawler
        self._proxies: HttpProxyMiddleware | None = None
        with suppress(NotConfigured):
            self._proxies = HttpProxyMiddleware.from_crawler(crawler)
        self._others_proxies = False
        self._watched = BoundedSet()  # hosts that public hosts named
        self._public, self._private = BoundedSet(), BoundedSet()  # hosts that resolved so
        self._log = Limiter(logger, "connections refused")
        self._refused: dict[str, tuple[Refusal, float]] = {}
        if not private_hosts:
            crawler.signals.connect(self._opened, scrapy_signals.spider_opened)
            crawler.signals.connect(self._stopped, scrapy_signals.engine_stopped)

    def _opened(self) -> None:
        call_later(0, self.begin)  # CrawlerProcess installs Scrapy's resolver after that

    def _stopped(self) -> None:
        unwatch(self)

    def begin(self) -> None:
        """Watch connections, unless :setting:`REP_PRIVATE_HOSTS` is on."""
        if not self._all:
            watch(self)

    async def refusal(self, target: Origin, by: Origin) -> Refusal | None:
        """Return why not to request anything from *target*, which *by* named; None: no reason."""
        if self._all:
            return None
        self.begin()
        host, private = _name(by), is_private_host(by.host)
        if private is None and host not in self._public and not self._is_proxied(by):
            if host not in self._private:
                await self._look_up(host)
            private = host in self._private and host not in self._public
        if private:  # in the user's own network: it may name whatever it likes
            return None
        self.keep(by)
        if target.host == by.host:
            return None
        why = await self._judge(target)
        if why is not Refusal.PRIVATE:
            self._watched.add(_name(target))
        return why

    def keep(self, origin: Origin) -> None:
        """Keep *origin* outside, if it is there: it may name whatever it likes of its own."""
        host = _name(origin)
        if host in self._public:
            self._watched.add(host)

    async def _judge(self, target: Origin) -> Refusal | None:
        """Return why not to request anything from *target*, for hosts outside."""
        host, private = _name(target), is_private_host(target.host)
        if private is not None:
            return Refusal.PRIVATE if private else None
        known = host in self._watched and host in self._public and host not in self._private
        if known or self._is_proxied(target):
            return None
        why, until = self._refused.get(host, (None, 0.0))
        if time.monotonic() < until:
            return why
        addresses = await self._look_up(host)
        if any(map(is_private_address, addresses)) or (not addresses and host in self._private):
            why = Refusal.PRIVATE
        elif addresses or self._others_proxies:  # some networks leave all look-ups to their proxies
            return None
        else:
            why = Refusal.UNRESOLVED
        if len(self._refused) >= _REMEMBERED:
            self._refused.clear()
        self._refused[host] = why, time.monotonic() + _REFUSED_SECONDS
        return why

    async def _look_up(self, host: str) -> Sequence[str]:
        addresses = await look_up(host)
        for one in addresses:
            self.may_connect(host, one)  # if nothing asks: see watch()
        return addresses

    def _is_proxied(self, origin: Origin) -> bool:
        """Whether the environment has a proxy for *origin*. It looks names up itself, and may get
        other addresses than we would."""
        if self._proxies is None:
            return False
        with suppress(RuntimeError):  # no engine yet
            if not self._crawler.get_downloader_middleware(HttpProxyMiddleware):
                return False
        request = Request(origin.robots_url)
        self._proxies.process_request(request)
        return bool(request.meta.get("proxy"))

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
        if request.meta.get("proxy"):
            # One that the environment doesn't know: what looks names up is the project's business.
            self._others_proxies = self._others_proxies or not self._is_proxied(origin_of(request))
        elif not self._all and response.ip_address is not None:
            host = urlparse_cached(request).hostname or ""
            if not self.may_connect(host, str(response.ip_address)):
                raise CannotResolveHostError(f"{host} answered from a private address")


def _name(origin: Origin) -> str:
    return origin.host.rstrip(".")
