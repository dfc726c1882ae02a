"""One robots.txt, fetched through Scrapy's own engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply. Nothing that
belongs to page requests does: no retries, redirects, HTTP cache, cookies, offsite filter. FTP
goes past the engine, see `origins/ftp.py`, unless the project has a handler of its own for it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from scrapy import Request
from scrapy.exceptions import DownloadTimeoutError
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_rep.engine import headers
from scrapy_rep.engine.encoding import encoded
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import text_of
from scrapy_rep.origins import ftp
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.body import ACCEPT_ENCODING, META_KEY, Transfer, TransferWatch
from scrapy_rep.origins.failures import (
    CONFIGURATION_ERRORS,
    DEAD_HOST_ERRORS,
    ProjectError,
    ProxyError,
    refused_by_project,
    stopped,
)
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, STATUSES, Outcome, outcome_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

# As the built-in middleware has it: before the pages that wait for it.
PRIORITY = 1000

# Characters of a URL that is followed. Servers take no longer ones, and entries keep the last.
_MAX_URL = 8192

_SCRAPYS_FTP = "scrapy.core.downloader.handlers.ftp.FTPDownloadHandler"


class InvalidStatus(ValueError):
    """An answer that is no HTTP: its status may have any number of digits."""


class Fetcher:
    """Fetches robots.txt files."""

    def __init__(self, crawler: Crawler, settings: RepSettings, engine: EngineAccess) -> None:
        self._crawler = crawler
        self._settings = settings
        self._engine = engine
        self._watch = TransferWatch(crawler)
        self.targets = Targets(crawler, settings.private_hosts)
        """Which hosts a site may name."""

    async def fetch(self, origin: Origin, like: Request | None = None) -> Answer:
        """Ask for *origin*'s robots.txt, once.

        :param like: a request to *origin*: its proxy and bind address are used
        :raises Exception: only :data:`CONFIGURATION_ERRORS`, and what cancelling raises; all else
            is an answer
        """
        url = origin.robots_url
        seen = {url}
        for hops in range(MAX_HOPS + 1):
            try:
                with ExitStack() as slot, self._watch:
                    slot.enter_context(self._engine.extra_slot())
                    response, body = await self._get(url, slot, like)
            except (*CONFIGURATION_ERRORS, CancelledError):
                raise  # cancelled: nobody wants to know any more
            except Exception as raised:
                # Whatever a download handler or another middleware raises, nothing was learnt.
                if refused := refused_by_project(raised):
                    raise refused from raised
                return Answer(Outcome.UNREACHABLE, url, hops, error=raised)
            status = response.status
            if not STATUSES[0] <= status <= STATUSES[1]:
                error = InvalidStatus("the HTTP status is not a number from 100 to 999")
                return Answer(Outcome.UNREACHABLE, url, hops, error=error)
            if status not in REDIRECTS:
                outcome = outcome_of(status, body, soft_404=self._settings.soft_404)
                return Answer(outcome, url, hops, status, response.headers, body)
            target = redirect_target(url, response)
            if target is None or target in seen:
                break
            seen.add(target)
            if not await self._may_follow(url, target):
                break
            if hops < MAX_HOPS:
                url = target
        return Answer(Outcome.MISSING, url, hops, status, response.headers)

    async def _may_follow(self, url: str, target: str) -> bool:
        """Whether a redirect is one that a site owner could mean (SECURITY.md)."""
        by, named = Origin.from_url(url), Origin.from_url(target)
        if by.host == named.host:
            return True
        parts = urlsplit(target)
        # What acts has parameters, and a file has none, or its name tells what it is.
        plain = not parts.query or parts.path.endswith("/robots.txt")
        if plain and not await self.targets.refuses(named, by):
            return True
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("rep/redirects/refused")
        logger.debug(
            "%(url)s redirects to %(target)s, which is not followed: %(why)s",
            {
                "url": url,
                "target": target,
                "why": "it has a private address" if plain else "it is no file of another host",
            },
            extra={"spider": self._crawler.spider},
        )
        return False

    async def _get(self, url: str, slot: ExitStack, like: Request | None) -> tuple[Response, bytes]:
        """:param slot: given back when the response arrives; later, a page would take it before
        we see the response
        """
        timeout = self._settings.download_timeout
        if url.startswith("ftp:") and self._scrapy_has_ftp():
            slot.close()  # the downloader has nothing to do with it
            response = await _within(timeout, ftp.retrieve(url))
            return response, response.body
        transfer = Transfer(slot.close)
        request = Request(
            url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            # Asked for explicitly: bodies are decoded here (see body.py).
            headers={"Accept-Encoding": ACCEPT_ENCODING, **_credentials(like)},
            meta={
                **_way(like),
                **self._engine.slots.beside(url, "robots.txt", if_slowed=True),
                META_KEY: transfer,
                "dont_obey_robotstxt": True,
                "dont_redirect": True,
                "dont_retry": True,
                "dont_cache": True,
                "dont_merge_cookies": True,
                "allow_offsite": True,
                "download_timeout": timeout,
                "download_maxsize": 0,
                "download_warnsize": 0,
                "download_fail_on_dataloss": True,
                # What curl and browsers log in with.
                "ftp_user": "anonymous",
                "ftp_password": "guest",
            },
        )
        assert self._crawler.engine is not None
        download = self._crawler.engine.download_async(request)
        if url.startswith("ftp:"):
            # Scrapy's FTP handler knows no timeout, and the project's own need not. The others
            # count theirs from when the request leaves its slot's queue, which can be long after.
            download = _within(timeout, download)
        try:
            response = await download
        except DEAD_HOST_ERRORS as error:
            if request.meta.get("proxy"):
                raise ProxyError(f"the proxy can't be reached ({text_of(error)})") from error
            raise
        if "download_stopped" in response.flags and not transfer.cut:
            raise ProjectError(stopped())
        _check_proxy(response, bool(request.meta.get("proxy")))
        return response, transfer.body_of(response)

    def _scrapy_has_ftp(self) -> bool:
        """Whether FTP would go through Scrapy's own handler, in a way that `origins/ftp.py` can too."""
        settings = self._crawler.settings
        return (
            settings.getwithbase("DOWNLOAD_HANDLERS").get("ftp") == _SCRAPYS_FTP
            and settings.getbool("FTP_PASSIVE_MODE")
            and settings.getbool("TWISTED_REACTOR_ENABLED", True)
        )


# What of a request's meta decides which way it takes. What else may (a slot, a browser) is about how
# pages are loaded.
_WAY = ("proxy", "bindaddress")


def _way(like: Request | None) -> dict[str, Any]:
    return {key: like.meta[key] for key in _WAY if key in like.meta} if like is not None else {}


def _credentials(like: Request | None) -> dict[str, Any]:
    """Those for the proxy of *like*, which HttpProxyMiddleware may have moved to a header."""
    name = "Proxy-Authorization"
    if like is not None and like.meta.get("proxy") and name in like.headers:
        return {name: like.headers[name]}
    return {}


# What proxies write into answers of their own: RFC 9209, and the most widespread of them.
_PROXY_HEADERS = ("Proxy-Status", "X-Squid-Error", "Proxy-Authenticate")


def _check_proxy(response: Response, proxied: bool) -> None:
    """:raises ProxyError: if it was a proxy that answered, for itself"""
    marked = any(name in response.headers for name in _PROXY_HEADERS)
    if response.status == 407 and (proxied or marked):
        raise ProxyError("the proxy asks for a login (HTTP status 407)")
    if response.status in (502, 503, 504) and marked:
        raise ProxyError(f"the proxy answered with HTTP status {response.status}")


def redirect_target(url: str, response: Response) -> str | None:
    """Where a redirect leads, None if it can't be followed."""
    location = headers.last(response.headers, "Location").strip()
    if not location or len(location) > _MAX_URL:
        return None
    try:
        # Once more: a relative URL is not encoded for its scheme.
        target = encoded(urljoin(url, encoded(location)))
        origin = Origin.from_url(target)
    except ValueError:
        return None
    if origin.scheme not in ("http", "https"):
        return None
    # User info would be sent to whoever is named there.
    target = urlsplit(target)._replace(netloc=origin.authority, fragment="").geturl()
    return target if len(target) <= _MAX_URL else None


async def _within(seconds: float, download: object) -> Response:
    """Await *download*; give it up after *seconds* with a ``DownloadTimeoutError``."""
    done: Deferred[Response] = Deferred()

    def finish(result: Response | Failure) -> None:
        if not done.called:
            done.callback(result)  # a Failure goes to the errbacks

    running: Deferred[Response] = deferred_from_coro(download)  # type: ignore[arg-type]
    running.addBoth(finish)

    def give_up() -> None:
        error = DownloadTimeoutError(f"took longer than {seconds} seconds")
        finish(Failure(error))  # type: ignore[no-untyped-call]
        running.cancel()

    timer = call_later(seconds, give_up)
    try:
        return await maybe_deferred_to_future(done)
    finally:
        timer.cancel()
        running.cancel()
