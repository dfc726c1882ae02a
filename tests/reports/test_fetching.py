"""What crawlers were reported to make of answers for robots.txt; REP.md sections 2, 3. To add one,
write a line: project and number of the report; the site's answer (see `tests.helpers.behaviours`);
the page that is asked for; what becomes of that request. One crawl asks all sites."""

from __future__ import annotations

import pytest

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol.freshness import retry_after
from tests.helpers.behaviours import (
    RULES,
    RULES_BYTES,
    Behaviour,
    answer,
    hang_up,
    head,
    raw,
    redirect,
    reset,
)
from tests.helpers.crawling import ONE_ATTEMPT, crawl
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.download, pytest.mark.scrapy_api]
FETCHED, REFUSED, UNREACHABLE = None, RobotsDisallowed, RobotsUnreachable
PAGES: dict[str, Behaviour | str] = {
    **{f"/hop{number}": redirect(f"/hop{number + 1}") for number in range(1, 5)},
    "/hop5": RULES,
    "/more": redirect("/more", 302),
    "/leads-to-private": redirect("/private"),
    "/leads-to-public": redirect("/public"),
}
"""Of each site. The fifth hop from /robots.txt by way of /hop1 is the last that is followed."""

FETCHES: list[tuple[str, Behaviour | str | int, str, type[Exception] | None]] = [
    ("dembrandt 209", 404, "/private", FETCHED),
    ("xagent 2043", redirect("/hop5"), "/private", REFUSED),
    ("lightpanda 3201", answer(RULES_BYTES, 401), "/private", FETCHED),
    ("reppy 24", answer(RULES_BYTES, 403), "/private", FETCHED),
    ("scrapy 2388", answer(b"<h1>403", 403, [("Content-Encoding", "gzip")]), "/private", FETCHED),
    ("webmagic 796", answer(RULES_BYTES, headers=[("Content-Encoding", "UTF-8")]), "/private", REFUSED),
    ("crawlee 1067", answer(RULES_BYTES, headers=[("Content-Encoding", "none")]), "/public", FETCHED),
    ("aws-sdk-java 5769", answer(RULES_BYTES, headers=[("Content-Encoding", "aws-chunked")]), "/private", REFUSED),
    ("yoko-crawler 97", answer(RULES_BYTES, 429), "/public", UNREACHABLE),
    ("browsertrix-crawler 645", answer(RULES_BYTES[:20], 206, [("Content-Range", "bytes 0-19/33")]), "/public", UNREACHABLE),
    ("redbot 137", answer(RULES_BYTES, 206), "/public", UNREACHABLE),
    ("ServiceStack 863", answer(RULES_BYTES, 206, [("Content-Range", "bytes 0-32/33")]), "/private", REFUSED),
    ("elastic crawler 219", raw(head(304)), "/public", UNREACHABLE),
    ("stormcrawler 1042", 500, "/public", UNREACHABLE),
    ("Scrapling 451", 503, "/public", UNREACHABLE),
    ("crawlee-python 2065", answer("<h1>Oops", 500, type="text/html"), "/public", UNREACHABLE),
    ("wpull 233", answer(RULES_BYTES, 599), "/public", UNREACHABLE),
    ("scrapy 5331", hang_up(), "/public", UNREACHABLE),
    ("kreuzcrawl 44", reset(), "/public", UNREACHABLE),
    ("robots.js 24", redirect("/robots.txt"), "/private", FETCHED),
    ("simplecrawler 414", redirect("/more", 302), "/private", FETCHED),
    ("crawler-commons 428", redirect("/hop1"), "/private", REFUSED),
    ("stormcrawler 1074", redirect("/hop1", 308), "/private", REFUSED),
    ("kreuzcrawl 46", RULES, "/private/x.html", REFUSED),
    ("ai-job-search 286", "user-agent: *\ndisallow: /a%20b", "/a b", REFUSED),
    ("google robotstxt 85", "user-agent: *\ndisallow: /x%aa", "/x%aa", REFUSED),
    ("peated 1193", RULES, "/leads-to-private", REFUSED),
    ("kreuzcrawl 47", RULES, "/leads-to-public", FETCHED),
]  # fmt: skip


async def test_what_answers_mean(sites: Sites) -> None:
    rows = [(sites.add(robots, PAGES), *row) for _, robots, *row in FETCHES]
    result = await crawl([site.url(path) for site, path, _ in rows], ONE_ATTEMPT)
    errors = {}
    for request, error in result.spider.errors:
        errors[request.url.split("/")[2]] = type(error)
    found = [errors.get(f"{site.name}:{site.port}") for site, _, _ in rows]
    reported = [row[0] for row in FETCHES]
    assert dict(zip(reported, found, strict=True)) == {
        row[0]: row[3] for row in FETCHES
    }
    result.assert_clean()


SENT: list[tuple[str, dict[str, str], bool]] = [
    ("scrapy 5596", {"Cookie": "a=b"}, False),
    ("scrapy 2088", {"Cookie2": "a=b"}, False),
    ("typesense-docsearch-scraper 88", {"Authorization": "Basic dXNlcjpwYXNz"}, True),
    ("elastic crawler 219", {"If-None-Match": '"a"'}, False),
    ("browsertrix-crawler 645", {"Range": "bytes=0-19"}, False),
]
"""What a project adds to all requests, and whether robots.txt is asked for with it."""


async def test_what_robots_txt_is_asked_with(sites: Sites) -> None:
    for _, headers, expected in SENT:
        site = sites.add(RULES)
        result = await crawl(
            [site.url("/private")], {"DEFAULT_REQUEST_HEADERS": headers}
        )
        assert result.disallowed(site.url("/private"))
        [hit] = site.hits("/robots.txt")
        assert [hit.header(name) for name in headers] == [
            headers[name] if expected else None for name in headers
        ]


def test_how_people_write_retry_after() -> None:
    """notebooklm-py 1275."""
    assert [retry_after(text, 0.0) for text in ("5.0", "5s", "+5", '"5"')] == [5.0] * 4
