"""A wrong setting ends the crawl at its start: one sentence, no traceback, nothing fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.crawling import ListSpider, assert_ended_at_start, crawl
from tests.helpers.log import lines
from tests.helpers.process import Crawl, on_every_reactor
from tests.helpers.servers import Sites


class NamelessSpider(ListSpider):
    robotstxt_user_agent: Any = "Foo Bot 1.0"


@pytest.mark.scrapy_api
async def test_a_wrong_setting_ends_the_crawl_at_its_start(sites: Sites) -> None:
    tokens = "a product token (letters, - and _ only, such as FooBot) or a list of them"
    attribute = f"The spider's attribute robotstxt_user_agent is 'Foo Bot 1.0', but must be {tokens}."
    setting = "REP_UNREACHABLE is 'wait', but must be one of 'hold', 'drop', 'allow'."
    for spider, settings, sentence in (
        (ListSpider, {"REP_UNREACHABLE": "wait"}, setting),
        (NamelessSpider, {}, attribute),
    ):
        site = sites.add(robots="User-agent: *\nDisallow:")
        requests = [site.url(f"/{number}") for number in range(40)]
        result = await crawl(spider, settings, requests=requests)
        assert_ended_at_start(result, site, sentence)


class WrongSitemaps(ListSpider):
    rep_sitemaps = "start"


async def test_a_crawl_that_obeys_nothing_says_so(sites: Sites) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /")
    ours = "REP_UNREACHABLE, REP_DOWNLOAD_TIMEOUT"
    for spider, settings, names in (
        (
            ListSpider,
            {"REP_SITEMAPS": True},
            f"these have no effect: {ours}, REP_SITEMAPS",
        ),
        (
            WrongSitemaps,
            {"REP_CACHE_TTL": "soon"},
            f"these have no effect: {ours}, REP_CACHE_TTL, the spider's rep_sitemaps",
        ),
    ):
        settings = {"ROBOTSTXT_OBEY": False, **settings}
        result = await crawl(spider, settings, requests=[site.url("/x")])
        told = [one for one in result.records if one.name.startswith("scrapy_rep")]
        assert [f"{one.levelname} {one.getMessage()}" for one in told] == [
            "INFO Not obeying robots.txt: ROBOTSTXT_OBEY is False",
            f"WARNING Without ROBOTSTXT_OBEY, {names}",
        ]
        assert result.responses == {site.url("/x"): 200}


class OwnSite(ListSpider):
    custom_settings = {"ROBOTSTXT_OBEY": False}


async def test_a_spider_that_switches_it_off_is_not_warned_of_the_projects_settings(
    sites: Sites,
) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /")
    result = await crawl(OwnSite, {"REP_SITEMAPS": True}, requests=[site.url("/x")])
    told = [
        one.getMessage() for one in result.records if one.name.startswith("scrapy_rep")
    ]
    assert told == ["Not obeying robots.txt: ROBOTSTXT_OBEY is False"]
    assert result.responses == {site.url("/x"): 200}


async def test_a_crawl_begins_with_how_it_obeys(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = sites.add(robots="User-agent: *\nDisallow:")
    sqlite = "scrapy_rep.storages.sqlite.SqliteStorage"
    folder = "tests.helpers.storing.FolderStorage"
    for unreachable, storage, agent, says in (
        ("hold", None, {}, "as testbot{} held for up to 10 min. Cache: MemoryStorage"),
        (
            "drop",
            folder,
            {"REP_USER_AGENT": "a,b"},
            "as a or b{} dropped. Cache: FolderStorage",
        ),
        (
            "allow",
            sqlite,
            {"USER_AGENT": "X/5"},
            "as X{} let through. Cache: SqliteStorage",
        ),
        (
            "allow",
            sqlite,
            {"USER_AGENT": "Mozilla/5.0"},
            "as any crawler (*){} let through.",
        ),
    ):
        settings = {
            "REP_UNREACHABLE": unreachable,
            "REP_CACHE_STORAGE": storage,
            **agent,
        }
        settings |= {"REP_CACHE_PATH": str(tmp_path / "x"), "REP_UNREACHEABLE": "drop"}
        result = await crawl(site.url("/"), settings)
        [line] = lines(result, "Obeying robots.txt", level="INFO")
        assert says.format(". While it is unreachable, requests are") in line
        warning = "no effect: REP_UNREACHEABLE (did you mean REP_UNREACHABLE?)"
        [told] = lines(result, "no effect", level="WARNING")
        assert told.endswith(warning)
        assert result.responses == {site.url("/"): 200}
        assert result.spider.settings.getfloat("REP_HOLD_MAX_WAIT") == 600.0


@pytest.mark.process
@on_every_reactor
def test_runspider_with_a_wrong_setting_exits_with_status_1(
    sites: Sites, tmp_path: Path, reactor: str
) -> None:
    site = sites.add()
    settings = {"REP_RETRY_DELAY": "often"}
    crawl = Crawl(tmp_path, [site.url("/")], settings, reactor=reactor).join()
    assert (crawl.status, crawl.reason) == (1, "rep_settings_error")
    [error] = [line for line in crawl.log.splitlines() if "] ERROR: " in line]
    assert error.endswith(
        "REP_RETRY_DELAY is 'often', but must be a number of seconds, more than 0. The crawl ends."
    )
    assert "Traceback" not in crawl.log
    assert site.requests == []
