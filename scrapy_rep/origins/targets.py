"""Where a site may send us: a public one never to a private address (SECURITY.md).

A host that a public site names is looked up, and refused if it has a private address. It may get
another one by the time of the connection: from then on nothing connects to a private address of it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.exceptions import CannotResolveHostError, NotConfigured
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.resolution import look_up, unwatch, watch
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.origins.addresses import is_private_address, is_private_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

# Seconds that a refusal is remembered. DNS errs, too; but a sitemap may list 50,000 pages of a host.
_REFUSED_SECONDS = 5.0
# Hosts.
_REMEMBERED = 10_000


class Refusal(Enum):
    """Why not to request what a site names."""

    PRIVATE = "the address is private"
    UNRESOLVED = "the name can't be resolved, so its address may be private"


class Targets:
    """Says which hosts a site may name, and keeps watch over connections to them."""

    def __init__(self, crawler: Crawler, private_hosts: bool) -> None:
        """:param private_hosts: whether the user lets public sites name private hosts"""
        self._all = private_hosts
        self._crawler = crawler
        self._proxies = _env_proxies(crawler)
        self._others_proxies = False
        self._watched = Recent()  # hosts that public sites named
        self._public, self._private = Recent(), Recent()  # hosts that resolved so
        self._log = Limiter(logger, "connections refused")
        self._refused: dict[str, tuple[Refusal, float]] = {}
        if not private_hosts:
            crawler.signals.connect(self._opened, scrapy_signals.spider_opened)
            crawler.signals.connect(self._stopped, scrapy_signals.engine_stopped)

    def _opened(self) -> None:
        call_later(0, self.begin)  # CrawlerProcess installs Scrapy's resolver after that

    def begin(self) -> None:
        """Keep watch. With :setting:`REP_PRIVATE_HOSTS` there is nothing to do."""
        if not self._all:
            watch(self)

    def _stopped(self) -> None:
        unwatch(self)

    async def refuses(self, target: Origin, by: Origin) -> bool:
        """Whether not to request anything from *target*, since it was *by* that named it."""
        return await self.refusal(target, by) is not None

    async def refusal(self, target: Origin, by: Origin) -> Refusal | None:
        """Why not to request anything from *target*, since it was *by* that named it; None if there is
        no reason."""
        if self._all:
            return None
        self.begin()
        if await self._is_inside(by):
            return None
        self.keep(by)
        if target.host == by.host:
            return None
        why = await self._judge(target)
        if why is not Refusal.PRIVATE:
            self._watched.add(_name(target))
        return why

    def keep(self, origin: Origin) -> None:
        """Have *origin* stay outside, if it is there: so it can name what it likes of itself."""
        host = _name(origin)
        if host in self._public:
            self._watched.add(host)

    async def _is_inside(self, by: Origin) -> bool:
        """Whether *by* is in the user's own network: all its addresses are private."""
        host, private = _name(by), is_private_host(by.host)
        if private is None and host not in self._public and not self._is_proxied(by):
            if host not in self._private:
                await self._look_up(host)
            private = host in self._private and host not in self._public
        return bool(private)

    async def _judge(self, target: Origin) -> Refusal | None:
        """Why not to request anything from *target*, for sites outside."""
        host, private = _name(target), is_private_host(target.host)
        if private is not None:
            return Refusal.PRIVATE if private else None
        known = host in self._watched and host in self._public and host not in self._private
        if known or self._is_proxied(target):
            return None
        why, until = self._refused.get(host, (None, 0.0))
        if time.monotonic() >= until:
            why = self._judged(host, await self._look_up(host))
            self._remember(host, why)
        return why

    async def _look_up(self, host: str) -> Sequence[str]:
        addresses = await look_up(host)
        for one in addresses:
            self.may_connect(host, one)  # if nothing asks: see watch()
        return addresses

    def _judged(self, host: str, addresses: Sequence[str]) -> Refusal | None:
        if any(map(is_private_address, addresses)) or (not addresses and host in self._private):
            return Refusal.PRIVATE
        # Some networks leave all look-ups to their proxies.
        return None if addresses or self._others_proxies else Refusal.UNRESOLVED

    def _remember(self, host: str, why: Refusal | None) -> None:
        if len(self._refused) >= _REMEMBERED:
            self._refused.clear()
        if why is not None:
            self._refused[host] = why, time.monotonic() + _REFUSED_SECONDS

    def _is_proxied(self, origin: Origin) -> bool:
        """Whether the environment has a proxy for *origin*. It looks names up itself, and may get other
        addresses than we would."""
        if self._proxies is None:
            return False
        with suppress(RuntimeError):  # no engine yet
            if not self._crawler.get_downloader_middleware(HttpProxyMiddleware):
                return False
        request = Request(origin.robots_url)
        self._proxies.process_request(request)
        return bool(request.meta.get("proxy"))

    def may_connect(self, host: str, address: str) -> bool:
        """Whether connections may be made to an *address* of *host*: asked whenever a name is
        resolved."""
        if host == address:
            return True
        host, private = host.rstrip("."), is_private_address(address)
        (self._private if private else self._public).add(host)
        if not private or host not in self._watched:
            return True
        self._log.log(
            "Not connecting to %(host)s at %(address)s: another site named it, and this address is "
            "private. If public sites may name it, set REP_PRIVATE_HOSTS.",
            {"host": host, "address": address},
            self._crawler.spider,
        )
        return False

    def check_answer(self, request: Request, response: Response) -> None:
        """Check the address that *response* came from: a download handler may look names up in its own
        way.

        :raises CannotResolveHostError: if a public site has led us to a private one
        """
        origin = origin_of(request)
        if request.meta.get("proxy"):
            # One that the environment doesn't know: what looks names up is the project's business.
            self._others_proxies = self._others_proxies or not self._is_proxied(origin)
        elif not self._all and response.ip_address is not None:
            address = str(response.ip_address)
            if not self.may_connect(origin.host, address):
                raise CannotResolveHostError(f"{origin.host} answered from a private address")


def _name(origin: Origin) -> str:
    return origin.host.rstrip(".")


def _env_proxies(crawler: Crawler) -> HttpProxyMiddleware | None:
    try:
        return HttpProxyMiddleware.from_crawler(crawler)
    except NotConfigured:
        return None
