"""No site keeps sitemaps and pages of others waiting: every end of a request gives its place back, and each
limit of the whole crawl has a share for each site that names things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.exceptions import DontCloseSpider

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.protocol import Origin
from scrapy_rep.signals import robots_resolved
from tests.helpers.behaviours import (
    Behaviour,
    after,
    answer,
    as_behaviour,
    encoded,
    once,
    redirect,
    silence,
)
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import NEVER, Record
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Connection, Hit, Site, Sites
from tests.helpers.sitemaps import (
    SeededSpider,
    in_the_scheduler,
    listing,
    lists,
    pages,
    seeded,
    urlset,
)

pytestmark = [pytest.mark.slow, pytest.mark.loop]
ON = {"REP_SITEMAPS": True}
PATIENT = {"REP_DOWNLOAD_TIMEOUT": 300, "_REP_HOLD_GRACE": 300}
"""A robots.txt may be silent for as long as the crawl takes."""

# What Scrapy, or any project's middleware, drops without a word to others.
DROPPED: dict[str, Behaviour] = {
    "redirect loop": redirect("/bad.xml"),
    "bad port": redirect("http://127.0.0.1:99999/"),
    "meta refresh loop": answer(
        '<meta http-equiv="refresh" content="0; url=/bad.xml">', type="text/html"
    ),
    "not Brotli": encoded(b"<urlset/>", "br"),
    "not Zstandard": encoded(b"<urlset/>", "zstd"),
    "not deflate": encoded(b"<urlset/>" * 1000, "deflate"),
}


@pytest.fixture(autouse=True)
def never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is woken by what happens; it need not look every 5 s."""
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)


async def test_sitemaps_that_scrapy_drops_give_their_places_back(sites: Sites) -> None:
    """While there is other work: the crawl never becomes idle before the good ones are read."""
    table = {name: sites.add() for name in DROPPED}
    for name, site in table.items():
        bad = [f"/bad.xml?{number}" for number in range(6)]
        lists(site, *bad, "/good.xml")
        site.set("/bad.xml", DROPPED[name])
        site.set("/good.xml", urlset([site.url("/page")]))
    busy = sites.add()
    goal = [(site, "/page") for site in table.values()]
    busy.set("/start", once(lambda: all(site.count(path) for site, path in goal)))
    result = await seeded(
        busy, *table.values(), REDIRECT_MAX_TIMES=3, RETRY_ENABLED=False
    )
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert site.url("/page") in pages(result)
                failed = lines(
                    result, "was not read: ", site.url("/bad.xml"), level=None
                )
                assert len([line for line in failed if line.startswith("Sitemap")]) == 6
    assert lines(result, level="ERROR") == []


async def wait(*_: object) -> None:
    """In this time the engine sees that it has nothing to do."""
    await asyncio.sleep(0.05)


# What keeps an idle crawl open for a moment, begun by its first spider_idle.
BUSY: dict[str, Callable[[Any, Site], object]] = {
    "pages are handed over": lambda middleware, _: middleware._seeding._feeder.wake(),
    "sitemaps are added": lambda middleware, _: middleware._seeding._run_adding(wait()),
    "an answer is told": lambda middleware, site: middleware.origins.flights.to(
        Origin.from_url(site.url("/")), Request(site.url("/"))
    ),
}


@pytest.mark.parametrize("busy", BUSY)
async def test_a_crawl_ends_when_nothing_keeps_it_open_any_more(
    sites: Sites, busy: str
) -> None:
    """And doesn't wait until the engine looks of itself."""
    site, other = sites.add(), sites.add()
    looks: list[str] = []

    class IdleSpider(SeededSpider):
        def idle(self) -> None:
            middleware: Any = self.crawler.get_downloader_middleware(RepMiddleware)
            looks.append(busy)
            if len(looks) == 1:
                BUSY[busy](middleware, other)
                raise DontCloseSpider

        async def told(self, origin: Origin, **_: object) -> None:
            if str(origin) == other.url("/").rstrip("/"):
                EngineAccess(self.crawler).wake()
                await wait()

        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            # Before ours are: a handler that is connected later hears of it later.
            crawler.signals.connect(spider.idle, signals.spider_idle)
            crawler.signals.connect(spider.told, robots_resolved)
            return spider

    await seeded(site, spider=IdleSpider)
    assert len(looks) > 1


class Until:
    """A crawl that ends when some of a site's pages came, however many others wait."""

    def __init__(self, site: Site, paths: list[str]) -> None:
        self.wanted = {site.url(path) for path in paths}
        self.record = Record()
        self.record.handlers[signals.response_received] = self._received

    def _received(self, response: Any) -> None:
        self.wanted.discard(response.url)
        if not self.wanted:
            self.record.close()

    async def crawl(self, *sites: Site, **settings: Any) -> CrawlResult:
        starts = [site.url("/start") for site in sites]
        handlers = self.record.handlers
        # What a test keeps waiting must not time out on a slow machine.
        settings = {**ON, "DOWNLOAD_TIMEOUT": NEVER, **settings}
        result = await crawl(
            SeededSpider, settings, requests=starts, signal_handlers=handlers
        )
        assert self.wanted == set()
        assert result.reason == "enough"
        return result


HOLD = {"REP_UNREACHABLE": "hold", "REP_RETRY_DELAY": 600, "REP_RETRY_MAX_DELAY": 600}


async def test_sitemaps_that_are_held_take_no_place_of_others(sites: Sites) -> None:
    """Their hosts' robots.txt can't be fetched. They may wait for ten minutes."""
    first, second = sites.add(), sites.add()
    down = [sites.add(robots=503) for _ in range(20)]
    urls = [site.url(f"/{number}.xml") for site in down for number in range(2)]
    first.set("/robots.txt", "".join(f"Sitemap: {url}\n" for url in urls))
    second.set("/map.xml", urlset([second.url("/page")]))
    wanted = Until(second, ["/page"])
    # Its sitemap is known when the others are held, and its own start request.
    held = lambda: len(wanted.record.held) >= 32 + 1
    second.set("/robots.txt", once(held, listing(second.url("/map.xml"))))
    await wanted.crawl(first, second, **HOLD, _REP_HOLD_GRACE=0)


async def test_one_robots_txt_does_not_take_all_places_for_sitemaps(
    sites: Sites,
) -> None:
    """They are silent, two on each of 20 hosts."""
    first, second = sites.add(), sites.add()
    silent = [sites.add() for _ in range(20)]
    asked = lambda: sum(len(site.pages_asked) for site in silent)
    asked_by_then: list[int] = []

    async def page(hit: Hit, connection: Connection) -> None:
        asked_by_then.append(asked())
        await as_behaviour("page")(hit, connection)

    over = once(lambda: asked_by_then)
    for site in silent:
        site.set("/a.xml", over)
        site.set("/b.xml", over)
    urls = [site.url(path) for site in silent for path in ("/a.xml", "/b.xml")]
    first.set("/robots.txt", "".join(f"Sitemap: {url}\n" for url in urls))
    second.set("/map.xml", urlset([second.url("/page")]))
    second.set("/page", page)
    # Its sitemap is known when the others have their places.
    second.set(
        "/robots.txt", once(lambda: asked() >= 12, listing(second.url("/map.xml")))
    )
    wanted = Until(second, ["/page"])
    await wanted.crawl(first, second, **PATIENT, CONCURRENT_REQUESTS=100)
    assert max(asked_by_then) <= 17


async def test_silent_hosts_that_a_sitemap_names_keep_none_from_being_asked(
    sites: Sites,
) -> None:
    """Hosts have to prove that they list the sitemap."""
    first, second = (lists(sites.add(), "/map.xml") for _ in range(2))
    silent = [sites.add(robots=silence()) for _ in range(40)]
    honest = sites.add()
    honest.set("/robots.txt", f"Sitemap: {second.url('/map.xml')}\n")
    first.set("/map.xml", urlset([site.url("/page") for site in silent]))
    honest_urls = [honest.url(f"/{number}") for number in range(20)]
    asked = lambda: sum(site.count("/robots.txt") for site in silent) >= 2
    # Time for the silent hosts to take whatever places they can: no event says that no more will be asked.
    second.set("/map.xml", once(asked, after(0.5, urlset(honest_urls))))
    wanted = Until(honest, [f"/{number}" for number in range(20)])
    result = await wanted.crawl(first, second, **PATIENT)
    assert result.stat("rep/sitemaps/rejected/unproven") == 0


@pytest.mark.needs_reactor(reason="silent hosts keep their places without one")
async def test_silent_hosts_give_their_places_to_others(sites: Sites) -> None:
    """More of them than are asked at a time, all named by one sitemap, and the honest one last. Three rounds of
    hosts say nothing for two seconds: what is tested is that real time passes."""
    site = lists(sites.add(), "/map.xml")
    silent = [sites.add(robots=silence()) for _ in range(24)]
    honest = sites.add()
    honest.set("/robots.txt", f"Sitemap: {site.url('/map.xml')}\n")
    site.set("/map.xml", urlset([one.url("/page") for one in [*silent, honest]]))
    await Until(honest, ["/page"]).crawl(site, **PATIENT)


async def test_many_pages_of_one_site_keep_no_sitemap_of_another_waiting(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own sitemaps wait until its pages were requested."""
    monkeypatch.setattr("scrapy_rep.seeding.loader._PAGES_ENOUGH", 100)
    in_the_scheduler(monkeypatch, 16)
    large, small = (
        lists(sites.add(), "/map.xml", "/a.xml", "/b.xml"),
        lists(sites.add(), "/map.xml"),
    )
    large.set("/map.xml", urlset([large.url(f"/{number}") for number in range(500)]))
    # The later ones are answered once the small site had its turn: until then, 200 wait at least.
    for number in range(200, 500):
        large.set(f"/{number}", once(lambda: small.count("/page")))
    small.set("/map.xml", urlset([small.url("/page")]))
    wanted = Until(small, ["/page"])

    def reached(request: Request) -> None:
        if request.url == large.url("/0"):
            wanted.record.engine.crawl(Request(small.url("/start")))

    wanted.record.handlers[signals.request_reached_downloader] = reached
    settings = {"CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    await wanted.crawl(large, **settings)


async def test_a_long_sitemap_keeps_no_short_one_waiting(sites: Sites) -> None:
    """They are read in turns."""
    long, short = (lists(sites.add(), "/map.xml") for _ in range(2))
    long.set("/map.xml", urlset([long.url("/page")] * 50_000))
    short.set(
        "/map.xml", once(lambda: long.count("/map.xml"), urlset([short.url("/page")]))
    )
    result = await seeded(long, short)
    first, second = lines(result, " accepted")
    assert first.startswith(f"Sitemap {short.url('/map.xml')}")
    assert second.startswith(f"Sitemap {long.url('/map.xml')}")


async def test_a_sitemap_of_very_many_hosts_has_one_turn_of_them_all(
    sites: Sites,
) -> None:
    """With REP_SITEMAP_CROSS_HOST = "any"."""
    first, second = (lists(sites.add(), "/map.xml") for _ in range(2))
    port = first.url("/").rsplit(":", 1)[1].strip("/")
    hosts = [
        f"http://127.99.{number // 250}.{number % 250}:{port}" for number in range(3000)
    ]
    first.set("/map.xml", urlset([f"{host}/page" for host in hosts]))
    paths = [f"/{number}" for number in range(200)]
    listed = urlset(map(second.url, paths))
    order: list[str] = []
    of_first = lambda: sum("/127.99." in url for url in order)
    # It comes when the other one's pages have begun to.
    second.set("/map.xml", once(lambda: of_first() > 40, listed))
    wanted = Until(second, paths)
    wanted.record.handlers[signals.request_scheduled] = lambda request: order.append(
        request.url
    )
    settings = {"REP_SITEMAP_CROSS_HOST": "any", "RETRY_ENABLED": False}
    await wanted.crawl(first, second, **settings, REP_PRIVATE_HOSTS=True)
    del order[order.index(second.url(paths[-1])) :]
    assert 40 < of_first() < 600
