"""The sites and the crawls that broad.py measures, each to be run in a process of its own.

The sites have addresses of their own, 127.40.0.1 and up, behind one socket that only the loopback
interface reaches. That takes Linux.
"""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from cachework import Place
from crawls import OURS, child
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

    from scrapy.http import Response

NONE = "none"
MIXED = (0.005, 0.05, 1.0)
TIMEOUT = 10.0
PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
ROBOTS = b"User-agent: *\nDisallow: /private\n\nUser-agent: OtherBot\nDisallow: /\n"


class Web(NamedTuple):
    """The sites of a crawl."""

    hosts: int
    answer: float = 0.0
    """Seconds that each robots.txt takes; its pages take none. 0: sites and their pages take 5 ms,
    50 ms or 1 s, a twentieth of the sites is silent, a twentieth dead, and sites have one to three
    pages."""

    def seconds(self, number: int, robots: bool) -> float | None:
        """What an answer of a site takes. None: there is none."""
        if self.answer:
            return self.answer if robots else 0.0
        return None if number % 20 == 0 else MIXED[number % len(MIXED)]

    def alive(self, number: int) -> bool:
        """Whether it has pages that arrive."""
        return bool(self.answer) or number % 20 not in (0, 1)

    def listens(self, number: int) -> bool:
        """Whether it is not dead."""
        return bool(self.answer) or number % 20 != 1

    def pages(self, port: int, closed: int) -> list[str]:
        """All pages, in no order. *closed*: a port that nobody listens on."""
        urls = []
        for number in range(self.hosts):
            host = (
                f"127.{40 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
            )
            at = port if self.listens(number) else closed
            pages = 1 if self.answer else 1 + number // 7 % 3
            urls += [f"http://{host}:{at}/page/{page}" for page in range(pages)]
        return urls


def number_of(host: str) -> int:
    _, first, second, third = map(int, host.split("."))
    return (first - 40) * 62500 + second * 250 + third - 1


# The sites


class Talk(asyncio.Protocol):
    """One connection to a site."""

    def __init__(self, web: Web, asked: list[int]) -> None:
        self._web = web
        self._asked = asked

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._number = number_of(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        robots = data.startswith(b"GET /robots.txt ")
        seconds = self._web.seconds(self._number, robots)
        if seconds is not None:
            self._asked[0] += robots  # silent sites are asked again and again
            asyncio.get_running_loop().call_later(seconds, self._answer, robots)

    def _answer(self, robots: bool) -> None:
        kind, body = (b"text/plain", ROBOTS) if robots else (b"text/html", PAGE)
        # A page is the connection's last: else thousands would be open.
        more = b"" if robots else b"Connection: close\r\n"
        self._transport.write(
            b"HTTP/1.1 200 OK\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (more, kind, len(body), body)
        )
        if not robots:
            self._transport.close()


def serve(web: Web, pipe: Connection) -> None:
    """Serve the sites. Sends their port, and that of the dead ones; then, when it receives anything,
    how often robots.txt was asked for."""
    asyncio.run(_serve(web, pipe))


async def _serve(web: Web, pipe: Connection) -> None:
    asked = [0]
    everywhere = socket.create_server(("0.0.0.0", 0), backlog=4096)  # noqa: S104 (loopback, below)
    everywhere.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Talk(web, asked), sock=everywhere, backlog=4096)
    dead = socket.socket()
    dead.bind(("0.0.0.0", 0))  # noqa: S104 (it never listens)
    pipe.send((everywhere.getsockname()[1], dead.getsockname()[1]))
    while True:
        await asyncio.to_thread(pipe.recv)
        pipe.send(asked[0])


# The crawls


class Crawl(NamedTuple):
    """What a crawl came to, or several at once."""

    pages: int
    """How many of the living sites arrived."""
    wanted: int
    seconds: float
    """Until the last of them."""
    cpu: float
    """Of all processes, in seconds, from the start of the crawl."""
    peak: float
    """Of memory, of the largest process, in bytes."""
    fetches: float
    """Of robots.txt, for each living site."""


class BroadSpider(scrapy.Spider):
    """Asks for all pages, and is done when it has those of the living sites."""

    name = "broad"

    async def start(self) -> AsyncIterator[Any]:
        random.Random(self.number).shuffle(self.urls)
        self.arrived = 0
        self.pipe.send("ready")
        self.pipe.recv()
        self.began, self.cpu = time.perf_counter(), time.process_time()
        asyncio.get_running_loop().call_later(self.cap, self.tell)
        for url in self.urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response: Response) -> None:
        self.arrived += 1
        if self.arrived == self.wanted:
            self.tell()
            raise CloseSpider

    def failed(self, failure: Any) -> None: ...

    def tell(self) -> None:
        seconds, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.pipe.send((self.arrived, seconds, cpu, peak))
        self.wanted = -1


def settings(middleware: str, place: Place, more: dict[str, Any]) -> dict[str, Any]:
    ours = {"ADDONS": {"scrapy_rep.Addon": 300}, **place.settings()}
    return {
        "USER_AGENT": "BenchmarkBot/1.0",
        "ROBOTSTXT_OBEY": middleware != NONE,
        **(ours if middleware == OURS else {}),
        "DOWNLOAD_TIMEOUT": TIMEOUT,
        "REP_DOWNLOAD_TIMEOUT": TIMEOUT,
        # In favour of the built-in middleware, whose fetch would be made three times.
        "RETRY_ENABLED": False,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        **more,
    }


def crawl(
    middleware: str,
    place: Place,
    more: dict[str, Any],
    task: dict[str, Any],
    pipe: Connection,
) -> None:
    """Crawl in this process, when told to. Sends what :class:`BroadSpider` tells."""
    process = CrawlerProcess(settings(middleware, place, more))
    process.crawl(BroadSpider, pipe=pipe, **task)
    process.start()


class Unasked:
    """A pipe for a crawl that needn't be told when to begin."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def recv(self) -> None:
        """Begin."""

    def send(self, what: Any) -> None:
        if what != "ready":
            self._pipe.send(what)


def crawl_at_once(
    middleware: str,
    place: Place,
    more: dict[str, Any],
    task: dict[str, Any],
    pipe: Connection,
) -> None:
    crawl(middleware, place, more, task, Unasked(pipe))  # type: ignore[arg-type]


def crawls(
    web: Web,
    middleware: str,
    place: Place,
    processes: int,
    cap: float,
    more: dict[str, Any],
) -> Crawl:
    """Have so many processes crawl the sites at once, each all of them."""
    with ExitStack() as stack:
        server = stack.enter_context(child(serve, web))
        urls = web.pages(*server.recv())
        living = [
            url for url in urls if web.alive(number_of(url.split("/")[2].split(":")[0]))
        ]
        task = {"urls": urls, "wanted": len(living), "cap": cap}
        pipes = [
            stack.enter_context(
                child(crawl, middleware, place, more, {**task, "number": number})
            )
            for number in range(processes)
        ]
        for pipe in pipes:
            pipe.recv()
        for pipe in pipes:
            pipe.send("go")
        pages, seconds, cpu, peak = zip(*(pipe.recv() for pipe in pipes), strict=True)
        server.send("count")
        fetches = server.recv() / sum(map(web.alive, range(web.hosts)))
        wanted = len(living) * processes
        return Crawl(sum(pages), wanted, max(seconds), sum(cpu), max(peak), fetches)
