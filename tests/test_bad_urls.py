"""No URL that a spider yields causes a traceback from our code, or loses another request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, crawl, run_settings
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

HUGE = "a" * 100_000


def accepted(url: str) -> bool:
    """Whether there can be a request for it at all. That differs between versions of Scrapy."""
    try:
        Request(url).replace(dont_filter=True)
    except ValueError:
        return False
    return True


async def crawl_among_good_ones(
    sites: Sites, bad: Sequence[str | Request]
) -> tuple[CrawlResult, list[list[BaseException]]]:
    """The good ones arrive. What a bad one's errback got is at its own place in the list."""
    site = sites.add(robots=RULES)
    good = [site.url(f"/good/{number}") for number in range(4)]
    requests = [Request(one) if isinstance(one, str) else one for one in bad]
    for number, request in enumerate(requests):
        request.meta["number"] = number
    # Scrapy drops long URLs at 2083 characters, unless it is told not to.
    settings = {"RETRY_ENABLED": False, "URLLENGTH_LIMIT": 0}
    result = await crawl([*good[:2], *requests, *good[2:]], settings)
    assert [result.status(url) for url in good] == [200] * len(good)
    heard = [one.meta.get("number") for one in result.spider.responses]
    errors: list[list[BaseException]] = [[] for _ in bad]
    for request, error in result.spider.errors:
        errors[request.meta["number"]].append(error)
        heard.append(request.meta["number"])
    assert Counter(heard) == Counter([None] * len(good) + [*range(len(bad))])
    ours = [one for one in result.records if one.name.startswith("scrapy_rep")]
    assert [one.getMessage() for one in ours if one.levelno > logging.INFO] == []
    assert site.count("/robots.txt") == 1
    result.assert_clean()
    return result, errors


# fmt: off
NO_ORIGIN = [
    "http://", "http:///x", "http://:80/", "http://?x=1", "http://#x", "http://user@/x", "ftp://",
    "http://user:pass@:80/x", "http://127.0.0.1:99999/x", "http://127.0.0.1:port/x", "https://",
    "http://127.0.0.1:8\u06608/x",  # a digit, though none of ASCII
    "http://127.0.0.1:-1/x", "http://127.0.0.1:+80/x", "http://127.0.0.1: 80/x",
]
UNRESOLVABLE = [
    "http://a..b/", "http://.../x", "http://.a/", "http://-/", "http://a b/x", "http://%/x",
    "http://%2e%2e/x", "http://a%00b/", "http://a\x00b/", "http://\u00e4\u00f6\u00fc.invalid/\u00e4",
    "http://\u2603.invalid/", "http://under_score.invalid/x", "http://_/x", "http://*/x",
    "http://a'b\"c<d>/x", "http://256.256.256.256/x", "http://1.2.3/x", "http://h;x/",
    "http://" + "a" * 64 + ".invalid/",  # a label may have 63
    "http://" + "a." * 200 + "invalid/", "http://" + HUGE + "/",
    "http://h\\x/", "http:\\\\g\\x",  # a host of its own, as each here
    "http://[::1", "http://[x]/", "http://[::1]x/", "http://[]/",
]
# fmt: on


@pytest.mark.scrapy_api
async def test_a_url_whose_origin_cannot_exist_is_unreachable(sites: Sites) -> None:
    """Nothing can be fetched from there, and nothing says that it may."""
    urls = [url for url in [*NO_ORIGIN, *UNRESOLVABLE] if accepted(url)]
    assert len(urls) > 30
    result, errors = await crawl_among_good_ones(sites, urls)
    homeless = 0
    with every_row() as row:
        for url, [error] in zip(urls, errors, strict=True):
            with row(repr(url)[:40]):
                assert isinstance(error, RobotsUnreachable)
                assert len(str(error)) < 1000
                homeless += error.origin is None
                if url in NO_ORIGIN:
                    assert (error.origin, error.decision, error.attempts) == (
                        None,
                        None,
                        0,
                    )
                    start = "robots.txt unreachable: the URL has no origin: "
                    assert str(error).startswith(start)
    assert result.stat("rep/invalid_url") == homeless


# Paths on a site that forbids /private. Nothing is resolved or decoded: compared as it is sent.
DROPPED = [
    *(
        "/private#x",
        "/private?x=http://h/",
        "/private x",
        "/private\\x",
        "/private\u00e4",
    ),
    *("/private\x00", "/private%", "/private%zz%e4", "/private/" + HUGE),
]
PASSED = [
    *("", "?x=1", "#x", "#/private", "/#", "//private", "/a/../private"),
    *("/privat\u00e4", "/%70rivate"),
    *(
        "/ok\\x",
        "/ok x",
        '/ok|^`{}"<>',
        "/ok%e4%zz",
        "/ok;x=1;y?z",
        "/ok/" + HUGE[:50_000],
    ),
]


@pytest.mark.scrapy_api
async def test_an_odd_path_is_compared_as_it_is_sent(sites: Sites) -> None:
    paths = [*DROPPED, *PASSED]
    many = [sites.add(robots=RULES) for _ in paths]
    urls = [site.url(path) for site, path in zip(many, paths, strict=True)]
    _, errors = await crawl_among_good_ones(sites, urls)
    with every_row() as row:
        for site, path, found in zip(many, paths, errors, strict=True):
            with row(repr(path)[:40]):
                dropped = [RobotsDisallowed] if path in DROPPED else []
                assert [type(error) for error in found] == dropped
                assert site.count("/robots.txt") == 1
                assert len(site.requests) == 2 - len(dropped)


async def test_other_spellings_of_one_origin(sites: Sites) -> None:
    site = sites.add(robots=RULES, name="upper.test")
    urls = [
        f"hTTp://UPPER.TEST:{site.port}/private/1",
        f"http://@UPPER.TEST:{site.port}/private/2",
        f"http://UPPER.TEST:0{site.port}/private/3",
        f" http://UPPER.TEST:{site.port}/private/4 ",
        f"\nhttp://UPPER.TEST:{site.port}/private/5",
        f"http://a@b@UPPER.TEST:{site.port}/private/6",
    ]
    result, _ = await crawl_among_good_ones(sites, urls)
    assert [type(error) for _, error in result.spider.errors] == [
        RobotsDisallowed
    ] * len(urls)
    assert [hit.path for hit in site.requests] == ["/robots.txt"]


VERBATIM: list[tuple[str, type[Exception] | None]] = [
    # What Scrapy passes on as it is (since 2.19), and what becomes of it.
    (" {}/private", RobotsDisallowed),  # Scrapy's download handlers strip it
    ("\t{}/private", RobotsDisallowed),
    ("{}/private \u00e4", RobotsDisallowed),
    ("{}/private\ud800", RobotsDisallowed),
    ("{}?x=1", None),
    ("{}/ok%zz", None),
    ("http://", RobotsUnreachable),
    ("http://h:99999/", RobotsUnreachable),
    ("http://\u00e4.invalid/\u00e4", RobotsUnreachable),
    ("http://h\x00/", RobotsUnreachable),
]


@pytest.mark.skipif(not hasattr(Request, "_url_is_verbatim"), reason="older Scrapy")
async def test_verbatim_urls_are_judged_as_they_are(sites: Sites) -> None:
    many = [sites.add(robots=RULES) for _ in VERBATIM]
    urls = [
        url.replace("{}", site.url(""))
        for site, (url, _) in zip(many, VERBATIM, strict=True)
    ]
    requests = [Request(url, meta={"verbatim_url": True}) for url in urls]
    _, errors = await crawl_among_good_ones(sites, requests)
    with every_row() as row:
        for site, (url, error), found in zip(many, VERBATIM, errors, strict=True):
            with row(repr(url)):
                assert [type(one) for one in found] == ([error] if error else [])
                assert len(site.requests) <= 1 + (error is None)


# fmt: off
RAW = [
    "http://[", "http://[::1", "http://\u00e4\u0000\ud800/", "http://h/\u00e4\ud800 x", "http://h:\u00b2/",
    "HTTP://", " http://", "://", "", "http:", "http:h",
]
# fmt: on


@pytest.mark.scrapy_api
def test_urls_that_no_request_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapy's Request encodes or refuses them; a subclass, or `verbatim_url`, may not."""
    monkeypatch.setattr(
        RepMiddleware, "_wait", AsyncMock()
    )  # else it would ask for robots.txt
    middleware: Any = RepMiddleware.from_crawler(
        get_crawler(settings_dict=run_settings())
    )
    with every_row() as row:
        for url in RAW:
            request = Request("http://h/")
            request._url = url
            with row(repr(url)):
                with pytest.raises((StopIteration, RobotsUnreachable)) as raised:
                    middleware.process_request(request).send(None)
                if isinstance(error := raised.value, RobotsUnreachable):
                    assert error.origin is None
                    assert error.reason.isprintable()
                    assert isinstance(error.__cause__, ValueError)
