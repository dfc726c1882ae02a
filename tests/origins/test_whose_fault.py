"""A robots.txt that could not be fetched: was it the site, a proxy, or the project's own code?"""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, answer, in_turn
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import DEFER, Record
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites


class Filter:
    """Wants HTML alone, as many a project's middleware does."""

    def process_response(self, request: Request, response: Response, **_: Any) -> Response:
        if b"html" not in response.headers.get("Content-Type", b""):
            raise IgnoreRequest("no HTML")
        return response


class Buggy:
    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.endswith("/robots.txt"):
            raise self.error

    error: Exception = ZeroDivisionError("division by zero")


class Wrong(Buggy):
    error = RuntimeError("no proxies left")


class Network(Buggy):
    error = ConnectionResetError("by a middleware that asks a server")


class BuggyHandler:
    """A download handler of the project's."""

    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> BuggyHandler:
        return cls()

    async def download_request(self, request: Request) -> Response:
        raise KeyError("host")

    async def close(self) -> None:
        pass


def middleware(one: type) -> dict[str, Any]:
    return {**DEFER, "DOWNLOADER_MIDDLEWARES": {one: 500}}


def urls(site: Site, count: int = 5) -> list[str]:
    return [site.url(f"/page{number}") for number in range(count)]


def reasons(result: CrawlResult) -> set[str]:
    errors = [error for error in result.failures.values() if isinstance(error, RobotsUnreachable)]
    assert len(errors) == len(result.failures)
    return {error.reason for error in errors}


@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Filter, "refused the request for robots.txt (IgnoreRequest: no HTML): make it ignore"),
        (Buggy, "failed on the request for robots.txt (ZeroDivisionError: division by zero)"),
        (Wrong, "failed on the request for robots.txt (RuntimeError: no proxies left)"),
    ],
)
async def test_middlewares_that_fail_are_the_users_to_mend(
    sites: Sites, one: type, says: str
) -> None:
    """At once: nothing is held, and robots.txt is not asked for again and again."""
    site = sites.add(robots=RULES)
    result = await crawl(urls(site), middleware(one))
    [reason] = reasons(result)
    assert len(result.failures) == 5
    assert f"{one.__module__}.{one.__qualname__} {says}" in reason
    assert site.robots_fetches == (1 if one is Filter else 0)
    assert result.stats.get("rep/deferred", 0) <= 5
    assert result.stat("rep/given_up") == result.stats.get("rep/deferred", 0)
    [error] = lines(result, "Can't request the robots.txt", level="ERROR")
    assert says in error
    [record] = [one for one in result.records if one.levelname == "ERROR"]
    text = record.exc_text or ""
    assert "Traceback" in text and "test_whose_fault.py" in text


async def test_network_errors_of_middlewares_are_about_the_site(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(urls(site), {**middleware(Network), "REP_DEFER_MAX_WAIT": 0.2})
    [reason] = reasons(result)
    assert "ConnectionResetError" in reason and "held for 0.2 s" in reason
    result.assert_clean()


async def test_a_download_handler_with_a_bug_is_not_a_site_that_is_down(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(urls(site, 1), {**DEFER, "DOWNLOAD_HANDLERS": {"http": BuggyHandler}})
    [reason] = reasons(result)
    assert (
        "the download handler tests.origins.test_whose_fault.BuggyHandler failed (KeyError"
        in reason
    )


class Stopping(ListSpider):
    """Stops what is not HTML, by a documented signal."""

    fail = False
    signal = signals.headers_received

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Stopping:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.stop, cls.signal)
        return spider  # type: ignore[no-any-return]

    def stop(self, request: Request, **_: Any) -> None:
        if request.url.endswith("/robots.txt"):
            raise StopDownload(fail=self.fail)


class Failing(Stopping):
    fail = True


class Cutting(Stopping):
    signal = signals.bytes_received


class FailingLater(Cutting):
    fail = True


@pytest.mark.parametrize("spider", [Stopping, Failing, Cutting, FailingLater])
async def test_a_download_that_the_project_stops_is_no_answer(
    sites: Sites, spider: type[Stopping]
) -> None:
    site = sites.add(robots="# " + "x" * 50_000 + "\n" + RULES)
    result = await crawl(spider, DEFER, requests=urls(site))
    [reason] = reasons(result)
    assert "headers_received or bytes_received stopped the download of robots.txt" in reason
    assert site.robots_fetches == 1
    assert len(lines(result, "Can't request the robots.txt", level="ERROR")) == 1


# Proxies

PROXIED = {**DEFER, "RETRY_ENABLED": False}


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
    result = await crawl(requests, PROXIED)
    assert site.requests == []
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    # Asked again for a request that is held.
    targets = [site.url(path) for path in ("/robots.txt", "/robots.txt", "/page0")]
    assert [hit.target for hit in proxy.requests] == targets
    assert {hit.header("Proxy-Authorization") for hit in proxy.requests} == {login}
    assert not any(hit.header("Authorization") for hit in proxy.requests)
    result.assert_clean()


PROXIES_OWN = [
    (answer("", 407, [("Proxy-Authenticate", "Basic")]), "the proxy requires a login"),
    (
        answer("<title>404 not found</title>", 503, [("X-Squid-Error", "ERR_DNS_FAIL 0")]),
        "the proxy answered HTTP 503",
    ),
    (
        answer("<title>404 not found</title>", 502, [("Proxy-Status", "p; error=http")]),
        "the proxy answered HTTP 502",
    ),
]


async def test_what_a_proxy_answers_is_no_answer_of_the_site(sites: Sites) -> None:
    table = [
        (sites.add(), sites.add(robots=in_turn(one, RULES)), says) for one, says in PROXIES_OWN
    ]
    record = Record()
    requests = [
        one
        for site, proxy, _ in table
        for one in through(proxy.url(""), site.url("/private"), site.url("/a"))
    ]
    result = await crawl(requests, PROXIED, signal_handlers=record.handlers)
    told = {one["origin"].host: str(one["error"]) for one in reversed(record.resolved)}
    for site, _, says in table:
        assert says in told[site.host]
        assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
        assert result.status(site.url("/a")) == 200
    result.assert_clean()


async def test_a_dead_proxy_is_no_dead_host(sites: Sites) -> None:
    """Its restart does not empty the crawl."""
    site, proxy = sites.add(), sites.refused()
    record = Record()
    result = await crawl(
        through(proxy, *urls(site)),
        {**PROXIED, "REP_DEFER_MAX_WAIT": 1.0, "REP_DEFER_DEAD_HOST_TRIES": 1},
        signal_handlers=record.handlers,
    )
    assert len(record.resolved) > 1
    [reason] = reasons(result)
    assert "ProxyError: the proxy can't be reached" in reason
    assert "held for 1 s" in reason and "the host is down" not in reason
    assert site.requests == []
    result.assert_clean()
