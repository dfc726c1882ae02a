"""`scrapy robots URL…` in a real project, and outside of any."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import scrapy_rep
from tests.helpers.behaviours import answer, head, in_turn, raw, redirect, silence
from tests.helpers.process import (
    PATIENCE,
    REACTORS,
    arguments_of,
    command,
    environment,
    on_every_reactor,
)
from tests.helpers.process.forked import ScrapyProcess
from tests.helpers.robots_command import (
    FIELDS,
    NOT_FOUND_FAST,
    assert_wrong_usage,
    ends,
    files_in,
    make_project,
    project,
    robots,
)
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.process

__all__ = ["project"]

RULES = """\
User-agent: *
Disallow: /

User-agent: ShopBot
Disallow: /private/
Allow: /private
Allow: /private/*.html$
"""


def pick(lines: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(line[field] for field in fields) for line in lines]


@on_every_reactor
def test_in_a_project_the_rules_for_its_agent_apply(
    sites: Sites, project: Path, reactor: str
) -> None:
    """By the rules for the project's own agent; everything else stays as it was."""
    before = files_in(project)
    site = sites.add(robots=RULES)
    url = site.url("/private/x")
    done = robots(project, url, "--json", settings=REACTORS[reactor])
    assert (done.status, done.err) == (1, "")
    (line,) = done.json
    assert list(line) == FIELDS
    assert line["url"] == url
    assert line["agent"] == "ShopBot"
    assert line["allowed"] is False
    assert (line["line"], line["rule"], line["group"]) == (5, "Disallow: /private/", "ShopBot")
    assert (line["status"], line["hops"], line["outcome"]) == (200, 0, "rules")
    assert line["robots_url"] == line["final_url"] == site.url("/robots.txt")
    assert line["origin"] == site.url("")
    assert line["sha256"] == hashlib.sha256(RULES.encode()).hexdigest()
    assert line["from_cache"] is line["stale"] is False
    assert line["fetched_at"] < line["fresh_until"]
    assert [hit.path for hit in site.requests] == ["/robots.txt"]
    assert files_in(project) == before


def test_outside_a_project_the_agent_is_an_option(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    done = robots(tmp_path, site.url("/private/x.html"), site.url("/"), "--agent", "shopbot")
    assert (done.status, done.err) == (0, "")
    assert done.out.partition(", fresh")[0].splitlines() == [
        f"allowed      {site.url('/private/x.html')}  line 7: Allow: /private/*.html$ (group shopbot)",
        f"allowed      {site.url('/')}  no rule matches in the group for shopbot",
        f"# {site.url('/robots.txt')}: fetched now, HTTP 200",
    ]
    assert done.out.endswith("\n# shopbot: 2 allowed\n")
    assert site.count("/robots.txt") == 1


def test_one_url_is_explained_at_length(sites: Sites, project: Path) -> None:
    site = sites.add(robots=redirect("/elsewhere.txt"), pages={"/elsewhere.txt": RULES})
    done = robots(project, site.url("/private/x"), "--explain")
    assert done.status == 1
    assert done.out.partition(", now")[0].splitlines()[:5] == [
        f"disallowed  {site.url('/private/x')}",
        "  agent              ShopBot",
        "  because            line 5: Disallow: /private/",
        "  group              ShopBot (line 4)",
        f"  robots.txt         {site.url('/robots.txt')}, 1 redirect to {site.url('/elsewhere.txt')}",
    ]
    assert "  rule               line 6: Allow: /private (8 octets; lost: shorter)\n" in done.out


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("False", "90 s (line 3), ignored: REP_CRAWL_DELAY is off"),
        ("True", "90 s (line 3), more than REP_CRAWL_DELAY allows: 60 s"),
        ("100", "90 s (line 3)"),
    ],
)
def test_the_crawl_delay_of_the_group_is_shown(
    sites: Sites, project: Path, setting: str, told: str
) -> None:
    delays = "User-agent: *\nCrawl-delay: 5\nCrawl-delay: 90\nAllow: /\n"
    site = sites.add(robots=delays + "User-agent: Foo\nAllow: /\n")
    settings = ["-s", f"REP_CRAWL_DELAY={setting}"]
    done = robots(project, site.url("/"), "--explain", *settings)
    assert f"  crawl-delay    {told}\n" in done.out
    done = robots(project, site.url("/"), "--json", *settings)
    assert (done.json[0]["crawl_delay"], done.json[0]["crawl_delay_line"]) == (90.0, 3)
    done = robots(project, site.url("/"), "--explain", "--agent", "Foo")
    assert "crawl-delay" not in done.out


def test_the_projects_settings_apply(sites: Sites, tmp_path: Path) -> None:
    """Its downloader middlewares, its headers, its agent. Not its log on standard output, not
    its JOBDIR, not its scheduler, not its spiders, and no sitemaps are requested."""
    make_project(
        tmp_path,
        [
            'USER_AGENT = "Mozilla/5.0"',
            'REP_USER_AGENT = ["ShopBot-Image", "ShopBot"]',
            'DOWNLOADER_MIDDLEWARES = {"shop.mark.Mark": 50}',
            'JOBDIR = "job"',
            'FEEDS = {"items.json": {"format": "json"}}',
            'SCHEDULER = "no.such.Scheduler"',
            'ITEM_PIPELINES = {"no.such.Pipeline": 1}',
            'SPIDER_MIDDLEWARES = {"no.such.Middleware": 1}',
            "LOG_STDOUT = True",
            "LOG_LEVEL = 'DEBUG'",
            "REP_SITEMAPS = True",
            "CLOSESPIDER_TIMEOUT = 1",
            # As a project has it that obeys robots.txt by Scrapy's own middleware.
            "ROBOTSTXT_OBEY = True",
            "ADDONS = {}",
        ],
    )
    (tmp_path / "shop" / "mark.py").write_text(
        "class Mark:\n"
        "    def process_request(self, request):\n"
        "        request.headers['X-Mark'] = 'here'\n"
    )
    (tmp_path / "shop" / "spiders" / "broken.py").write_text("raise SystemExit('loaded')")
    before = files_in(tmp_path)
    site = sites.add(robots=RULES + "Sitemap: /s.xml\n")
    done = robots(tmp_path, site.url("/private/x"), "--json")
    assert pick(done.json, "agent", "group", "line") == [("ShopBot-Image,ShopBot", "ShopBot", 5)]
    assert done.err == ""
    (hit,) = site.requests
    assert hit.header("X-Mark") == "here"
    assert hit.header("User-Agent") == "Mozilla/5.0"
    assert files_in(tmp_path) == before


def test_the_log_is_there_if_asked_for(sites: Sites, project: Path) -> None:
    site = sites.add(robots=RULES)
    for arguments in (("-L", "DEBUG"), ("-s", "LOG_LEVEL=DEBUG")):
        done = robots(project, site.url("/"), "--json", *arguments)
        assert len(done.json) == 1
        assert f"Crawled (200) <GET {site.url('/robots.txt')}>" in done.err


def test_many_urls_of_many_sites_from_standard_input(sites: Sites, project: Path) -> None:
    """In their order; each robots.txt once, also where there are more sites than are asked ahead
    of time."""
    few = [sites.add(robots=RULES) for _ in range(300)]
    urls = [site.url(path) for path in ("/private/x", "/") for site in few]
    given = "\ufeff" + "\r\n".join([*urls[:5], "", "  ", *urls[5:]])
    done = robots(project, "--json", stdin=given)
    assert (done.status, done.err) == (1, "")
    assert pick(done.json, "url", "allowed", "line") == [
        (url, allowed, line)
        for url, (allowed, line) in zip(
            urls, [(False, 5)] * len(few) + [(True, None)] * len(few), strict=True
        )
    ]
    assert all(site.count("/robots.txt") == 1 for site in few)


def test_standard_input_beside_arguments(sites: Sites, project: Path) -> None:
    site = sites.add(robots=RULES)
    one, two, three = (site.url(f"/{number}") for number in (1, 2, 3))
    done = robots(project, one, "-", three, "--json", stdin=two)
    assert [line["url"] for line in done.json] == [one, two, three]


def test_several_agents_have_a_line_each(sites: Sites, project: Path) -> None:
    site = sites.add(robots=RULES)
    urls = [site.url("/private/x"), site.url("/y")]
    agents = ["--agent", "ShopBot", "--agent", "Other", "--agent", "*"]
    done = robots(project, *urls, *agents)
    assert done.status == 1
    lines = done.out.splitlines()
    assert lines[:4] == [
        f"disallowed   ShopBot  {urls[0]}  line 5: Disallow: /private/ (group ShopBot)",
        f"disallowed   Other    {urls[0]}  line 2: Disallow: / (group *)",
        f"disallowed   *        {urls[0]}  line 2: Disallow: / (group *)",
        f"allowed      ShopBot  {urls[1]}  no rule matches in the group for ShopBot",
    ]
    assert lines[-3:] == [
        "# ShopBot: 1 allowed, 1 disallowed",
        "# Other: 2 disallowed",
        "# *: 2 disallowed",
    ]
    done = robots(project, *urls, *agents, "--json")
    assert pick(done.json, "url", "agent", "line")[3:] == [
        (urls[1], "ShopBot", None),
        (urls[1], "Other", 2),
        (urls[1], "*", 2),
    ]


def test_explain_prints_each_step_of_the_decision(sites: Sites, project: Path) -> None:
    robots_txt = RULES + "\nUser-agent: shopbot\nDisallow: /private\n\nUser-agent: b\nAllow: /\n"
    site = sites.add(robots=robots_txt)
    done = robots(project, site.url("/private/é%2fx"), "--explain", "--agent", "Shop,ShopBot")
    assert "  agent              ShopBot, as fallback for Shop\n" in done.out
    text = done.out.partition("compared")[2]
    assert "  a crawl requests   http" in done.out
    assert text.split("\n", 1)[1] == (
        "  group passed over  line 1: * (1 rule)\n"
        "  group applied      line 4: ShopBot (3 rules)\n"
        "  group applied      line 9: shopbot (1 rule)\n"
        "  other groups       1, for other agents\n"
        "  rule               line 5: Disallow: /private/ "
        "(9 octets; decides: the longest match)\n"
        "  rule               line 6: Allow: /private (8 octets; lost: shorter)\n"
        "  rule               line 10: Disallow: /private (8 octets; lost: shorter)\n"
    )
    done = robots(project, site.url("/private"), "--explain", "--json")
    (line,) = done.json
    assert list(line) == [*FIELDS, "chain", "steps", "groups", "matched"]
    assert pick(line["matched"], "line", "length", "why") == [
        (6, 8, "decides: of the longest matches, Allow wins"),
        (10, 8, "lost: same length, and Allow wins"),
    ]
    assert pick(line["groups"], "agents", "applied") == [
        (["*"], False),
        (["ShopBot"], True),
        (["shopbot"], True),
    ]


def test_no_file_and_no_answer(sites: Sites, project: Path) -> None:
    """Asked once, without waiting for what may be later; nothing else is fetched."""
    gone, down, silent = sites.add(robots=404), sites.add(robots=503), sites.add(robots=silence())
    refused = sites.refused()
    urls = [gone.url("/x"), down.url("/x"), silent.url("/x"), f"{refused}/x"]
    done = robots(project, *urls, "--json", settings={"REP_DOWNLOAD_TIMEOUT": 3})
    assert (done.status, done.err) == (3, "")
    assert pick(done.json, "outcome", "allowed", "status", "line", "group") == [
        ("missing", True, 404, None, None),
        ("unreachable", False, 503, None, None),
        ("unreachable", False, None, None, None),
        ("unreachable", False, None, None, None),
    ]
    assert pick(done.json[1:], "error")[0] == ("HTTP 503",)
    assert "Timeout" in done.json[2]["error"]
    assert "refused" in done.json[3]["reason"]
    assert (gone.count("/robots.txt"), down.count("/robots.txt")) == (1, 1)
    # Alone: nothing to hide behind what is disallowed elsewhere.
    done = robots(project, down.url("/x"))
    assert done.status == 3
    why = "robots.txt unreachable (HTTP 503): nothing may be fetched for now"
    assert done.out.startswith(f"unreachable  {down.url('/x')}  {why}\n")
    done = robots(project, down.url("/x"), "--json", settings={"REP_UNREACHABLE": "allow"})
    assert (done.status, done.json[0]["allowed"]) == (3, True)


def test_what_is_strange_about_an_answer(sites: Sites, project: Path) -> None:
    """And what that changes."""
    encoded = [("Content-Encoding", "gzip")]
    length = [("Content-Length", "999")]
    table = {
        "HTTP 404; its body can't be decoded, which changes nothing": answer(RULES, 404, encoded),
        "HTTP 410; its body ends too early, which changes nothing": raw(head(410, length) + b"x"),
        "HTTP 503; its body can't be decoded, which changes nothing": answer(RULES, 503, encoded),
        "ResponseDataLossError: the body is encoded as gzip, but": answer(RULES, 200, encoded),
        "HTTP 301 that leads nowhere; redirects in a loop": redirect("/robots.txt"),
        "HTTP 302 that leads nowhere; a redirect without a usable": redirect(None, 302),
    }
    added = {words: sites.add(robots=robots) for words, robots in table.items()}
    done = robots(project, "--json", *(site.url("/page") for site in added.values()))
    reasons = [line["reason"] for line in done.json]
    assert all(map(str.__contains__, reasons, added)), reasons


def test_a_redirect_that_is_refused_is_named(sites: Sites, project: Path) -> None:
    proxy = sites.add(robots=redirect("http://10.0.0.1/robots.php?x=1"))
    variables = {"http_proxy": proxy.url("/"), "no_proxy": ""}
    done = robots(project, "http://shop.example/page", variables=variables)
    assert done.status == 3
    assert (
        "RedirectRefused: not following the redirect to http://10.0.0.1/robots.php?x=1 (the address "
        "is private; see REP_PRIVATE_HOSTS)"
    ) in done.out
    assert "leads nowhere" not in done.out


def test_answers_come_from_the_cache(sites: Sites, project: Path) -> None:
    """What the project's storage has is used; a copy of an unreachable file too."""
    kept = {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": str(project / "robots.sqlite"),
        "REP_RETRY_DELAY": 600,
    }
    site, down = sites.add(robots=in_turn(RULES, 503)), sites.add(robots=503)
    url = site.url("/private/x")
    first = robots(project, url, "--json", settings=kept).json[0]
    again = robots(project, url, "--json", settings=kept).json[0]
    assert site.count("/robots.txt") == 1
    assert (first.pop("from_cache"), again.pop("from_cache")) == (False, True)
    assert first == again
    assert "(from the cache), HTTP 200" in robots(project, url, settings=kept).out
    # That it could not be had just now is known too.
    assert robots(project, down.url("/"), settings=kept).status == 3
    done = robots(project, down.url("/"), "--json", settings=kept)
    assert (done.status, done.json[0]["from_cache"]) == (3, True)
    assert done.json[0]["error"] == "HTTP 503"
    assert down.count("/robots.txt") == 1


def test_a_copy_of_an_unreachable_file(sites: Sites, project: Path) -> None:
    kept = {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": str(project / "robots.sqlite"),
        "REP_CACHE_MIN_TTL": 0,
        "REP_RETRY_DELAY": 600,
    }
    site = sites.add(robots=in_turn(answer(RULES, headers=[("Cache-Control", "max-age=0")]), 503))
    url = site.url("/private/x")
    first = robots(project, url, "--json", settings=kept).json[0]
    done = robots(project, url, "--json", settings=kept)
    (line,) = done.json
    assert done.status == 1
    assert (line["stale"], line["from_cache"], line["status"]) == (True, False, 503)
    assert (line["line"], line["fetched_at"]) == (5, first["fetched_at"])
    assert line["error"] == "HTTP 503"
    done = robots(project, url, settings=kept)
    assert "still in use: the site is unreachable (tried before: HTTP" in done.out
    assert site.count("/robots.txt") == 2


def test_urls_are_judged_by_a_file(project: Path) -> None:
    """Any string will do for a URL, and is compared as it stands."""
    (project / "robots.txt").write_text(RULES + "Disallow: /%C3%A9\n")
    done = robots(project, "--file", "robots.txt", "/private/x", "a.b/c", "--json")
    assert (done.status, done.err) == (1, "")
    assert pick(done.json, "url", "agent", "line", "file", "origin") == [
        ("/private/x", "ShopBot", 5, "robots.txt", None),
        ("a.b/c", "ShopBot", None, "robots.txt", None),
    ]
    done = robots(project, "--file", "-", "https://a.b/robots.txt", "--agent", "c", stdin=RULES)
    assert done.status == 1
    assert "standard input:2: Disallow: /" in done.out
    done = robots(project, "--file", "robots.txt", stdin="/%c3%a9\n/y", settings={})
    assert [line.split()[0] for line in done.out.splitlines()] == ["allowed", "allowed", "#"]
    done = robots(project, "--file", "robots.txt", "http://a.b/%c3%a9", "--explain")
    assert "compared as is     /%c3%a9\n" in done.out
    assert "a crawl compares   /%C3%A9\n" in done.out


def test_a_storage_that_cannot_be_imported(tmp_path: Path) -> None:
    """What else is wrong usage is in test_command_wrong_usage.py; this is found out by a crawl."""
    done = robots(tmp_path, "http://127.0.0.1:1/", settings={"REP_CACHE_STORAGE": "no.Such"})
    error = (
        "scrapy robots: REP_CACHE_STORAGE is 'no.Such', which can't be imported: "
        "No module named 'no'."
    )
    assert_wrong_usage(done, error)


def test_what_is_right_is_answered_beside_what_is_wrong(sites: Sites, project: Path) -> None:
    site = sites.add(robots=RULES)
    given = f"{site.url('/1')}\nhttp://a\xff\n".encode("latin-1") + site.url("/private/").encode()
    done = robots(project, "--json", stdin=given)
    assert done.status == 2
    assert pick(done.json, "url", "line") == [
        (site.url("/1"), None),
        (site.url("/private/"), 5),
    ]
    assert done.errors == [
        "scrapy robots: standard input, line 2: not UTF-8: 'http://a\\xff'",
    ]


def test_a_crawl_that_cannot_start_ends_with_one_line(sites: Sites, project: Path) -> None:
    site = sites.add(robots=RULES)
    for reactor in ("asyncio", "select"):
        wrong = {"DOWNLOADER_MIDDLEWARES": {"no.such.Middleware": 1}, **REACTORS[reactor]}
        done = robots(project, site.url("/"), settings=wrong)
        assert done.status == 3
        assert done.errors == ["scrapy robots: ModuleNotFoundError: No module named 'no'"]


def test_warnings_come_through(project: Path) -> None:
    (project / "robots.txt").write_text(RULES)
    done = robots(project, "--file", "robots.txt", "/", settings={"USER_AGENT": "Mozilla/5.0"})
    assert done.status == 1
    assert done.errors == [
        (
            "scrapy robots: There is no product token in the setting USER_AGENT ('Mozilla/5.0'), so "
            "the rules for all agents (*) apply. Set REP_USER_AGENT to yours."
        )
    ]


def test_a_misspelt_setting_is_warned_of(project: Path) -> None:
    (project / "robots.txt").write_text(RULES)
    done = robots(project, "--file", "robots.txt", "/", settings={"REP_USER_AGNET": "A"})
    assert done.errors == [
        (
            "scrapy robots: Unknown settings, which have no effect: REP_USER_AGNET (did you mean "
            "REP_USER_AGENT?)"
        )
    ]


SPIDERS = """
import scrapy

class Tea(scrapy.Spider):
    name = "tea"
    custom_settings = {"REP_USER_AGENT": "TeaBot"}

class Milk(scrapy.Spider):
    name = "milk"
    custom_settings = {"REP_USER_AGENT": "TeaBot", "USER_AGENT": "Sent/1.0"}
    robotstxt_user_agent = ["MilkBot-Image", "MilkBot"]

class Cup(scrapy.Spider):
    name = "cup"
    user_agent = "CupBot/2.0"
"""

BY_AGENT = """\
User-agent: TeaBot
User-agent: MilkBot
User-agent: CupBot
Disallow: /

User-agent: *
Allow: /
"""


@pytest.mark.parametrize(
    ("spider", "agent"),
    [("tea", "TeaBot"), ("milk", "MilkBot-Image,MilkBot"), ("cup", "CupBot")],
)
def test_a_spider_of_the_project_names_the_agent(
    sites: Sites, project: Path, spider: str, agent: str
) -> None:
    (project / "shop" / "spiders" / "all.py").write_text(SPIDERS)
    site = sites.add(robots=BY_AGENT)
    done = robots(project, site.url("/x"), "--spider", spider, "--json")
    assert pick(done.json, "agent", "allowed", "line") == [(agent, False, 4)]
    sent = {"tea": "ShopBot", "milk": "Sent/1.0", "cup": "CupBot/2.0"}[spider]
    assert sent in (site.requests[0].header("User-Agent") or "")
    # What is asked for by name goes before it.
    done = robots(project, site.url("/x"), "--spider", spider, "--agent", "A", "--json")
    assert pick(done.json, "agent", "allowed") == [("A", True)]


def test_a_spider_names_the_agent_for_a_file_too(project: Path) -> None:
    (project / "shop" / "spiders" / "all.py").write_text(SPIDERS)
    (project / "robots.txt").write_text(BY_AGENT)
    done = robots(project, "--file", "robots.txt", "/x", "--spider", "milk", "--json")
    assert pick(done.json, "agent", "line") == [("MilkBot-Image,MilkBot", 4)]


@pytest.mark.parametrize("arguments", [["http://a/"], ["--file", "robots.txt", "/"], ["--cache"]])
def test_there_is_no_such_spider(project: Path, arguments: list[str]) -> None:
    assert_wrong_usage(robots(project, *arguments, "--spider", "no"), "error: no such spider: 'no'")


def test_a_reader_that_closes_the_pipe_ends_the_command(sites: Sites, project: Path) -> None:
    """`scrapy robots … | head -1`"""
    site = sites.add(robots=RULES)
    urls = "\n".join(site.url(f"/{number}") for number in range(3000))
    for arguments in (["--json"], []):
        process = subprocess.Popen(
            command("robots", *arguments),
            cwd=project,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(urls.encode())
        process.stdin.close()
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert ends(process) == 0


@pytest.mark.parametrize(
    ("redirection", "status", "error"),
    [
        (">/dev/full", 2, "scrapy robots: standard output: No space left on device\n"),
        (">&-", 1, ""),
        ("<&-", 2, "error: no URL given\n"),
    ],
)
def test_without_somewhere_to_print(
    project: Path, redirection: str, status: int, error: str
) -> None:
    (project / "robots.txt").write_text(RULES)
    arguments = (
        ["--file", "robots.txt"] if "<" in redirection else ["--file", "robots.txt", "/private/"]
    )
    line = shlex.join(command("robots", *arguments))
    done = subprocess.run(
        ["sh", "-c", f"{line} {redirection}"],
        cwd=project,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert done.stderr.endswith(error)
    assert "Traceback" not in done.stderr


def assert_ctrl_c_ends(project: Path, site: Site, option: str, reactor: str) -> None:
    """While the site says nothing."""
    out, err = project / "out", project / "err"
    process = ScrapyProcess(
        arguments_of("robots", site.url("/x"), option, settings=REACTORS[reactor]),
        cwd=project,
        variables=environment(),
        output=out,
        errors=err,
    )
    while not site.requests and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 3
    assert out.read_text() == ""
    assert err.read_text().splitlines() == ["scrapy robots: stopped before it was done"]


@on_every_reactor
def test_ctrl_c_ends_the_command_with_one_line(sites: Sites, project: Path, reactor: str) -> None:
    assert_ctrl_c_ends(project, sites.add(robots=silence()), "--sitemaps", reactor)


def test_ctrl_c_ends_lint_with_one_line(sites: Sites, project: Path) -> None:
    assert_ctrl_c_ends(project, sites.add(robots=silence()), "--lint", "asyncio")


def test_python_m_scrapy_robots_answers_as_well(sites: Sites, project: Path) -> None:
    """Most tests fork the command from a process that has imported Scrapy; this one does not."""
    site = sites.add(robots=RULES)
    line = [site.url("/private/x"), "--json"]
    done = subprocess.run(
        command("robots", *line, settings=NOT_FOUND_FAST),
        cwd=project,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert pick([json.loads(done.stdout)], "allowed", "line") == [(False, 5)]


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colour_on_a_terminal_alone(project: Path, variables: dict[str, str]) -> None:
    (project / "robots.txt").write_text(RULES)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        command("robots", "--file", "robots.txt", "/private/x"),
        cwd=project,
        env=environment(**{"TERM": "xterm", **variables}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 10_000)
    os.close(ours)
    assert done.returncode == 1
    assert (b"\x1b[31mdisallowed \x1b[0m" in shown) is (not variables)
    assert (b"\x1b" in shown) is (not variables)


def test_nothing_that_a_site_says_steers_the_terminal(sites: Sites, project: Path) -> None:
    site = sites.add(robots=b"User-agent: *\nDisallow: /\x1b]0;title\x07\xc2\x9b*\nDisallow: /x\n")
    done = robots(project, site.url("/\x1b]0;title\x07\u009bx"), site.url("/x"))
    assert not set("\x1b\x07\x9b") & set(done.out)


def test_what_the_encoding_lacks_is_escaped(project: Path) -> None:
    (project / "robots.txt").write_text("User-agent: *\nDisallow: /é\n", encoding="utf-8")
    variables = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = robots(project, "--file", "robots.txt", "/%C3%A9", variables=variables)
    assert (done.status, done.err) == (1, "")
    assert "robots.txt:2: Disallow: /\\xe9" in done.out


def test_other_commands_load_next_to_nothing(project: Path) -> None:
    code = (
        "import sys\n"
        "from scrapy.cmdline import execute\n"
        "try:\n"
        "    execute(['scrapy', 'version'])\n"
        "except SystemExit:\n"
        "    print(*sorted(name for name in sys.modules if name.startswith('scrapy_rep')))\n"
    )
    lines = ["-c", code]
    done = subprocess.run(
        [command()[0], *lines],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == (
        "scrapy_rep scrapy_rep.commands scrapy_rep.commands.robots"
    )
    # What is loaded beside is Scrapy's.
    code = Path(scrapy_rep.__file__).parent.joinpath("commands/robots.py").read_text("utf-8")
    imported = {line for line in code.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {
        "from __future__ import annotations",
        "from importlib import import_module",
        "from typing import TYPE_CHECKING, Any",
        "from scrapy.commands import ScrapyCommand",
        "from scrapy.exceptions import UsageError",
    }


# -- while it waits --------------------------------------------------------------------------


def test_verdicts_are_printed_as_they_come(sites: Sites, project: Path) -> None:
    """One silent origin, the first of all, doesn't keep the others from being printed."""
    silent, others = sites.add(robots=silence()), [sites.add(robots=RULES) for _ in range(3)]
    urls = [site.url("/private/x") for site in (silent, *others)]
    process = subprocess.Popen(
        command("robots", *urls, settings={"REP_DOWNLOAD_TIMEOUT": 300}),
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in others]
    process.terminate()
    process.stdout.close()
    ends(process)
    assert lines == [
        f"disallowed   {url}  line 5: Disallow: /private/ (group ShopBot)\n" for url in urls[1:]
    ]


def test_csv_and_json_keep_the_order_of_the_urls(sites: Sites, project: Path) -> None:
    """The first origin answers after those behind it would have been printed."""
    slow, fast = sites.add(robots=silence()), sites.add(robots=RULES)
    urls = [slow.url("/a"), fast.url("/b"), slow.url("/c"), fast.url("/d")]
    for form in ("--json", "--csv"):
        done = robots(project, *urls, form, settings={"REP_DOWNLOAD_TIMEOUT": 5})
        texts = [re.search('http[^",]+', line) for line in done.out.splitlines()]
        assert [one[0] for one in texts if one] == urls


def test_it_is_said_what_is_waited_for(sites: Sites, project: Path) -> None:
    """On a terminal, in a line that goes away again."""
    silent, fast = sites.add(robots=silence()), sites.add(robots=RULES)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        command("robots", silent.url("/"), fast.url("/"), settings={"REP_DOWNLOAD_TIMEOUT": 6}),
        cwd=project,
        env=environment(TERM="xterm", COLUMNS="200"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert f"\r\x1b[Kwaiting for {silent.url('/robots.txt')}" in shown
    assert shown.endswith("\r\x1b[K")
    assert [line.split()[0] for line in done.stdout.decode().splitlines()[:2]] == [
        "allowed",
        "unreachable",
    ]


def test_where_there_is_no_terminal_it_is_said_after_ten_seconds(
    sites: Sites, project: Path
) -> None:
    silent = sites.add(robots=silence())
    done = robots(project, silent.url("/"), settings={"REP_DOWNLOAD_TIMEOUT": 14})
    assert done.errors == [f"scrapy robots: waiting for {silent.url('/robots.txt')}"]
