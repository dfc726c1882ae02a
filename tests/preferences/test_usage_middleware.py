"""`REP_USAGE`, `REP_USAGE_FIELD`: what a crawl does about preferences."""

from __future__ import annotations

import dataclasses
import gc
import logging
import sys
import weakref
from collections import Counter
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
import scrapy
from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.test import get_crawler

from scrapy_rep import RepMiddleware, UsageItemMiddleware, UsageMiddleware
from scrapy_rep.exceptions import UsageDisallowed
from scrapy_rep.origins.cache import LARGE_BYTES
from scrapy_rep.preferences.lookup import lookup_of
from scrapy_rep.protocol.robotstxt import Groups
from scrapy_rep.storages.base import unsqueeze
from tests.helpers.behaviours import page
from tests.helpers.crawling import (
    CrawlResult,
    ListSpider,
    StepSpider,
    assert_ended_at_start,
    crawl,
)
from tests.helpers.log import lines
from tests.helpers.recorded import decisions
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.usefixtures("in_time")
ROBOTS = (
    "User-agent: *\nContent-Usage: /no/ train-ai=n\nContent-Usage: /yes/ train-ai=y\n"
)
NOAI = page("<p>", "noai")


class ItemSpider(ListSpider):
    make: Any = dict

    def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        yield self.make(url=response.url)


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(robots=ROBOTS, pages={"/noai": NOAI})


def urls_of(site: Site) -> list[str]:
    return [site.url(path) for path in ("/no/1", "/yes/1", "/noai", "/plain")]


def kept(result: CrawlResult) -> list[str]:
    return sorted(item["url"].split("/", 3)[3] for item in result.spider.items)


EVERY = ["no/1", "noai", "plain", "yes/1"]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("action", "items", "requests"),
    [
        (None, [], []),
        ("record", [], []),
        ("drop-items", ["no/1", "noai"], []),
        ("drop-requests", ["noai"], ["no/1"]),
    ],
)
async def test_what_is_dropped_because_of_a_no(
    site: Site,
    tmp_path: Path,
    dry_run: bool,
    action: str | None,
    items: Any,
    requests: Any,
) -> None:
    path = tmp_path / "decisions.jsonl"
    usage = {"train-ai": action} if action else None
    settings = {"REP_USAGE": usage, "REP_DECISIONS": str(path), "REP_DRY_RUN": dry_run}
    result = await crawl(ItemSpider, settings, requests=urls_of(site))
    result.assert_clean()
    dropped = [] if dry_run else [*items, *requests]
    assert kept(result) == [one for one in EVERY if one not in dropped]
    fetched = [one for one in EVERY if dry_run or one not in requests]
    assert len(site.pages_asked) == len(fetched)
    items = sorted({*items, *requests}) if dry_run else items
    usages = fetched if action else []
    told = decisions(path) if path.exists() else []
    assert all(
        one["dry_run"] is (dry_run and one["verdict"] != "usage") for one in told
    )
    # Those that waited for robots.txt may come after others.
    found = {
        verdict: sorted(
            one["url"].split("/", 3)[3] for one in told if one["verdict"] == verdict
        )
        for verdict in ("usage", "usage_request", "usage_item")
    }
    assert found == {"usage": usages, "usage_request": requests, "usage_item": items}
    names = ("pages", "items", "requests", "y/train-ai")
    counts = [result.stat(f"rep/usage/{name}") for name in names]
    assert counts == [len(usages), len(items), len(requests), int(bool(action))]
    said = [
        len(lines(result, f"{word} ", level=None))
        for word in ("Would drop", "Dropping")
    ]
    assert said == [0, len(items + requests)][:: -1 if dry_run else 1]


@pytest.mark.scrapy_api
async def test_a_request_that_is_dropped_fails(site: Site) -> None:
    settings = {"REP_USAGE": {"train-ai": "drop-requests"}}
    forced = Request(site.url("/no/2"), meta={"dont_obey_robotstxt": True})
    result = await crawl(StepSpider, settings, steps=[*urls_of(site), forced])
    assert result.spider.outcomes == ["UsageDisallowed", "ok", "ok", "ok", "ok"]
    result = await crawl(ItemSpider, settings, requests=[*urls_of(site), forced])
    assert kept(result) == ["no/2", "plain", "yes/1"]
    error = result.failure(site.url("/no/1"))
    assert isinstance(error, UsageDisallowed)
    assert str(error) == (
        "Use for train-ai is not permitted (robots.txt, line 2: Content-Usage: /no/ train-ai=n)"
    )
    assert (error.purpose, str(error.origin)) == ("train-ai", site.url(""))
    assert error.statement.line == 2


class Undeclared(scrapy.Item):
    url = scrapy.Field()


class Declared(Undeclared):
    usage = scrapy.Field()


@dataclasses.dataclass
class Data:
    url: str
    usage: dict[str, Any] | None = None


async def test_items_are_told_how_their_page_may_be_used(site: Site) -> None:
    class ItemsOfEachKind(ItemSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            for kind in (dict, Declared, Data, Undeclared):
                self.make = kind
                yield from super().parse(response)

    urls = [site.url("/no/1"), site.url("/yes/1")]
    result = await crawl(ItemsOfEachKind, {"REP_USAGE_FIELD": "usage"}, requests=urls)
    result.assert_clean()
    usages = [
        (item.url if isinstance(item, Data) else item["url"], found)
        for item in result.spider.items
        if (found := item.usage if isinstance(item, Data) else item.get("usage"))
    ]
    for url, said, line in ((urls[0], "n", 2), (urls[1], "y", 3)):
        found = [usage for page, usage in usages if page == url]
        assert [(one["train-ai"], one["search"]) for one in found] == [(said, None)] * 3
        assert {one["statements"][0]["line"] for one in found} == {line}
    assert result.stat("rep/usage/pages") == 0
    # Items that have no such field are left alone.
    assert len(result.spider.items) == 8
    [warning] = [one for one in result.records if "REP_USAGE_FIELD" in one.getMessage()]
    assert "items of the class Undeclared can't take 'usage'" in warning.getMessage()


def test_a_crawl_that_is_over_is_forgotten() -> None:
    """What is known of its origins takes megabytes."""
    settings = {"ROBOTSTXT_OBEY": True, "REP_TDMREP": True}
    # pytest keeps log records, and Scrapy's refer to the crawler.
    logging.disable()
    try:
        crawler = get_crawler(settings_dict=settings)
        rep = RepMiddleware.from_crawler(crawler)
    finally:
        logging.disable(logging.NOTSET)
    assert isinstance(rep, RepMiddleware)
    assert lookup_of(rep) is lookup_of(rep)
    crawler.rep = rep  # type: ignore[attr-defined]  # as the engine does
    gone = weakref.ref(rep)
    del crawler, rep
    gc.collect()
    assert gone() is None


async def test_a_large_robots_txt_is_read_in_a_thread(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules once for the crawler, once for each token; the preferences, if they aren't known, too."""
    agents: list[object] = []

    class Read(Groups):
        def __init__(self, text: str) -> None:
            assert current_thread() is not main_thread()
            super().__init__(text)

    def in_thread(function: Any, *arguments: Any) -> Any:
        agents.append(arguments[1])
        return run_in_thread(function, *arguments)

    monkeypatch.setattr("scrapy_rep.protocol.robotstxt.Groups", Read)
    for module in ("origins.cache", "preferences.lookup"):
        monkeypatch.setattr(f"scrapy_rep.{module}.run_in_thread", in_thread)
    rules = "".join(f"Disallow: /{number}\n" for number in range(LARGE_BYTES // 12))
    tokens = "User-agent: Google-Extended\nDisallow: /g\n"
    site = sites.add(
        robots=f"User-agent: *\n{rules}Content-Usage: train-ai=n\n{tokens}{rules}"
    )
    named = ["Google-Extended", "CCBot", "Foo"]
    settings = {"REP_USAGE": {"train-ai": "drop-requests"}, "REP_USAGE_TOKENS": named}
    result = await crawl(
        ItemSpider, settings, requests=[site.url("/x"), site.url("/y")]
    )
    result.assert_clean()
    assert site.pages_asked == []
    assert result.stat("rep/usage/requests") == 2
    assert Counter(agents) == {
        ("testbot",): 1,
        "*": 2,
        **{(name,): 1 for name in named},
    }


async def test_a_robots_txt_is_not_unpacked_for_each_page(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counting(packed: bytes) -> bytes:
        sizes.append(len(packed))
        return unsqueeze(packed)

    monkeypatch.setattr("scrapy_rep.storages.base.unsqueeze", counting)
    settings = {"REP_USAGE": {"train-ai": "drop-requests"}}
    numbers = []
    for pages in (1, 5):
        site, before = sites.add(robots=ROBOTS), len(sizes)
        urls = [site.url(f"/yes/{number}") for number in range(pages)]
        await crawl(ItemSpider, settings, requests=urls)
        assert len(site.pages_asked) == pages
        numbers.append(len(sizes) - before)
    assert numbers[0] == numbers[1] > 0


async def test_sitemaps_are_no_pages(sites: Sites) -> None:
    """They are read whatever may be done with pages."""
    site = sites.add()
    site.set(
        "/robots.txt", "User-agent: *\nContent-Usage: search=n\nSitemap: /map.txt\n"
    )
    site.set("/map.txt", site.url("/page"))
    settings = {"REP_USAGE": {"search": "drop-requests"}, "REP_SITEMAPS": True}
    result = await crawl(ItemSpider, settings, requests=[site.url("/x")])
    assert [site.count(path) for path in ("/map.txt", "/page", "/x")] == [1, 0, 0]
    assert result.stat("rep/usage/requests") == 2


async def test_nothing_is_looked_at_without_a_setting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class SeesMiddlewares(ItemSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            engine: Any = self.crawler.engine
            for manager in (engine.downloader.middleware, engine.scraper.spidermw):
                seen.extend(type(one).__name__ for one in manager.middlewares)

    def ours() -> list[str]:
        return [
            name
            for name in sys.modules
            if name.startswith(("scrapy_rep.pref", "http_sf"))
        ]

    for name in (*ours(), "scrapy_rep.addon"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = await crawl(SeesMiddlewares, requests=[site.url("/no/1")])
    result.assert_clean()
    assert "RepMiddleware" in seen
    assert not [name for name in seen if name.startswith("Usage")]
    assert not ours()
    assert not [name for name in result.stats if name.startswith("rep/usage")]
    assert len(site.requests) == 2


async def test_the_parser_of_fields_is_an_extra(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotConfigured):  # nothing asks for it
        UsageMiddleware.from_crawler(
            get_crawler(settings_dict={"ROBOTSTXT_OBEY": True})
        )
    monkeypatch.setattr(
        "scrapy_rep.preferences.middlewares.find_spec", lambda name: None
    )
    result = await crawl(ItemSpider, {"REP_TDMREP": True}, requests=urls_of(site))
    assert_ended_at_start(
        result, site, "REP_TDMREP needs http-sf: pip install 'scrapy-rep[usage]'."
    )


def test_an_item_passes_if_its_check_fails() -> None:
    """Here there is no engine; a DOWNLOADER of the project's own may have no middlewares."""
    settings = {"ROBOTSTXT_OBEY": True, "REP_USAGE": {"tdm": "drop-items"}}
    middleware = UsageItemMiddleware.from_crawler(get_crawler(settings_dict=settings))
    for request in (Request("http://a.b/"), None):
        item, response = {"a": 1}, Response("http://a.b/", request=request)
        assert middleware.get_processed_item(item, response) is item
