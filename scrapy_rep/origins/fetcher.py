"""Fetches robots.txt through Scrapy's engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply; retries, redirects,
HTTP cache, cookies and the offsite filter don't. FTP bypasses the engine (`origins/ftp.py`) unless
the project has its own handler for it.
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
from scrapy_rep.origins import ftp
from scrapy_rep.origins.answer import (
    CONFIGURATION_ERRORS,
    Answer,
    ProjectError,
    ProxyError,
    blamed_on_proxy,
    refused_by_project,
    stopped,
)
from scrapy_rep.origins.body import ACCEPT_ENCODING, META_KEY, Transfer, TransferWatch
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, STATUSES, Outcome, outcome_of

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# As in Scrapy's RobotsTxtMiddleware: ahead of the pages that wait for it.
PRIORITY = 1000

# Characters. Servers accept no longer ones, and entries keep the last.
_MAX_URL = 8192

_SCRAPYS_FTP = "scrapy.core.downloader.handlers.ftp.FTPDownloadHandler"


class InvalidStatus(ValueError):
    """Not HTTP: the status may have any number of digits."""


class Fetcher:
    """Fetches robots.txt files."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._watch = TransferWatch(context.crawler)
        self.targets = Targets(context.crawler, context.settings.private_hosts)
        """Where a site may send us."""

    async def fetch(self, origin: Origin, like: Request | None = None) -> Answer:
        """Fetch *origin*'s robots.txt, once.

        :param like: a request to *origin* whose proxy and bind address to use
        :raises Exception: only :data:`CONFIGURATION_ERRORS` and ``CancelledError``; any other error
            is an answer
        """
        url = origin.robots_url
        seen = {url}
        for hops in range(MAX_HOPS + 1):
            try:
                with ExitStack() as slot, self._watch:
                    slot.enter_context(self._context.engine.extra_slot())
                    response, body = await self._get(url, slot, like)
            except (*CONFIGURATION_ERRORS, CancelledError):
                raise
            except Exception as raised:  # of any download handler or middleware
                if refused := refused_by_project(raised):
                    raise refused from raised
                return Answer(Outcome.UNREACHABLE, url, hops, error=raised)
            status = response.status
            if not STATUSES[0] <= status <= STATUSES[1]:
                error = InvalidStatus("the HTTP status is not a number from 100 to 999")
                return Answer(Outcome.UNREACHABLE, url, hops, error=error)
            if status not in REDIRECTS:
                outcome = outcome_of(status, body, soft_404=self._context.settings.soft_404)
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
        """Whether a redirect plausibly leads to a robots.txt (SECURITY.md)."""
        by, named = Origin.from_url(url), Origin.from_url(target)
        if by.host == named.host:
            return True
        parts = urlsplit(target)
        # URLs with side effects have parameters; files have none, or a name that says what they are.
        plain = not parts.query or parts.path.endswith("/robots.txt")
        if plain and not await self.targets.refuses(named, by):
            return True
        self._context.stats.inc_value("rep/redirects/refused")
        why = "the address is private" if plain else "a URL of another host with a query"
        logger.debug(
            "Not following the redirect from %(url)s to %(target)s: %(why)s",
            {"url": url, "target": target, "why": why},
            extra=self._context.extra,
        )
        return False

    async def _get(self, url: str, slot: ExitStack, like: Request | None) -> tuple[Response, bytes]:
        """:param slot: closed when the response arrives, before a page can take the slot"""
        timeout = self._context.settings.download_timeout
        if url.startswith("ftp:") and self._scrapy_has_ftp():
            slot.close()  # this bypasses the downloader
            response = await _within(timeout, ftp.retrieve(url))
            return response, response.body
        transfer = Transfer(slot.close)
        request = Request(
            url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            # body.py decodes these.
            headers={"Accept-Encoding": ACCEPT_ENCODING, **_credentials(like)},
            meta={
                **_way(like),
                **self._context.engine.slots.beside(url, "robots.txt", if_slowed=True),
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
                # What curl and browsers log in with.
                "ftp_user": "anonymous",
                "ftp_password": "guest",
            },
        )
        engine = self._context.crawler.engine
        assert engine is not None
        download = engine.download_async(request)
        if url.startswith("ftp:"):
            # FTP handlers may have no timeout. Others count theirs from when the request leaves its
            # slot's queue.
            download = _within(timeout, download)
        try:
            response = await download
        except Exception as error:
            if request.meta.get("proxy") and (blamed := blamed_on_proxy(error)):
                raise blamed from error
            raise
        if "download_stopped" in response.flags and not transfer.cut:
            raise ProjectError(stopped())
        _check_proxy(response, bool(request.meta.get("proxy")))
        # The project takes what came, by DOWNLOAD_FAIL_ON_DATALOSS = False.
        transfer.cut = transfer.cut or "dataloss" in response.flags
        return response, transfer.body_of(response)

    def _scrapy_has_ftp(self) -> bool:
        """Whether `origins/ftp.py` can stand in for Scrapy's FTP handler."""
        settings = self._context.crawler.settings
        return (
            settings.getwithbase("DOWNLOAD_HANDLERS").get("ftp") == _SCRAPYS_FTP
            and settings.getbool("FTP_PASSIVE_MODE")
            and settings.getbool("TWISTED_REACTOR_ENABLED", True)
        )


def _way(like: Request | None) -> dict[str, Any]:
    """Return the part of *like*'s meta that routes it. Other keys (a slot, a browser) are for pages."""
    keys = ("proxy", "bindaddress")
    return {key: like.meta[key] for key in keys if key in like.meta} if like is not None else {}


def _credentials(like: Request | None) -> dict[str, Any]:
    """Return the header into which HttpProxyMiddleware may have moved *like*'s proxy login."""
    name = "Proxy-Authorization"
    if like is not None and like.meta.get("proxy") and name in like.headers:
        return {name: like.headers[name]}
    return {}


# Proxies mark their own answers so: RFC 9209, and the most common one.
_PROXY_HEADERS = ("Proxy-Status", "X-Squid-Error", "Proxy-Authenticate")


def _check_proxy(response: Response, proxied: bool) -> None:
    """:raises ProxyError: if the response is a proxy's own"""
    marked = any(name in response.headers for name in _PROXY_HEADERS)
    if response.status == 407 and (proxied or marked):
        raise ProxyError("the proxy requires a login (HTTP 407)")
    if response.status in (502, 503, 504) and marked:
        raise ProxyError(f"the proxy answered HTTP {response.status}")


def redirect_target(url: str, response: Response) -> str | None:
    """Return where a redirect leads; None if it can't be followed."""
    location = headers.last(response.headers, "Location").strip()
    if not location or len(location) > _MAX_URL:
        return None
    try:
        # Encoded again: encoding depends on the scheme, which a relative URL lacks.
        target = encoded(urljoin(url, encoded(location)))
        origin = Origin.from_url(target)
    except ValueError:
        return None
    if origin.scheme not in ("http", "https"):
        return None
    # No user info: it would be sent to that host.
    target = urlsplit(target)._replace(netloc=origin.authority, fragment="").geturl()
    return target if len(target) <= _MAX_URL else None


async def _within(seconds: float, download: object) -> Response:
    """Await *download* for at most *seconds*.

    :raises DownloadTimeoutError: after that
    """
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
