"""`REP_TDMREP`: `/.well-known/tdmrep.json` of real sites."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from scrapy.http import Response
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep import usage
from scrapy_rep.preferences import Usage
from tests.helpers.behaviours import answer, as_behaviour, redirect, silence
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
from tests.helpers.servers import Connection, Hit, Sites

PATH = "/.well-known/tdmrep.json"
FILE = json.dumps(
    [
        {"location": "/free/*", "tdm-reservation": 0},
        {"location": "/", "tdm-reservation": 1, "tdm-policy": "https://a.example/policy.json"},
    ]
)


class UsageSpider(ListSpider):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.usages: dict[str, Usage] = {}

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.usages[response.url] = usage(response)


async def asked(settings: dict[str, Any], *urls: str) -> list[Usage]:
    result = await crawl(UsageSpider, settings, requests=list(urls))
    result.assert_clean()
    return [result.spider.usages[url] for url in urls]  # type: ignore[attr-defined]


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize("wanted", [True, False])
async def test_the_file_is_fetched_once_and_only_on_request(sites: Sites, wanted: bool) -> None:
    reserved = answer("<p>", headers=[("TDM-Reservation", "0")])
    site = sites.add(pages={PATH: FILE, "/own": reserved})
    urls = [site.url(path) for path in ("/1", "/2", "/free/1", "/own")]
    one, two, free, own = await asked({"REP_TDMREP": wanted}, *urls)
    assert site.count(PATH) == wanted
    assert [found["tdm"] for found in (one, two, free, own)] == (
        ["n", "n", None, None] if wanted else [None] * 4
    )
    if wanted:
        assert one.tdm_policy == "https://a.example/policy.json"
        assert one.tdmrep_sha256 == hashlib.sha256(FILE.encode()).hexdigest()
        assert [statement.source for statement in one.statements] == ["tdmrep.json"]
        assert (free.tdm_policy, len(free.statements)) == (None, 1)
        assert own.tdmrep_sha256 is None
        # After the first page, which is held back for it.
        assert [hit.path for hit in site.requests[:2]] != ["/robots.txt", PATH]


async def test_pages_come_without_a_usable_file(sites: Sites) -> None:
    files = (404, 503, redirect(PATH), "{}", "[[[", b"\xff\xfe")
    hosts = [sites.add(pages={PATH: file}) for file in files]
    urls = [site.url(path) for site in hosts for path in ("/1", "/2")]
    found = await asked({**ONE_ATTEMPT, "REP_TDMREP": True}, *urls)
    assert [usage["tdm"] for usage in found] == [None] * len(urls)
    assert [site.count(PATH) for site in hosts] == [1] * len(hosts)


async def test_a_file_that_robots_txt_forbids_is_not_fetched(sites: Sites) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /.well-known/", pages={PATH: FILE})
    [found] = await asked({"REP_TDMREP": True}, site.url("/"))
    assert found["tdm"] is None
    assert site.count(PATH) == 0


async def test_a_silent_server_delays_the_first_pages_alone(sites: Sites) -> None:
    site, other = sites.add(pages={PATH: silence()}), sites.add()
    # Without a reactor there is one connection for each, and the silent server has one.
    concurrency = 1 if is_reactor_installed() else 4
    settings = {
        "REP_TDMREP": True,
        "REP_DOWNLOAD_TIMEOUT": 0.5,
        "CONCURRENT_REQUESTS": concurrency,
    }
    urls = [site.url("/1"), other.url("/1"), site.url("/2")]
    assert [found["tdm"] for found in await asked(settings, *urls)] == [None] * 3
    assert site.count(PATH) == 1


async def test_pages_that_wait_are_few(sites: Sites) -> None:
    """A server that is slow to answer must not fill the memory with its pages."""
    meanwhile: list[Hit] = []

    async def slow(hit: Hit, connection: Connection) -> None:
        await asyncio.sleep(0.2)
        meanwhile.extend(other for other in site.requests if other.time >= hit.time)
        await as_behaviour(404)(hit, connection)

    site = sites.add(pages={PATH: slow})
    settings = {"REP_TDMREP": True, "CONCURRENT_REQUESTS": 2}
    await asked(settings, *[site.url(f"/{number}") for number in range(20)])
    # Two, and two with slots of their own; the file.
    assert 0 < len(meanwhile) <= 5


async def test_the_file_is_shared_through_the_storage(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /x", pages={PATH: FILE})
    settings = {
        "REP_TDMREP": True,
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": str(tmp_path / "robots.sqlite"),
    }
    for _ in range(2):
        [found] = await asked(settings, site.url("/"))
        assert found["tdm"] == "n"
    assert (site.robots_fetches, site.count(PATH)) == (1, 1)


async def test_beside_the_http_cache(sites: Sites, tmp_path: Path) -> None:
    """It keeps pages; what a replay has no copy of is as if there was none."""
    site = sites.add(pages={PATH: FILE})
    settings = {
        "REP_TDMREP": True,
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path),
    }
    [found] = await asked(settings, site.url("/"))
    assert found["tdm"] == "n"
    [found] = await asked({**settings, "HTTPCACHE_IGNORE_MISSING": True}, site.url("/"))
    assert found["tdm"] is None
    assert site.count(PATH) == 1
