"""`REP_USAGE`, `REP_USAGE_FIELD`: what a crawl does about preferences."""

from __future__ import annotations

import dataclasses
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import UsageDisallowed
from scrapy_rep.origins.cache import LARGE
from scrapy_rep.preferences.lookup import lookup_of
from tests.helpers.behaviours import answer
from tests.helpers.crawling import CrawlResult, ListSpider, assert_ended_at_start, crawl
from tests.helpers.log import lines, warnings
from tests.helpers.pagesite import recorded
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.usefixtures("in_time")

ROBOTS = "User-agent: *\nContent-Usage: /no/ train-ai=n\nContent-Usage: /yes/ train-ai=y\n"
NOAI = answer("<p>", headers=[("X-Robots-Tag", "noai")], type="text/html")


class ItemSpider(ListSpider):
    """Yields an item for each page."""

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


@pytest.mark.parametrize(
    ("action", "items", "pages"),
    [
        (None, ["no/1", "noai", "plain", "yes/1"], 4),
        ("record", ["no/1", "noai", "plain", "yes/1"], 4),
        ("drop-items", ["plain", "yes/1"], 4),
        ("drop-requests", ["plain", "yes/1"], 3),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_is_dropped_because_of_a_no(
    site: Site, tmp_path: Path, action: str | None, items: list[str], pages: int, dry_run: bool
) -> None:
    path = tmp_path / "decisions.jsonl"
    settings = {
        "REP_USAGE": {"train-ai": action} if action else None,
        "REP_DECISIONS": str(path),
        "REP_DRY_RUN": dry_run,
        "CONCURRENT_REQUESTS": 1,
    }
    urls = urls_of(site)
    result = await crawl(ItemSpider, settings, requests=urls)
    result.assert_clean()
    every = ["no/1", "noai", "plain", "yes/1"]
    assert kept(result) == (every if dry_run else items)
    assert len(site.pages_asked) == (4 if dry_run else pages)
    # In no promised order: those that waited for robots.txt may come after others.
    told = sorted((one["verdict"], one["url"]) for one in recorded(path))
    looked_at = sorted(urls if dry_run or action != "drop-requests" else urls[1:])
    assert [url for verdict, url in told if verdict == "usage"] == (looked_at if action else [])
    requests = [url for verdict, url in told if verdict == "usage_request"]
    assert requests == (urls[:1] if action == "drop-requests" else [])
    no_items = [url for verdict, url in told if verdict == "usage_item"]
    expected = {"drop-items": [urls[0], urls[2]], "drop-requests": [urls[0], urls[2]]}
    if action == "drop-requests" and not dry_run:
        expected[action] = [urls[2]]
    assert no_items == expected.get(action or "", [])
    assert {one["dry_run"] for one in recorded(path) if one["verdict"] != "usage"} <= {dry_run}
    assert result.stat("rep/usage/pages") == (len(looked_at) if action else 0)
    assert result.stat("rep/usage/items") == len(no_items)
    assert result.stat("rep/usage/requests") == len(requests)
    assert result.stat("rep/usage/y/train-ai") == (1 if action else 0)
    if requests and not dry_run:
        error = result.failure(urls[0])
        assert isinstance(error, UsageDisallowed)
        assert str(error) == (
            "The site says no to train-ai (robots.txt, line 2: Content-Usage: /no/ train-ai=n)"
        )
        assert (error.purpose, str(error.origin)) == ("train-ai", site.url(""))
        assert error.statement.line == 2


async def test_the_first_of_a_site_is_told(site: Site) -> None:
    settings = {"REP_USAGE": {"train-ai": "drop-items"}, "CONCURRENT_REQUESTS": 1}
    urls = [site.url(f"/no/{number}") for number in range(3)]
    result = await crawl(ItemSpider, settings, requests=urls)
    why = "the site says no to train-ai (robots.txt, line 2: Content-Usage: /no/ train-ai=n)"
    [line] = lines(result, "Dropping item from")
    assert line in {
        f"Dropping item from {url}: {why}; more for this origin at DEBUG level" for url in urls
    }


class Declared(scrapy.Item):
    url = scrapy.Field()
    usage = scrapy.Field()


class Undeclared(scrapy.Item):
    url = scrapy.Field()


@dataclasses.dataclass
class Data:
    url: str
    usage: dict[str, Any] | None = None


async def test_items_are_told_how_their_page_may_be_used(site: Site) -> None:
    class Spider(ItemSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            for kind in (dict, Declared, Data, Undeclared):
                self.make = kind
                yield from super().parse(response)

    urls = [site.url("/no/1"), site.url("/yes/1")]
    result = await crawl(Spider, {"REP_USAGE_FIELD": "usage"}, requests=urls)
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
    # Items that have no such field are left alone.
    assert len(result.spider.items) == 8
    [warning] = [one for one in result.records if "REP_USAGE_FIELD" in one.getMessage()]
    assert "items of the class Undeclared can't take 'usage'" in warning.getMessage()


async def test_requests_that_need_not_be_obeyed(site: Site) -> None:
    request = Request(site.url("/no/1"), meta={"dont_obey_robotstxt": True})
    settings = {"REP_USAGE": {"train-ai": "drop-requests"}}
    result = await crawl(ItemSpider, settings, requests=[site.url("/yes/1"), request])
    assert kept(result) == ["no/1", "yes/1"]


def test_a_crawl_that_is_over_is_forgotten() -> None:
    """What is known of its origins takes megabytes."""
    crawler = get_crawler(settings_dict={"ROBOTSTXT_OBEY": True, "REP_TDMREP": True})
    rep = RepMiddleware.from_crawler(crawler)
    assert isinstance(rep, RepMiddleware)
    assert lookup_of(rep) is lookup_of(rep)
    crawler.rep = rep  # type: ignore[attr-defined]  # as the engine does
    gone = weakref.ref(rep)
    del crawler, rep
    gc.collect()
    assert gone() is None


@pytest.mark.alone
async def test_a_large_robots_txt_is_read_in_a_thread(sites: Sites) -> None:
    rules = "".join(f"Disallow: /{number}\n" for number in range(LARGE // 12))
    tokens = "User-agent: Google-Extended\nDisallow: /g\n"
    site = sites.add(robots=f"User-agent: *\n{rules}Content-Usage: train-ai=n\n{tokens}{rules}")
    settings = {"REP_USAGE": {"train-ai": "drop-requests"}, "REP_USAGE_TOKENS": ["Google-Extended"]}
    result = await crawl(ItemSpider, settings, requests=[site.url("/x"), site.url("/y")])
    result.assert_clean()
    assert site.pages_asked == []
    assert result.stat("rep/usage/requests") == 2


async def test_nothing_is_looked_at_without_a_setting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor paid: no middleware, and none of the modules that would read something."""
    names: list[str] = []

    class Spider(ItemSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            engine: Any = self.crawler.engine
            for manager in (engine.downloader.middleware, engine.scraper.spidermw):
                names.extend(type(one).__name__ for one in manager.middlewares)
            yield from super().parse(response)

    def ours() -> list[str]:
        return [name for name in sys.modules if name.startswith(("scrapy_rep.pref", "http_sf"))]

    for name in (*ours(), "scrapy_rep.addon"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = await crawl(Spider, requests=urls_of(site))
    result.assert_clean()
    assert "RepMiddleware" in names
    assert not [name for name in names if name.startswith("Usage")]
    assert not ours()
    assert not [name for name in result.stats if name.startswith("rep/usage")]
    assert len(site.requests) == 5


async def test_the_parser_of_fields_is_an_extra(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.preferences.middlewares.find_spec", lambda name: None)
    result = await crawl(ItemSpider, {"REP_TDMREP": True}, requests=urls_of(site))
    assert_ended_at_start(
        result, site, "REP_TDMREP needs http-sf: pip install 'scrapy-rep[usage]'."
    )


async def test_by_hand_it_needs_the_other_one(site: Site) -> None:
    settings = {
        "ADDONS": {},
        "ROBOTSTXT_OBEY": True,
        "DOWNLOADER_MIDDLEWARES": {"scrapy_rep.UsageMiddleware": 101},
        "SPIDER_MIDDLEWARES": {"scrapy_rep.UsageItemMiddleware": 950},
        "REP_USAGE": {"train-ai": "drop-requests"},
    }
    result = await crawl(ItemSpider, settings, requests=[site.url("/yes/1")])
    result.assert_clean()
    assert kept(result) == ["yes/1"]
    assert warnings(result) == ["REP_USAGE has no effect without scrapy_rep.RepMiddleware"]
