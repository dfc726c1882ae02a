"""Fetches robots.txt through Scrapy's engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply; its
retries, redirects, HTTP cache, cookies and offsite filter don't: :meth:`Fetcher.fetch`
follows redirects. The time limit is ours, whatever a download handler makes of
``download_timeout``: some handlers count it anew with each read, and Scrapy's for FTP
ignores it. Time counts from when a request leaves the downloader's queue. There it may
stand behind pages for minutes, which is nobody's fault.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from scrapy import Request, signals
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    StopDownload,
)
from scrapy.http import Headers, Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_rep.engine.access import HOP_KEY, Download, Listener
from scrapy_rep.engine.pools import has_small_pool
from scrapy_rep.engine.timers import within
from scrapy_rep.origins.answer import (
    CONFIGURATION_ERRORS,
    MAX_HEADER,
    PROJECT_REFUSES,
    READ_BYTES,
    STOPPED,
    Answer,
    ProjectError,
    ProxyError,
    RedirectRefused,
    Transfer,
    accept_encoding,
    answer_of,
    blamed_on_proxy,
    refused_by_project,
    wall_sign,
)
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, STATUSES, Outcome
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.text import encoded, text_of

PRIORITY = 1000
"""The priority of our requests, as in Scrapy's RobotsTxtMiddleware: ahead of the pages
that wait for them."""


class OnQueue(Protocol):
    """Is called when a request of ours enters a queue of the downloader (*is_queued*),
    and when it leaves the queue. The time between is nobody's fault."""

    def __call__(self, is_queued: bool) -> object: ...


_META: dict[str, Any] = {
    "dont_obey_robotstxt": True,
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "dont_merge_cookies": True,
    "allow_offsite": True,
    # No limits: the fetcher cuts bodies itself.
    "download_maxsize": 0,
    "download_warnsize": 0,
    # The status of an answer counts even if its body ends too early.
    "download_fail_on_dataloss": False,
    # curl and browsers log in with these.
    "ftp_user": "anonymous",
    "ftp_password": "guest",
}
"""The meta of our requests: nothing that is for pages applies."""

_NOT_PLAIN = (
    "Cookie",
    "Cookie2",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
)
"""Headers that our requests don't have, whatever the project adds to all requests. A
robots.txt that depends on a cookie would not be everybody's. Validators and ranges are
about a copy that the client has; here, nobody has one."""

_SECRET = re.compile(
    rb"auth|key|token|secret|session|passw|credential|signature|csrf|xsrf|jwt",
    re.IGNORECASE,
)
"""Matches the names of headers that may be a secret between the project and the host
that was asked first."""

_PROXY_STATUSES = (407, 502, 503, 504)
"""Statuses with which a proxy may answer in place of the origin."""

_PROXY_HEADERS = ("Proxy-Status", "X-Squid-Error", "Proxy-Authenticate")
"""Headers by which a proxy marks such an answer as its own: the first of RFC 9209, the
second of Squid, the third of RFC 9110."""

_MAX_TARGET = 120
"""How many characters of a refused redirect's target are shown."""


class InvalidStatus(ValueError):
    """The status of a response is none of HTTP's. Download handlers pass on a number of
    any length."""


@dataclass(slots=True)
class Allowance:
    """How long the transfers of one or more fetches may take, in seconds from when each
    is sent. What waits in a queue of the downloader costs nothing."""

    each: float
    """What each transfer may take."""
    in_all: float = math.inf
    """What is left for all transfers together; by default, they have no limit."""

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left for another transfer. Time limits are rounded in the
        same way (:meth:`Hop.download`)."""
        return round(self.in_all, 2) <= 0


@dataclass(slots=True, eq=False, repr=False)
class Hop:
    """One URL on the way to an answer. It is in the meta of the request for that URL
    (``HOP_KEY``, engine/access.py), and downloads it. A middleware may send the request
    several times (ban detection, proxy rotation), and each try is a transfer of its
    own."""

    url: str
    origin: Origin
    """The origin of the URL."""
    allowance: Allowance
    """How long the transfers may take."""
    on_queue: OnQueue
    """Tells those who wait whether the request stands in a queue of the downloader."""
    is_elsewhere: bool = False
    """Whether a redirect led away from the origin that was asked first."""
    transfer: Transfer = field(default_factory=Transfer)
    """The last try's transfer."""
    running: Deferred[Response] | None = None
    """The download in progress."""
    is_over: bool = False
    """Whether nobody waits for the download any more."""
    slot: ExitStack = field(default_factory=ExitStack)
    """While this stack is open, the downloader may have one request more
    (``EngineAccess.extra_slot()``). It may be closed twice."""

    def end(self) -> None:
        """Forget who waited: log records, and lists of other people's code, may keep
        the request, and with its meta this hop. Forget what was sent: only the garbage
        collector frees a request whose meta leads back to it. If the fetch was given
        up, free its connection at once. The request may still stand in the queue of a
        download slot, from which Scrapy removes nothing; then it won't be sent when its
        turn comes."""
        self.on_queue = _tell_nobody
        self.transfer.request = None
        self.is_over = True
        if self.running is not None:
            self.running.cancel()
            self.running = None

    async def download(self, request: Request, handler: Download) -> Response:
        """Download *request* by *handler*, within the time limit."""
        self.on_queue(is_queued=False)
        if self.is_over:
            raise DownloadCancelledError("nobody waits for it any more")

        # The time limit. Messages contain this number, so it is rounded.
        seconds = round(min(self.allowance.each, self.allowance.in_all), 2)
        timeout = DownloadTimeoutError(f"took longer than {seconds} seconds")
        if seconds <= 0:  # earlier transfers took it all
            raise timeout
        request.meta["download_timeout"] = seconds
        for name in _NOT_PLAIN:
            request.headers.pop(name, None)
        if self.is_elsewhere:
            remove_secrets(request.headers)

        began = time.monotonic()
        transfer = Transfer(request, began)
        self.transfer = transfer
        try:
            self.running = deferred_from_coro(handler(request))
            self.running.addErrback(_as_failure)
            response = await within(seconds, self.running, timeout)
        finally:
            self.allowance.in_all -= time.monotonic() - began
            # Close the slot now. Otherwise the downloader would start a page in this
            # place.
            self.slot.close()

        # A handler that sends `bytes_received` has been stopped at the limit
        # (Fetcher._bytes_received()). Others may return a longer body.
        is_too_long = len(response.body) > READ_BYTES
        if is_too_long or "Content-Encoding" in response.headers:
            response = keep_what_counts(response, transfer)
        return response


def _as_failure(failure: Failure) -> Failure:
    """Return a download handler's failure as one that Scrapy passes on. After asyncio's
    ``CancelledError``, which is no ``Exception``, Scrapy would wait for ever. Twisted's
    ``CancelledError`` would look as if we had cancelled the fetch."""
    if failure.check(CancelledError, asyncio.CancelledError):  # type: ignore[no-untyped-call]
        raise DownloadFailedError("the download handler cancelled the download")
    return failure


def _tell_nobody(is_queued: bool) -> None:
    """Do nothing, since nobody needs to know about queues (any more)."""


def remove_secrets(headers: Headers) -> None:
    """Remove from *headers* what may be a secret that another host must not see,
    whatever added it."""
    for name in list(headers):
        # Proxy-Authorization is for the proxy, which is the same for all hosts.
        if _SECRET.search(name) and name != b"Proxy-Authorization":
            del headers[name]


@dataclass(frozen=True, slots=True)
class Plain:
    """Stands in the meta of a request for a page that is only looked at (``scrapy
    robots``), where a :class:`Hop` stands in others, and keeps the request plain."""

    is_elsewhere: bool = False
    """Whether a redirect led away from the origin that was asked first."""

    def download(self, request: Request, handler: Download) -> Awaitable[Response]:
        """Download *request* by *handler*."""
        for name in _NOT_PLAIN:
            request.headers.pop(name, None)
        if self.is_elsewhere:
            remove_secrets(request.headers)
        return handler(request)


def is_elsewhere(target: Origin, asked: Origin) -> bool:
    """Return whether *target*, to which *asked* redirects, isn't to see what is for
    *asked* alone. A site that moves from http to https stays the same."""
    if target.host != asked.host:
        return True
    if asked.scheme == "http" and target.scheme == "https":
        return False
    return target.scheme != asked.scheme or target.port != asked.port


def keep_what_counts(response: Response, transfer: Transfer) -> Response:
    """Return *response* with no more of its body than counts, and move the headers
    about its encoding to *transfer*. HttpCompressionMiddleware, which sees it next,
    would drop the status and the other headers with a body that it can't decode."""
    transfer.encodings = response.headers.getlist("Content-Encoding")
    response.headers.pop("Content-Encoding", None)
    if len(response.body) > READ_BYTES:
        transfer.cut = True
        response = response.replace(body=response.body[:READ_BYTES])
    return response


class Fetcher:
    """Fetches robots.txt files. One for each crawl."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._engine = context.engine
        self._accept_encoding = accept_encoding()
        # Where the handler's pool has few connections, more requests at a time would
        # wait for one, and fail.
        is_small = has_small_pool(context.crawler)
        self._extra_slot = nullcontext if is_small else context.engine.extra_slot
        settings = context.crawler.settings
        self._accepts_cut = not settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS", True)
        """Whether a robots.txt that ends too early is accepted, as it is if the project
        accepts such pages."""
        # These are connected only while there are fetches, since `bytes_received` is
        # sent for every piece of every page.
        handlers: dict[object, Callable[..., Any]] = {
            signals.bytes_received: self._bytes_received,
            signals.request_reached_downloader: self._reached_downloader,
        }
        self._listener = Listener(context.crawler, handlers)
        self._running = 0
        """How many of our requests are in progress."""
        self.targets = Targets(context.crawler, context.settings.private_hosts)
        """Decides where an origin may lead us."""

    async def fetch(
        self,
        origin: Origin,
        page_request: Request,
        allowance: Allowance | None = None,
        on_queue: OnQueue = _tell_nobody,
    ) -> Answer:
        """Fetch *origin*'s robots.txt, once. Any error is an answer, except
        :data:`CONFIGURATION_ERRORS` and ``CancelledError``.

        *page_request*: a request to *origin*, whose User-Agent header, proxy and bind
        address are used. *allowance*: by default, ``REP_DOWNLOAD_TIMEOUT`` for each
        transfer."""
        allowance = allowance or Allowance(self._context.settings.download_timeout)
        hop = Hop(origin.robots_url, origin, allowance, on_queue)
        visited: list[str] = []
        while True:
            url = hop.url
            hops = len(visited)
            visited.append(url)
            try:
                response = await self._get(hop, page_request)
            except CancelledError:
                raise
            except Exception as raised:  # noqa: BLE001 (of any download handler or middleware)
                error = self._failure(raised, url, hops)
                return Answer(Outcome.UNREACHABLE, url, hops, error=error)
            # What the response means, unless it is a redirect that is followed.
            lowest, highest = STATUSES
            if not lowest <= response.status <= highest:
                error = InvalidStatus("the HTTP status is not a number from 100 to 999")
                return Answer(Outcome.UNREACHABLE, url, hops, error=error)
            if response.status not in REDIRECTS:
                soft_404 = self._context.settings.soft_404
                return answer_of(response, hop.transfer, url, hops, soft_404=soft_404)
            target = await self._target_of(response, hop, visited)
            if isinstance(target, Answer):
                return target
            # Follow the redirect.
            target_origin = Origin.from_url(target)
            elsewhere = is_elsewhere(target_origin, origin)
            hop = Hop(target, target_origin, allowance, on_queue, elsewhere)

    async def _target_of(
        self, response: Response, hop: Hop, visited: list[str]
    ) -> str | Answer:
        """Return where *response*, a redirect of *hop*, leads, or what it means if it
        isn't followed. *visited*: the URLs that were requested so far."""
        url = hop.url
        hops = len(visited) - 1  # the first URL was no redirect's target
        # A redirect that can't be followed means that there is no robots.txt.
        target = redirect_target(url, response)
        if target is None:
            note = "a redirect without a usable Location"
            return _missing(url, hops, response, note)
        if target in visited:
            return _missing(url, hops, response, "redirects in a loop")
        if hops == MAX_HOPS:
            note = f"more than {MAX_HOPS} redirects"
            return _missing(url, hops, response, note)

        # A redirect that isn't followed says nothing about the robots.txt.
        target_origin = Origin.from_url(target)
        if await self.targets.refuses(target_origin, hop.origin):
            why = "the address is private; see REP_PRIVATE_HOSTS"
            return Answer(
                Outcome.UNREACHABLE,
                url,
                hops,
                response.status,
                response.headers,
                error=self._refused(target, why),
            )
        return target

    def _failure(self, raised: Exception, url: str, hops: int) -> Exception:
        """Return what a failed request says about the origin. If the fault is the
        project's, raise one of :data:`CONFIGURATION_ERRORS`."""
        # After a redirect, the project refuses only the redirect's target.
        if hops and isinstance(raised, PROJECT_REFUSES):
            return self._refused(url, f"the project refuses it: {text_of(raised)}")
        if isinstance(raised, CONFIGURATION_ERRORS):
            raise raised
        project_error = refused_by_project(raised)
        if project_error is not None:
            raise project_error from raised
        return raised

    def _refused(self, target: str, why: str) -> RedirectRefused:
        """Count a redirect that isn't followed. Return the failure to report."""
        self._context.stats.inc_value("rep/redirects/refused")
        return RedirectRefused(
            f"not following the redirect to {target[:_MAX_TARGET]} ({why})"
        )

    async def _get(self, hop: Hop, page_request: Request) -> Response:
        """Request the URL of *hop*, and make sure that the response comes from its
        origin, not from a proxy or the project."""
        request = self._request_for(hop, page_request)
        engine = self._context.crawler.engine
        assert engine is not None
        self._running += 1
        self._listener.listen(True)
        try:
            with hop.slot as slot:
                slot.enter_context(self._extra_slot())
                if self._engine.hands_over:
                    # Scrapy's downloader calls `hop.download()` when the request leaves
                    # its queue.
                    response = await engine.download_async(request)
                else:
                    # A project's own downloader doesn't, so the time in its queue
                    # counts, too.
                    response = await hop.download(request, engine.download_async)
        except Exception as error:
            # A middleware may have sent another request than ours.
            sent = hop.transfer.request or request
            if sent.meta.get("proxy"):
                proxy_error = blamed_on_proxy(error)
                if proxy_error is not None:
                    raise proxy_error from error
            raise
        finally:
            sent = hop.transfer.request or request
            hop.end()
            self._running -= 1
            self._listener.listen(self._running > 0)

        # Did the response come from the origin?
        if "download_stopped" in response.flags and not hop.transfer.cut:
            raise ProjectError(STOPPED)  # it wasn't us who stopped it
        # A host that is an address itself has no other address to check.
        if str(response.ip_address) != hop.origin.host:
            self.targets.check_answer(request, response)
        if response.status in _PROXY_STATUSES:
            _check_for_proxy(response, sent.meta.get("proxy"))
        if self._accepts_cut and "dataloss" in response.flags:
            hop.transfer.cut = True
        return response

    def _request_for(self, hop: Hop, page_request: Request) -> Request:
        """Return the request for the URL of *hop*. Of *page_request*, only the
        User-Agent header and what routes it (proxy, bind address) are taken over. Its
        other meta keys (a slot, a browser) are for pages."""
        meta = {**_META, HOP_KEY: hop}
        slots = self._engine.slots
        if slots.slowed:
            # A robots.txt doesn't wait for the crawl delay of pages.
            meta |= slots.beside(hop.url, "robots.txt", if_slowed=True)
        for key in ("proxy", "bindaddress"):
            if key in page_request.meta:
                meta[key] = page_request.meta[key]
        copied = ["User-Agent"]
        if meta.get("proxy"):
            # HttpProxyMiddleware may have moved the proxy's login there.
            copied.append("Proxy-Authorization")
        headers: dict[str, Any] = dict(self._accept_encoding)
        for name in copied:
            if page_request.headers.get(name):
                headers[name] = page_request.headers[name]
        return Request(
            hop.url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            headers=headers,
            meta=meta,
        )

    def _reached_downloader(self, request: Request) -> None:
        """Note that *request* is about to stand in the queue of its download slot."""
        hop = request.meta.get(HOP_KEY)
        # With a project's own downloader, nothing is noted, since such a downloader
        # doesn't tell when a request leaves its queue.
        if isinstance(hop, Hop) and self._engine.hands_over:
            hop.on_queue(is_queued=True)

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        """Stop the transfer of *request*, if it is ours, once enough has arrived."""
        hop = request.meta.get(HOP_KEY)
        if not isinstance(hop, Hop):
            return
        transfer = hop.transfer
        if transfer.request is not request:  # an earlier try, whose handler goes on
            raise StopDownload(fail=True)
        transfer.received += len(data)
        # READ_BYTES are enough, compressed or not, since decoding doesn't make fewer
        # bytes of them.
        if transfer.received >= READ_BYTES:
            transfer.cut = True
            raise StopDownload(fail=False)


def _missing(url: str, hops: int, response: Response, note: str) -> Answer:
    """Return that *response* means that there is no robots.txt, and why."""
    headers = response.headers
    wall = wall_sign(headers)
    return Answer(
        Outcome.MISSING, url, hops, response.status, headers, note=note, wall=wall
    )


def _check_for_proxy(response: Response, proxy: Any) -> None:
    """Raise :class:`ProxyError` if *response*, whose status is one of
    :data:`_PROXY_STATUSES`, is a proxy's own answer. *proxy*: the proxy that was used,
    as far as the request knows; a transparent proxy may be on the way, too."""
    status = response.status
    is_marked = any(name in response.headers for name in _PROXY_HEADERS)
    if status == 407:
        if is_marked or proxy:
            raise ProxyError("the proxy requires a login (HTTP 407)")
    elif is_marked:
        raise ProxyError(f"the proxy answered HTTP {status}")


def redirect_target(url: str, response: Response) -> str | None:
    """Return where the redirect *response* of *url* leads; None if it can't be
    followed."""
    # Of several headers, the last one counts.
    location = (response.headers.get("Location") or b"").strip()
    if not 0 < len(location) <= MAX_HEADER:
        return None
    try:
        # The result is encoded again, since encoding depends on the scheme, which a
        # relative URL lacks.
        target = encoded(urljoin(url, encoded(location)))
        origin = Origin.from_url(target)
    except ValueError:
        return None
    if origin.scheme not in ("http", "https"):
        return None
    # User info is left out, since it would be sent to that host.
    authority = str(origin).partition("://")[2]
    parts = urlsplit(target)._replace(netloc=authority, fragment="")
    target = parts.geturl()
    return target if len(target) <= MAX_URL else None
