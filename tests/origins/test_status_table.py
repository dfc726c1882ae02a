"""REP.md section 3, row by row: what the answer to the request for robots.txt means.

Each row is a site that answers so; a real crawl of all sites of a table asks each for /private,
which RULES_BYTES forbid, and for /public.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import (
    RULES_BYTES,
    Behaviour,
    after,
    answer,
    chunked,
    hang_up,
    head,
    lying_length,
    raw,
    reset,
    silence,
)
from tests.helpers.crawling import ONE_ATTEMPT, crawl
from tests.helpers.held import NEVER
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row, responses_of
from tests.helpers.servers import Site, Sites

# Longer than what any behaviour below needs to be cut in.
SIZED = [("Content-Length", str(len(RULES_BYTES)))]
CHUNKED = [("Transfer-Encoding", "chunked")]
# So that silence is short.
IMPATIENT = {**ONE_ATTEMPT, "REP_DOWNLOAD_TIMEOUT": 0.4}


def status(code: int, *headers: tuple[str, str]) -> Behaviour:
    """Each has rules in its body, so that a test sees whether they are wrongly applied."""
    return answer(b"" if code == 204 else RULES_BYTES, code, headers)


@dataclass(frozen=True)
class Row:
    id: str
    robots: Behaviour
    status: int | None = None


RULES_ROWS = [
    *[Row(f"{code}", status(code), code) for code in (200, 201, 202, 203, 206, 226)],
    Row("200 chunked", chunked(RULES_BYTES[:9], RULES_BYTES[9:]), 200),
    Row("200 of unknown length", raw(head(200) + RULES_BYTES), 200),
    Row("200 in HTTP/1.0", raw(b"HTTP/1.0 200 OK\r\n\r\n" + RULES_BYTES), 200),
    Row("200 image/png", answer(RULES_BYTES, type="image/png"), 200),
]

MISSING_ROWS = [
    *[Row(f"{code} without Location", status(code), code) for code in (300, 301, 308, 399)],
    Row("304", raw(head(304)), 304),
    *[Row(f"{code}", status(code), code) for code in (400, 401, 403, 404, 407, 408, 410, 428)],
    *[Row(f"{code}", status(code), code) for code in (430, 451, 499)],
    Row(
        "401 with a challenge",
        status(401, ("WWW-Authenticate", 'Basic realm="x"')),
        401,
    ),
    Row("404 with Retry-After", status(404, ("Retry-After", "60")), 404),
]

UNREACHABLE_ROWS = [
    Row("429", status(429), 429),
    Row("429 with Retry-After", status(429, ("Retry-After", "120")), 429),
    Row(
        "429 with Retry-After as a date",
        status(429, ("Retry-After", "Wed, 21 Oct 2099 07:28:00 GMT")),
        429,
    ),
    Row("429 with a bad Retry-After", status(429, ("Retry-After", "soon")), 429),
    *[Row(f"{code}", status(code), code) for code in (500, 502, 503, 504, 511, 599, 999)],
    Row("503 with Retry-After", status(503, ("Retry-After", "120")), 503),
    Row("reset", reset()),
    Row("closed without an answer", hang_up()),
    Row("not HTTP", raw(b"220 smtp.example.com ESMTP\r\n")),
    Row("bytes that are no text", raw(bytes(range(256)))),
    Row("a bad status line", raw(b"HTTP/1.1 abc OK\r\n\r\n" + RULES_BYTES)),
    Row("a bad Content-Length", raw(head(200, [("Content-Length", "many")]) + RULES_BYTES)),
    Row("cut within the headers", raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl")),
    Row("cut within the body", lying_length(RULES_BYTES, len(RULES_BYTES) + 100)),
    Row("reset within the body", raw(head(200, SIZED) + RULES_BYTES[:9], reset=True)),
    Row("chunks that do not end", chunked(RULES_BYTES, end=b"")),
    Row("a chunk cut short", raw(head(200, CHUNKED) + b"ff\r\n" + RULES_BYTES)),
    Row("a bad chunk size", chunked(RULES_BYTES, end=b"xyz\r\nabc\r\n0\r\n\r\n")),
]


SILENT_ROWS = [
    Row("silence", silence()),
    Row("silence after the headers", silence(head(200, SIZED))),
    Row("silence within the body", silence(head(200, SIZED) + RULES_BYTES[:9])),
]


def added(sites: Sites, rows: list[Row]) -> list[tuple[Row, Site]]:
    return [(row, sites.add(robots=row.robots)) for row in rows]


def urls_of(table: list[tuple[Row, Site]], *paths: str) -> list[str]:
    return [site.url(path) for _, site in table for path in paths]


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_2xx_is_parsed(sites: Sites) -> None:
    table, resolved = added(sites, RULES_ROWS), Resolved()
    result = await crawl(urls_of(table, "/private", "/public"), signal_handlers=resolved.handlers)
    with every_row() as checking:
        for row, site in table:
            with checking(row.id):
                error = result.failure(site.url("/private"))
                assert isinstance(error, RobotsDisallowed)
                assert str(error) == "Forbidden by robots.txt (line 2: Disallow: /private, group *)"
                assert error.origin == Origin.from_url(site.url())
                assert responses_of(result, site) == {site.url("/public"): 200}
                assert site.count("/robots.txt") == 1
                found = [(one["outcome"], one["status"]) for one in resolved.of(site.url())]
                assert found == [(Outcome.RULES, row.status)]
    statuses = Counter(row.status for row in RULES_ROWS)
    prefix = "robotstxt/response_status_count/"
    assert {code: result.stat(f"{prefix}{code}") for code in statuses} == statuses
    assert result.stat("rep/outcome/rules") == len(resolved.all) == len(table)
    result.assert_clean()


async def test_3xx_and_4xx_mean_no_restrictions(sites: Sites) -> None:
    table, resolved = added(sites, MISSING_ROWS), Resolved()
    result = await crawl(urls_of(table, "/private", "/public"), signal_handlers=resolved.handlers)
    with every_row() as checking:
        for row, site in table:
            with checking(row.id):
                wanted = {site.url("/private"): 200, site.url("/public"): 200}
                assert responses_of(result, site) == wanted
                assert site.count("/robots.txt") == 1
                found = [(one["outcome"], one["status"]) for one in resolved.of(site.url())]
                assert found == [(Outcome.MISSING, row.status)]
    assert result.stat("rep/outcome/missing") == len(resolved.all) == len(table)
    result.assert_clean()


@pytest.mark.download
async def test_unreachable_is_dropped(sites: Sites) -> None:
    table, resolved = added(sites, [*UNREACHABLE_ROWS, *SILENT_ROWS]), Resolved()
    result = await crawl(
        urls_of(table, "/public", "/other"),
        {**IMPATIENT, "REP_UNREACHABLE": "drop"},
        signal_handlers=resolved.handlers,
    )
    with every_row() as checking:
        for row, site in table:
            with checking(row.id):
                for path in ("/public", "/other"):
                    error = result.failure(site.url(path))
                    assert isinstance(error, RobotsUnreachable)
                    assert (error.origin, error.decision) == (Origin.from_url(site.url()), None)
                    assert error.reason
                    assert error.attempts == 1
                    assert site.count(path) == 0
                assert site.tried_once("/robots.txt")
                [one] = resolved.of(site.url())
                found = (one["outcome"], one["status"], one["attempts"])
                assert found == (Outcome.UNREACHABLE, row.status, 1)
    assert result.stat("rep/unreachable/dropped") == 2 * len(table)
    assert result.stat("rep/outcome/unreachable") == len(resolved.all) == len(table)
    result.assert_clean()


async def test_the_timeout_is_that_of_robots_txt(sites: Sites) -> None:
    """REP_DOWNLOAD_TIMEOUT, whatever DOWNLOAD_TIMEOUT says, longer or shorter."""
    silent, slow = sites.add(robots=silence()), sites.add(robots=after(0.6, RULES_BYTES))
    result = await crawl(silent.url("/public"), {**IMPATIENT, "DOWNLOAD_TIMEOUT": NEVER})
    assert isinstance(result.failure(silent.url("/public")), RobotsUnreachable)
    pages = [
        Request(slow.url(path), meta={"download_timeout": NEVER})
        for path in ("/private", "/public")
    ]
    result = await crawl(pages, {"DOWNLOAD_TIMEOUT": 0.3})
    assert isinstance(result.failure(slow.url("/private")), RobotsDisallowed)
    assert result.status(slow.url("/public")) == 200
