"""Nothing of a request is lost by holding it, and it passes the filters once: all is as it would be
had it never been held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy import signals as scrapy_signals
from scrapy.http import JsonRequest, Response

from scrapy_rep.exceptions import RobotsDisallowed
from tests.behaviours import in_turn, redirect
from tests.crawling import CrawlResult, ListSpider, crawl
from tests.held import DEFER, RULES, Gate, Record, assert_clean, urls
from tests.servers import Site, Sites

MARK = "_rep_held"
# What Scrapy itself adds on the way; not the same in any two crawls.
SCRAPYS_META = ("download_latency", "download_slot", "download_timeout")


class Thing:
    """Something of the user's in meta."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


class KeepingSpider(ListSpider):
    """Sends its requests as they are, and has an errback of its own."""

    async def start(self) -> AsyncIterator[Any]:
        for request in self.requests:
            yield request.replace(callback=self.parse_one, errback=self.failed_one)

    def parse_one(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        yield from self.more(response)

    def more(self, response: Response) -> list[Any]:
        return []

    def ask(self, url: str, meta: dict[str, Any]) -> Request:
        return Request(url, callback=self.parse_one, errback=self.failed_one, meta=meta)

    def failed_one(self, failure: Any) -> None:
        self.errors.append((failure.request, failure.value))


def full_of_everything(site: Site, dont_filter: bool) -> list[Request]:
    """Requests with a value for each attribute, and of each class."""
    common: dict[str, Any] = {
        "cb_kwargs": {"number": 1, "thing": Thing("of the callback")},
        "meta": {"thing": Thing("of mine"), "list": [1, {"a": b"\xff"}], "rep_user_agent": "me"},
        "priority": 7,
        "headers": {"X-One": ["1", "2"], "User-Agent": "me/1.0"},
        "cookies": {"session": "abc"},
        "flags": ["flag"],
        "dont_filter": dont_filter,
    }
    return [
        Request(site.url("/get"), **common),
        Request(site.url("/caf%E9?q=1"), encoding="latin-1", **common),
        Request(site.url("/put"), method="PUT", body=b"\x00\xffbody", **common),
        FormRequest(site.url("/form"), formdata={"a": "b", "c": "d e"}, **common),
        JsonRequest(site.url("/json"), data={"a": [1, 2]}, dumps_kwargs={"indent": 1}, **common),
        Request(site.url("/private"), **common),
    ]


def described(result: CrawlResult, site: Site) -> dict[str, Any]:
    """What callbacks and errbacks saw and what the server was asked, but for the site's name."""
    spider = result.spider
    seen = [(one.request, one.status) for one in spider.responses]
    seen += [(request, type(error).__name__) for request, error in spider.errors]
    fingerprint = spider.crawler.request_fingerprinter.fingerprint
    described = {}
    for request, outcome in seen:
        fields = request.to_dict(spider=spider)
        path = fields.pop("url").removeprefix(site.url(""))
        assert fingerprint(request) == fingerprint(request.copy())
        assert MARK not in request.meta
        for key in SCRAPYS_META:
            fields["meta"].pop(key, None)
        hits = [
            (
                hit.method,
                hit.target,
                hit.body,
                sorted((k, v) for k, v in hit.headers if k != "Host"),
            )
            for hit in site.hits(path.partition("?")[0])
        ]
        described[path] = (type(request), outcome, hits, fields)
    return described


@pytest.mark.parametrize("dont_filter", [False, True])
@pytest.mark.parametrize("jobdir", [False, True])
async def test_all_attributes(
    sites: Sites, tmp_path: Path, jobdir: bool, dont_filter: bool
) -> None:
    """Two crawls, one of which has its requests held: callbacks, errbacks and servers see the
    same."""
    described_by_crawl = []
    for name, gate in (("healthy", Gate(RULES, RULES)), ("held", Gate(503, RULES))):
        site = sites.add(robots=gate)
        record = Record(on_deferred=lambda _, count, gate=gate: gate.open() if count == 6 else None)
        result = await crawl(
            KeepingSpider,
            {**DEFER, **({"JOBDIR": str(tmp_path / name)} if jobdir else {})},
            requests=full_of_everything(site, dont_filter),
            signal_handlers=record.handlers,
        )
        assert len(record.deferred) == (6 if name == "held" else 0)
        assert [type(error) for _, error in result.spider.errors] == [RobotsDisallowed]
        described_by_crawl.append(described(result, site))
        assert_clean(result)
    healthy, held = described_by_crawl
    assert set(healthy) == {"/get", "/caf%E9?q=1", "/put", "/form", "/json", "/private"}
    for path, one in healthy.items():
        assert held[path] == one
        assert len(one[2]) == (path != "/private")


async def test_objects_in_memory_are_the_same_objects(sites: Sites) -> None:
    """Without JOBDIR there is no copying: a request may carry what can't be copied."""
    site, things = sites.add(robots=in_turn(503, RULES)), [object(), lambda: None]
    request = Request(site.url("/x"), meta={"things": things}, cb_kwargs={"things": things})
    result = await crawl(KeepingSpider, DEFER, requests=[request])
    [response] = result.spider.responses
    assert response.meta["things"] is response.cb_kwargs["things"] is things
    assert result.stat("rep/deferred") == 1
    assert_clean(result)


class DuplicatesSpider(KeepingSpider):
    """Asks for each page once more when it has it."""

    def more(self, response: Response) -> list[Any]:
        if response.meta.get("again"):
            return []
        return [self.ask(response.url, {"again": True})]


@pytest.mark.parametrize("jobdir", [False, True])
async def test_the_dupe_filter_sees_it_once(sites: Sites, tmp_path: Path, jobdir: bool) -> None:
    """Duplicates are dropped, whether they come while the request is held or afterwards."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    # Known to be unreachable by then: each is held, or is a duplicate, when the next one comes.
    wanted = [Request(url) for url in urls(site, 10)]
    record = Record(on_deferred=lambda _, count: gate.open() if count == 12 else None)
    twice = [Request(site.url("/twice"), dont_filter=True, meta={"again": True})] * 2
    result = await crawl(
        DuplicatesSpider,
        {**DEFER, **({"JOBDIR": str(tmp_path)} if jobdir else {})},
        requests=[*wanted, *wanted, *[one.copy() for one in twice]],
        signal_handlers=record.handlers,
    )
    assert len(result.spider.responses) == 12
    assert site.count("/twice") == 2
    assert all(site.count(f"/page{number}") == 1 for number in range(10))
    assert result.stat("dupefilter/filtered") == len(record.dropped) == 20
    assert result.stat("rep/deferred") == 12
    assert_clean(result)


class FilteringSpider(KeepingSpider):
    """Keeps to its site."""

    def __init__(self, allowed_domains: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.allowed_domains = allowed_domains


@pytest.mark.parametrize("dont_filter", [False, True])
@pytest.mark.parametrize("healthy", [False, True], ids=["held", "healthy"])
async def test_the_offsite_filter_and_redirects(
    sites: Sites, healthy: bool, dont_filter: bool
) -> None:
    """A page that redirects, after it was held, to a page that was seen or to another site."""
    other = sites.add(robots=in_turn(*([] if healthy else [503]), RULES))
    site = sites.add(
        robots=in_turn(*([] if healthy else [503, 503]), RULES),
        pages={"/dupe": redirect("/seen"), "/off": redirect(other.url("/target"))},
    )
    paths = ["/seen", "/dupe", "/off", "/on"]
    requests = [Request(site.url(path), dont_filter=dont_filter) for path in paths]
    record = Record()
    result = await crawl(
        FilteringSpider,
        DEFER,
        requests=[*requests, Request(other.url("/page"), dont_filter=dont_filter)],
        allowed_domains=[site.host],
        signal_handlers=record.handlers,
    )
    assert site.count("/dupe") == site.count("/off") == site.count("/on") == 1
    assert site.count("/seen") == (2 if dont_filter else 1)
    assert other.count("/target") == other.count("/page") == dont_filter
    # The site's own filtering, the same as if nothing had been held.
    assert result.stat("offsite/filtered") == (0 if dont_filter else 2)
    assert result.stat("dupefilter/filtered") == (0 if dont_filter else 1)
    assert bool(record.deferred) is not healthy
    assert_clean(result)


class CopyingSpider(KeepingSpider):
    """Takes the meta of each page along to another site."""

    def __init__(self, targets: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.targets = targets
        self.metas: list[dict[str, Any]] = []

    def more(self, response: Response) -> list[Any]:
        self.metas.append(dict(response.meta))
        if not self.targets:
            return []
        follow = response.request.replace(url=self.targets.pop(0))
        return [follow, self.ask(follow.url, response.meta)]


@pytest.mark.parametrize("jobdir", [False, True])
async def test_a_copied_meta_carries_nothing_along(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    """A request made from a page that was held is filtered, held and released by itself."""
    sites_ = [sites.add(robots=in_turn(503, RULES)) for _ in range(3)]
    record = Record()
    result = await crawl(
        CopyingSpider,
        {**DEFER, **({"JOBDIR": str(tmp_path)} if jobdir else {})},
        requests=[Request(sites_[0].url("/start"), meta={"mine": 1})],
        targets=[site.url("/next") for site in sites_[1:]],
        signal_handlers=record.handlers,
    )
    assert [one.url for one in result.spider.responses] == record.deferred == record.released
    assert len(record.released) == 3
    for meta in result.spider.metas:
        assert meta["mine"] == 1
        assert not [key for key in meta if key.startswith("_rep")]
    # Of the two copies for a page one is a duplicate: `dont_filter` was False all the time.
    assert result.stat("dupefilter/filtered") == 2
    assert_clean(result)


async def test_priority_counts_after_release(sites: Sites) -> None:
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    requests = [Request(url, priority=number) for number, url in enumerate(urls(site, 30))]
    record = Record(on_deferred=lambda _, count: gate.open() if count == 30 else None)
    record.handlers[scrapy_signals.request_reached_downloader] = reached = Reached()
    await crawl(
        KeepingSpider,
        {**DEFER, "CONCURRENT_REQUESTS": 1},
        requests=requests,
        signal_handlers=record.handlers,
    )
    # All were released before the first was fetched again, since that is one slice.
    assert reached.pages == [one.url for one in reversed(requests)]


class Reached:
    """Pages in the order in which they were sent."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def __call__(self, request: Request) -> None:
        if not request.url.endswith("/robots.txt"):
            self.pages.append(request.url)
