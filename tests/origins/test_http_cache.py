"""Replays from Scrapy's HTTP cache: without the site, the pages of before and the rules of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.extensions.httpcache import FilesystemCacheStorage

from tests.helpers.behaviours import RULES, Behaviour, answer, gzipped, redirect
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, NEVER
from tests.helpers.recorded import decisions
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file

STOCK: dict[str, Any] = {"ADDONS": {}, "ROBOTSTXT_OBEY": True}
# An unreachable site is neither asked twice nor given up while a test runs, and a slow one is waited for.
NEVER_AGAIN = ("REP_RETRY_DELAY", "REP_RETRY_MAX_DELAY", "REP_DEFER_GRACE")
HOLD: dict[str, Any] = {**DEFER, **dict.fromkeys(NEVER_AGAIN, NEVER)}
OFFLINE: dict[str, Any] = {"HTTPCACHE_IGNORE_MISSING": True}


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, Any]:
    return {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "http"), **HOLD}


ROBOTS: list[Behaviour] = [answer(RULES), gzipped(RULES.encode()), redirect("/rules")]


@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize("recorded_by", [STOCK, {}], ids=["stock", "ours"])
async def test_a_replay_without_the_site_knows_its_rules(
    sites: Sites, cache: dict[str, Any], recorded_by: dict[str, Any]
) -> None:
    some = [sites.add(robots=robots, pages={"/rules": RULES}) for robots in ROBOTS]
    public = [site.url(path) for site in some for path in ("/a", "/b")]
    private = [site.url("/private") for site in some]
    await crawl([*public, *private], {**cache, **recorded_by})
    sites.close()
    again = await crawl([*public, *private], cache)
    assert again.responses == dict.fromkeys(public, 200)
    assert all(again.disallowed(url) for url in private)
    assert again.stat("rep/deferred") == 0
    again.assert_clean()


@pytest.mark.parametrize("robots", [404, 503], ids=str)
async def test_recorded_pages_are_replayed_without_a_robots_txt(
    sites: Sites, cache: dict[str, Any], tmp_path: Path, robots: int
) -> None:
    """The site is gone, and no cached robots.txt counts: requests that the cache can't answer are held."""
    site = sites.add(robots=robots)
    urls = [site.url("/a"), site.url("/b")]
    first = await crawl(urls, {**cache, **STOCK, "REP_UNREACHABLE": "allow"})
    assert set(first.responses) == set(urls)
    sites.close()
    trail = tmp_path / "decisions.jsonl"
    settings = {**cache, "REP_DEFER_MAX_WAIT": 0.3, "REP_DECISIONS": str(trail)}
    # `dont_cache` goes to the site, whatever is recorded.
    held = [Request(urls[0], meta={"dont_cache": True}), Request(site.url("/new"))]
    again = await crawl([*urls, *held], settings)
    assert again.responses == first.responses
    assert set(again.failures) == {one.url for one in held}
    assert again.stat("rep/unreachable/replayed") == 2
    assert again.stat("rep/deferred") == 2
    told = [one["reason"] for one in decisions(trail) if one["verdict"] == "allowed"]
    assert told and all(one.startswith("the HTTP cache answers it; ") for one in told)
    again.assert_clean()


@pytest.mark.parametrize("replayed", [False, True])
async def test_a_site_that_answers_is_obeyed_today(
    sites: Sites, cache: dict[str, Any], tmp_path: Path, replayed: bool
) -> None:
    """By others that share a storage, too: what was replayed is not stored as if it were today's."""
    site, shared = sites.add(robots=RULES), in_a_file(tmp_path)
    await crawl(site.url("/later"), cache)
    if replayed:
        await crawl(site.url("/later"), {**cache, **OFFLINE, **shared})
    site.set("/robots.txt", "User-agent: *\nDisallow: /later\n")
    result = await crawl(site.url("/later"), shared if replayed else cache)
    assert result.disallowed(site.url("/later"))
    assert site.robots_fetches == 2


async def test_ignore_missing_asks_no_site(sites: Sites, cache: dict[str, Any]) -> None:
    """A failure that was recorded keeps nothing waiting."""
    site, other, down = sites.add(robots=RULES), sites.add(), sites.add(robots=503)
    urls = [site.url(path) for path in ("/a", "/private", "/new")]
    await crawl([*urls[:2], down.url("/a")], {**cache, **STOCK})
    asked = len(site.requests)
    # The site and its robots.txt have changed: nobody looks.
    site.set("/robots.txt", 503)
    more = [other.url("/x"), down.url("/a"), down.url("/x")]
    result = await crawl([*urls, *more], {**cache, **OFFLINE, "REP_DEFER_MAX_WAIT": 0.3})
    assert result.responses == {urls[0]: 200, down.url("/a"): 200}
    assert result.disallowed(urls[1])
    assert not result.disallowed(urls[2])
    assert len(site.requests) == asked
    assert other.requests == []
    assert result.stat("httpcache/ignore") == 3  # /new, and both /x
    result.assert_clean()


async def test_without_the_middleware_the_site_is_asked(
    sites: Sites, cache: dict[str, Any]
) -> None:
    site = sites.add(robots=RULES)
    off = {**OFFLINE, "DOWNLOADER_MIDDLEWARES": {HttpCacheMiddleware: None}}
    result = await crawl([site.url("/a"), site.url("/private")], {**cache, **off})
    assert result.responses == {site.url("/a"): 200}
    assert result.disallowed(site.url("/private"))
    result.assert_clean()


class BrokenStorage(FilesystemCacheStorage):
    """Every entry is damaged, and the disk is full, of robots.txt files."""

    def retrieve_response(self, spider: Any, request: Request) -> Any:
        if request.url.endswith("robots.txt"):
            raise ValueError("damaged")
        return super().retrieve_response(spider, request)

    def store_response(self, spider: Any, request: Request, response: Any) -> None:
        if request.url.endswith("robots.txt"):
            raise OSError("No space left on device")
        super().store_response(spider, request, response)


async def test_a_broken_http_cache_is_one_warning(sites: Sites, cache: dict[str, Any]) -> None:
    site, other = sites.add(robots=RULES), sites.add(robots=RULES)
    urls = [one.url(path) for one in (site, other) for path in ("/a", "/private")]
    result = await crawl(urls, {**cache, "HTTPCACHE_STORAGE": BrokenStorage})
    assert set(result.responses) == {urls[0], urls[2]}
    told = [one for one in result.records if "Can't use the HTTP cache" in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING"]
    result.assert_clean()
