"""One robots.txt, fetched through Scrapy's own engine (REP.md sections 2 and 3).

The project's proxies, headers, delays, TLS settings and download handlers apply. Nothing that
belongs to page requests does: no retries, redirects, HTTP cache, cookies, offsite filter.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from scrapy import Request
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadTimeoutError,
    NotConfigured,
    NotSupported,
    UnsupportedURLSchemeError,
)
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_rep import headers
from scrapy_rep.body import ACCEPT_ENCODING, META_KEY, Transfer, TransferWatch
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, STATUSES, Outcome, outcome_of
from scrapy_rep.urls import encoded

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Headers, Response

    from scrapy_rep.engine import EngineAccess
    from scrapy_rep.settings import RepSettings

# As the built-in middleware has it: before the pages that wait for it.
PRIORITY = 1000

# The user's to mend, not the site's: asking again would change nothing.
CONFIGURATION_ERRORS = (
    NotSupported,
    NotConfigured,
    ImportError,
    NotImplementedError,
)

DEAD_HOST_ERRORS = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    # What Scrapy's aiohttp handler raises for a host such as 1.2.3: no handler is missing then.
    UnsupportedURLSchemeError,
)


class InvalidStatus(ValueError):
    """An answer that is no HTTP: its status may have any number of digits."""


def text_of(error: Exception) -> str:
    """What to tell a person about *error*."""
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking for a robots.txt."""

    outcome: Outcome
    url: str
    """Of the last request, after redirects."""
    hops: int
    status: int | None = None
    """None if there was no HTTP answer."""
    headers: Headers | None = None
    body: bytes = b""
    error: Exception | None = None

    @property
    def reason(self) -> str:
        """What to tell a person about an outcome that isn't rules."""
        if self.error is not None:
            text = str(self.error).strip()
            name = type(self.error).__name__
            return f"{name}: {text[:200]}" if text else name
        return f"HTTP status {self.status}"


class Fetcher:
    """Fetches robots.txt files."""

    def __init__(self, crawler: Crawler, settings: RepSettings, engine: EngineAccess) -> None:
        self._crawler = crawler
        self._settings = settings
        self._engine = engine
        self._watch = TransferWatch(crawler)

    async def fetch(self, origin: Origin) -> Answer:
        """Ask for *origin*'s robots.txt, once.

        :raises Exception: only :data:`CONFIGURATION_ERRORS`, and what cancelling raises; all else
            is an answer
        """
        url = origin.robots_url
        seen = {url}
        for hops in range(MAX_HOPS + 1):
            try:
                with ExitStack() as slot, self._watch:
                    slot.enter_context(self._engine.extra_slot())
                    response, body = await self._get(url, slot)
            except (*CONFIGURATION_ERRORS, CancelledError):
                raise  # cancelled: nobody wants to know any more
            except Exception as raised:  # noqa: BLE001
                # Whatever a download handler or another middleware raises, nothing was learnt.
                return Answer(Outcome.UNREACHABLE, url, hops, error=raised)
            status = response.status
            if not STATUSES[0] <= status <= STATUSES[1]:
                error = InvalidStatus("the HTTP status is not a number from 100 to 999")
                return Answer(Outcome.UNREACHABLE, url, hops, error=error)
            if status not in REDIRECTS:
                outcome = outcome_of(status, body, soft_404=self._settings.soft_404)
                return Answer(outcome, url, hops, status, response.headers, body)
            target = _redirect_target(url, response)
            if target is None or target in seen:
                break
            seen.add(target)
            if hops < MAX_HOPS:
                url = target
        return Answer(Outcome.MISSING, url, hops, status, response.headers)

    async def _get(self, url: str, slot: ExitStack) -> tuple[Response, bytes]:
        """:param slot: given back as soon as the response is there, or a page would take it before
        we see the response
        """
        transfer = Transfer(slot.close)
        timeout = self._settings.download_timeout
        request = Request(
            url,
            callback=NO_CALLBACK,
            priority=PRIORITY,
            dont_filter=True,
            # Asked for explicitly: bodies are decoded here (see body.py).
            headers={"Accept-Encoding": ACCEPT_ENCODING},
            meta={
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
            # Scrapy's FTP handler knows no timeout. The others count theirs from when the
            # request leaves its slot's queue, which can be long after now.
            response = await _within(timeout, download)
        else:
            response = await download
        return response, transfer.body_of(response)


def _redirect_target(url: str, response: Response) -> str | None:
    """Where a redirect leads, None if it can't be followed."""
    location = headers.last(response.headers, "Location").strip()
    if not location:
        return None
    try:
        target = urljoin(url, encoded(location))
        origin = Origin.from_url(target)
    except ValueError:
        return None
    if origin.scheme not in ("http", "https"):
        return None
    # User info would be sent to whoever is named there.
    return urlsplit(target)._replace(netloc=origin.authority, fragment="").geturl()


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
