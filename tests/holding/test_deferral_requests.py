"""Nothing of a request is lost by holding it: all is as it would be had it never been held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request
from scrapy.http import JsonRequest

from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import DEFER, Gate, KeepingSpider, Record, assert_clean
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.slow

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


@pytest.mark.scrapy_api
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("jobdir", "dont_filter"), [(True, False), (False, True)])
async def test_a_held_request_keeps_all_its_attributes(
    sites: Sites, tmp_path: Path, jobdir: bool, dont_filter: bool
) -> None:
    """Two crawls, one of which has its requests held: callbacks, errbacks and servers see the
    same."""
    described_by_crawl = []
    for name, gate in (("healthy", Gate(RULES, RULES)), ("held", Gate(503, RULES))):
        site = sites.add(robots=gate)
        record = Record(on_deferred=lambda _, count, gate=gate: gate.open() if count == 6 else None)
        result = await record.crawl(
            KeepingSpider,
            requests=full_of_everything(site, dont_filter),
            **({"JOBDIR": str(tmp_path / name)} if jobdir else {}),
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
