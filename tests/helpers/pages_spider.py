"""The spider and an extension of `tests.helpers.process`: they write what happens into `CRAWL_EVENTS`.

`CRAWL_ENDS`, such as `SIGKILL released 17`, is a signal that the process sends itself at that event: some
moments are too short to be hit from outside. By `CRAWL_AHEAD` seconds the clock is ahead."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_rep import RepMiddleware
from scrapy_rep import signals as rep_signals
from tests.helpers.events import EventRecorder, write

COUNTS: Counter[str] = Counter()


def record(kind: str, url: str = "", detail: object = "") -> None:
    write("\t".join((kind, url, str(detail).replace("\n", " "))))
    COUNTS[kind] += 1
    if ends := os.environ.get("CRAWL_ENDS"):
        name, wanted, count = ends.split()
        if kind == wanted and COUNTS[kind] == int(count):
            os.kill(os.getpid(), signal.Signals[name])


def set_clock(ahead: float) -> None:
    """Put this process' clock forward by *ahead* seconds."""
    real_time = time.time
    time.time = lambda: real_time() + ahead
    # The middleware, which is made after the extensions, has the real one from its import.
    RepMiddleware.clock = staticmethod(time.time)


def record_page(response: Response) -> None:
    """What a callback gets; and what it would get if nothing had been held."""
    request = response.request
    assert request is not None
    marks = [key for key in request.meta if key.startswith("_rep")]
    record("page", response.url, f"dont_filter={request.dont_filter} marks={marks}")


PAGE_AS_EVER = "dont_filter=False marks=[]"


class Recorder(EventRecorder):
    kinds = {
        rep_signals.request_held: "held",
        rep_signals.request_released: "released",
        signals.request_scheduled: "scheduled",
        signals.request_dropped: "dropped",
        signals.request_reached_downloader: "reached",
        signals.response_downloaded: "downloaded",
        signals.request_left_downloader: "left",
    }

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        set_clock(float(os.environ["CRAWL_AHEAD"]))

    def seen(self, kind: str, request: Request) -> None:
        record(kind, request.url)

    def resolved(self, origin: Any, outcome: Any, **_: Any) -> None:
        record("resolved" if outcome.value != "unreachable" else "refused", str(origin))

    def opened(self) -> None:
        record("opened")

    def closed(self, reason: str) -> None:
        for key, value in self.stats.items():
            record("stat", key, value)
        record("closed", detail=reason)


class PagesSpider(Spider):
    """Requests the URLs of a file, and writes down what becomes of them. Arguments, each off if empty:

    - linked: the URLs come from a callback: Scrapy has other queues for start requests
    - links: so does `/next` of each page
    - go: a file. The spider begins when it appears, so that several processes meet a site in the
      same moment
    - seeded: the URLs are where sitemaps are looked for; the pages are what those list
    """

    name = "pages"
    linked = links = go = seeded = ""

    def __init__(self, urls: str, **kwargs: str) -> None:
        super().__init__(**kwargs)
        self.urls = Path(urls).read_text().split()
        if self.seeded:
            self.sitemap_rules = [("/start$", "start_page"), ("", "parse")]

    async def start(self) -> AsyncIterator[Any]:
        while self.go and not Path(self.go).exists():
            time.sleep(0.005)  # noqa: ASYNC251 (nothing else goes on in this process yet)
        if self.linked:
            yield Request("data:,", self.parse_links)
        else:
            for request in self.pages():
                yield request

    def pages(self) -> Iterator[Request]:
        for url in self.urls:
            yield Request(
                url, self.start_page if self.seeded else self.parse, errback=self.failed
            )

    def parse_links(self, response: Response) -> Iterator[Request]:
        yield from self.pages()

    def start_page(self, response: Response) -> None: ...

    def parse(self, response: Response) -> Iterator[Request]:
        record_page(response)
        if self.links and not response.url.endswith("/next"):
            yield Request(urljoin(response.url, "/next"), dont_filter=True)

    def failed(self, failure: Any) -> None:
        record(
            "failed",
            failure.request.url,
            f"{type(failure.value).__name__}: {failure.value}",
        )
