"""`scrapy robots --page` and `--usage`. Examples of docs/command.md and usage.md test more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scrapy_rep.commands import pages
from tests.helpers.behaviours import answer, page, redirect
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.servers import Site, Sites

HTML = '<title>Tea</title>\n<meta name="ShopBot" content="noindex, max-snippet:20">\n'
ROBOTS = "License: https://example.com/license.xml\nUser-agent: *\nDisallow: /private\n"
ROBOTS += "Content-Signal: search=yes, ai-train=no\nContent-Usage: search=y\n"
ROBOTS += "User-agent: OtherBot\nDisallow: /tea\n"
TDMREP = (
    '[{"location": "/", "tdm-reservation": 1, "tdm-policy": "https://a.example/p"}]'
)


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(
        robots=ROBOTS,
        pages={
            "/tea": page(
                HTML, "otherbot: none", "noarchive, unavailable_after: 2001-02-03"
            ),
            "/moved": redirect("/tea"),
            "/away": redirect("/private"),
            "/round": redirect("/round"),
            "/plain": page("<p>", "all"),
            "/gone": 410,
            "/noai": answer('<meta name="robots" content="noai">', type="text/html"),
            "/noai-moved": redirect("/noai"),
            "/.well-known/tdmrep.json": TDMREP,
        },
    )


async def test_a_page_is_fetched_and_read(tmp_path: Path, site: Site) -> None:
    done = await robots_crawls(tmp_path, "--page", site.url("/moved"))
    date = "2001-02-03T00:00:00"
    told = dict(re.findall(r"^  (\S+) +(.+)$", done.out, re.MULTILINE))
    assert done.out.startswith(f"{site.url('/moved')}\n")
    assert told == {
        "agent": "ShopBot",
        "agent_in_words": "ShopBot",
        "status": "200",
        "final_url": site.url("/tea"),
        "rules": "meta shopbot (line 2): max-snippet: 20",
        "noindex": "yes",
        "noarchive": "yes",
        "max_snippet": "20",
        "unavailable_after": f"{date}Z",
        "expired": "yes",
    }
    assert re.findall(r"^  rules +(.+)$", done.out, re.MULTILINE) == [
        "X-Robots-Tag 2: noarchive",
        f"X-Robots-Tag 2: unavailable_after: {date}+00:00",
        "meta shopbot (line 2): noindex",
        "meta shopbot (line 2): max-snippet: 20",
    ]
    assert (done.status, done.err) == (1, "")
    assert site.pages_asked == ["/moved", "/tea"]


async def test_each_agent_is_told_what_is_for_it(tmp_path: Path, site: Site) -> None:
    agents = ["--agent", "ShopBot", "--agent", "OtherBot", "--agent", "FooBot,BarBot"]
    done = await robots_crawls(tmp_path, "--page", "--json", site.url("/tea"), *agents)
    shop, other, foo = done.json
    assert [one["agent"] for one in (shop, other, foo)] == [
        "ShopBot",
        "OtherBot",
        "FooBot,BarBot",
    ]
    assert (shop["noindex"], other["noindex"], foo["noindex"]) == (True, False, False)
    assert [tuple(rule.values()) for rule in shop["rules"]] == [
        ("noarchive", None, "X-Robots-Tag 2", None),
        ("unavailable_after", "2001-02-03T00:00:00Z", "X-Robots-Tag 2", None),
        ("noindex", None, "meta shopbot", 2),
        ("max-snippet", 20, "meta shopbot", 2),
    ]
    assert (shop["status"], foo["status"], other["status"]) == (200, 200, None)
    assert foo["expired"] is True
    assert "line 7: Disallow: /tea" in other["error"]
    assert site.pages_asked == ["/tea"]
    assert done.status == 1


async def test_pages_that_can_not_be_had(
    tmp_path: Path, site: Site, sites: Sites
) -> None:
    busy = sites.add(robots=503)
    urls = [
        *map(site.url, ("/private/x", "/away", "/round", "/gone", "/plain")),
        busy.url("/"),
    ]
    done = await robots_crawls(tmp_path, "--page", "--json", *urls)
    assert [one["status"] for one in done.json] == [None, None, None, 410, 200, None]
    words = [
        "Disallow: /private",
        "Disallow: /private",
        "redirects",
        "None",
        "None",
        "503",
    ]
    assert all(
        word in str(one["error"]) for word, one in zip(words, done.json, strict=True)
    )
    assert done.status == 3
    assert site.count("/private/x") == busy.count("/") == 0
    done = await robots_crawls(tmp_path, "--page", urls[0])
    assert done.status == 1
    assert re.search("\n  error +forbidden by line 3: Disallow: /private\n", done.out)
    assert "rules" not in done.out, "they aren't known"
    assert (await robots_crawls(tmp_path, "--page", site.url("/plain"))).status == 0


def test_a_file_is_read_without_a_crawl(tmp_path: Path) -> None:
    headers = [
        "--header",
        "X-Robots-Tag: nofollow",
        "--header",
        "x-robots-tag: otherbot: noai",
    ]
    asked = ("--page", "--file", "-", "--agent", "ShopBot", "--agent", "*")
    done = robots_here(tmp_path, *asked, *headers, stdin=HTML)
    overall = re.findall(r"^  (no\w+|max\w+) +(.+)$", done.out, re.MULTILINE)
    yes = ("nofollow", "yes")
    assert overall == [("noindex", "yes"), yes, ("max_snippet", "20"), yes]
    assert (done.status, done.err) == (1, "")
    done = robots_here(tmp_path, "--page", "--file", "-", stdin="<p>")
    assert re.search("\n  rules +none\n", done.out)
    assert done.status == 0
    expired = ("--header", "X-Robots-Tag: unavailable_after: 2001-02-03")
    assert (
        robots_here(tmp_path, "--page", "--file", "-", *expired, stdin="<p>").status
        == 1
    )


async def test_each_purpose_is_told_with_its_reason(tmp_path: Path, site: Site) -> None:
    done = await robots_crawls(tmp_path, "--usage", site.url("/noai-moved"))
    signal = "robots.txt, line 4: Content-Signal: search=yes, ai-train=no"
    told = re.findall(r"^  (\S+) +(.+)$", done.out, re.MULTILINE)
    license = "https://example.com/license.xml"
    assert [
        one for one in told[1:] if "sha256" not in one[0] and "20" not in one[1][:2]
    ] == [
        ("agent_in_words", "ShopBot"),
        ("final_url", site.url("/noai")),
        ("train-ai", "no"),
        ("train-ai-images", "no"),
        ("ai-input", "not said"),
        ("search", "yes"),
        ("tdm", "not said"),
        ("statements", "robots.txt, line 5: Content-Usage: search=y"),
        ("statements", signal),
        ("statements", "meta robots, line 1: noai"),
        ("licenses", license),
    ]
    assert (done.status, done.err) == (1, "")
    assert site.count("/.well-known/tdmrep.json") == 0


async def test_json_is_that_of_the_record(tmp_path: Path, site: Site) -> None:
    agents = ["--agent", "ShopBot", "--agent", "OtherBot"]
    asked = ("--usage", "--json", site.url("/noai"), site.url("/private"), *agents)
    done = await robots_crawls(tmp_path, *asked, settings={"REP_TDMREP": True})
    shop, other, private, _ = done.json
    says = {
        "train-ai": "n",
        "search": "y",
        "tdm": "n",
        "tdm_policy": "https://a.example/p",
    }
    about = {"status": 200, "error": None, "agent": "ShopBot"}
    assert shop == {**shop, **says, **about}
    # Its group says nothing.
    assert [one["source"] for one in other["statements"]] == [
        "meta robots",
        "tdmrep.json",
    ]
    assert (private["status"], private["train-ai"]) == (None, "n")
    assert "line 3: Disallow: /private" in private["error"]
    assert done.status == 1
    assert site.count("/.well-known/tdmrep.json") == site.count("/noai") == 1


def test_the_extra_is_named_where_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    done = robots_here(tmp_path, "--usage", "http://a.example/")
    assert (done.status, done.out) == (2, "")
    assert done.errors == [
        "scrapy robots: --usage needs http-sf: pip install 'scrapy-rep[usage]'"
    ]
