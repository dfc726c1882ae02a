"""A robots.txt that can't be fetched: how soon it is asked for again depends on what failed (REP.md
section 4)."""

from __future__ import annotations

import itertools
import ssl
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.answer import Answer, ProxyError
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from tests.helpers.behaviours import RULES, answer, hang_up, in_turn, raw, reset
from tests.helpers.crawling import ONE_ATTEMPT, crawl
from tests.helpers.held import DEFER, Record, assert_clean
from tests.helpers.names import server_context
from tests.helpers.servers import Sites


def failing(context: ssl.SSLContext, times: int) -> ssl.SSLContext:
    """The next *times* handshakes fail."""
    left = itertools.count()

    def refuse(*_: Any) -> int | None:
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if next(left) < times else None

    context.sni_callback = refuse
    return context


@pytest.mark.download
async def test_a_connection_that_is_lost_once_is_tried_again_at_once(
    sites: Sites, tmp_path: Path
) -> None:
    """Within the same attempt: nothing is dropped for it, whatever REP_UNREACHABLE says."""
    # Twisted repeats a GET by itself if a kept connection is lost, but not the first on one.
    lost = [reset(), hang_up(), raw(b"HTTP/1.1 200 OK\r\nConte")]
    some = [sites.add(robots=in_turn(*[one] * 2, RULES)) for one in lost]
    once = [sites.add(robots=in_turn(one, RULES)) for one in lost]
    sites._tls = lambda: failing(server_context(tmp_path), 1)
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
            "RETRY_TIMES": 12,
            "RETRY_HTTP_CODES": [407],
            "DOWNLOADER_MIDDLEWARES": {middleware: 600} if by == "middleware" else {},
        },
    )
    robots = [one for one in proxy.requests if one.path == "/robots.txt"]
    assert len(robots) == len(origins)
    wanted = len(requests) if by == "middleware" else len(origins)  # the pages by that proxy
    assert sum(status == 200 for status in result.responses.values()) == wanted
    assert not any(isinstance(error, RobotsUnreachable) for error in result.failures.values())


async def test_a_proxy_that_refuses_a_tunnel_is_no_answer_of_the_site(sites: Sites) -> None:
    requests = []
    for status in (403, 407, 502, 503):
        proxy = sites.add()
        proxy.pages = Always(answer("", status))
        meta = {"proxy": proxy.url("")}
        requests.append(Request(f"https://{sites.new_host()}/x", meta=meta))
    result = await crawl(
        requests, {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 1, "REP_DEFER_MAX_WAIT": 0.3}
    )
    for request in requests:
        error = result.failure(request.url)
        assert isinstance(error, RobotsUnreachable)
        assert "ProxyError: the proxy refused to connect" in error.reason
        assert "the host is down" not in error.reason


class Always(dict[str, Any]):
    """The pages of a site that answers everything alike."""

    def __init__(self, behaviour: Any) -> None:
        super().__init__()
        self.behaviour = behaviour

    def get(self, *_: Any) -> Any:
        return self.behaviour


def pauses(errors: list[Exception | None], **settings: Any) -> list[float]:
    """After each of these failures in a row (None: HTTP 503), without jitter."""
    now = [1_800_000_000.0]
    origin = Origin.from_url("http://a.example/")
    chosen = RepSettings(**settings)
    table = OriginTable(10, 10**6, lambda: now[0])
    cache = RobotsCache(chosen, table, None, lambda: now[0])  # type: ignore[arg-type]
    found = []
    for error in errors:
        status = 503 if error is None else None
        reply = Answer(Outcome.UNREACHABLE, origin.robots_url, 0, status, error=error)
        entry = cache._learn(origin, reply).entry
        found.append(entry.next_attempt_at - now[0])
        now[0] = entry.next_attempt_at
    return found


PROXY, HTTP = ProxyError("it is down"), None


def test_proxies_and_sites_back_off_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    for errors, expected in [
        ([PROXY, PROXY, HTTP, PROXY, HTTP], [1, 2, 5, 4, 10]),
        ([HTTP] * 9, [5, 10, 20, 40, 80, 160, 320, 600, 600]),
        ([PROXY] * 17, [1, 2, *[4] * 6, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
    ]:
        assert pauses(errors) == pytest.approx(expected)
    assert max(pauses([PROXY], retry_delay=0.1)) <= 0.1, "never longer than sites"
