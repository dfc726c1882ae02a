"""``REP_NOINDEX``: which items of a page are not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from tests.helpers.crawling import Clock, CrawlResult, crawl
from tests.helpers.log import lines, summary
from tests.helpers.pagesite import NOINDEX, AsyncLinkSpider, LinkSpider, page
from tests.helpers.recorded import decisions
from tests.helpers.servers import Sites

pytestmark = pytest.mark.usefixtures("in_time")


def kept(result: CrawlResult) -> list[str]:
    return [item["url"] for item in result.spider.items]


@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("spider", "setting"), [(AsyncLinkSpider, "drop"), (LinkSpider, False), (LinkSpider, "count")]
)
async def test_items_of_pages_that_say_noindex(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, spider: Any, setting: Any
) -> None:
    """Where they apply; or that have expired."""
    Clock().install(monkeypatch).now = 1_764_767_393.0  # 2025-12-03T13:09:53Z
    refused = {
        "/meta": page(f'<a href="/x">{NOINDEX}'),
        "/header": page("x", "noindex"),
        "/none": page("x", "testbot: none"),
        "/pdf": page("%PDF", "noindex", type="application/pdf"),
        "/now": page("x", "unavailable_after: 2025-12-03T13:09:53Z"),
        "/both": page("x", "noindex, indexifembedded"),
        "/embedded": page("x", "noindex"),
    }
    allowed = {
        "/other": page("x", "otherbot: noindex"),
        "/soon": page("x", "unavailable_after: 2025-12-03T13:09:54Z"),
        "/bad": page("x", "unavailable_after: someday"),
        "/plain": page("x"),
    }
    site = sites.add(pages={**refused, **allowed, "/forced": page(NOINDEX)})
    requests: list[str | Request] = [site.url(path) for path in (*refused, *allowed)]
    # The project knows which page is embedded in another one.
    requests += [
        Request(site.url(f"{path}?of=x"), meta={"rep_embedded": True})
        for path in ("/both", "/embedded")
    ]
    requests.append(Request(site.url("/forced"), meta={"dont_obey_robotstxt": True}))
    result = await crawl(spider, {"REP_NOINDEX": setting}, requests=requests)
    every = [str(getattr(one, "url", one)) for one in requests] + [site.url("/x")]
    kept_paths = [*allowed, "/x", "/both?of=x", "/forced"]
    wanted = [site.url(path) for path in kept_paths] if setting == "drop" else every
    assert sorted(kept(result)) == sorted(wanted)
    counts = result.stat("rep/page/noindex"), result.stat("rep/page/expired")
    assert counts == ((7, 1) if setting else (0, 0))
    assert result.stat("item_scraped_count") == len(wanted)
    result.assert_clean()


@pytest.mark.parametrize("setting", ["drop", "count"])
async def test_what_is_dropped_is_told(sites: Sites, tmp_path: Path, setting: str) -> None:
    path = tmp_path / "decisions.jsonl"
    site = sites.add(
        pages={
            "/1": page(NOINDEX),
            "/2": page("x", "foo", "noindex"),
            "/3": page("x", "unavailable_after: 2001-01-01"),
        }
    )
    urls = [site.url(f"/{number}") for number in (1, 2, 3)]
    settings = {"REP_NOINDEX": setting, "REP_DECISIONS": str(path), "CONCURRENT_REQUESTS": 1}
    result = await crawl(LinkSpider, settings, requests=urls)
    assert [(one["verdict"], one["url"], one["reason"]) for one in decisions(path)] == [
        ("noindex", urls[0], "meta robots (line 1): noindex"),
        ("noindex", urls[1], "X-Robots-Tag 2: noindex"),
        ("expired", urls[2], "X-Robots-Tag 1: unavailable_after: 2001-01-01T00:00:00+00:00"),
    ]
    assert {one["dry_run"] for one in decisions(path)} == {setting == "count"}
    drop = "Dropping" if setting == "drop" else "Would drop"
    more = "more for this origin at DEBUG level"
    date = "2001-01-01T00:00:00+00:00"
    assert lines(result, "item from", "more for") == [
        f"{drop} item from {urls[0]}: meta robots (line 1): noindex; {more}",
        f"{drop} item from {urls[2]}: X-Robots-Tag 1: unavailable_after: {date}; {more}",
    ]
    assert summary(result)[2] == (
        "Page rules: 2 items from pages that say noindex, 1 item from pages that have expired; "
        f"{3 if setting == 'drop' else 0} of 3 dropped"
    )
    result.assert_clean()


async def test_no_middleware_without_a_setting(sites: Sites) -> None:
    """A crawl pays nothing, then."""
    site = sites.add(pages={"/": page(NOINDEX)})
    seen: list[list[str]] = []

    class Spider(LinkSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            manager = self.crawler.engine.scraper.spidermw  # type: ignore[union-attr]
            seen.append([type(one).__name__ for one in manager.middlewares])

    for settings in (
        {},
        {"REP_NOINDEX": "count"},
        {"REP_NOINDEX": "count", "ROBOTSTXT_OBEY": False},
    ):
        await crawl(Spider, settings, requests=[site.url("/")])
    assert ["PageMiddleware" in names for names in seen] == [False, True, False]


async def test_by_hand_it_needs_the_other_one(sites: Sites) -> None:
    site = sites.add(pages={"/": page(NOINDEX)})
    settings = {
        "ADDONS": {},
        "ROBOTSTXT_OBEY": True,
        "SPIDER_MIDDLEWARES": {"scrapy_rep.PageMiddleware": 950},
        "REP_NOINDEX": "drop",
    }
    result = await crawl(LinkSpider, settings, requests=[site.url("/")])
    assert kept(result) == [site.url("/")]
    assert len(lines(result, "have no effect without", level="WARNING")) == 1
    settings["DOWNLOADER_MIDDLEWARES"] = {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "scrapy_rep.RepMiddleware": 100,
    }
    assert kept(await crawl(LinkSpider, settings, requests=[site.url("/")])) == []
