"""A robots.txt that could not be fetched: whose fault it was, how soon it is asked for again."""

from __future__ import annotations

import itertools
import ssl
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
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.answer import Answer, ProjectError, ProxyError, RedirectRefused
from scrapy_rep.origins.cache import RobotsCache
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
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, StepSpider, crawl
from tests.helpers.held import HOLD, InlineSpider, Record, assert_clean, urls
from tests.helpers.log import lines
from tests.helpers.names import server_context
from tests.helpers.rows import every_row
from tests.helpers.servers import Always, Site, Sites
from tests.helpers.storing import learn


class BuggyHandler:
    lazy = False

    async def download_request(self, request: Request) -> Response:
        raise KeyError("host")

    async def close(self) -> None:
        pass


class HtmlOnly:
    """Wants HTML alone, as many a project's middleware does; and fails on the robots.txt of two sites."""

    def process_request(self, request: Request, **_: Any) -> None:
        parts = urlsplit(request.url)
        if parts.path == "/robots.txt" and parts.hostname == "lost.test":
            raise ConnectionResetError("by a middleware that asks a server")
        if parts.path == "/robots.txt" and parts.hostname == "buggy.test":
            raise ZeroDivisionError("division by zero")

    def process_response(
        self, request: Request, response: Response, **_: Any
    ) -> Response:
        if b"html" not in response.headers.get("Content-Type", b""):
            raise IgnoreRequest("no HTML")
        return response


def reasons(result: CrawlResult, site: Site) -> set[str]:
    errors = [
        error for url, error in result.failures.items() if url.startswith(site.url(""))
    ]
    assert errors
    return {error.reason for error in errors if isinstance(error, RobotsUnreachable)}


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_what_fails_in_the_project_is_the_users_to_mend(sites: Sites) -> None:
    """Nothing is held or asked for again and again. But a network error is about the site."""
    asked = "the request for robots.txt"
    refused = f".HtmlOnly.process_response refused {asked} (IgnoreRequest: no HTML): make it ignore"
    failed = f".HtmlOnly.process_request failed on {asked} (ZeroDivisionError: division by zero)"
    broken = f".BuggyHandler.download_request failed on {asked} (KeyError"
    table = {
        refused: sites.add(robots=RULES),
        failed: sites.add(robots=RULES, name="buggy.test"),
        broken: sites.add(name="handler.test", tls=True),
    }
    lost = sites.add(robots=RULES, name="lost.test")
    settings = {
        **HOLD,
        "DOWNLOADER_MIDDLEWARES": {HtmlOnly: 500},
        "DOWNLOAD_HANDLERS": {"https": BuggyHandler},
        "REP_HOLD_MAX_WAIT": 0.2,
    }
    every = [url for site in (*table.values(), lost) for url in urls(site, 5)]
    result = await crawl(every, settings)
    for says, site in table.items():
        [reason] = reasons(result, site)
        assert says in reason and __name__ in reason
        assert (
            len(lines(result, "Can't request the robots.txt", says, level="ERROR")) == 1
        )
    assert [site.robots_fetches for site in (*table.values(), lost)] == [1, 0, 0, 0]
    for record in (one for one in result.records if one.levelname == "ERROR"):
        assert (
            "Traceback" in record.exc_text and "test_whose_fault.py" in record.exc_text
        )  # type: ignore[operator]
    for reason in reasons(result, lost):  # several, if some were held later than others
        assert "ConnectionResetError" in reason and "held for 0.2 s" in reason
    assert result.stat("rep/given_up") == result.stat("rep/held")


class NoProxies:
    def process_request(self, request: Request, **_: Any) -> None:
        if request.meta.get("proxy"):
            raise NotImplementedError("no proxies")  # as some download handlers do


async def test_what_a_request_prevents_others_can_have(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    steps = [
        Request(site.url("/x"), meta={"proxy": "http://127.0.0.1:9"}),
        site.url("/y"),
    ]
    settings = {**HOLD, "DOWNLOADER_MIDDLEWARES": {NoProxies: 500}}
    result = await crawl(StepSpider, settings, steps=steps)
    assert result.spider.outcomes == ["RobotsUnreachable", "ok"]  # type: ignore[attr-defined]


async def test_a_download_that_the_project_stops_is_no_answer(sites: Sites) -> None:
    both = (signals.headers_received, signals.bytes_received)
    table = {
        f"stop{number}.test": row
        for number, row in enumerate(product(both, (False, True)))
    }

    def stop(request: Request, signal: object) -> None:
        by, fail = table[urlsplit(request.url).hostname or ""]
        if signal is by and request.url.endswith("/robots.txt"):
            raise StopDownload(fail=fail)

    some = [sites.add(robots="#" * 50_000 + "\n" + RULES, name=name) for name in table]
    every = [url for site in some for url in urls(site, 5)]
    result = await crawl(every, HOLD, signal_handlers=dict.fromkeys(both, stop))
    for site in some:
        [reason] = reasons(result, site)
        assert (
            "headers_received or bytes_received stopped the download of robots.txt"
            in reason
        )
        assert site.robots_fetches == 1
    assert len(lines(result, "Can't request the robots.txt", level="ERROR")) == 1


@pytest.mark.download
@pytest.mark.parametrize("by", ["URL", "header"])
async def test_the_proxy_of_a_request_is_used_for_robots_txt(
    sites: Sites, by: str
) -> None:
    """With its login, which Scrapy moves to a header that retries keep."""
    site, proxy = sites.add(robots=503), sites.add(robots=in_turn(503, RULES))
    address, login, headers = proxy.url(""), "Basic bWU6c2VjcmV0", {}
    if by == "URL":
        address = address.replace("//", "//me:secret@")
    else:
        headers = {"Proxy-Authorization": login}
    pages = site.url("/page"), site.url("/private")
    requests = [
        Request(page, headers=headers, meta={"proxy": address}) for page in pages
    ]
    result = await crawl(requests, {**HOLD, "RETRY_ENABLED": False})
    assert site.requests == []
    assert result.disallowed(site.url("/private"))
    # Asked again for a request that is held.
    targets = [site.url(path) for path in ("/robots.txt", "/robots.txt", "/page")]
    assert [hit.target for hit in proxy.requests] == targets
    assert {hit.header("Proxy-Authorization") for hit in proxy.requests} == {login}
    assert not any(hit.header("Authorization") for hit in proxy.requests)
    result.assert_clean()


SOFT = "<title>404 not found</title>"
PROXIES_OWN = {
    "the proxy requires a login": answer("", 407, [("Proxy-Authenticate", "Basic")]),
    "the proxy requires a login (HTTP 407)": answer("", 407),
    "the proxy answered HTTP 503": answer(
        SOFT, 503, [("X-Squid-Error", "ERR_DNS_FAIL 0")]
    ),
    "the proxy answered HTTP 502": answer(
        SOFT, 502, [("Proxy-Status", "p; error=http")]
    ),
}


async def test_what_a_proxy_answers_is_no_answer_of_the_site(sites: Sites) -> None:
    table = {says: sites.add() for says in PROXIES_OWN}
    requests = []
    for says, site in table.items():
        proxy = {"proxy": sites.add(robots=in_turn(PROXIES_OWN[says], RULES)).url("")}
        requests += [Request(site.url(path), meta=proxy) for path in ("/private", "/a")]
    record = Record()
    result = await record.crawl(requests, RETRY_ENABLED=False)
    told = {one["origin"].host: str(one["error"]) for one in reversed(record.resolved)}
    for says, site in table.items():
        assert says in told[site.host]
        assert result.disallowed(site.url("/private"))
        assert result.status(site.url("/a")) == 200
    result.assert_clean()


@pytest.mark.download
async def test_a_connection_that_is_lost_once_is_tried_again_at_once(
    sites: Sites,
) -> None:
    """Within the same attempt: nothing is dropped for it, whatever REP_UNREACHABLE says."""
    # Twisted repeats a GET by itself if a kept connection is lost, but not the first on one.
    lost = [reset(), hang_up(), raw(b"HTTP/1.1 200 OK\r\nConte")]
    once = [sites.add(robots=in_turn(one, RULES)) for one in lost]
    twice = [
        sites.add(robots=in_turn(one, one, RULES)) for one in lost
    ]  # that is no accident
    context, handshakes = server_context(), itertools.count()
    context.sni_callback = lambda *_: (
        None if next(handshakes) else ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
    )
    sites._tls = lambda: context
    once.append(sites.add(robots=RULES, tls=True, name="tls.example"))
    result = await crawl([site.url("/x") for site in (*once, *twice)], ONE_ATTEMPT)
    assert [result.status(site.url("/x")) for site in once] == [200] * 4
    if not any(
        site.robots_fetches > 2 for site in twice
    ):  # aiohttp repeats a GET by itself
        errors = [result.failure(site.url("/x")) for site in twice]
        assert [error.attempts for error in errors] == [1] * 3  # type: ignore[union-attr]
    assert_clean(result)


async def test_tls_that_goes_on_failing_is_a_dead_host(sites: Sites) -> None:
    site = sites.add(robots=RULES)  # without TLS
    url = site.url("/x").replace("http:", "https:")
    result = await crawl(url, {**HOLD, "_REP_HOLD_DEAD_HOST_TRIES": 2})
    error = result.failure(url)
    assert isinstance(error, RobotsUnreachable)
    assert error.attempts == 2
    assert "the host is down" in error.reason
    assert site.connections == 3  # the first attempt is made twice
    assert_clean(result)


@pytest.mark.parametrize("by", ["middleware", "spider"])
async def test_rotating_proxies_of_which_most_are_dead(sites: Sites, by: str) -> None:
    proxy = sites.add(robots=RULES)
    refusing = sites.add()
    refusing.pages = Always(answer("", 407, [("Proxy-Authenticate", "Basic")]))
    proxies = [sites.refused(), refusing.url(""), proxy.url("")]
    origins = [sites.new_host() for _ in range(2)]
    turns = itertools.cycle(proxies)

    class Rotating:
        def process_request(self, request: Request, **_: Any) -> None:
            request.meta["proxy"] = next(turns)

    requests = [
        Request(
            f"http://{host}/page{number}", meta={"proxy": one} if by == "spider" else {}
        )
        for host in origins
        for number, one in enumerate(proxies)
    ]
    settings = {
        **HOLD,
        "REP_RETRY_DELAY": 0.02,
        "REP_RETRY_MAX_DELAY": 0.05,
        "RETRY_TIMES": 12 if by == "middleware" else 0,
        "RETRY_HTTP_CODES": [407],
        "DOWNLOADER_MIDDLEWARES": {Rotating: 600} if by == "middleware" else {},
    }
    result = await crawl(requests, settings)
    robots = [one for one in proxy.requests if one.path == "/robots.txt"]
    assert len(robots) == len(origins)
    wanted = (
        len(requests) if by == "middleware" else len(origins)
    )  # the pages by that proxy
    assert sum(status == 200 for status in result.responses.values()) == wanted
    assert not any(
        isinstance(error, RobotsUnreachable) for error in result.failures.values()
    )


async def test_what_a_proxy_can_not_do_is_no_fault_of_the_site(sites: Sites) -> None:
    """It is dead, whose restart does not empty the crawl, or refuses a tunnel."""
    table = {f"http://{sites.new_host()}/x": (sites.refused(), "refused")}
    for status in (403, 407, 502, 503):
        proxy = sites.add()
        proxy.pages = Always(status)
        table[f"https://{sites.new_host()}/x"] = proxy.url(""), str(status)
    result = await crawl(
        [Request(url, meta={"proxy": proxy}) for url, (proxy, _) in table.items()],
        {**HOLD, "_REP_HOLD_DEAD_HOST_TRIES": 1, "REP_HOLD_MAX_WAIT": 1.2},
    )
    for url, (_, how) in table.items():
        error = result.failure(url)
        assert isinstance(error, RobotsUnreachable)
        assert "ProxyError: no connection through the proxy" in error.reason
        assert how in error.reason
        assert "; held for " in error.reason and "the host is down" not in error.reason
    result.assert_clean()


def entries(errors: list[Exception | None], **settings: Any) -> list[Entry]:
    """After each of these failures in a row (None: HTTP 503), each when it is due."""
    now = [1_800_000_000.0]
    origin = Origin.from_url("http://a.example/")
    cache = RobotsCache(RepSettings(**settings), None, lambda: now[0])  # type: ignore[arg-type]
    found = []
    for error in errors:
        status = 503 if error is None else None
        reply = Answer(Outcome.UNREACHABLE, origin.robots_url, 0, status, error=error)
        found.append(learn(cache, origin, reply).entry)
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
        ([PROXY] * 17, [1, 2, *[4] * 15]),
    ]:
        assert pauses(errors) == pytest.approx(expected)
    assert max(pauses([PROXY], retry_delay=0.1)) <= 0.1, "never longer than sites"
    # What counts for a host that is down for good; a proxy's failure says nothing about that.
    dead = [one.dead_attempts for one in entries([DEAD, DEAD, PROXY, DEAD, HTTP, DEAD])]
    assert dead == [1, 2, 2, 3, 0, 1]
    monkeypatch.setattr("random.random", lambda: 1.0)
    assert pauses([HTTP]) == pytest.approx([3.75])


class RefusesSome:
    """A project's filter: one site, and one page that another's robots.txt redirects to."""

    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.endswith("/outside") or request.url.startswith(
            "http://closed.test"
        ):
            raise IgnoreRequest("not there")


# By Twisted, and by aiohttp, to which the connection failed.
TLS_ERRORS = (DownloadFailedError, DownloadConnectionRefusedError)


def failing(sites: Sites) -> dict[str, tuple[str, Any]]:
    """Root URLs of sites whose robots.txt can't be fetched, and what is raised."""
    return {
        "DNS": ("http://nonexistent.invalid", CannotResolveHostError),
        "refused": (sites.refused(), DownloadConnectionRefusedError),
        "TLS": (sites.add().url("").replace("http:", "https:"), TLS_ERRORS),
        "timeout": (sites.add(robots=silence()).url(""), DownloadTimeoutError),
        "reset": (sites.add(robots=reset()).url(""), DownloadFailedError),
        "cut": (sites.add(robots=lying_length(b"x", 9)).url(""), ResponseDataLossError),
        "redirect": (sites.add(robots=redirect("/outside")).url(""), RedirectRefused),
        "filter": (sites.add(name="closed.test").url(""), ProjectError),
        "HTTP 503": (sites.add(robots=503).url(""), None),
    }


DIRECT = {**HOLD, "REP_RETRY_DELAY": 60.0, "REP_RETRY_MAX_DELAY": 60.0}


@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    "settings",
    [
        {"REP_UNREACHABLE": "drop"},
        {**HOLD, "REP_HOLD_MAX_WAIT": 2.0, "_REP_HOLD_GRACE": 0.05},
        {**HOLD, "REP_HOLD_MAX_WAIT": 2.0, "REP_CACHE_MAX_ORIGINS": 1},
        DIRECT,
    ],
    ids=["dropped", "given up", "forgotten", "direct"],
)
async def test_errors_have_their_cause(sites: Sites, settings: dict[str, Any]) -> None:
    table = failing(sites)
    merged = {
        "REP_DOWNLOAD_TIMEOUT": 0.5,
        "RETRY_ENABLED": False,
        "DOWNLOADER_MIDDLEWARES": {RefusesSome: 500},
        **settings,
    }
    pages = [f"{root}/page" for root, _ in table.values()]
    if settings is DIRECT:
        result = await crawl(
            InlineSpider, merged, requests=["data:,start"], inline=pages
        )
        errors = result.spider.outcomes
    else:
        result = await crawl(pages, merged)
        errors = [result.failure(url) for url in pages]
    with every_row() as row:
        for error, (name, (_, kind)) in zip(errors, table.items(), strict=True):
            with row(name):
                assert isinstance(error, RobotsUnreachable)
                assert isinstance(error.__cause__, kind or type(None))
                assert (
                    getattr(error.__cause__, "__traceback__", None) is None
                )  # a new exception
                assert (
                    type(error.__cause__).__name__ if kind else "HTTP 503"
                ) in error.reason


INCUBATOR = "scrapy_download_handlers_incubator"
# Other people's download handlers: the library that each needs, and whether it knows proxies.
OTHERS: dict[str, tuple[str, bool]] = {
    f"{INCUBATOR}.AiohttpDownloadHandler": ("aiohttp", True),
    f"{INCUBATOR}.HttpxDownloadHandler": ("httpx2", True),
    f"{INCUBATOR}.NiquestsDownloadHandler": ("niquests", True),
    f"{INCUBATOR}.CurlCffiDownloadHandler": ("curl_cffi", True),
    f"{INCUBATOR}.PyreqwestDownloadHandler": ("pyreqwest", False),
    f"{INCUBATOR}.WreqDownloadHandler": ("wreq", True),
    "scrapy_curl.handler.CurlDownloadHandler": ("curl_cffi", True),
}


@pytest.mark.parametrize("handler", OTHERS)
async def test_other_handlers_failures_are_known_by_their_causes(
    sites: Sites, handler: str
) -> None:
    library, knows_proxies = OTHERS[handler]
    pytest.importorskip(handler.partition(".")[0], reason="the handler isn't installed")
    pytest.importorskip(library, reason="the handler's library isn't installed")
    if not (is_reactor_installed() and is_asyncio_reactor_installed()):
        pytest.skip("the handler needs the asyncio reactor")
    plain, refuses = sites.add(), sites.add()
    refuses.pages = Always(403)
    down = [f"{sites.refused()}/x", plain.url("/x").replace("http:", "https:")]
    through = {
        f"http://{sites.new_host()}/x": sites.refused(),
        f"https://{sites.new_host()}/x": refuses.url(""),
    }
    requests = [Request(url) for url in down]
    if knows_proxies:
        requests += [
            Request(url, meta={"proxy": proxy}) for url, proxy in through.items()
        ]
    result = await crawl(
        requests,
        {
            **HOLD,
            "_REP_HOLD_DEAD_HOST_TRIES": 1,
            "REP_HOLD_MAX_WAIT": 1.2,
            "CURL_IMPERSONATE": "chrome",
            "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
        },
    )
    for request in requests:
        error = result.failure(request.url)
        assert isinstance(error, RobotsUnreachable)
        is_proxys = "ProxyError: no connection through the proxy" in error.reason
        assert is_proxys == (request.url in through)
        assert ("the host is down" in error.reason) == (request.url in down)
