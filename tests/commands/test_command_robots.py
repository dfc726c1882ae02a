"""`scrapy robots URL…`, mostly in this process. The examples of docs/command.md test more."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.defer import deferred_from_coro

from tests.helpers.behaviours import (
    after,
    answer,
    head,
    in_turn,
    once,
    raw,
    redirect,
    silence,
)
from tests.helpers.process import (
    REACTORS,
    arguments_of,
    command,
    environment,
    on_every_reactor,
)
from tests.helpers.robots_command import (
    FIELDS,
    SHOPBOT,
    CommandProcess,
    Stream,
    assert_wrong_usage,
    files_in,
    make_project,
    robots,
    robots_crawls,
    robots_here,
)
from tests.helpers.rows import every_row
from tests.helpers.scrapy_process import ScrapyProcess
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file

RULES = "User-agent: *\nDisallow: /\n\nUser-agent: ShopBot\n"
RULES += "Disallow: /private/\nAllow: /private\nAllow: /private/*.html$\n"


def pick(lines: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(line[field] for field in fields) for line in lines]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "robots.txt").write_text(RULES)
    return tmp_path


@pytest.mark.process
@pytest.mark.scrapy_api
@on_every_reactor
def test_in_a_project_the_rules_for_its_agent_apply(
    sites: Sites, project: Path, reactor: str
) -> None:
    before = files_in(project)
    site = sites.add(robots=RULES)
    url = site.url("/private/x")
    done = robots(project, url, "--json", settings=REACTORS[reactor])
    assert (done.status, done.err) == (1, "")
    (line,) = done.json
    assert list(line) == FIELDS
    assert line["fetched_at"] < line["fresh_until"]
    # The manual's example has the others.
    expected = {
        "url": url,
        "agent": "ShopBot",
        "allowed": False,
        "line": 5,
        "group": "ShopBot",
    }
    assert {name: line[name] for name in expected} == expected
    assert line["sha256"] == hashlib.sha256(RULES.encode()).hexdigest()
    assert [hit.path for hit in site.requests] == ["/robots.txt"]
    assert files_in(project) == before


@pytest.mark.process
def test_the_projects_settings_apply(sites: Sites, tmp_path: Path) -> None:
    """Not its log on standard output, JOBDIR, scheduler, extensions or spiders; no sitemaps either."""
    settings = {
        "USER_AGENT": "Mozilla/5.0",
        "REP_USER_AGENT": ["ShopBot-Image", "ShopBot"],
        "DOWNLOADER_MIDDLEWARES": {"shop.mark.Mark": 50},
        "JOBDIR": "job",
        "FEEDS": {"items.json": {"format": "json"}},
        "SCHEDULER": "no.such.Scheduler",
        "ITEM_PIPELINES": {"no.such.Pipeline": 1},
        "SPIDER_MIDDLEWARES": {"no.such.Middleware": 1},
        "LOG_STDOUT": True,
        "LOG_LEVEL": "DEBUG",
        "REP_SITEMAPS": True,
        "EXTENSIONS": {
            "no.such.Extension": 1,
            "scrapy.extensions.closespider.CloseSpider": 500,
        },
        "CLOSESPIDER_TIMEOUT": 0.001,
        # As a project has it that obeys robots.txt by Scrapy's own middleware.
        "ROBOTSTXT_OBEY": True,
        "ADDONS": {},
    }
    make_project(tmp_path, [f"{name} = {value!r}" for name, value in settings.items()])
    mark = "class Mark:\n    def process_request(self, request):\n"
    mark += "        request.headers['X-Mark'] = 'here'\n"
    (tmp_path / "shop" / "mark.py").write_text(mark)
    (tmp_path / "shop" / "spiders" / "broken.py").write_text(
        "raise SystemExit('loaded')"
    )
    before = files_in(tmp_path)
    site = sites.add(robots=RULES + "Sitemap: /s.xml\n")
    done = robots(tmp_path, site.url("/private/x"), "--json")
    assert pick(done.json, "agent", "group", "line") == [
        ("ShopBot-Image,ShopBot", "ShopBot", 5)
    ]
    assert done.err == ""
    (hit,) = site.requests
    assert (hit.header("X-Mark"), hit.header("User-Agent")) == ("here", "Mozilla/5.0")
    assert files_in(tmp_path) == before
    # The log is there if it is asked for.
    done = robots(tmp_path, site.url("/"), "--json", "-L", "DEBUG")
    assert len(done.json) == 1
    assert f"Crawled (200) <GET {site.url('/robots.txt')}>" in done.err


async def test_explain_prints_each_step_of_the_decision(
    sites: Sites, tmp_path: Path
) -> None:
    """The answer first, then the steps, in sentences; names for machines with --json only."""
    robots_txt = (
        RULES + "\nUser-agent: shopbot\nDisallow: /private\n\nUser-agent: b\nAllow: /\n"
    )
    site = sites.add(robots=redirect("/r.txt"), pages={"/r.txt": robots_txt})
    asked = (site.url("/private/é%2fx"), "--explain", "--agent", "Shop,ShopBot")
    done = await robots_crawls(tmp_path, *asked)
    answer, source, *told = done.out.splitlines()
    assert (
        answer == f"disallowed  ShopBot, as fallback for Shop must not fetch {asked[0]}"
    )
    where = f"  The robots.txt is {site.url('/robots.txt')}: 1 redirect to {site.url('/r.txt')}, "
    assert source.startswith(f"{where}fetched now, HTTP 200, fresh until ")
    assert told == [
        f"  A crawl requests {site.url('/private/%C3%A9%2fx')}.",
        "  Of the URL, /private/%C3%A9%2Fx is compared.",
        "  No group names Shop, so the groups for ShopBot apply together: lines 4, 9.",
        "  3 rules match. The longest decides:",
        "    line 5: Disallow: /private/ (9 octets, decides)",
        "    line 6: Allow: /private (8 octets, shorter)",
        "    line 10: Disallow: /private (8 octets, shorter)",
        "",
        "# 1 disallowed",
    ]
    (line,) = (
        await robots_crawls(tmp_path, site.url("/private"), "--explain", "--json")
    ).json
    assert list(line) == [*FIELDS, "chain", "steps", "groups", "matched"]
    assert pick(line["matched"], "line", "length") == [(6, 8), (10, 8)]
    assert pick(line["groups"], "applied") == [(False,), (True,), (True,)]
    assert pick(line["steps"], "step") == [("requested",), ("path",), ("compared",)]


async def test_an_agent_that_is_not_asked_about_is_not_warned_of(
    sites: Sites, tmp_path: Path
) -> None:
    site = sites.add(robots=RULES)
    for option in ("--agent=ShopBot", "--agents-of-file"):
        done = await robots_crawls(tmp_path, site.url("/"), option, agent="Mozilla/5.0")
        assert (done.status, done.err) == (int(option != "--agent=ShopBot"), "")


def test_the_pace_that_a_group_asks_for_is_shown(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text(
        "User-agent: *\nCrawl-delay: 5\nCrawl-delay: 90\nAllow: /\nUser-agent: Foo\nAllow: /\n"
        "User-agent: MJ12bot\nRequest-rate: 1/10 0600-0845\nVisit-time: 0600-0845\nDisallow: /x\n"
    )
    asked = ("--file", "r.txt", "/x")
    (line,) = robots_here(tmp_path, *asked, "--json").json
    assert (line["crawl_delay"], line["crawl_delay_line"]) == (90.0, 3)
    assert (
        "asks for"
        not in robots_here(tmp_path, *asked, "--explain", "--agent", "Foo").out
    )
    done = robots_here(tmp_path, *asked, "--agent", "MJ12bot", "--explain")
    assert "  It asks for 10 s between two requests (line 8).\n" in done.out
    assert (
        "  It asks for visits at 0600-0845 (line 9), which is not obeyed.\n" in done.out
    )
    # A group can't name a digit, so each of these is read as "MJ".
    assert done.err.count("The product token MJ12bot has digits.") == 1


async def test_many_urls_of_many_sites_from_standard_input(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order; each robots.txt once, though only some sites are asked ahead of time."""
    monkeypatch.setattr("scrapy_rep.commands.crawl._ORIGINS_AHEAD", 4)
    at_last = once(lambda: few[3].requests, RULES)
    few = [sites.add(robots=robots) for robots in (at_last, *[RULES] * 11)]
    urls = [site.url(path) for path in ("/private/x", "/") for site in few]
    one, two = few[0].url("/1"), few[0].url("/2")
    odd = ["", "  ", "http://a/\udcff", "http://a/" + "x" * 300_000]
    given = "\ufeff" + "\r\n".join([*urls[:5], *odd, *urls[5:]])
    stdin = given.encode("utf-8", "surrogateescape")
    done = await robots_crawls(tmp_path, one, "-", two, "--json", stdin=stdin)
    assert done.errors == [
        r"scrapy robots: not UTF-8: 'http://a/\udcff'",
        f"scrapy robots: longer than 65,536 bytes, so not read: http://a/{'x' * 71}…",
    ]
    assert done.status == 2
    verdicts = [
        (True, None),
        *[(False, 5)] * len(few),
        *[(True, None)] * len(few),
        (True, None),
    ]
    assert pick(done.json, "url", "allowed", "line") == [
        (url, *verdict)
        for url, verdict in zip([one, *urls, two], verdicts, strict=True)
    ]
    assert all(site.count("/robots.txt") == 1 for site in few)


def test_urls_are_judged_by_a_file(file: Path) -> None:
    """A path is enough."""
    asked = ("--file", "robots.txt", "--agent", "ShopBot")
    done = robots_here(file, *asked, "/private/x", "http://a.b/c", "--json")
    assert (done.status, done.err) == (1, "")
    assert pick(done.json, "url", "agent", "line", "file", "origin") == [
        ("/private/x", "ShopBot", 5, "robots.txt", None),
        ("http://a.b/c", "ShopBot", None, "robots.txt", None),
    ]
    given = ("--file", "-", "https://a.b/x", "--agent", "c")
    assert "standard input:2: Disallow: /" in robots_here(file, *given, stdin=RULES).out
    done = robots_here(file, *asked, stdin="/%c3%a9\n/y")
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "allowed",
        "allowed",
        "#",
    ]


ENCODED = "User-agent: *\nDisallow: /%C3%A9\nDisallow: /a%20b\nDisallow: /%2F\nDisallow: /x$\n"
ENCODED += "Disallow: /robots\nDisallow: //d\n"
# What follows the address of a site, or is a path for a file.
PATHS = [
    "",
    "/",
    "/é",
    "/%c3%a9",
    "/a b",
    "/a%20b",
    "/%2f",
    "/x",
    "/x?",
    "/x#y",
    "/x?#",
    "/x;",
    "/robots.txt",
]
PATHS += [
    "/robots.txt?x",
    "//d",
    "/\\d",
    "/d\t/e",
    "/%",
    "/%zz",
    "/%e9",
    "?x",
    "#x",
    "/日本?q=é#é",
    "/\udce9",
]
# What is no such thing.
ODD = [
    "mailto:a@b",
    "s3://a/b",
    "http://a:b/",
    "http://a b/",
    "//a/b",
    "http://",
    "http:///x",
    "ftp:x",
]


async def test_a_file_and_a_site_answer_alike(sites: Sites, tmp_path: Path) -> None:
    """Whatever the URL is: the same verdict, line and path; or the same complaint, and status 2."""
    site = sites.add(robots=ENCODED)
    (tmp_path / "r.txt").write_text(ENCODED)
    agent = ("--agent", "FooBot", "--json")
    with every_row() as row:
        for path in PATHS:
            with row(path):
                url = site.url("") + path
                there = await robots_crawls(tmp_path, url, *agent)
                for given in {url, path} if path.startswith("/") else {url}:
                    here = robots_here(tmp_path, "--file", "r.txt", given, *agent)
                    assert here.status == there.status
                    about = "allowed", "line", "path", "group"
                    assert pick(here.json, *about) == pick(there.json, *about)
        for url in ODD:
            with row(url):
                there = await robots_crawls(tmp_path, url, *agent)
                here = robots_here(tmp_path, "--file", "r.txt", url, *agent)
                if not url.startswith("/"):
                    assert (
                        (here.status, here.err)
                        == (there.status, there.err)
                        == (2, there.err)
                    )
    assert site.count("/robots.txt") > 0


async def test_what_answers_mean(sites: Sites, tmp_path: Path) -> None:
    """Asked once, without waiting for what may be later; nothing else is fetched."""
    encoded, length = [("Content-Encoding", "gzip")], [("Content-Length", "999")]
    undecoded = "its body can't be decoded, which changes nothing"
    rows: list[tuple[Any, str, int | None, str]] = [
        (404, "missing", 404, "no robots.txt (HTTP 404): no restrictions"),
        (503, "unreachable", 503, "robots.txt unreachable (HTTP 503): nothing may be fetched for now"),
        (silence(), "unreachable", None, "Timeout"),
        (answer(RULES, 404, encoded), "missing", 404, f"HTTP 404; {undecoded}"),
        (answer(RULES, 503, encoded), "unreachable", 503, f"HTTP 503; {undecoded}"),
        (answer(RULES, 200, encoded), "unreachable", None, "DataLossError: the body is not gzip"),
        (raw(head(410, length) + b"x"), "missing", 410, "its body ends too early, which changes nothing"),
        (redirect("/robots.txt"), "missing", 301, "HTTP 301 without a usable target; redirects in a loop"),
        (redirect(None, 302), "missing", 302, "HTTP 302 without a usable target; a redirect without"),
        (None, "unreachable", None, "refused"),
    ]  # fmt: skip
    added = [sites.add(robots=robots) for robots, *_ in rows[:-1]]
    urls = [*(site.url("/x") for site in added), f"{sites.refused()}/x"]
    settings = {"REP_DOWNLOAD_TIMEOUT": 0.5}
    done = await robots_crawls(tmp_path, *urls, "--json", settings=settings)
    assert (done.status, done.err) == (3, "")
    with every_row() as row:
        for (_, outcome, status, words), one in zip(rows, done.json, strict=True):
            with row(words):
                assert words in one["reason"]
                about = {
                    "outcome": outcome,
                    "allowed": outcome == "missing",
                    "status": status,
                }
                assert one == {**one, **about, "line": None, "group": None}
    assert [site.count("/robots.txt") for site in added[:2]] == [1, 1]
    assert all(site.pages_asked == [] for site in added)
    # Alone: nothing to hide behind what is disallowed elsewhere.
    assert (await robots_crawls(tmp_path, urls[1])).status == 3
    settings = {"REP_UNREACHABLE": "allow"}
    done = await robots_crawls(tmp_path, urls[1], "--json", settings=settings)
    assert (done.status, done.json[0]["allowed"]) == (3, True)


async def test_a_redirect_that_is_refused_is_named(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = "http://10.0.0.1/robots.php?x=1"
    monkeypatch.setenv("http_proxy", sites.add(robots=redirect(there)).url("/"))
    monkeypatch.setenv("no_proxy", "")
    done = await robots_crawls(tmp_path, "http://shop.example/page")
    assert done.status == 3
    why = f"not following the redirect to {there} (the address is private; see REP_PRIVATE_HOSTS)"
    assert f"RedirectRefused: {why}" in done.out
    assert "usable target" not in done.out


async def test_answers_come_from_the_cache(sites: Sites, tmp_path: Path) -> None:
    """Files, fetches that have just failed, and copies of what is unreachable now."""
    kept = {**in_a_file(tmp_path), "REP_RETRY_DELAY": 600, "REP_CACHE_MIN_TTL": 0}
    stale = answer(RULES, headers=[("Cache-Control", "max-age=0")])
    some = [sites.add(robots=in_turn(one, 503)) for one in (RULES, 503, stale)]
    urls = [site.url("/private/x") for site in some]
    first = (await robots_crawls(tmp_path, *urls, "--json", settings=kept)).json
    done = await robots_crawls(tmp_path, *urls, "--json", settings=kept)
    assert done.status == 3
    assert pick(first, "from_cache", "stale", "status") == [
        (False, False, status) for status in (200, 503, 200)
    ]
    assert pick(done.json, "from_cache", "stale", "status", "line", "error") == [
        (True, False, 200, 5, None),
        (True, False, None, None, "HTTP 503"),
        (False, True, 503, 5, "HTTP 503"),
    ]
    assert done.json[0] == {**first[0], "from_cache": True}
    assert done.json[2]["fetched_at"] == first[2]["fetched_at"]
    done = await robots_crawls(tmp_path, urls[0], urls[2], settings=kept)
    assert done.status == 1
    assert "(from the cache), HTTP 200" in done.out
    assert "tried before: HTTP 503, unreachable, so the copy of 20" in done.out
    assert [site.count("/robots.txt") for site in some] == [1, 1, 2]


class Closing:
    """Closes the spider at the first request."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Closing:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        assert self._crawler.engine is not None
        deferred_from_coro(self._crawler.engine.close_spider_async(reason="no proxies"))


class RefusesAll:
    def process_request(self, request: Request) -> None:
        raise IgnoreRequest("not today")


async def test_what_the_project_itself_prevents_is_named(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/"
    missing = {"DOWNLOADER_MIDDLEWARES": {"no.such.Middleware": 1}}
    done = await robots_crawls(tmp_path, url, settings=missing)
    error = "scrapy robots: ModuleNotFoundError: No module named 'no'"
    assert (done.status, done.errors) == (3, [error])
    refusing = {"DOWNLOADER_MIDDLEWARES": {f"{__name__}.RefusesAll": 50}}
    done = await robots_crawls(tmp_path, url, "--json", settings=refusing)
    assert (done.status, done.err) == (3, "")
    assert pick(done.json, "outcome", "allowed") == [("unreachable", False)]
    assert "not today" in done.json[0]["error"]


async def test_a_middleware_may_close_the_spider(sites: Sites, tmp_path: Path) -> None:
    """As some do when all proxies are dead: nothing more is fetched."""
    silent = sites.add(robots=silence())
    settings = {
        "DOWNLOADER_MIDDLEWARES": {f"{__name__}.Closing": 50},
        "REP_DOWNLOAD_TIMEOUT": 3,
    }
    done = await robots_crawls(tmp_path, silent.url("/"), settings=settings)
    assert (done.status, done.out) == (3, "")
    assert done.errors == ["scrapy robots: stopped before it was done"]


class BrowserSpider(Spider):
    name = "browser"
    user_agent = "Mozilla/5.0"


def test_warnings_come_through(file: Path) -> None:
    settings = {"REP_USER_AGNET": "A", "SPIDER_MODULES": __name__}
    asked = ("--file", "robots.txt", "/", "--spider", "browser")
    done = robots_here(file, *asked, settings=settings)
    assert done.status == 1
    misspelt, tokenless = done.errors
    assert misspelt == (
        "scrapy robots: Unknown settings, which have no effect: REP_USER_AGNET (did you mean "
        "REP_USER_AGENT?)"
    )
    assert tokenless == (
        "scrapy robots: There is no product token in the setting USER_AGENT ('Mozilla/5.0'), so "
        "the rules for all agents (*) apply. Set REP_USER_AGENT to yours."
    )


def test_without_an_agent_a_file_is_asked_for_any_crawler(file: Path) -> None:
    """Whatever project this is; that is said, unless somebody names one."""
    (file / "p.html").write_text("<meta name=robots content=noindex>")
    settings = {"USER_AGENT": SHOPBOT}
    asked = ("--file", "robots.txt", "/private/x")
    done = robots_here(file, *asked, settings=settings)
    said = "# no --agent given, so this is about any crawler that no group names (*)\n"
    assert done.out.startswith("disallowed   *  /private/x  robots.txt:2")
    assert said in done.out
    (line,) = robots_here(file, *asked, "--json", settings=settings).json
    assert (line["agent"], line["group"]) == ("*", "*")
    for option in ("--agent=A", "--agents-of-file", "--agents-known"):
        assert said not in robots_here(file, *asked, option).out
    (line,) = robots_here(
        file, "--page", "--file", "p.html", "--json", settings=settings
    ).json
    assert (line["agent"], line["noindex"]) == ("*", True)


class MilkSpider(Spider):
    name = "milk"
    custom_settings = {"REP_USER_AGENT": "TeaBot", "USER_AGENT": "Sent/1.0"}
    robotstxt_user_agent = ["MilkBot-Image", "MilkBot"]


class CupSpider(Spider):
    name = "cup"
    user_agent = "CupBot/2.0"


SPIDERS = {"SPIDER_MODULES": __name__}
BY_AGENT = "User-agent: MilkBot\nUser-agent: CupBot\nDisallow: /\n"


async def test_a_spider_of_the_project_names_the_agent(
    sites: Sites, tmp_path: Path
) -> None:
    for spider, agent, sent in (
        ("milk", "MilkBot-Image,MilkBot", "Sent/1.0"),
        ("cup", "CupBot", "CupBot/2.0"),
    ):
        site = sites.add(robots=BY_AGENT)
        asked = (site.url("/x"), "--spider", spider, "--json")
        done = await robots_crawls(tmp_path, *asked, settings=SPIDERS, agent="")
        assert pick(done.json, "agent", "allowed", "line") == [(agent, False, 3)]
        assert sent in (site.requests[0].header("User-Agent") or "")
    # What is asked for by name goes before it; a file is asked for it too.
    done = await robots_crawls(tmp_path, *asked, "--agent", "A", settings=SPIDERS)
    assert pick(done.json, "agent", "allowed") == [("A", True)]
    (tmp_path / "r.txt").write_text(BY_AGENT)
    asked = ("--file", "r.txt", "/x", "--spider", "milk", "--json")
    done = robots_here(tmp_path, *asked, settings=SPIDERS)
    assert pick(done.json, "agent", "line") == [("MilkBot-Image,MilkBot", 3)]


async def test_what_the_choices_make_of_urls(sites: Sites, tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("User-agent: *\nDisallow: /mine\n")
    named, locked = sites.add(), sites.add(robots=403)
    walled = sites.add(robots=answer(b"<html><p>wait"))
    overrides = f'{{"{named.host}": "{own}"}}'
    on = {
        "REP_OVERRIDES": overrides,
        "REP_FORBIDDEN": "disallow",
        "REP_CHALLENGE": "hold",
    }
    refused = "HTTP 403, and REP_FORBIDDEN is 'disallow'"
    later = "robots.txt unreachable (HTTP 403, REP_FORBIDDEN is 'hold'): nothing may be fetched for now"
    wall = "a page of HTML without a rule, and REP_CHALLENGE is 'hold'"
    own_file = f"REP_OVERRIDES names {own} instead"
    with every_row() as checking:
        for site, settings, status, because, setting in (
            (named, on, 1, "line 2: Disallow: /mine", own_file),
            (locked, on, 1, f"{refused}: nothing may be fetched", "REP_FORBIDDEN"),
            (locked, {"REP_FORBIDDEN": "hold"}, 3, later, ""),
            (walled, on, 3, wall, ""),
        ):
            with checking(because):
                done = await robots_crawls(
                    tmp_path, site.url("/mine"), "--json", settings=settings
                )
                (line,) = done.json
                assert (done.status, because in line["reason"]) == (status, True)
                assert setting in (line["setting"] or "")
    assert named.requests == []
    done = await robots_crawls(
        tmp_path, named.url("/mine"), named.url("/x"), settings=on
    )
    assert f"{named.url('/robots.txt')}: not fetched, {own_file}" in done.out
    done = await robots_crawls(tmp_path, locked.url("/"), settings=on)
    assert done.out.endswith(
        "HTTP 403, and REP_FORBIDDEN is 'disallow': nothing may be fetched\n# 1 disallowed\n"
    )
    wrong = {"REP_OVERRIDES": '{"a.example": "none.txt"}'}
    done = await robots_crawls(tmp_path, named.url("/"), settings=wrong)
    assert done.status == 2
    assert "REP_OVERRIDES: can't read 'none.txt', for a.example" in done.err


def output_of(line: list[str], folder: Path) -> tuple[str, str]:
    run: Any = {
        "cwd": folder,
        "env": environment(),
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(line, check=True, **run)
    return done.stdout, done.stderr


def test_colours_and_characters_that_the_output_can_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "robots.txt").write_text(
        "User-agent: *\nDisallow: /é\n", encoding="utf-8"
    )
    coloured = "\x1b[31mdisallowed \x1b[0m  A  /%C3%A9  robots.txt:2: Disallow: /\\xe9 (group *)\n"
    coloured += "# 1 disallowed\n"
    plain = re.sub(r"\x1b\[\d+m", "", coloured)
    for terminal, variables, expected in (
        (True, {}, coloured),
        (True, {"NO_COLOR": "1"}, plain),
        (True, {"TERM": "dumb"}, plain),
        (False, {}, plain),
    ):
        for name, value in {"TERM": "xterm", "NO_COLOR": "", **variables}.items():
            monkeypatch.setenv(name, value)
        out = Stream(terminal=terminal, encoding="ascii")
        done = robots_here(
            tmp_path, "--file", "robots.txt", "/%C3%A9", "--agent=A", stdout=out
        )
        assert (done.status, done.err, out.text) == (1, "", expected)


@pytest.mark.process
def test_a_full_disk_and_a_reader_that_has_seen_enough(file: Path) -> None:
    """Not what Python says when it ends: so this starts a process, which most tests don't."""
    line = shlex.join(command("robots", "--file", "robots.txt", "--json"))
    full = f"echo / | {line} >/dev/full; echo $?"
    gone = f"seq -f /%g 9999 | {line} | head -1 >/dev/null; echo ${{PIPESTATUS[1]}}"
    out, err = output_of(["bash", "-c", f"{full}; {gone}"], file)
    assert out.split() == ["2", "0"]
    assert err == "scrapy robots: standard output: No space left on device\n"


# What is opened in place of it is closed when Python ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_without_standard_output_or_input(file: Path) -> None:
    """As after `>&-` and `<&-`."""
    asked = ("--file", "robots.txt")
    done = robots_here(file, *asked, "/private/", stdout=None)
    assert (done.status, done.err) == (1, "")
    assert_wrong_usage(robots_here(file, *asked, no_stdin=True), "error: no URL given")


@pytest.mark.process
@on_every_reactor
def test_ctrl_c_ends_the_command_with_one_line(
    sites: Sites, project: Path, reactor: str
) -> None:
    """While a site says nothing, for longer than this test may take."""
    settings = {
        "REP_DOWNLOAD_TIMEOUT": 600,
        "DOWNLOAD_TIMEOUT": 600,
        **REACTORS[reactor],
    }
    option = "--lint" if reactor == "none" else "--sitemaps"
    listed = "Sitemap: /1\n" if reactor == "asyncio" else silence()
    site = sites.add(robots=listed, pages={"/1": silence()})
    out, err = project / "out", project / "err"
    line = arguments_of("robots", site.url("/x"), option, settings=settings)
    process = ScrapyProcess(
        line, cwd=project, variables=environment(), output=out, errors=err
    )
    while (
        len(site.requests) < (2 if reactor == "asyncio" else 1)
        and process.exitcode is None
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 3
    assert len(out.read_text().splitlines()) == (2 if reactor == "asyncio" else 0)
    assert err.read_text().splitlines() == ["scrapy robots: stopped before it was done"]


def test_ctrl_c_before_anything_has_begun(tmp_path: Path) -> None:
    class Stopped(CommandProcess):
        def crawl(self, *_: Any, **__: Any) -> Any:
            return asyncio.Future(loop=loop)

    with closing(asyncio.new_event_loop()) as loop:
        done = robots_here(tmp_path, "http://a.example/", process=Stopped)
    assert (done.status, done.errors) == (
        3,
        ["scrapy robots: stopped before it was done"],
    )


@pytest.mark.process
def test_other_commands_load_next_to_nothing(project: Path) -> None:
    code = (
        "import atexit, sys, scrapy.cmdline\n"
        "atexit.register(lambda: print(*sorted(m for m in sys.modules if m[:10] == 'scrapy_rep')))\n"
        "scrapy.cmdline.execute(['scrapy', 'version'])"
    )
    out, _ = output_of([command()[0], "-c", code], project)
    assert (
        out.splitlines()[-1]
        == "scrapy_rep scrapy_rep.commands scrapy_rep.commands.robots"
    )


async def test_it_is_said_what_is_waited_for(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.commands.crawl._SILENT_SECONDS", 0.1)
    urls = [sites.add(robots=one).url("/") for one in (after(0.5, RULES), RULES)]
    done = await robots_crawls(tmp_path, *urls)
    assert done.errors == [f"scrapy robots: waiting for {urls[0]}robots.txt"]
