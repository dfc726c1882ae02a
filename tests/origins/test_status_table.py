"""REP.md section 3, row by row: what the answer to the request for robots.txt means, of web sites, and of a
real FTP server (anonymous RETR).

Each row is a site that answers so; a real crawl of all sites asks each for /private, which RULES_BYTES
forbid, and for /public.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, crawl
from tests.helpers.ftp import FtpSite
from tests.helpers.held import NEVER
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

# Longer than what any behaviour below needs to be cut in.
SIZED = [("Content-Length", str(len(RULES_BYTES)))]
CHUNKED = [("Transfer-Encoding", "chunked")]
IMPATIENT = {**ONE_ATTEMPT, "REP_DOWNLOAD_TIMEOUT": 0.4}


def status(code: int, *headers: tuple[str, str]) -> Behaviour:
    """Each has rules in its body, so that a test sees whether they are wrongly applied."""
    return answer(b"" if code == 204 else RULES_BYTES, code, headers)


Row = tuple[str, Behaviour, Outcome, int | None]


def row(name: str, robots: Behaviour, code: int | None = None) -> Row:
    return name, robots, Outcome.UNREACHABLE, code


SIZE = len(RULES_BYTES)
PARTS = [
    (0, SIZE - 2, SIZE),
    (1, SIZE, SIZE + 1),
    (0, SIZE - 1, "*"),
    (0, SIZE - 1, 2 * SIZE),
]


def part(first: int, last: int, size: int | str) -> Behaviour:
    return status(206, ("Content-Range", f"bytes {first}-{last}/{size}"))


def rows(outcome: Outcome, *codes: int, suffix: str = "") -> list[Row]:
    return [(f"{code}{suffix}", status(code), outcome, code) for code in codes]


ROWS: list[Row] = [
    *rows(Outcome.RULES, 200, 201, 202, 203, 226),
    ("206 of everything", part(0, SIZE - 1, SIZE), Outcome.RULES, 206),
    *(row(f"206 of {some}", part(*some)) for some in PARTS),
    row("206 of something", status(206)),
    ("200 chunked", chunked(RULES_BYTES[:9], RULES_BYTES[9:]), Outcome.RULES, 200),
    ("200 of unknown length", raw(head(200) + RULES_BYTES), Outcome.RULES, 200),
    ("200 in HTTP/1.0", raw(b"HTTP/1.0 200 OK\r\n\r\n" + RULES_BYTES), Outcome.RULES, 200),
    ("200 image/png", answer(RULES_BYTES, type="image/png"), Outcome.RULES, 200),
    *rows(Outcome.MISSING, 300, 301, 308, 399, suffix=" without Location"),
    row("304, for which nobody asked", raw(head(304)), 304),
    *rows(Outcome.MISSING, 400, 401, 403, 404, 407, 408, 410, 428, 430, 451, 499),
    ("401 with a challenge", status(401, ("WWW-Authenticate", 'Basic realm="x"')), Outcome.MISSING, 401),
    ("404 with Retry-After", status(404, ("Retry-After", "60")), Outcome.MISSING, 404),
    *rows(Outcome.UNREACHABLE, 429, 500, 502, 503, 504, 511, 599, 999),
    row("429 with Retry-After", status(429, ("Retry-After", "120")), 429),
    row("429 with a date", status(429, ("Retry-After", "Wed, 21 Oct 2099 07:28:00 GMT")), 429),
    row("429 with a bad Retry-After", status(429, ("Retry-After", "soon")), 429),
    row("503 with Retry-After", status(503, ("Retry-After", "120")), 503),
    row("reset", reset()),
    row("closed without an answer", hang_up()),
    row("not HTTP", raw(b"220 smtp.example.com ESMTP\r\n")),
    row("bytes that are no text", raw(bytes(range(256)))),
    row("a bad status line", raw(b"HTTP/1.1 abc OK\r\n\r\n" + RULES_BYTES)),
    row("a bad Content-Length", raw(head(200, [("Content-Length", "many")]) + RULES_BYTES)),
    row("cut within the headers", raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl")),
    row("cut within the body", lying_length(RULES_BYTES, len(RULES_BYTES) + 100)),
    row("reset within the body", raw(head(200, SIZED) + RULES_BYTES[:9], reset=True)),
    row("chunks that do not end", chunked(RULES_BYTES, end=b"")),
    row("a chunk cut short", raw(head(200, CHUNKED) + b"ff\r\n" + RULES_BYTES)),
    row("a bad chunk size", chunked(RULES_BYTES, end=b"xyz\r\nabc\r\n0\r\n\r\n")),
]  # fmt: skip
SILENT = [
    row("silence", silence()),
    row("silence after the headers", silence(head(200, SIZED))),
    row("silence within the body", silence(head(200, SIZED) + RULES_BYTES[:9])),
]


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_what_each_answer_means(sites: Sites) -> None:
    with every_row() as checking:
        for some, settings in ((ROWS, ONE_ATTEMPT), (SILENT, IMPATIENT)):
            table, resolved = (
                [(one, sites.add(robots=one[1])) for one in some],
                Resolved(),
            )
            urls = [
                site.url(path) for _, site in table for path in ("/private", "/public")
            ]
            result = await crawl(urls, settings, signal_handlers=resolved.handlers)
            for (name, _, outcome, code), site in table:
                with checking(name):
                    check(result, site, outcome)
                    [one] = resolved.of(site.url())
                    told = (one["outcome"], one["status"], one["attempts"])
                    assert told == (outcome, code, outcome is Outcome.UNREACHABLE)
            outcomes = Counter(one[2] for one in some)
            stats = {one: result.stat(f"rep/outcome/{one.value}") for one in outcomes}
            assert stats == outcomes
            assert (
                result.stat("rep/unreachable/dropped")
                == 2 * outcomes[Outcome.UNREACHABLE]
            )
            count = "robotstxt/response_status_count/"
            codes = [result.stat(f"{count}{code}") for code in (200, 404)]
            assert some is SILENT or codes == [5, 2]
            result.assert_clean()


STATUSES = {
    Outcome.RULES: [None, 200],
    Outcome.MISSING: [200, 200],
    Outcome.UNREACHABLE: [None, None],
}


def check(result: CrawlResult, site: Site, outcome: Outcome) -> None:
    pages, origin = (
        [site.url("/private"), site.url("/public")],
        Origin.from_url(site.url()),
    )
    assert [result.status(url) for url in pages] == STATUSES[outcome]
    errors = [error for url in pages if (error := result.failure(url))]
    if outcome is Outcome.UNREACHABLE:
        for error in errors:
            assert isinstance(error, RobotsUnreachable)
            assert (error.origin, error.decision, error.attempts) == (origin, None, 1)
            assert error.reason
        assert site.tried_once("/robots.txt")
        assert site.pages_asked == []
        return
    assert site.robots_fetches == 1
    if outcome is Outcome.RULES:
        [error] = errors
        assert isinstance(error, RobotsDisallowed)
        assert error.origin == origin
        assert (
            str(error)
            == "Forbidden by robots.txt (line 2: Disallow: /private, group *)"
        )


async def test_the_timeout_is_that_of_robots_txt(sites: Sites) -> None:
    """REP_DOWNLOAD_TIMEOUT, whatever DOWNLOAD_TIMEOUT says, longer or shorter."""
    silent, slow = (
        sites.add(robots=silence()),
        sites.add(robots=after(0.6, RULES_BYTES)),
    )
    result = await crawl(
        silent.url("/public"), {**IMPATIENT, "DOWNLOAD_TIMEOUT": NEVER}
    )
    error = result.failure(silent.url("/public"))
    assert isinstance(error, RobotsUnreachable)
    assert "longer than 0.4 s" in error.reason
    patient = {"download_timeout": NEVER}
    pages = [Request(slow.url(path), meta=patient) for path in ("/private", "/public")]
    result = await crawl(pages, {"DOWNLOAD_TIMEOUT": 0.3})
    assert result.disallowed(slow.url("/private"))
    assert result.status(slow.url("/public")) == 200


needs_ftp = pytest.mark.needs_reactor(
    reason="Scrapy's FTP download handler needs a reactor"
)


@pytest.fixture
def ftp(tmp_path: Path, ftp_site: FtpSite) -> FtpSite:
    for name in ("public", "private"):
        (tmp_path / name).write_text(name)
    return ftp_site.serve(tmp_path)


@needs_ftp
@pytest.mark.scrapy_api
@pytest.mark.loop
@pytest.mark.parametrize("passive", [True, False])
async def test_an_ftp_site_is_crawled_by_its_rules(
    ftp: FtpSite, tmp_path: Path, passive: bool
) -> None:
    """robots.txt is fetched as `anonymous`, whatever login pages need. Active mode is left to Scrapy's handler."""
    (tmp_path / "robots.txt").write_bytes(RULES_BYTES)
    login = {"ftp_user": "alice", "ftp_password": "secret"}
    private = Request(ftp.url("/private"), meta=login)
    own = {} if passive else {"FTP_USER": "bob", "FTP_PASSWORD": "secret"}
    result = await crawl(
        [private, ftp.url("/public")] if passive else [private],
        {**own, "FTP_PASSIVE_MODE": passive},
    )
    assert (
        next(name for command, name in ftp.commands if command == "USER") == "anonymous"
    )
    assert not {("PASS", "secret"), ("USER", "bob")} & set(ftp.commands)
    assert ("PASV" if passive else "PORT") in dict(ftp.commands)
    assert passive or "PASV" not in dict(ftp.commands)
    assert result.disallowed(ftp.url("/private"))
    assert result.responses == ({ftp.url("/public"): 200} if passive else {})
    assert (ftp.count("/robots.txt"), ftp.count("/private")) == (1, 0)
    assert result.stat("rep/outcome/rules") == 1
    result.assert_clean()


@needs_ftp
async def test_an_ftp_site_without_the_file_is_crawled(ftp: FtpSite) -> None:
    """tests/hostile/test_hostile_ftp.py has what is unreachable, a refused login too."""
    result = await crawl(ftp.url("/private"))
    assert result.responses == {ftp.url("/private"): 200}
    assert result.stat("rep/outcome/missing") == 1
    result.assert_clean()
