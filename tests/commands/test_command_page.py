"""`scrapy robots --page`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.behaviours import redirect
from tests.helpers.pagesite import page
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.servers import Site, Sites

HTML = '<title>Tea</title>\n<meta name="ShopBot" content="noindex, max-snippet:20">\n'


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(
        robots="User-agent: *\nDisallow: /private\nUser-agent: OtherBot\nDisallow: /",
        pages={
            "/tea": page(HTML, "otherbot: none", "noarchive, unavailable_after: 2001-02-03"),
            "/moved": redirect("/tea"),
            "/away": redirect("/private"),
            "/round": redirect("/round"),
            "/plain": page("<p>", "all"),
            "/gone": 410,
        },
    )


async def test_a_page_is_fetched_and_read(tmp_path: Path, site: Site) -> None:
    done = await robots_crawls(tmp_path, "--page", site.url("/moved"))
    date = "2001-02-03T00:00:00"
    assert done.out == (
        f"{site.url('/moved')}\n"
        "  agent                  ShopBot\n"
        "  answer                 HTTP 200\n"
        f"  redirects to           {site.url('/tea')}\n"
        "  X-Robots-Tag 2         noarchive\n"
        f"  X-Robots-Tag 2         unavailable_after: {date}+00:00\n"
        "  meta shopbot (line 2)  noindex\n"
        "  meta shopbot (line 2)  max-snippet: 20\n"
        "  overall                noindex, noarchive, max_snippet: 20, "
        f"unavailable_after: {date}Z, expired\n"
    )
    assert (done.status, done.err) == (1, "")
    assert site.pages_asked == ["/moved", "/tea"]


async def test_each_agent_is_told_what_is_for_it(tmp_path: Path, site: Site) -> None:
    agents = ["--agent", "ShopBot", "--agent", "OtherBot", "--agent", "FooBot,BarBot"]
    done = await robots_crawls(tmp_path, "--page", "--json", site.url("/tea"), *agents)
    shop, other, foo = map(json.loads, done.out.splitlines())
    assert [one["agent"] for one in (shop, other, foo)] == ["ShopBot", "OtherBot", "FooBot,BarBot"]
    assert (shop["noindex"], other["noindex"], foo["noindex"]) == (True, False, False)
    assert shop["rules"] == [
        {"rule": "noarchive", "value": None, "source": "X-Robots-Tag 2", "line": None},
        {
            "rule": "unavailable_after",
            "value": "2001-02-03T00:00:00Z",
            "source": "X-Robots-Tag 2",
            "line": None,
        },
        {"rule": "noindex", "value": None, "source": "meta shopbot", "line": 2},
        {"rule": "max-snippet", "value": 20, "source": "meta shopbot", "line": 2},
    ]
    assert shop["status"] == foo["status"] == 200
    assert foo["expired"] is True
    assert other["status"] is None
    assert "line 4: Disallow: /" in other["error"]
    assert site.pages_asked == ["/tea"]
    assert done.status == 1


async def test_pages_that_can_not_be_had(tmp_path: Path, site: Site, sites: Sites) -> None:
    busy = sites.add(robots=503)
    paths = ["/private/x", "/away", "/round", "/gone", "/plain"]
    done = await robots_crawls(tmp_path, "--page", "--json", *map(site.url, paths), busy.url("/"))
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [one["status"] for one in told] == [None, None, None, 410, 200, None]
    for one, words in zip(
        told, ["Disallow: /private", "Disallow: /private", "redirects"], strict=False
    ):
        assert words in one["error"]
    assert "503" in told[-1]["error"]
    assert done.status == 3
    assert not site.hits("/private/x")
    assert not busy.hits("/")
    assert (await robots_crawls(tmp_path, "--page", site.url("/plain"))).status == 0


def test_a_file_is_read_without_a_crawl(tmp_path: Path) -> None:
    headers = ["--header", "X-Robots-Tag: nofollow", "--header", "x-robots-tag: otherbot: noai"]
    asked = ("--page", "--file", "-", "--agent", "ShopBot", "--agent", "*")
    done = robots_here(tmp_path, *asked, *headers, stdin=HTML)
    overall = [line for line in done.out.splitlines() if line.startswith("  overall")]
    assert [line.split(maxsplit=1)[1] for line in overall] == [
        "noindex, nofollow, max_snippet: 20",
        "nofollow",
    ]
    assert (done.status, done.err) == (1, "")
    done = robots_here(tmp_path, "--page", "--file", "-", stdin="<p>")
    assert "no restrictions" in done.out
    assert done.status == 0
    expired = ("--header", "X-Robots-Tag: unavailable_after: 2001-02-03")
    assert robots_here(tmp_path, "--page", "--file", "-", *expired, stdin="<p>").status == 1
