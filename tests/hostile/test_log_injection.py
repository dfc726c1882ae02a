"""Text from outside can't control a terminal, forge a log line or break a record."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from scrapy import Request

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import answer
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.log import lines, summary, warnings
from tests.helpers.robots_command import robots_here
from tests.helpers.servers import Sites
from tests.hostile.evil import EVERYTHING, EVIL, IN_A_LINE, READABLE, assert_clean_text


def assert_clean_log(result: CrawlResult) -> None:
    for record in result.records:
        if record.name.startswith("scrapy_rep") or "robots.txt" in record.getMessage():
            assert_clean_text(logging.Formatter("%(name)s %(message)s").format(record))


class Hostile:
    def process_response(self, request: Request, response: Any) -> Any:
        if response.headers.get("X-Fail"):
            raise RuntimeError(EVERYTHING + READABLE)
        return response


async def test_what_others_wrote_in_every_output(sites: Sites, tmp_path: Path) -> None:
    evil = "\u009b31m\u202e\u0085\u2028é漢"  # ASCII matches no URL that Scrapy sends
    rule, listed = (
        f"Disallow: /p*{evil}*",
        [f"Sitemap: /{n}{IN_A_LINE}.xml\n" for n in range(400)],
    )
    site = sites.add(robots=f"User-agent: *\n{rule}\nDisallow: /x{IN_A_LINE}\n")
    failing = sites.add(robots=answer("", headers=[("X-Fail", "yes")]))
    lister = sites.add(
        robots="".join([*listed, *["Sitemap: http://[x\u202e\x1b/\n"] * 2])
    )
    trail, report = tmp_path / "d.jsonl", tmp_path / "report.html"
    settings = {"REP_DECISIONS": str(trail), "REP_REPORT": str(report)}
    encoded = Request(site.url(f"/p{evil}x")).url
    urls = [encoded, failing.url("/x"), lister.url("/x")]
    result = await crawl(urls, {**settings, "DOWNLOADER_MIDDLEWARES": {Hostile: 50}})
    assert_clean_log(result)
    assert_clean_text("".join(map(str, result.stats)))
    assert_clean_text(report.read_text("utf-8"))
    text = trail.read_bytes().decode()
    assert_clean_text(text)
    [record] = [
        one for one in map(json.loads, text.splitlines()) if one["url"] == encoded
    ]
    assert record["rule"] == rule
    assert r"Disallow: /p*\x9b31m\u202e\x85\u2028é漢" in str(result.failure(encoded))
    assert r"\x9b31m\u202e\x85\u2028é漢" in "\n".join(summary(result))
    error = result.failure(failing.url("/x"))
    assert isinstance(error, RobotsUnreachable)
    assert_clean_text(str(error) + error.reason)
    assert READABLE in error.reason
    [told] = lines(result, lister.url("").rstrip("/"), level="WARNING")
    assert r"invalid URL: /0\x1b[31m" in told


async def test_sitemaps_with_problems(sites: Sites) -> None:
    """An origin's first five are warned of; an XML error's newline comes through libxml2."""
    name = f"<urlset>&#10;\u0085\u2028\u202e{EVIL['newline']}</x\u202e"
    listed = "".join(f"Sitemap: @/{number}.xml\n" for number in range(30))
    site = sites.add()
    for number in range(30):
        body = (
            name.encode()
            if number % 2
            else b"<urlset><url><loc>" + EVIL["newline"].encode()
        )
        site.set(f"/{number}.xml", answer(body, type="text/xml") if number % 3 else 404)
    site.set("/robots.txt", listed.replace("@", site.url("")))
    result = await crawl(site.url("/x"), {"REP_SITEMAPS": True})
    result.assert_clean()
    assert_clean_log(result)
    told = warnings(result)
    assert len(told) == 5
    assert "Further problems with this origin's sitemaps" in told[4]
    assert len(lines(result, "Sitemap ", level="DEBUG")) >= 10


ROBOTS = f"User-agent: *\u202e\nUser-agent: *\nDisallow: /p{IN_A_LINE}é漢\nDisallow: /p\nx{IN_A_LINE}\nSitemap: /{IN_A_LINE}\n"


def test_commands_that_print_files(tmp_path: Path) -> None:
    (tmp_path / "robots.txt").write_text(ROBOTS)
    file, url = ["--file", "robots.txt"], f"http://a.example/p{IN_A_LINE}"
    lines = [[*file, option, url] for option in ("--explain", "--json", "--csv")]
    for line in (
        *lines,
        [*file, url],
        [*file, "--show", url],
        ["--lint", "robots.txt"],
    ):
        done = robots_here(tmp_path, *line)
        assert_clean_text(done.out + done.err)
        assert len(done.out) > 50
