"""With plugins and download handlers that people use: robots.txt is fetched and obeyed as ever.

What is not installed is skipped.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed
from twisted.internet.defer import Deferred

from scrapy_rep import may_fetch
from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.behaviours import RULES, Behaviour, answer
from tests.helpers.crawling import CrawlResult, ListSpider, captured_log, crawl, new_runner
from tests.helpers.names import server_context
from tests.helpers.report import CHROMIUM
from tests.helpers.servers import Connection, Hit, LoopThread, Site, Sites


class TunnelTo(dict[str, Behaviour]):
    """For `Site.pages`: whatever is asked for by CONNECT, it is the way to one site."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def get(self, path: str, default: Any = None) -> Behaviour:  # type: ignore[override]
        return self._tunnel

    async def _tunnel(self, hit: Hit, connection: Connection) -> None:
        reader, writer = await asyncio.open_connection(self._site.host, self._site.port)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))
        connection.open = False


class Http2Site:
    """Forbids /private, and answers everything else with a page."""

    def __init__(self, thread: LoopThread, folder: Path) -> None:
        self._thread = thread
        self._context = server_context(folder)
        self._context.set_alpn_protocols(["h2"])
        self._host = Sites.new_host()
        self.asked: list[str] = []

        self._server = thread.run(
            asyncio.start_server(self._serve, self._host, 0, ssl=self._context)
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._server.close)

    def url(self, path: str) -> str:
        return f"https://{self._host}:{self._port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.events import RequestReceived

        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        writer.write(h2.data_to_send())
        while data := await reader.read(65536):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    path = str(dict(event.headers)[":path"])
                    self.asked.append(path)
                    body = RULES.encode() if path == "/robots.txt" else b"a page"
                    headers = [(":status", "200"), ("content-type", "text/plain")]
                    h2.send_headers(event.stream_id, headers)
                    h2.send_data(event.stream_id, body, end_stream=True)
            writer.write(h2.data_to_send())
        writer.close()


def needs(module: str) -> pytest.MarkDecorator:
    """Skipped where *module* is not installed."""
    missing = find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


def assert_obeys(result: CrawlResult, *sites: Site) -> None:
    """Of each site a page was fetched, a forbidden one not, and robots.txt once."""
    for site in sites:
        assert result.status(site.url("/page")) == 200
        assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
        assert site.count("/robots.txt") == 1
        assert site.count("/private") == 0
    result.assert_clean()


def both(*sites: Site) -> list[str]:
    return [site.url(path) for site in sites for path in ("/page", "/private")]


# Download handlers

HTTPX = "scrapy.core.downloader.handlers._httpx"


def handlers(path: str) -> dict[str, Any]:
    return {"DOWNLOAD_HANDLERS": {"http": path, "https": path}}


@needs("httpx")
@pytest.mark.download
async def test_httpx_handler_fetches_and_obeys(sites: Sites) -> None:
    if find_spec(HTTPX) is None:
        pytest.skip("this Scrapy has no handler for httpx")
    if is_reactor_installed() and not is_asyncio_reactor_installed():
        pytest.skip("it needs asyncio")
    plain, secure = sites.add(robots=RULES), sites.add(robots=RULES, tls=True)
    settings = handlers(f"{HTTPX}.HttpxDownloadHandler")
    result = await crawl(both(plain, secure), settings)
    assert_obeys(result, plain, secure)


@needs("h2")
@needs("priority")
@pytest.mark.needs_reactor
async def test_http2_handler_fetches_and_obeys(tmp_path: Path, sites_thread: LoopThread) -> None:
    with closing(Http2Site(sites_thread, tmp_path)) as site:
        handler = {"https": "scrapy.core.downloader.handlers.http2.H2DownloadHandler"}
        urls = [site.url("/page"), site.url("/private")]
        result = await crawl(urls, {"DOWNLOAD_HANDLERS": handler})
    assert result.responses == {urls[0]: 200}
    assert isinstance(result.failure(urls[1]), RobotsDisallowed)
    assert site.asked == ["/robots.txt", "/page"]
    [response] = result.spider.responses
    assert response.protocol == "h2"
    result.assert_clean()


async def test_connect_proxy_gets_its_password_for_robots_txt(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An https site, reached through a tunnel: the login is the proxy's alone."""
    site, proxy = sites.add(robots=RULES, tls=True), sites.add()
    proxy.pages = TunnelTo(site)
    monkeypatch.setenv("https_proxy", proxy.url("", user="me:secret"))
    monkeypatch.setenv("no_proxy", "")
    result = await crawl(both(site))
    assert_obeys(result, site)
    login = "Basic " + base64.b64encode(b"me:secret").decode()
    assert {hit.method for hit in proxy.requests} == {"CONNECT"}
    assert {hit.header("Proxy-Authorization") for hit in proxy.requests} == {login}
    assert all(hit.header("Proxy-Authorization") is None for hit in site.requests)


# Plugins


@needs("scrapy_poet")
@pytest.mark.scrapy_api
async def test_scrapy_poet_pages_and_inline_requests_obey(sites: Sites) -> None:
    from tests.helpers.pagesite import PoetSpider

    site, other = sites.add(robots=RULES), sites.add(robots=RULES)
    addons = {"scrapy_rep.Addon": 300, "scrapy_poet.Addon": 300}
    inline = [other.url("/page"), other.url("/private")]
    result = await crawl(PoetSpider, {"ADDONS": addons}, requests=both(site), inline=inline)
    assert_obeys(result, site)
    assert result.spider.items == [{"url": site.url("/page"), "inline": [200, None]}]
    assert other.count("/robots.txt") == other.count("/page") == 1
    assert other.count("/private") == 0


@needs("scrapy_playwright")
@pytest.mark.process
@pytest.mark.needs_reactor
async def test_playwright_pages_and_their_requests_obey(sites: Sites) -> None:
    """robots.txt is fetched without the browser; what the page loads is asked for by
    `PLAYWRIGHT_ABORT_REQUEST`, as docs/beyond-requests.md has it."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install Debian's package chromium")
    other = sites.add(robots=RULES, pages={"/open.js": "", "/private/x.js": ""})
    html = "".join(
        f'<script src="{one}"></script>'
        for one in ("/own.js", "/private/y.js", other.url("/open.js"), other.url("/private/x.js"))
    )
    site = sites.add(robots=RULES, pages={"/page": answer(html, type="text/html")})

    class Browsing(ListSpider):
        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Browsing:
            spider = super().from_crawler(crawler, *args, **kwargs)

            async def forbidden(request: Any) -> bool:
                return not await may_fetch(crawler, request.url)

            crawler.settings.set("PLAYWRIGHT_ABORT_REQUEST", forbidden, "spider")
            return spider

    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    launch = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--no-proxy-server"]}
    requests = [Request(url, meta={"playwright": True}) for url in both(site)]
    result = await crawl(
        Browsing, {**handlers(handler), "PLAYWRIGHT_LAUNCH_OPTIONS": launch}, requests=requests
    )
    assert_obeys(result, site)
    assert site.count("/own.js") == other.count("/open.js") == other.count("/robots.txt") == 1
    assert site.count("/private/y.js") == other.count("/private/x.js") == 0
    assert result.stat("playwright/request_count/aborted") == 2
    [fetch] = site.hits("/robots.txt")
    assert "Sec-Fetch-Mode" not in dict(fetch.headers)


# Several crawls


@pytest.mark.scrapy_api
async def test_two_crawls_in_one_process_keep_apart(sites: Sites) -> None:
    """Each asks for robots.txt itself, and is its own agent."""
    site = sites.add(robots="User-agent: one\nDisallow: /1\n\nUser-agent: two\nDisallow: /2\n")
    runner = new_runner()
    crawlers = [runner.create_crawler(ListSpider) for _ in range(2)]
    for crawler, agent in zip(crawlers, ("one", "two"), strict=True):
        crawler.settings.set("REP_USER_AGENT", agent, "cmdline")
    urls = [site.url("/1"), site.url("/2")]
    with captured_log() as records:
        for running in [runner.crawl(crawler, requests=urls) for crawler in crawlers]:
            await (maybe_deferred_to_future(running) if isinstance(running, Deferred) else running)
    found = [
        ({one.url for one in spider.responses}, {request.url for request, _ in spider.errors})
        for spider in [crawler.spider for crawler in crawlers]
    ]
    assert found == [({urls[1]}, {urls[0]}), ({urls[0]}, {urls[1]})]
    assert site.count("/robots.txt") == 2
    assert not [one for one in records if one.levelname == "ERROR"]
