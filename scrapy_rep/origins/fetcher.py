"""Fetches robots.txt through Scrapy's engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply; its retries,
redirects, HTTP cache, cookies and offsite filter don't: :meth:`Fetcher.fetch` follows redirects.
FTP bypasses the engine (an anonymous RETR) unless the project has its own handler for it: Scrapy's
reads files of any size, and can't be stopped. Ours is limited, and leaves no connection behind.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

from scrapy import Request, signals
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred, DeferredQueue
from twisted.internet.protocol import ClientCreator, Protocol
from twisted.python.failure import Failure

from scrapy_rep.engine.access import Listener
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
)
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, STATUSES, Outcome
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.text import encoded, text_of

_MAX_REPLIES = 65_536  # bytes of all replies: some servers greet with pages of text

# Without the host: the server could name any, even in the user's network.
_PORT = re.compile(rb"\d{1,3},\d{1,3},\d{1,3},\d{1,3},(\d{1,3}),(\d{1,3})")


async def _retrieve(url: str) -> Response:
    """Fetch *url* by FTP; a missing file is a 404. Awaits only Deferreds of Twisted's."""
    parts, body = urlsplit(url), bytearray()
    control, data = _Connection(_MAX_REPLIES), _Connection(READ_BYTES)
    try:
        await control.open(parts.hostname, parts.port or 21)
        await control.ask("", b"2")
        if (await control.ask("USER anonymous", b"2", b"3")).startswith(b"3"):
            await control.ask("PASS guest", b"2")
        await control.ask("TYPE I", b"2")
        numbers = _PORT.search(await control.ask("PASV", b"227"))
        high, low = map(int, numbers.groups()) if numbers else (256, 0)
        if max(high, low) > 255:
            raise DownloadFailedError("the FTP server named no port")
        await data.open(control.transport.getPeer().host, high << 8 | low)
        reply = await control.ask(f"RETR {parts.path}", b"1", b"2", b"550")
        if reply.startswith(b"550"):
            return Response(url, status=404)
        while len(body) < READ_BYTES and (piece := await data.pieces.get()):
            body += piece
        if reply.startswith(b"1") and len(body) < READ_BYTES:
            await control.ask("", b"2")  # else the connection was lost
        return Response(url, body=bytes(body[:READ_BYTES]))
    finally:
        control.close()
        data.close()


class _Connection(Protocol):
    transport: Any = None

    def __init__(self, most: int) -> None:
        """Closes itself after *most* bytes."""
        self.pieces: DeferredQueue[bytes] = DeferredQueue()
        """What arrived; an empty one at the end."""
        self._left = most
        self._lines = deque[bytes]()
        self._rest = b""

    def open(self, host: str | None, port: int) -> Deferred[Any]:
        from twisted.internet import reactor  # importing it installs one

        creator = ClientCreator(reactor, lambda: self)  # type: ignore[no-untyped-call]
        return creator.connectTCP(host, port)  # type: ignore[no-untyped-call,no-any-return]

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self.pieces.put(data)
        self._left -= len(data)
        if self._left <= 0:
            self.close()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.pieces.put(b"")

    async def ask(self, command: str, *codes: bytes) -> bytes:
        """Send *command*, if any. Return the reply's last line, which begins with one of *codes*."""
        if command:
            self.transport.write(f"{command}\r\n".encode())
        line, begun = b"", b""
        while not (line[:3].isdigit() and begun in (b"", line[:3]) and line[3:4] != b"-"):
            if line[:3].isdigit() and not begun:
                begun = line[:3]  # a reply of several lines
            while not self._lines:
                if not (piece := await self.pieces.get()):
                    raise DownloadFailedError("the FTP server hung up")
                *lines, self._rest = (self._rest + piece).split(b"\n")
                self._lines.extend(lines)
            line = self._lines.popleft()
        if not line.startswith(codes):
            raise DownloadFailedError(f"the FTP server answered {line[:3].decode()}")
        return line


# As in Scrapy's RobotsTxtMiddleware: ahead of the pages that wait for it.
PRIORITY = 1000

META_KEY = "_rep_transfer"

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

_SCRAPYS_FTP = "scrapy.core.downloader.handlers.ftp.FTPDownloadHandler"

# Proxies mark their own answers so: RFC 9209, and the most common one.
_PROXY_STATUSES = (407, 502, 503, 504)
_PROXY_HEADERS = ("Proxy-Status", "X-Squid-Error", "Proxy-Authenticate")

# Characters.
_MAX_TARGET = 120


class InvalidStatus(ValueError):
    """Not HTTP: the status may have any number of digits."""


class Fetcher:
    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._engine = context.engine
        self._accepts = accept_encoding()
        settings = context.crawler.settings
        # A project that accepts cut pages accepts a cut robots.txt.
        self._takes_cut = not settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS", True)
        self._replaces_ftp = (
            settings.getwithbase("DOWNLOAD_HANDLERS").get("ftp") == _SCRAPYS_FTP
            and settings.getbool("FTP_PASSIVE_MODE")
            and settings.getbool("TWISTED_REACTOR_ENABLED", True)
        )
        # Connected while there are fetches: `bytes_received` is sent for every piece of every page.
        handlers: dict[object, Callable[..., Any]] = {
            signals.bytes_received: self._bytes_received,
            signals.response_downloaded: self._response_downloaded,
        }
        self._listener = Listener(context.crawler, handlers)
        self._running = 0
        self.targets = Targets(context.crawler, context.settings.private_hosts)
        """Where an origin may lead us."""

    async def fetch(self, origin: Origin, like: Request, until: float = math.inf) -> Answer:
        """Fetch *origin*'s robots.txt, once. Any error is an answer, except
        :data:`CONFIGURATION_ERRORS` and ``CancelledError``. *like* is a request to *origin* whose
        User-Agent header, proxy and bind address to use. *until*: when it is too late, in seconds
        of ``time.monotonic()``."""
        url, seen, hops = origin.robots_url, {origin.robots_url}, 0
        while True:
            found = await self._ask(url, hops, like, until)
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
            elif await self.targets.refuses(Origin.from_url(target), Origin.from_url(url)):
                error = self._refused(target, "the address is private; see REP_PRIVATE_HOSTS")
                return Answer(Outcome.UNREACHABLE, *given, error=error)
            else:
                seen.add(target)
                url, hops = target, hops + 1
                continue
            return Answer(Outcome.MISSING, *given, note=note)

    async def _ask(self, url: str, hops: int, like: Request, until: float) -> Answer | Response:
        self._running += 1
        self._listener.listen(True)
        transfer = Transfer()
        try:
            with transfer.slot as slot:
                slot.enter_context(self._engine.extra_slot())
                response = await self._get(url, transfer, like, until)
        except CancelledError:
            raise
        except Exception as raised:  # noqa: BLE001 (of any download handler or middleware)
            return Answer(Outcome.UNREACHABLE, url, hops, error=self._failure(raised, url, hops))
        finally:
            self._running -= 1
            self._listener.listen(self._running > 0)
        if not STATUSES[0] <= response.status <= STATUSES[1]:
            error = InvalidStatus("the HTTP status is not a number from 100 to 999")
            return Answer(Outcome.UNREACHABLE, url, hops, error=error)
        if response.status in REDIRECTS:
            return response
        soft_404 = self._context.settings.soft_404
        return answer_of(response, transfer, url, hops, soft_404=soft_404)

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
        return RedirectRefused(f"not following the redirect to {target[:_MAX_TARGET]} ({why})")

    async def _get(self, url: str, transfer: Transfer, like: Request, until: float) -> Response:
        """Request *url*, and make sure that the response is its origin's. Only *like*'s own name
        and what routes it are taken over: its other keys (a slot, a browser) are for pages."""
        timeout = min(self._context.settings.download_timeout, round(until - time.monotonic(), 2))
        if timeout <= 0:  # no time is left after redirects
            raise DownloadTimeoutError(f"no answer from {url} in time")
        late = DownloadTimeoutError(f"took longer than {timeout} seconds")
        if url.startswith("ftp:") and self._replaces_ftp:
            transfer.slot.close()  # this bypasses the downloader
            return await within(timeout, Deferred.fromCoroutine(_retrieve(url)), late)
        headers: dict[str, Any] = dict(self._accepts)
        meta = {**_META, META_KEY: transfer, "download_timeout": timeout}
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
        download = engine.download_async(request)
        if url.startswith("ftp:"):
            # FTP handlers may have no timeout. Others count theirs from when the request leaves its
            # slot's queue.
            download = within(timeout, deferred_from_coro(download), late)
        try:
            response = await download
        except Exception as error:
            if request.meta.get("proxy") and (blamed := blamed_on_proxy(error)):
                raise blamed from error
            raise
        if "download_stopped" in response.flags and not transfer.cut:
            raise ProjectError(STOPPED)
        self.targets.check_answer(request, response)
        if response.status in _PROXY_STATUSES:
            marked = any(name in response.headers for name in _PROXY_HEADERS)
            if response.status == 407 and (marked or request.meta.get("proxy")):
                raise ProxyError("the proxy requires a login (HTTP 407)")
            if response.status != 407 and marked:
                raise ProxyError(f"the proxy answered HTTP {response.status}")
        if self._takes_cut:
            transfer.cut = transfer.cut or "dataloss" in response.flags
        return response

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        transfer = request.meta.get(META_KEY)
        if isinstance(transfer, Transfer):
            transfer.received += len(data)
            # Compressed or not, this many bytes never decode to less than counts.
            if transfer.received >= READ_BYTES:
                transfer.cut = True
                raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        """Take the decoding over from HttpCompressionMiddleware, which sees the response next: it
        would drop the status and the headers of a body that it can't decode."""
        transfer = request.meta.get(META_KEY)
        if isinstance(transfer, Transfer):
            transfer.slot.close()  # before a page takes it
            transfer.encodings = response.headers.getlist("Content-Encoding")
            response.headers.pop("Content-Encoding", None)


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
