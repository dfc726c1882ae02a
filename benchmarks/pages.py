"""What it takes to read a page's own rules, beside the usual way: a selector.

python benchmarks/pages.py [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import parsel
import scrapy
from scrapy import Spider
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.http import HtmlResponse
from scrapy.utils.test import get_crawler
from tables import Row, median_ratio, table

import scrapy_rep

if TYPE_CHECKING:
    from collections.abc import Callable

AGENTS = ("BenchmarkBot",)
HEADERS = {"Content-Type": "text/html; charset=utf-8"}
SIZE = 100_000
MAX_PLAIN, MAX_RULES = 0.0001, 0.001
"""Seconds for a page of 100 KB without a rule, and with one."""

META = '<meta name="robots" content="noindex, nofollow, max-snippet:20">'
HEAD = "".join(
    f'<meta property="og:part{n}" content="Some text, it is not long">'
    for n in range(20)
)
ITEM = '<div class="item"><a href="/product/{n}?x=1" class="link">A product &amp; more</a><b>9.99</b></div>\n'


def page(head: str = "", end: str = "") -> bytes:
    """A page of 100 KB."""
    items = "".join(ITEM.format(n=n) for n in range(2000))
    text = f"<!doctype html><html><head>{HEAD}{head}<title>A shop</title></head><body>{items}"
    return (text[: text.rindex("\n", 0, SIZE - len(end))] + end).encode()


def ours(response: HtmlResponse) -> None:
    """Read all rules."""
    scrapy_rep.page_rules(response, AGENTS)


def selector(response: HtmlResponse) -> None:
    """Find the metas of one name without reading them."""
    response.xpath('//meta[@name="robots"]')


def seconds(read: Callable[[HtmlResponse], None], body: bytes) -> float:
    """CPU time for one page that has not been read before."""
    responses = [
        HtmlResponse("http://a.example/", body=body, headers=HEADERS) for _ in range(50)
    ]
    began = time.process_time()
    for response in responses:
        read(response)
    return (time.process_time() - began) / len(responses)


def middlewares(settings: dict[str, object]) -> list[str]:
    """The spider middlewares of a crawl."""
    crawler = get_crawler(Spider, {"ADDONS": {"scrapy_rep.Addon": 300}, **settings})
    crawler.spider = crawler._create_spider("benchmark")
    manager = SpiderMiddlewareManager.from_crawler(crawler)
    return [type(one).__name__ for one in manager.middlewares]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    peer = f"xpath of Scrapy {scrapy.__version__}, parsel {parsel.__version__}"
    rows = []
    for what, body, limit in (
        ("page without rules", page(), MAX_PLAIN),
        ("page with a meta in its head", page(META), MAX_RULES),
        ("page with a meta at its end", page(end=META), MAX_RULES),
    ):
        one, other = zip(
            *((seconds(ours, body), seconds(selector, body)) for _ in range(rounds)),
            strict=True,
        )
        mine = sorted(one)[rounds // 2]
        times = [f"{sorted(some)[rounds // 2] * 1e6:.0f} µs" for some in (one, other)]
        rows.append(Row(what, peer, *times, median_ratio(other, one)))
        goal = f"{limit * 1e6:.0f} µs"
        rows.append(Row("", "goal", times[0], goal, mine / limit, 1.0, at_most=True))
    print(f"Rules of a page of {SIZE // 1000} KB, CPU time\n")
    print(table(rows))
    added = set(middlewares({"REP_NOFOLLOW": True})) - set(middlewares({}))
    plain = "PageMiddleware" in middlewares({})
    print(
        f"\nBoth settings off: {'a middleware more' if plain else 'no middleware, so nothing'}; on: {', '.join(added)}"
    )


if __name__ == "__main__":
    main()
