"""Nothing of a request is lost by holding it: all is as it would be had it never been held; and it passes the dupe
filter once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.http import Response

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.held import Gate, KeepingSpider, Record, assert_clean, urls
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.slow


async def test_objects_in_memory_are_the_same_objects(sites: Sites) -> None:
    """Without JOBDIR there is no copying: a request may carry what can't be copied."""
    site, things = sites.add(robots=in_turn(503, RULES)), [object(), lambda: None]
    request = Request(site.url("/x"), meta={"things": things}, cb_kwargs={"things": things})
    record = Record()
    result = await record.crawl(KeepingSpider, requests=[request])
    [response] = result.spider.responses
    assert response.meta["things"] is response.cb_kwargs["things"] is things
    assert record.deferred == [request.url]
    assert_clean(result)


@pytest.mark.scrapy_api
@pytest.mark.usefixtures("in_time")
async def test_a_request_held_on_disk_keeps_all_its_attributes(
    sites: Sites, tmp_path: Path
) -> None:
    """Two sites, one of which has its requests held: callbacks and servers see the same."""
    gate = Gate(503, RULES)
    healthy, down = sites.add(robots=RULES), sites.add(robots=gate)

    def requests_to(site: Site) -> list[Request]:
        common: dict[str, Any] = {
            "cb_kwargs": {"number": 1, "thing": (1, 2)},
            "meta": {"thing": {1, 2}, "list": [1, {"a": b"\xff"}], "rep_user_agent": "me"},
            "priority": 7,
            "headers": {"X-One": ["1", "2"], "User-Agent": "me/1.0"},
            "cookies": {"session": "abc"},
            "flags": ["flag"],
            "dont_filter": True,
        }
        return [
            Request(site.url("/caf%E9?q=1"), encoding="latin-1", **common),
            Request(site.url("/put"), method="PUT", body=b"\x00\xffbody", **common),
            FormRequest(site.url("/form"), formdata={"a": "b", "c": "d e"}, **common),
        ]

    record = Record(on_deferred=lambda _, count: gate.open() if count == 3 else None)
    wanted = [*requests_to(healthy), *requests_to(down)]
    result = await record.crawl(KeepingSpider, requests=wanted, JOBDIR=str(tmp_path))
    assert len(record.deferred) == 3
    seen: dict[Site, dict[str, Any]] = {healthy: {}, down: {}}
    for response in result.spider.responses:
        site = healthy if response.url.startswith(healthy.url("")) else down
        fields = response.request.to_dict(spider=result.spider)
        path = fields.pop("url").removeprefix(site.url(""))
        # What Scrapy itself adds on the way.
        for key in ("download_latency", "download_slot", "download_timeout"):
            fields["meta"].pop(key, None)
        [hit] = [one for one in site.requests if one.target == path]
        headers = sorted(one for one in hit.headers if one[0] != "Host")
        seen[site][path] = type(response.request), fields, hit.method, hit.body, headers
    assert seen[healthy] == seen[down]
    assert len(seen[down]) == 3
    assert_clean(result)


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
