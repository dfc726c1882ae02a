"""Scrapy's own commands with the add-on. Those that somebody waits for hold nothing: an unreachable
robots.txt is asked for once, and a message says what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, in_turn, silence
from tests.helpers.process import REACTORS, arguments_of, environment, on_every_reactor
from tests.helpers.recorded import decisions
from tests.helpers.robots_command import make_project
from tests.helpers.scrapy_process import Done, run_scrapy
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset

pytestmark = pytest.mark.process
SPIDER = """
import scrapy

class ShopSpider(scrapy.Spider):
    name = "shop"
    robotstxt_user_agent = "TeaBot"
    rep_sitemaps = {sitemaps}
    start_urls = {urls}

    def parse(self, response):
        '''What `scrapy check` checks.

        @url {urls[0]}
        @returns items 1
        @scrapes text
        '''
        yield {{"text": response.text}}
"""

TEA = "User-agent: TeaBot\nDisallow: /private\n\nUser-agent: *\nDisallow: /\n"
QUIET: dict[str, Any] = {
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}
COMMANDS = {
    "fetch": ["fetch", "{url}", "--spider", "shop"],
    "view": ["view", "{url}", "--spider", "shop"],
    "parse": ["parse", "{url}", "--spider", "shop", "--nocolour"],
    "shell": ["shell", "{url}", "--spider", "shop", "-c", "response and response.text"],
    "check": ["check", "shop"],
    "runspider": ["runspider", "shop/spiders/tea.py", "-O", "-:json"],
    "crawl": ["crawl", "shop"],
    "bench": ["bench"],
}
FAIL = ("shell", "check")
"""As for a page that can't be downloaded: the shell passes the exception on, a check fails."""

WAITED_FOR = ("fetch", "view", "parse", "shell", "check")


def run(
    folder: Path, name: str, *urls: str, sitemaps: bool = True, **settings: Any
) -> Done:
    if not (folder / "scrapy.cfg").exists():
        make_project(folder)
        spider = SPIDER.format(urls=urls, sitemaps=sitemaps)
        (folder / "shop" / "spiders" / "tea.py").write_text(spider)
        (folder / "browser").write_text('#!/bin/sh\nmv "${1#file://}" opened.html\n')
        (folder / "browser").chmod(0o755)
    parts = [part.format(url=urls[0]) for part in COMMANDS[name]]
    line = arguments_of(*parts, settings={**QUIET, **settings})
    done = run_scrapy(
        line, cwd=folder, variables=environment(BROWSER=f"{folder / 'browser'} %s")
    )
    assert "Traceback" not in done.err or name in FAIL, done.err
    return done


@pytest.mark.scrapy_api
@pytest.mark.parametrize("name", [*WAITED_FOR, "runspider"])
def test_each_command_works_with_the_add_on(
    sites: Sites, tmp_path: Path, name: str
) -> None:
    """By the rules for the spider's own agent; only crawls go by sitemaps."""
    site = sites.add(pages={"/tea": "<title>Tea</title>"})
    site.set("/robots.txt", f"{TEA}Sitemap: {site.url('/map.xml')}\n")
    site.set("/map.xml", urlset([site.url("/listed")]))
    # Its middleware drops pages of other hosts than the spider's.
    done = run(tmp_path, name, site.url("/tea"), SPIDER_MIDDLEWARES={})
    assert done.status == 0, done.err
    assert "Traceback" not in done.err, done.err
    opened = tmp_path / "opened.html"
    shown = {"check": done.err, "view": opened.read_text() if name == "view" else ""}
    assert ("OK" if name == "check" else "Tea") in shown.get(name, done.out)
    # Not just once: the shell of Scrapy 2.15 crawls the spider's start URLs besides.
    more = {"/map.xml", "/listed"} if name == "runspider" else set()
    assert {hit.path for hit in site.requests} == {"/robots.txt", "/tea"} | more


@pytest.mark.scrapy_api
def test_the_shell_goes_on_after_a_forbidden_page(sites: Sites, tmp_path: Path) -> None:
    """It schedules a request first, and sets the errback that it waits for afterwards."""
    site = sites.add(robots=RULES)
    code = f"fetch({site.url('/private')!r}), fetch({site.url('/y')!r}), response.url"
    line = arguments_of("shell", site.url("/x"), "-c", code, settings=QUIET)
    make_project(tmp_path)
    done = run_scrapy(line, cwd=tmp_path, variables=environment())
    assert site.url("/y") in done.out, done.err
    assert site.pages_asked == ["/x", "/y"]


@pytest.mark.scrapy_api
@pytest.mark.parametrize("name", WAITED_FOR)
def test_an_unreachable_robots_txt_is_asked_for_once_and_nothing_is_held(
    sites: Sites, tmp_path: Path, name: str
) -> None:
    site = sites.add(robots=503)
    done = run(tmp_path, name, site.url("/tea"))
    assert [hit.path for hit in site.requests] == ["/robots.txt"]
    assert done.status == (name in FAIL)
    if name == "check":
        assert "RobotsUnreachable: robots.txt unreachable: HTTP 503\n" in done.err
        return
    error, *_ = [
        line for line in done.errors if "[scrapy_rep" in line and " ERROR: " in line
    ]
    assert error.endswith(
        f"ERROR: Not fetching {site.url('/tea')}: robots.txt unreachable: HTTP 503. This "
        "command tries robots.txt only once; to fetch the page anyway, add "
        "-s REP_UNREACHABLE=allow"
    )
    assert "held" not in done.err
    assert "next attempt" not in done.err
    if name == "shell":
        assert done.errors[-1].endswith("NotFetched: robots.txt unreachable: HTTP 503")


@on_every_reactor
def test_with_a_wrong_setting_the_shell_fails(
    sites: Sites, tmp_path: Path, reactor: str
) -> None:
    site = sites.add()
    done = run(
        tmp_path, "shell", site.url("/tea"), REP_UNREACHABLE="no", **REACTORS[reactor]
    )
    assert (done.status, site.requests) == (1, [])
    assert done.errors[-1].startswith(
        "ValueError: REP_UNREACHABLE is 'no', but must be one of "
    )


# How they wait depends on the reactor.
@on_every_reactor
@pytest.mark.parametrize("name", ["fetch", "shell"])
def test_what_takes_long_is_waited_for_in_place(
    sites: Sites, tmp_path: Path, reactor: str, name: str
) -> None:
    site = sites.add(robots=silence())
    settings = {
        "REP_DOWNLOAD_TIMEOUT": 0.3,
        "_REP_HOLD_GRACE": 0.1,
        **REACTORS[reactor],
    }
    done = run(tmp_path, name, site.url("/tea"), **settings)
    assert done.status == (name in FAIL)
    assert f"Not fetching {site.url('/tea')}: robots.txt unreachable: " in done.err
    assert "held" not in done.err
    assert [hit.path for hit in site.requests] == ["/robots.txt"]


def test_what_is_forbidden_and_what_the_user_wants_of_an_unreachable_site(
    sites: Sites, tmp_path: Path
) -> None:
    site = sites.add(robots="User-agent: TeaBot\nDisallow: /tea", pages={"/tea": "Tea"})
    done = run(tmp_path, "fetch", site.url("/tea"), LOG_LEVEL="DEBUG")
    assert "(line 2: Disallow: /tea, group TeaBot)" in done.err
    assert site.count("/tea") == 0
    site.set("/robots.txt", 503)
    done = run(tmp_path, "fetch", site.url("/tea"), REP_UNREACHABLE="allow")
    assert (done.status, done.out.strip()) == (0, "Tea")


@pytest.mark.slow
def test_bench_works_with_the_add_on(tmp_path: Path) -> None:
    done = run(tmp_path, "bench", "data:,", CLOSESPIDER_PAGECOUNT=50)
    assert done.status == 0, done.err
    assert "'finish_reason': 'closespider_pagecount'" in done.err
    assert "'rep/outcome/" in done.err


def crawl(folder: Path, urls: list[str], **settings: Any) -> str:
    settings = {"REP_RETRY_DELAY": 0.1, "REP_RETRY_MAX_DELAY": 0.2, **settings}
    done = run(folder, "crawl", *urls, sitemaps=False, **settings)
    assert done.status == 0, done.err
    assert " ERROR: " not in done.err, done.err
    return done.err


@pytest.mark.scrapy_api
@on_every_reactor
def test_a_crawl_with_everything_on_logs_and_records_every_verdict(
    sites: Sites, tmp_path: Path, reactor: str
) -> None:
    site, away = sites.add(robots=RULES), sites.add(robots=in_turn(503, 503, RULES))
    urls = [
        site.url("/private/1"),
        site.url("/page"),
        away.url("/page"),
        away.url("/private"),
    ]
    everything = {"REP_DECISIONS": "%(name)s.jsonl", "REP_REPORT": "robots.html"}
    # The first site may be slow: only the second is unreachable.
    log = crawl(tmp_path, urls, _REP_HOLD_GRACE=30, **everything, **REACTORS[reactor])
    assert log.count("] DEBUG: Scraped from ") == 2
    assert "\nRequests: 2 allowed, 2 forbidden, 2 held, 2 released\n" in log
    records = decisions(tmp_path / "shop.jsonl")
    assert sorted(one["verdict"] for one in records) == [
        "disallowed", "disallowed", "held", "held", "released", "released"
    ]  # fmt: skip
    assert {one["agent"] for one in records} == {"TeaBot"}
    page = (tmp_path / "robots.html").read_text("utf-8")
    assert "robots.txt in the crawl of <bdi>shop</bdi>" in page
    assert site.count("/private/1") == away.count("/private") == 0


def test_a_crawl_that_found_nothing_says_why(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /\n")
    log = crawl(tmp_path, [site.url("/1"), site.url("/2")])
    assert (
        "WARNING: robots.txt refused every start request (2). If the crawl found nothing"
        in log
    )
    assert "(line 2: Disallow: /, group *). For details: scrapy robots" in log
    # Nobody has to set anything, and nothing is left behind.
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "browser",
        "scrapy.cfg",
        "shop",
    ]
