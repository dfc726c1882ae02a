"""A robots.txt that could not be fetched: whose fault it was (the site's, a proxy's, the project's own code),
how soon it is asked for again (REP.md section 4), and what `RobotsUnreachable.__cause__` is."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest
from scrapy import Request, signals
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.faults import ProjectError, ProxyError, RedirectRefused
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry
from tests.helpers.behaviours import (
    RULES,
    answer,
    hang_up,
    in_turn,
    lying_length,
    raw,
    redirect,
    reset,
    silence,
)
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, crawl
from tests.helpers.held import DEFER, InlineSpider, Record, assert_clean, urls
from tests.helpers.log import lines
from tests.helpers.names import server_context
from tests.helpers.rows import every_row
from tests.helpers.servers import Always, Site, Sites


class BuggyHandler:
    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> BuggyHandler:
        return cls()

    async def download_request(self, request: Request) -> Response:
        raise KeyError("host")

    async def close(self) -> None:
        pass


class Filter:
    """Wants HTML alone, as many a project's middleware does; and one site not at all."""

    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.startswith("http://lost.test") and request.url.endswith("/robots.txt"):
            raise ConnectionResetError("by a middleware that asks a server")

    def process_response(self, request: Request, response: Response, **_: Any) -> Response:
        if b"html" not in response.headers.get("Content-Type", b""):
            raise IgnoreRequest("no HTML")
        return response


class Buggy:
    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.startswith("http://buggy.test") and request.url.endswith("/robots.txt"):
            raise ZeroDivisionError("division by zero")


def reasons(result: CrawlResult, site: Site) -> set[str]:
    errors = [error for url, error in result.failures.items() if url.startswith(site.url(""))]
    assert errors
    return {error.reason for error in errors if isinstance(error, RobotsUnreachable)}


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_what_fails_in_the_project_is_the_users_to_mend(sites: Sites) -> None:
    """At once: nothing is held, and robots.txt is not asked for again and again. But an error of the
    network is about the site."""
    table = {
        f"{Filter.__qualname__} refused the request for robots.txt (IgnoreRequest: no HTML): make it ignore": sites.add(robots=RULES),
        f"{Buggy.__qualname__} failed on the request for robots.txt (ZeroDivisionError: division by zero)": sites.add(robots=RULES, name="buggy.test"),
        f"the download handler {__name__}.{BuggyHandler.__qualname__} failed (KeyError": sites.add(name="handler.test", tls=True),
    }  # fmt: skip
    lost = sites.add(robots=RULES, name="lost.test")
    settings = {
        "DOWNLOADER_MIDDLEWARES": {Filter: 500, Buggy: 400},
        "DOWNLOAD_HANDLERS": {"https": BuggyHandler},
        "REP_DEFER_MAX_WAIT": 0.2,
    }
    result = await crawl(
        [url for site in (*table.values(), lost) for url in urls(site, 5)], {**DEFER, **settings}
    )
    for says, site in table.items():
        [reason] = reasons(result, site)
        assert says in reason and __name__ in reason
        assert len(lines(result, "Can't request the robots.txt", says, level="ERROR")) == 1
    assert [site.robots_fetches for site in (*table.values(), lost)] == [1, 0, 0, 0]
    for record in (one for one in result.records if one.levelname == "ERROR"):
        assert "Traceback" in record.exc_text and "test_whose_fault.py" in record.exc_text  # type: ignore[operator]
    for reason in reasons(result, lost):  # several, if some were held later than others
        assert "ConnectionResetError" in reason and "held for 0.2 s" in reason
    assert result.stat("rep/given_up") == result.stat("rep/deferred")


async def test_a_download_that_the_project_stops_is_no_answer(sites: Sites) -> None:
    both = ("headers_received", "bytes_received")
    table = {
        f"{name}{number}.test": (name, fail)
        for number, (name, fail) in enumerate(product(both, (False, True)))
    }

    def stops(name: str) -> Callable[[Request], None]:
        def stop(request: Request) -> None:
            signal, fail = table[urlsplit(request.url).hostname or ""]
            if signal == name and request.url.endswith("/robots.txt"):
                raise StopDownload(fail=fail)

        return stop

    some = [sites.add(robots="#" * 50_000 + "\n" + RULES, name=name) for name in table]
    result = await crawl(
        [url for site in some for url in urls(site, 5)],
        DEFER,
        signal_handlers={getattr(signals, name): stops(name) for name in both},
    )
    for site in some:
        [reason] = reasons(result, site)
        assert "headers_received or bytes_received stopped the download of robots.txt" in reason
        assert site.robots_fetches == 1
    assert len(lines(result, "Can't request the robots.txt", level="ERROR")) == 1


# Proxies


def through(proxy: str, *urls: str, **meta: Any) -> list[Request]:
    return [Request(url, meta={"proxy": proxy, **meta}) for url in urls]


@pytest.mark.download
@pytest.mark.parametrize("by", ["URL", "header"])
async def test_the_proxy_of_a_request_is_used_for_robots_txt(sites: Sites, by: str) -> None:
    """With its login, which Scrapy moves to a header that retries keep."""
    site, proxy = sites.add(robots=503), sites.add(robots=in_turn(503, RULES))
    url, login = proxy.url(""), "Basic bWU6c2VjcmV0"
    if by == "URL":
        requests = through(url.replace("//", "//me:secret@"), *urls(site, 1), site.url("/private"))
    else:
        requests = through(url, *urls(site, 1), site.url("/private"))
        for one in requests:
            one.headers["Proxy-Authorization"] = login
    result = await crawl(requests, {**DEFER, "RETRY_ENABLED": False})
    assert site.requests == []
    assert result.disallowed(site.url("/private"))
    # Asked again for a request that is held.
    targets = [site.url(path) for path in ("/robots.txt", "/robots.txt", "/page0")]
    assert [hit.target for hit in proxy.requests] == targets
    assert {hit.header("Proxy-Authorization") for hit in proxy.requests} == {login}
    assert not any(hit.header("Authorization") for hit in proxy.requests)
    result.assert_clean()


SOFT = "<title>404 not found</title>"
PROXIES_OWN = {
    "the proxy requires a login": answer("", 407, [("Proxy-Authenticate", "Basic")]),
    "the proxy answered HTTP 503": answer(SOFT, 503, [("X-Squid-Error", "ERR_DNS_FAIL 0")]),
    "the proxy answered HTTP 502": answer(SOFT, 502, [("Proxy-Status", "p; error=http")]),
}


async def test_what_a_proxy_answers_is_no_answer_of_the_site(sites: Sites) -> None:
    table = {says: sites.add() for says in PROXIES_OWN}
    requests: list[Request] = []
    for says, site in table.items():
        proxy = sites.add(robots=in_turn(PROXIES_OWN[says], RULES))
        requests += through(proxy.url(""), site.url("/private"), site.url("/a"))
    record = Record()
    result = await record.crawl(requests, RETRY_ENABLED=False)
    told = {one["origin"].host: str(one["error"]) for one in reversed(record.resolved)}
    for says, site in table.items():
        assert says in told[site.host]
        assert result.disallowed(site.url("/private"))
        assert result.status(site.url("/a")) == 200
    result.assert_clean()


def handshakes_fail(context: ssl.SSLContext, times: int) -> ssl.SSLContext:
    """The next *times* handshakes fail."""
    left = itertools.count()

    def refuse(*_: Any) -> int | None:
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if next(left) < times else None

    context.sni_callback = refuse
    return context


@pytest.mark.download
async def test_a_connection_that_is_lost_once_is_tried_again_at_once(sites: Sites) -> None:
    """Within the same attempt: nothing is dropped for it, whatever REP_UNREACHABLE says."""
    # Twisted repeats a GET by itself if a kept connection is lost, but not the first on one.
    lost = [reset(), hang_up(), raw(b"HTTP/1.1 200 OK\r\nConte")]
    some = [sites.add(robots=in_turn(*[one] * 2, RULES)) for one in lost]
    once = [sites.add(robots=in_turn(one, RULES)) for one in lost]
    sites._tls = lambda: handshakes_fail(server_context(), 1)
    once.append(sites.add(robots=RULES, tls=True, name="tls.example"))
    result = await crawl([site.url("/x") for site in once], ONE_ATTEMPT)
    assert result.failures == {}
    assert len(result.responses) == len(once)
    # Twice is no accident.
    record = Record()
    result = await crawl(
        [site.url("/x") for site in some], ONE_ATTEMPT, signal_handlers=record.handlers
    )
    if not any(site.robots_fetches > 2 for site in some):  # aiohttp repeats a GET by itself
        assert len(result.failures) == len(some)
        assert {one["attempts"] for one in record.resolved} == {1}
    assert_clean(result)


async def test_tls_that_goes_on_failing_is_a_dead_host(sites: Sites) -> None:
    site = sites.add(robots=RULES)  # without TLS
    url = site.url("/x").replace("http:", "https:")
    result = await crawl(url, {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 2})
    error = result.failure(url)
    assert isinstance(error, RobotsUnreachable)
    assert error.attempts == 2
    assert "the host is down" in error.reason
    assert site.connections == 3  # the first attempt is made twice
    assert_clean(result)


class Rotating:
    """As projects rotate proxies: each request by the next one."""

    proxies: list[str]

    def __init__(self) -> None:
        self._next = itertools.cycle(self.proxies)

    def process_request(self, request: Request, **_: Any) -> None:
        request.meta["proxy"] = next(self._next)


@pytest.mark.parametrize("by", ["middleware", "spider"])
async def test_rotating_proxies_of_which_most_are_dead(sites: Sites, by: str) -> None:
    """The crawl goes on by the one that works."""
    proxy = sites.add(robots=RULES)
    refusing = sites.add()
    refusing.pages = Always(answer("", 407, [("Proxy-Authenticate", "Basic")]))
    proxies = [sites.refused(), refusing.url(""), proxy.url("")]
    origins = [sites.new_host() for _ in range(2)]
    requests = [
        Request(f"http://{host}/page{number}", meta=by_spider)
        for host in origins
        for number in range(len(proxies))
        for by_spider in [{"proxy": proxies[number]} if by == "spider" else {}]
    ]
    middleware = type("Middleware", (Rotating,), {"proxies": proxies})
    result = await crawl(
        requests,
        {
            **DEFER,
            "REP_RETRY_DELAY": 0.02,
            "REP_RETRY_MAX_DELAY": 0.05,
            "RETRY_TIMES": 12 if by == "middleware" else 0,
            "RETRY_HTTP_CODES": [407],
            "DOWNLOADER_MIDDLEWARES": {middleware: 600} if by == "middleware" else {},
        },
    )
    robots = [one for one in proxy.requests if one.path == "/robots.txt"]
    assert len(robots) == len(origins)
    wanted = len(requests) if by == "middleware" else len(origins)  # the pages by that proxy
    assert sum(status == 200 for status in result.responses.values()) == wanted
    assert not any(isinstance(error, RobotsUnreachable) for error in result.failures.values())


async def test_what_a_proxy_can_not_do_is_no_fault_of_the_site(sites: Sites) -> None:
    """It is dead, whose restart does not empty the crawl, or refuses a tunnel."""
    refusing = [sites.add() for _ in range(4)]
    for proxy, status in zip(refusing, (403, 407, 502, 503), strict=True):
        proxy.pages = Always(status)
    dead = through(sites.refused(), f"http://{sites.new_host()}/x")
    no_tunnel = [
        request
        for proxy in refusing
        for request in through(proxy.url(""), f"https://{sites.new_host()}/x")
    ]
    settings = {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 1, "REP_DEFER_MAX_WAIT": 0.3}
    result = await crawl([*dead, *no_tunnel], settings)
    for request in (*dead, *no_tunnel):
        error = result.failure(request.url)
        assert isinstance(error, RobotsUnreachable)
        how = "can't be reached" if request in dead else "refused to connect"
        assert f"ProxyError: the proxy {how}" in error.reason
        assert "held for 0." in error.reason and "the host is down" not in error.reason
    result.assert_clean()


def entries(errors: list[Exception | None], **settings: Any) -> list[Entry]:
    """After each of these failures in a row (None: HTTP 503), each when it is due."""
    now = [1_800_000_000.0]
    origin = Origin.from_url("http://a.example/")
    table = OriginTable(10, 10**6, lambda: now[0])
    cache = RobotsCache(RepSettings(**settings), table, None, lambda: now[0])  # type: ignore[arg-type]
    found = []
    for error in errors:
        status = 503 if error is None else None
        reply = Answer(Outcome.UNREACHABLE, origin.robots_url, 0, status, error=error)
        found.append(cache._learn(origin, reply).entry)
        now[0] = found[-1].next_attempt_at
    return found


def pauses(errors: list[Exception | None], **settings: Any) -> list[float]:
    return [one.next_attempt_at - one.updated_at for one in entries(errors, **settings)]


PROXY, HTTP, DEAD = ProxyError("it is down"), None, DownloadConnectionRefusedError("no")


def test_proxies_and_sites_back_off_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    for errors, expected in [
        ([PROXY, PROXY, HTTP, PROXY, HTTP], [1, 2, 5, 4, 10]),
        ([HTTP] * 9, [5, 10, 20, 40, 80, 160, 320, 600, 600]),
        ([PROXY] * 17, [1, 2, *[4] * 6, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
    ]:
        assert pauses(errors) == pytest.approx(expected)
    assert max(pauses([PROXY], retry_delay=0.1)) <= 0.1, "never longer than sites"
    # What counts for a host that is down for good; a proxy's failure says nothing about that.
    dead = [one.dead_attempts for one in entries([DEAD, DEAD, PROXY, DEAD, HTTP, DEAD])]
    assert dead == [1, 2, 2, 3, 0, 1]
    monkeypatch.setattr("random.random", lambda: 1.0)
    assert pauses([HTTP]) == pytest.approx([3.75])


class Refusing:
    """A project's filter: one site, and one page that another's robots.txt redirects to."""

    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.endswith("/outside") or request.url.startswith("http://closed.test"):
            raise IgnoreRequest("not there")


# By Twisted, and by aiohttp, to which the connection failed.
TLS_ERRORS = (DownloadFailedError, DownloadConnectionRefusedError)


def failing(sites: Sites) -> dict[str, tuple[str, Any]]:
    """Root URLs of sites whose robots.txt can't be fetched, and what is raised."""
    plain = sites.add()
    closed = sites.add(name="closed.test")
    return {
        "DNS": ("http://nonexistent.invalid", CannotResolveHostError),
        "refused": (sites.refused(), DownloadConnectionRefusedError),
        "TLS": (plain.url("").replace("http:", "https:"), TLS_ERRORS),
        "timeout": (sites.add(robots=silence()).url(""), DownloadTimeoutError),
        "reset": (sites.add(robots=reset()).url(""), DownloadFailedError),
        "cut": (sites.add(robots=lying_length(b"x", 9)).url(""), ResponseDataLossError),
        "redirect": (sites.add(robots=redirect("/outside")).url(""), RedirectRefused),
        "filter": (closed.url(""), ProjectError),
        "HTTP 503": (sites.add(robots=503).url(""), None),
    }


SETTINGS = {
    "REP_DOWNLOAD_TIMEOUT": 0.5,
    "RETRY_ENABLED": False,
    "DOWNLOADER_MIDDLEWARES": {Refusing: 500},
}


DIRECT = {**DEFER, "REP_RETRY_DELAY": 60.0, "REP_RETRY_MAX_DELAY": 60.0}


@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    "settings",
    [
        {"REP_UNREACHABLE": "drop"},
        {**DEFER, "REP_DEFER_MAX_WAIT": 2.0, "REP_DEFER_GRACE": 0.05},
        {**DEFER, "REP_DEFER_MAX_WAIT": 2.0, "REP_CACHE_MAX_ORIGINS": 1},
        DIRECT,
    ],
    ids=["dropped", "given up", "forgotten", "direct"],
)
async def test_errors_have_their_cause(sites: Sites, settings: dict[str, Any]) -> None:
    table = failing(sites)
    urls = {name: f"{root}/page" for name, (root, _) in table.items()}
    merged = {**SETTINGS, **settings}
    if settings is DIRECT:
        pages = list(urls.values())
        result = await crawl(InlineSpider, merged, requests=["data:,start"], inline=pages)
        errors = dict(zip(pages, result.spider.outcomes, strict=True))
    else:
        errors = (await crawl(list(urls.values()), merged)).failures
    with every_row() as row:
        for name, (_, kind) in table.items():
            with row(name):
                error = errors[urls[name]]
                assert isinstance(error, RobotsUnreachable)
                if kind is None:
                    assert error.__cause__ is None
                    assert error.reason.startswith("HTTP 503")
                else:
                    assert isinstance(error.__cause__, kind)
                    assert type(error.__cause__).__name__ in error.reason
