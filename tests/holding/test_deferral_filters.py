"""A held request passes the dupe filter and the offsite filter once, as if it had never been held;
what comes of it later (duplicates, redirects, copies of its meta) meets them as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from tests.helpers.behaviours import RULES, in_turn, redirect
from tests.helpers.held import Gate, KeepingSpider, Record, assert_clean, urls
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


class DuplicatesSpider(KeepingSpider):
    """Asks for each page once more when it has it."""

    def more(self, response: Response) -> list[Any]:
        if response.meta.get("again"):
            return []
        return [self.ask(response.url, {"again": True})]


async def test_the_dupe_filter_sees_it_once(sites: Sites, tmp_path: Path) -> None:
    """Duplicates are dropped, whether they come while the request is held or afterwards."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    # OriginState to be unreachable by then: each is held, or is a duplicate, when the next one comes.
    wanted = [Request(url) for url in urls(site, 10)]
    record = Record(on_deferred=lambda _, count: gate.open() if count == 12 else None)
    twice = [Request(site.url("/twice"), dont_filter=True, meta={"again": True})] * 2
    result = await record.crawl(
        DuplicatesSpider,
        requests=[*wanted, *wanted, *[one.copy() for one in twice]],
        JOBDIR=str(tmp_path),
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


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("dont_filter", [False, True])
async def test_the_offsite_filter_and_redirects(sites: Sites, dont_filter: bool) -> None:
    """A page that redirects, after it was held, to a page that was seen or to another site."""
    other = sites.add(robots=in_turn(503, RULES))
    site = sites.add(
        robots=in_turn(503, 503, RULES),
        pages={"/dupe": redirect("/seen"), "/off": redirect(other.url("/target"))},
    )
    paths = ["/seen", "/dupe", "/off", "/on"]
    requests = [Request(site.url(path), dont_filter=dont_filter) for path in paths]
    record = Record()
    result = await record.crawl(
        FilteringSpider,
        requests=[*requests, Request(other.url("/page"), dont_filter=dont_filter)],
        allowed_domains=[site.host],
    )
    assert site.count("/dupe") == site.count("/off") == site.count("/on") == 1
    assert site.count("/seen") == (2 if dont_filter else 1)
    assert other.count("/target") == other.count("/page") == dont_filter
    # The site's own filtering, the same as if nothing had been held.
    assert result.stat("offsite/filtered") == (0 if dont_filter else 2)
    assert result.stat("dupefilter/filtered") == (0 if dont_filter else 1)
    assert record.deferred
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


async def test_a_copied_meta_carries_nothing_along(sites: Sites, tmp_path: Path) -> None:
    """A request made from a page that was held is filtered, held and released by itself."""
    sites_ = [sites.add(robots=in_turn(503, RULES)) for _ in range(3)]
    record = Record()
    result = await record.crawl(
        CopyingSpider,
        requests=[Request(sites_[0].url("/start"), meta={"mine": 1})],
        targets=[site.url("/next") for site in sites_[1:]],
        JOBDIR=str(tmp_path),
    )
    assert [one.url for one in result.spider.responses] == record.deferred == record.released
    assert len(record.released) == 3
    for meta in result.spider.metas:
        assert meta["mine"] == 1
        assert not [key for key in meta if key.startswith("_rep")]
    # Of the two copies for a page one is a duplicate: `dont_filter` was False all the time.
    assert result.stat("dupefilter/filtered") == 2
    assert_clean(result)
