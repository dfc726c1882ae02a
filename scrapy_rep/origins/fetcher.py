"""Fetches robots.txt through Scrapy's engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply; its retries,
redirects, HTTP cache, cookies and offsite filter don't: :meth:`Fetcher.fetch` follows redirects.
The time limit is ours, whatever a download handler makes of ``download_timeout``: some count it anew
with each read, and Scrapy's for FTP ignores it. It counts from when a request leaves the downloader's
queue, where it may stand behind pages for minutes, which is nobody's fault.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from scrapy import Request, signals
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    StopDownload,
)
from scrapy.http import Response
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

# As in Scrapy's RobotsTxtMiddleware: ahead of the pages that wait for it.
PRIORITY = 1000

OnQueue = Callable[[bool], object]
"""Is called with True when a request of ours enters a queue of the downloader, and with False when it leaves
that: the time between is nobody's fault."""

# Nothing that is for pages applies. The status of a cut answer counts all the same.
_META: dict[str, Any] = {
    "dont_obey_robotstxt": True,
    "dont_redirect": True,
    "dont_retry": True,
    "dont_cache": True,
    "dont_merge_cookies": True,
    "allow_offsite": True,
    "download_maxsize": 0,
    "download_warnsize": 0,
    "download_fail_on_dataloss": False,
    # What curl and browsers log in with.
    "ftp_user": "anonymous",
    "ftp_password": "guest",
}

# The request is plain, whatever the project adds to all requests: a robots.txt that depends on a
# cookie would not be everybody's, and nobody here has a copy that a validator or a range could be about.
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
# What may be a secret between the project and the host that was asked first, by the header's name.
_SECRET = re.compile(
    rb"auth|key|token|secret|session|passw|credential|signature|csrf|xsrf|jwt",
    re.IGNORECASE,
)

# Proxies mark their own answers so: RFC 9209, and the most common one.
_PROXY_STATUSES = (407, 502, 503, 504)
_PROXY_HEADERS = ("Proxy-Status", "X-Squid-Error", "Proxy-Authenticate")

# Characters.
_MAX_TARGET = 120


class InvalidStatus(ValueError):
    """Not HTTP: the status may have any number of digits."""


@dataclass(slots=True)
class Allowance:
    """How long the transfers of one or more fetches may take, in seconds from when each is sent.
    What waits in a queue of the downloader costs nothing."""

    each: float
    in_all: float = math.inf
    """What is left for all of them together."""

    @property
    def seconds(self) -> float:
        """What the next transfer has."""
        return round(min(self.each, self.in_all), 2)


class Hop:
    """One URL on the way to an answer, in the meta of its requests: a middleware may ask several
    times (ban detection, proxy rotation), and each try is a transfer of its own."""

    def __init__(
        self, allowance: Allowance, on_queue: OnQueue, is_elsewhere: bool
    ) -> None:
        """*is_elsewhere*: whether a redirect led to another host than was asked first."""
        self._allowance = allowance
        self._on_queue = on_queue
        self._is_elsewhere = is_elsewhere
        self._running: Deferred[Response] | None = None
        self._is_over = False
        self.transfer = Transfer()
        """The last one."""
        self.slot = ExitStack()
        """Removes, once, the download slot that was added for it."""

    def end(self) -> None:
        """Forget who waited: log records and other people's lists keep requests, and so their meta. If
        the fetch was given up, its connection is free at once; a request that stands in the queue of a
        download slot, from which Scrapy takes nothing, isn't sent when its turn comes."""
        self._on_queue = _nobody
        self._is_over = True
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def queued(self) -> None:
        """Note that a request has entered a queue of the downloader."""
        self._on_queue(True)

    async def download(self, request: Request, handler: Download) -> Response:
        """Download *request* by *handler*, within the time limit."""
        self._on_queue(False)
        if self._is_over:
            raise DownloadCancelledError("nobody waits for it any more")
        seconds = self._allowance.seconds
        late = DownloadTimeoutError(f"took longer than {seconds} seconds")
        if seconds <= 0:  # earlier transfers took it all
            raise late
        request.meta["download_timeout"] = seconds
        make_plain(request, self._is_elsewhere)
        began = time.monotonic()
        self.transfer = transfer = Transfer(request, began)
        try:
            self._running = deferred_from_coro(handler(request))
            self._running.addErrback(_as_failure)
            response = await within(seconds, self._running, late)
        finally:
            self._allowance.in_all -= time.monotonic() - began
            self.slot.close()  # before a page takes it
        return keep_what_counts(response, transfer)


def _as_failure(failure: Failure) -> Failure:
    """Return a download handler's failure as one that Scrapy passes on. It would wait for ever after
    asyncio's ``CancelledError``, which is no ``Exception``; and to cancel is ours."""
    if failure.check(CancelledError, asyncio.CancelledError):  # type: ignore[no-untyped-call]
        raise DownloadFailedError("the download handler cancelled the download")
    return failure


def _nobody(is_queued: bool) -> None:
    """Wants to know no more of queues."""


def make_plain(request: Request, is_elsewhere: bool) -> None:
    """Remove the headers that a request for a file of ours must not have, whatever added them. With
    *is_elsewhere*, also what may be a secret that another host must not see."""
    headers = request.headers
    for name in _NOT_PLAIN:
        headers.pop(name, None)
    if is_elsewhere:
        for name in [name for name in headers if _SECRET.search(name)]:
            if name != b"Proxy-Authorization":  # the proxy's
                del headers[name]


@dataclass(frozen=True, slots=True)
class Plain:
    """In the meta of a request for a page that is only looked at: keeps it plain."""

    is_elsewhere: bool = False

    def download(self, request: Request, handler: Download) -> Awaitable[Response]:
        make_plain(request, self.is_elsewhere)
        return handler(request)


def is_elsewhere(target: Origin, asked: Origin) -> bool:
    """Whether *target*, to which *asked* redirects, isn't to see what is for *asked* alone. A site that
    moves from http to https is the same."""
    if target.host != asked.host:
        return True
    is_upgrade = (asked.scheme, target.scheme) == ("http", "https")
    return not is_upgrade and (target.scheme, target.port) != (asked.scheme, asked.port)


def keep_what_counts(response: Response, transfer: Transfer) -> Response:
    """Return no more of *response* than counts, and move the headers about its encoding to *transfer*:
    HttpCompressionMiddleware, which sees it next, would drop the status and the headers of a body that
    it can't decode."""
    transfer.encodings = response.headers.getlist("Content-Encoding")
    response.headers.pop("Content-Encoding", None)
    if (
        len(response.body) > READ_BYTES
    ):  # of a handler that doesn't send `bytes_received`
        transfer.cut = True
        response = response.replace(body=response.body[:READ_BYTES])
    return response


class Fetcher:
    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._engine = context.engine
        self._accepts = accept_encoding()
        # More requests at a time than the pool has connections would wait for one, and fail.
        is_small = has_small_pool(context.crawler)
        self._extra_slot = nullcontext if is_small else context.engine.extra_slot
        settings = context.crawler.settings
        # A project that accepts cut pages accepts a cut robots.txt.
        self._takes_cut = not settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS", True)
        # Connected while there are fetches: `bytes_received` is sent for every piece of every page.
        handlers: dict[object, Callable[..., Any]] = {
            signals.bytes_received: self._bytes_received,
            signals.request_reached_downloader: self._reached_downloader,
        }
        self._listener = Listener(context.crawler, handlers)
        self._running = 0
        self.targets = Targets(context.crawler, context.settings.private_hosts)
        """Where an origin may lead us."""

    async def fetch(
        self,
        origin: Origin,
        like: Request,
        allowance: Allowance | None = None,
        on_queue: OnQueue = _nobody,
    ) -> Answer:
        """Fetch *origin*'s robots.txt, once. Any error is an answer, except
        :data:`CONFIGURATION_ERRORS` and ``CancelledError``. *like* is a request to *origin* whose
        User-Agent header, proxy and bind address to use. *allowance*: by default,
        ``REP_DOWNLOAD_TIMEOUT`` for each transfer. *on_queue* is called when a request enters a queue of
        the downloader, and when it leaves it."""
        url, seen, hops = origin.robots_url, {origin.robots_url}, 0
        allowance = allowance or Allowance(self._context.settings.download_timeout)
        while True:
            elsewhere = is_elsewhere(Origin.from_url(url), origin)
            found = await self._ask(
                url, hops, like, Hop(allowance, on_queue, elsewhere)
            )
            if isinstance(found, Answer):
                return found
            given = url, hops, found.status, found.headers
            target = redirect_target(url, found)
            if target is None:
                note = "a redirect without a usable Location"
            elif target in seen:
                note = "redirects in a loop"
            elif hops == MAX_HOPS:
                note = f"more than {MAX_HOPS} redirects"
            elif await self.targets.refuses(
                Origin.from_url(target), Origin.from_url(url)
            ):
                error = self._refused(
                    target, "the address is private; see REP_PRIVATE_HOSTS"
                )
                return Answer(Outcome.UNREACHABLE, *given, error=error)
            else:
                seen.add(target)
                url, hops = target, hops + 1
                continue
            return Answer(
                Outcome.MISSING, *given, note=note, wall=wall_sign(found.headers)
            )

    async def _ask(
        self, url: str, hops: int, like: Request, hop: Hop
    ) -> Answer | Response:
        self._running += 1
        self._listener.listen(True)
        try:
            with hop.slot as slot:
                slot.enter_context(self._extra_slot())
                response = await self._get(url, hop, like)
        except CancelledError:
            raise
        except Exception as raised:  # noqa: BLE001 (of any download handler or middleware)
            return Answer(
                Outcome.UNREACHABLE, url, hops, error=self._failure(raised, url, hops)
            )
        finally:
            hop.end()
            self._running -= 1
            self._listener.listen(self._running > 0)
        if not STATUSES[0] <= response.status <= STATUSES[1]:
            error = InvalidStatus("the HTTP status is not a number from 100 to 999")
            return Answer(Outcome.UNREACHABLE, url, hops, error=error)
        if response.status in REDIRECTS:
            return response
        soft_404 = self._context.settings.soft_404
        return answer_of(response, hop.transfer, url, hops, soft_404=soft_404)

    def _failure(self, raised: Exception, url: str, hops: int) -> Exception:
        """Return what a failed request says about the origin. If the fault is the project's, raise
        one of :data:`CONFIGURATION_ERRORS`."""
        if hops and isinstance(raised, PROJECT_REFUSES):
            return self._refused(url, f"the project refuses it: {text_of(raised)}")
        if isinstance(raised, CONFIGURATION_ERRORS):
            raise raised
        if project_error := refused_by_project(raised):
            raise project_error from raised
        return raised

    def _refused(self, target: str, why: str) -> RedirectRefused:
        self._context.stats.inc_value("rep/redirects/refused")
        return RedirectRefused(
            f"not following the redirect to {target[:_MAX_TARGET]} ({why})"
        )

    async def _get(self, url: str, hop: Hop, like: Request) -> Response:
        """Request *url*, and make sure that the response is its origin's. Only *like*'s own name
        and what routes it are taken over: its other keys (a slot, a browser) are for pages."""
        headers: dict[str, Any] = dict(self._accepts)
        meta = {**_META, HOP_KEY: hop}
        if self._engine.slots.slowed:
            meta |= self._engine.slots.beside(url, "robots.txt", if_slowed=True)
        for key in {"proxy", "bindaddress"} & like.meta.keys():
            meta[key] = like.meta[key]
        # HttpProxyMiddleware may have moved the proxy's login there.
        for name in ("User-Agent", *["Proxy-Authorization"] * bool(meta.get("proxy"))):
            if like.headers.get(name):
                headers[name] = like.headers[name]
        request = Request(
            url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            headers=headers,
            meta=meta,
        )
        engine = self._context.crawler.engine
        assert engine is not None
        try:
            if self._engine.hand_over():
                response = await engine.download_async(request)
            else:
                response = await hop.download(request, engine.download_async)
        except Exception as error:
            # Of the last try, which a middleware may have sent through another proxy.
            sent = hop.transfer.request or request
            if sent.meta.get("proxy") and (blamed := blamed_on_proxy(error)):
                raise blamed from error
            raise
        if "download_stopped" in response.flags and not hop.transfer.cut:
            raise ProjectError(STOPPED)
        self.targets.check_answer(request, response)
        if response.status in _PROXY_STATUSES:
            marked = any(name in response.headers for name in _PROXY_HEADERS)
            through_proxy = (hop.transfer.request or request).meta.get("proxy")
            if response.status == 407 and (marked or through_proxy):
                raise ProxyError("the proxy requires a login (HTTP 407)")
            if response.status != 407 and marked:
                raise ProxyError(f"the proxy answered HTTP {response.status}")
        if self._takes_cut:
            hop.transfer.cut = hop.transfer.cut or "dataloss" in response.flags
        return response

    def _reached_downloader(self, request: Request) -> None:
        """Note that *request* is about to stand in the queue of its download slot."""
        hop = request.meta.get(HOP_KEY)
        # A project's own downloader doesn't tell when a request leaves its queue.
        if isinstance(hop, Hop) and self._engine.hand_over():
            hop.queued()

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        hop = request.meta.get(HOP_KEY)
        if not isinstance(hop, Hop):
            return
        transfer = hop.transfer
        if transfer.request is not request:  # given up, but its handler goes on
            raise StopDownload(fail=True)
        transfer.received += len(data)
        # Compressed or not, this many bytes never decode to less than counts.
        if transfer.received >= READ_BYTES:
            transfer.cut = True
            raise StopDownload(fail=False)


def redirect_target(url: str, response: Response) -> str | None:
    """Return where a redirect leads; None if it can't be followed."""
    location = (response.headers.get("Location") or b"").strip()  # the last of them
    if not 0 < len(location) <= MAX_HEADER:
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
    authority = str(origin).partition("://")[2]
    target = urlsplit(target)._replace(netloc=authority, fragment="").geturl()
    return target if len(target) <= MAX_URL else None
