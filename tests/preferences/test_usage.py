"""`scrapy_rep.usage(response)` in real crawls: every source, and what it rests on."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep import usage
from scrapy_rep.preferences import PURPOSES, Usage
from tests.helpers.behaviours import (
    Behaviour,
    after,
    answer,
    as_behaviour,
    redirect,
    silence,
)
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
from tests.helpers.servers import Connection, Hit, Site, Sites
from tests.helpers.storing import in_a_file

ROBOTS = """\
License: https://example.com/license.xml
Content-Signal: ai-input=no
User-agent: *
Allow: /
Disallow: /private
Content-Usage: train-ai=n, search=y
Content-Usage: /open/ train-ai=y
Content-Signal: search=yes, ai-train=no

User-agent: Google-Extended
Disallow: /secret

User-agent: CCBot
Allow: /
"""


class UsageSpider(ListSpider):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.usages: dict[str, Usage] = {}

    def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        self.usages[response.url] = usage(response)
        assert usage(response) is self.usages[response.url]
        yield {"url": response.url}


def page(html: str = "<p>", *headers: tuple[str, str]) -> Behaviour:
    return answer(html, headers=list(headers), type="text/html")


def said(usage: Usage) -> dict[str, str]:
    return {
        purpose: said for purpose, said in usage.verdicts.items() if said is not None
    }


async def asked(settings: dict[str, Any], *urls: str) -> list[Usage]:
    result = await crawl(UsageSpider, settings, requests=[*urls])
    result.assert_clean()
    return [result.spider.usages[url] for url in urls]


async def usages(site: Site, *paths: str, **settings: Any) -> dict[str, Usage]:
    found = await asked(settings, *map(site.url, paths))
    return dict(zip(paths, found, strict=True))


@pytest.mark.scrapy_api
async def test_what_robots_txt_says_by_path(sites: Sites) -> None:
    site = sites.add(robots=ROBOTS)
    pages = await usages(site, "/", "/open/page")
    # Content-Usage of the longest path; signals of everybody and of the group. Any n wins.
    verdicts = {"train-ai": "n", "search": "y", "ai-input": "n"}
    assert [said(one) for one in pages.values()] == [verdicts] * 2
    found = pages["/open/page"]
    assert [str(one) for one in found.statements] == [
        "robots.txt, line 7: Content-Usage: /open/ train-ai=y",
        "robots.txt, line 2: Content-Signal: ai-input=no",
        "robots.txt, line 8: Content-Signal: search=yes, ai-train=no",
    ]
    assert found.licenses == ("https://example.com/license.xml",)
    assert found.robots_sha256 == hashlib.sha256(ROBOTS.encode()).hexdigest()
    now = datetime.now(timezone.utc)
    for time in (found.time, found.robots_fetched_at):
        assert time is not None
        assert 0 <= (now - time).total_seconds() < 60
    assert site.requests[0].path == "/robots.txt"
    assert len(site.requests) == 3  # the license is not fetched


async def test_policy_tokens_that_the_user_names(sites: Sites) -> None:
    site = sites.add(robots=ROBOTS.replace("Content-", "X-"))
    tokens = {
        "Google-Extended": ["train-ai", "ai-input"],
        "CCBot": "train-ai",
        "NoBot": "search",
    }
    pages = await usages(site, "/secret", "/x", REP_USAGE_TOKENS=tokens)
    verdicts = [said(one) for one in pages.values()]
    assert verdicts == [{"train-ai": "n", "ai-input": "n"}, {"train-ai": "y"}]
    assert [str(one) for one in pages["/secret"].statements] == [
        "robots.txt for Google-Extended, line 11: Disallow: /secret",
        "robots.txt for CCBot, line 14: Allow: /",
    ]


# The page, what it says, and where.
PAGES: dict[str, tuple[Behaviour, dict[str, str], list[str]]] = {
    "/usage": (
        page("<p>", ("Content-Usage", "train-ai=n"), ("Content-Usage", "search=y;x")),
        {"train-ai": "n", "search": "y"},
        ["header Content-Usage: train-ai=n, search=y;x"],
    ),
    "/signal": (
        page(
            "<p>",
            ("Content-Signal", "ai-train=yes, search=yes"),
            ("content-signal", "ai-train=no"),
        ),
        {"train-ai": "n", "search": "y"},
        ["header Content-Signal: ai-train=yes, search=yes, ai-train=no"],
    ),
    "/tag": (
        page("<p>", ("X-Robots-Tag", "testbot: noimageai"), ("X-Robots-Tag", "all")),
        {"train-ai-images": "n"},
        ["X-Robots-Tag 1: noimageai"],
    ),
    "/meta": (
        page(
            '\n<meta name="robots" content="noai">', ("X-Robots-Tag", "otherbot: noai")
        ),
        {"train-ai": "n", "train-ai-images": "n"},
        ["meta robots, line 2: noai"],
    ),
    "/tdm": (
        page("<p>", ("TDM-Reservation", "1"), ("TDM-Policy", "https://a.example/p")),
        {"tdm": "n"},
        ["header tdm-reservation: 1"],
    ),
    "/html": (
        page('<meta name="tdm-reservation" content="0">', ("TDM-Reservation", "1")),
        {},
        ["meta tdm-reservation, line 1: 0"],
    ),
    "/policy": (
        page(
            '<meta name="tdm-reservation" content="1">',
            ("TDM-Policy", "https://a.example/q"),
        ),
        {"tdm": "n"},
        ["meta tdm-reservation, line 1: 1"],
    ),
    "/signal-meta": (
        page('<p>\n<meta name="Content-Signal" content="ai-train=no; use=immediate">'),
        {"train-ai": "n", "search": "n"},
        ["meta content-signal, line 2: ai-train=no; use=immediate"],
    ),
    "/link": (
        page("<p>", ("Link", "<l>;rel=license;type=application/rsl+xml")),
        {},
        [],
    ),
}


async def test_headers_and_metas_of_a_page(sites: Sites) -> None:
    site = sites.add(pages={path: row[0] for path, row in PAGES.items()})
    found = await usages(site, *PAGES)
    rows = {
        path: (said(one), [*map(str, one.statements)]) for path, one in found.items()
    }
    assert rows == {path: row[1:] for path, row in PAGES.items()}
    assert found["/tdm"].tdm_policy == "https://a.example/p"
    assert found["/policy"].tdm_policy == "https://a.example/q"
    assert found["/html"].tdm_policy is None
    assert found["/link"].licenses == ("l",)
    assert found["/link"].robots_sha256 is None


async def test_a_request_has_the_group_of_its_agent(sites: Sites) -> None:
    """draft-ietf-aipref-attach-05: preferences apply to what can be crawled; signals in any case."""
    robots = (
        "User-agent: *\nContent-Usage: train-ai=n\nContent-Signal: ai-input=no\nDisallow: /private\n"
        "User-agent: shopbot\nContent-Usage: search=n"
    )
    # It doesn't wait for robots.txt.
    site = sites.add(robots=robots, pages={"/private": after(0.3, "x")})
    requests = [
        Request(site.url("/"), callback=None),
        Request(site.url("/named"), meta={"rep_user_agent": "ShopBot"}),
        Request(site.url("/sent"), headers={"User-Agent": "ShopBot/1.0"}),
        Request(site.url("/private"), meta={"dont_obey_robotstxt": True}),
    ]
    result = await crawl(UsageSpider, requests=requests)
    found = result.spider.usages
    assert [said(found[one.url]) for one in requests] == [
        {"train-ai": "n", "ai-input": "n"}, {"search": "n"}, {"search": "n"}, {"ai-input": "n"}
    ]  # fmt: skip


async def test_a_crawl_that_does_not_obey_sees_the_page_alone(sites: Sites) -> None:
    site = sites.add(robots=ROBOTS, pages={"/": page("<p>", ("X-Robots-Tag", "noai"))})
    settings = {"ROBOTSTXT_OBEY": False, "REP_USAGE": {"train-ai": "drop-items"}}
    result = await crawl(UsageSpider, settings, requests=[site.url("/")])
    result.assert_clean()
    found = result.spider.usages[site.url("/")]
    assert [one.source for one in found.statements] == ["X-Robots-Tag 1"]
    assert len(result.spider.items) == 1
    assert site.robots_fetches == 0


def test_a_response_without_a_crawl() -> None:
    said = b"<META NAME='tdm-reservation' content=1><meta content=https://a.example/p name=TDM-Policy>"
    found = usage(HtmlResponse("http://a.example/", body=said))
    assert (found["tdm"], found.tdm_policy) == ("n", "https://a.example/p")
    said = b"<meta name=tdm-reservation content=yes><!-- <meta name=tdm-reservation content=1> -->"
    assert usage(HtmlResponse("http://a.example/", body=said)).statements == ()
    response = HtmlResponse(
        "http://a.example/", headers={"Content-Usage": "train-ai=n"}, body=b""
    )
    assert usage(response)["train-ai"] == "n"
    assert usage(HtmlResponse("http://a.example/")).verdicts == dict.fromkeys(PURPOSES)
    with pytest.raises(KeyError):
        usage(response)["ai-train"]


PATH = "/.well-known/tdmrep.json"
FILE = json.dumps(
    [
        {"location": "/free/*", "tdm-reservation": 0},
        {
            "location": "/",
            "tdm-reservation": 1,
            "tdm-policy": "https://a.example/policy.json",
        },
    ]
)


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize("wanted", [True, False])
async def test_the_file_is_fetched_once_and_only_on_request(
    sites: Sites, wanted: bool
) -> None:
    free_page = answer("<p>", headers=[("TDM-Reservation", "0")])
    # Without a policy: that of the file applies.
    reserved = answer("<p>", headers=[("TDM-Reservation", "1")])
    site = sites.add(pages={PATH: FILE, "/own": free_page, "/reserved": reserved})
    urls = [site.url(path) for path in ("/1", "/2", "/free/1", "/own", "/reserved")]
    one, two, free, own, completed = await asked({"REP_TDMREP": wanted}, *urls)
    assert [str(statement) for statement in completed.statements] == [
        "header tdm-reservation: 1"
    ]
    assert (completed.tdm_policy, completed.tdmrep_sha256) == (
        (one.tdm_policy, one.tdmrep_sha256) if wanted else (None, None)
    )
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
    hosts.append(
        sites.add(robots="User-agent: *\nDisallow: /.well-known/", pages={PATH: FILE})
    )
    urls = [site.url(path) for site in hosts for path in ("/1", "/2")]
    found = await asked({**ONE_ATTEMPT, "REP_TDMREP": True}, *urls)
    assert [usage["tdm"] for usage in found] == [None] * len(urls)
    assert [site.count(PATH) for site in hosts] == [1] * len(files) + [0]


async def test_a_silent_server_delays_the_first_pages_alone(sites: Sites) -> None:
    site, other = sites.add(pages={PATH: silence()}), sites.add()
    # Without a reactor there is one connection for each, and the silent server has one.
    concurrency = 1 if is_reactor_installed() else 4
    settings = {
        "REP_DOWNLOAD_TIMEOUT": 0.5,
        "CONCURRENT_REQUESTS": concurrency,
        "REP_TDMREP": True,
    }
    found = await asked(settings, site.url("/1"), other.url("/1"), site.url("/2"))
    assert [usage["tdm"] for usage in found] == [None] * 3
    assert site.count(PATH) == 1


async def test_pages_that_wait_leave_slots_to_others_but_are_few(sites: Sites) -> None:
    """Nor must a server that is slow to answer fill the memory with its pages."""
    asked_by_then: list[str] = []

    async def slow(hit: Hit, connection: Connection) -> None:
        for _ in range(50):
            await asyncio.sleep(0.1)
            if len(asked_by_then) > 2:
                break
            asked_by_then[:] = {*site.pages_asked} - {PATH}
        asked_by_then[:] = {*site.pages_asked} - {PATH}
        await as_behaviour(404)(hit, connection)

    site = sites.add(pages={PATH: slow})
    settings = {"REP_TDMREP": True, "CONCURRENT_REQUESTS": 2}
    await asked(settings, *[site.url(f"/{number}") for number in range(20)])
    # Two, and two with slots of their own.
    assert 2 < len(asked_by_then) <= 4


async def test_the_file_is_shared_through_the_storage(
    sites: Sites, tmp_path: Path
) -> None:
    stored = {"REP_TDMREP": True, **in_a_file(tmp_path)}
    site = sites.add(robots="User-agent: *\nDisallow: /x", pages={PATH: FILE})
    found = [(await asked(stored, site.url("/")))[0]["tdm"] for _ in range(2)]
    assert (found, site.count(PATH), site.robots_fetches) == (["n", "n"], 1, 1)
