"""No URL that a spider yields makes a traceback from our code appear in the log, or loses another
request. Each crawl has a bad URL between good ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, crawl, run_settings
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.scrapy_api

HUGE = "a" * 100_000


def accepted(url: str) -> bool:
    """Whether there can be a request for it at all. That differs between versions of Scrapy."""
    try:
        Request(url).replace(dont_filter=True)
    except ValueError:
        return False
    return True


async def crawl_among_good_ones(sites: Sites, *bad: str | Request) -> tuple[CrawlResult, Site]:
    """The good ones arrive, whatever the bad do; and of each bad one we hear, too."""
    site = sites.add(robots=RULES)
    good = [site.url(f"/good/{number}") for number in range(4)]
    # Scrapy drops long URLs at 2083 characters, unless it is told not to.
    settings = {"RETRY_ENABLED": False, "URLLENGTH_LIMIT": 0}
    result = await crawl([*good[:2], *bad, *good[2:]], settings)
    for url in good:
        assert result.status(url) == 200
    assert len(result.spider.responses) + len(result.spider.errors) == len(good) + len(bad)
    ours = [one for one in result.records if one.name.startswith("scrapy_rep")]
    assert [one.getMessage() for one in ours if one.levelno > logging.INFO] == []
    assert site.count("/robots.txt") == 1
    result.assert_clean()
    return result, site


NO_ORIGIN = [
    "http://",
    "http:///x",
    "http://:80/",
    "http://?x=1",
    "http://#x",
    "http://user@/x",
    "http://user:pass@:80/x",
    "http://127.0.0.1:99999/x",
    "http://127.0.0.1:port/x",
    "http://127.0.0.1:-1/x",
    "http://127.0.0.1:8\u06608/x",  # a digit, though none of ASCII
    "http://127.0.0.1:+80/x",
    "http://127.0.0.1: 80/x",
    "ftp://",
    "https://",
]


@pytest.mark.parametrize("url", [url for url in NO_ORIGIN if accepted(url)])
async def test_no_origin(sites: Sites, url: str) -> None:
    """Nothing can be fetched from there, and nothing says that it may."""
    result, _ = await crawl_among_good_ones(sites, url)
    [(_, error)] = result.spider.errors
    assert isinstance(error, RobotsUnreachable)
    assert (error.origin, error.decision, error.attempts) == (None, None, 0)
    assert str(error).startswith("robots.txt unreachable: the URL has no origin: ")
    assert result.stat("rep/invalid_url") == 1


UNRESOLVABLE = [
    "http://a..b/",
    "http://.../x",
    "http://.a/",
    "http://-/",
    "http://a b/x",
    "http://%/x",
    "http://%2e%2e/x",
    "http://a%00b/",
    "http://a\x00b/",
    "http://\u00e4\u00f6\u00fc.invalid/\u00e4",
    "http://\u2603.invalid/",
    "http://under_score.invalid/x",
    "http://_/x",
    "http://*/x",
    "http://a'b\"c<d>/x",
    "http://" + "a" * 64 + ".invalid/",  # a label may have 63
    "http://" + "a." * 200 + "invalid/",
    "http://" + HUGE + "/",
    "http://256.256.256.256/x",
    "http://1.2.3/x",
    "http://h;x/",
    "http://h\\x/",
    "http:\\\\h\\x",
    "http://[::1",
    "http://[x]/",
    "http://[::1]x/",
    "http://[]/",
]


@pytest.mark.parametrize(
    "url", [url for url in UNRESOLVABLE if accepted(url)], ids=lambda url: repr(url)[:40]
)
async def test_host_that_cannot_be_had(sites: Sites, url: str) -> None:
    """There is nobody there, or nobody who could be: unreachable, as any dead host."""
    result, _ = await crawl_among_good_ones(sites, url)
    [(_, error)] = result.spider.errors
    assert isinstance(error, RobotsUnreachable)
    assert len(str(error)) < 1000


# Path on a site that forbids /private, and whether it is dropped.
ODD_PATHS: list[tuple[str, bool]] = [
    ("", False),
    ("?x=1", False),
    ("#x", False),
    ("#/private", False),
    ("/#", False),
    ("//private", False),
    ("/a/../private", False),  # nothing is resolved: compared as it is sent
    ("/private#x", True),
    ("/private?x=http://h/", True),
    ("/private x", True),
    ("/private\\x", True),
    ("/private\u00e4", True),
    ("/private\x00", True),
    ("/privat\u00e4", False),
    ("/%70rivate", False),  # nothing is decoded
    ("/private%", True),
    ("/private%zz%e4", True),
    ("/private/" + HUGE, True),
    ("/ok\\x", False),
    ("/ok x", False),
    ('/ok|^`{}"<>', False),
    ("/ok%e4%zz", False),
    ("/ok;x=1;y?z", False),
    ("/ok/" + HUGE[:50_000], False),
]


@pytest.mark.parametrize(("path", "dropped"), ODD_PATHS, ids=lambda value: repr(value)[:40])
async def test_odd_paths(sites: Sites, path: str, dropped: bool) -> None:
    site = sites.add(robots=RULES)
    result, _ = await crawl_among_good_ones(sites, site.url(path))
    errors = [error for _, error in result.spider.errors]
    if dropped:
        assert [type(error) for error in errors] == [RobotsDisallowed]
        assert len(site.requests) == site.count("/robots.txt") == 1
    else:
        assert errors == []
        assert len(site.requests) == 2


SAME_ORIGIN = [
    "HTTP://{host}:{port}/private/1",
    "hTTp://{host}:{port}/private/2",
    "http://user:secret@{host}:{port}/private/3",
    "http://@{host}:{port}/private/4",
    "http://{host}:0{port}/private/5",
    " http://{host}:{port}/private/6 ",
    "\nhttp://{host}:{port}/private/7",
    "http://a@b@{host}:{port}/private/8",
]


async def test_other_spellings_of_one_origin(sites: Sites) -> None:
    """All go by its robots.txt, which is asked for once."""
    site = sites.add(robots=RULES, name="upper.test")
    hosts = {"host": site.name.upper(), "port": site.port}
    urls = [spelling.format(**hosts) for spelling in SAME_ORIGIN]
    result, _ = await crawl_among_good_ones(sites, *urls)
    assert [type(error) for _, error in result.spider.errors] == [RobotsDisallowed] * len(urls)
    assert [hit.path for hit in site.requests] == ["/robots.txt"]


async def test_all_at_once(sites: Sites) -> None:
    bad = [url for url in [*NO_ORIGIN, *UNRESOLVABLE] if accepted(url)]
    result, _ = await crawl_among_good_ones(sites, *bad)
    assert {type(error) for _, error in result.spider.errors} == {RobotsUnreachable}
    assert len(result.spider.errors) == len(bad) > 30


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
@pytest.mark.parametrize(("url", "error"), VERBATIM, ids=repr)
async def test_verbatim_urls(sites: Sites, url: str, error: type[Exception] | None) -> None:
    site = sites.add(robots=RULES)
    request = Request(url.replace("{}", site.url("")), meta={"verbatim_url": True})
    result, _ = await crawl_among_good_ones(sites, request)
    assert [type(one) for _, one in result.spider.errors] == ([error] if error else [])
    assert len(site.requests) <= 1 + (error is None)


RAW = [
    "http://[",
    "http://[::1",
    "http://\u00e4\u0000\ud800/",
    "http://h/\u00e4\ud800 x",
    "http://h:\u00b2/",
    "HTTP://",
    " http://",
    "://",
    "",
    "http:",
    "http:h",
]


@pytest.mark.parametrize("url", RAW, ids=repr)
def test_urls_that_no_request_has(url: str) -> None:
    """Scrapy's Request encodes or refuses them; a subclass, or `verbatim_url`, may not."""
    middleware: Any = RepMiddleware.from_crawler(get_crawler(settings_dict=run_settings()))
    request = Request("http://h/")
    request._url = url
    try:
        answer = middleware.process_request(request)
    except RobotsUnreachable as error:
        assert error.origin is None
        assert error.reason.isprintable()
    else:
        if answer is not None:
            answer.close()  # a coroutine: it would ask for robots.txt
