"""REP.md sections 2, 3 and 6: what is read of a body, and what is taken for a rule."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Mapping
from typing import Any

import pytest

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import Behaviour, Stream, answer, gzip_bomb, gzipped, head, raw
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

pytestmark = [pytest.mark.download, pytest.mark.scrapy_api, pytest.mark.slow]

LIMIT = 512_000
EARLY = b"User-agent: *\nDisallow: /early\n"


def allowed_of(result: CrawlResult, site: Site, *paths: str) -> dict[str, bool]:
    """Which of the crawled paths the site's robots.txt allowed."""
    allowed = {}
    for path in paths:
        error = result.failure(site.url(path))
        assert error is None or isinstance(error, RobotsDisallowed), error
        allowed[path] = error is None
        assert site.count(path) == allowed[path]
    assert site.count("/robots.txt") == 1
    return allowed


async def verdicts(site: Site, *paths: str) -> tuple[CrawlResult, dict[str, bool]]:
    """Crawls the paths; which of them robots.txt allowed."""
    result = await crawl([site.url(path) for path in paths])
    result.assert_clean()
    return result, allowed_of(result, site, *paths)


async def assert_early_is_forbidden(
    sites: Sites, bodies: Mapping[str, Behaviour | str | bytes]
) -> None:
    """One crawl, with a site for each of these robots.txt."""
    table = {name: sites.add(robots=body) for name, body in bodies.items()}
    paths = ("/early", "/other")
    result = await crawl([site.url(path) for site in table.values() for path in paths])
    result.assert_clean()
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                wanted = {"/early": False, "/other": True}
                assert allowed_of(result, site, *paths) == wanted


async def assert_unreachable(
    sites: Sites, answers: Mapping[str, Behaviour], settings: dict[str, Any] | None = None
) -> None:
    """One crawl, with a site for each of these answers."""
    table = {name: sites.add(robots=robots) for name, robots in answers.items()}
    result = await crawl([site.url("/page") for site in table.values()], settings)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert isinstance(result.failure(site.url("/page")), RobotsUnreachable)
    result.assert_clean()


def filled(length: int, start: bytes = EARLY) -> bytes:
    """`start` and comment lines, exactly `length` bytes, the last of them a line end."""
    line = b"#" + b"." * 98 + b"\n"
    room = length - len(start)
    body = start + line * (room // 100)
    rest = length - len(body)
    return body + (b"#" * (rest - 1) + b"\n" if rest else b"")


async def test_html_is_parsed_as_rules(sites: Sites) -> None:
    """It usually holds no rule, but a line that is one counts, as for Google."""
    html = "<html><body>\nUser-agent: *\nDisallow: /early\n</body></html>"
    site = sites.add(robots=answer(html, type="text/html; charset=utf-8"))
    _, allowed = await verdicts(site, "/early", "/other")
    assert allowed == {"/early": False, "/other": True}


async def test_html_page_without_rules(sites: Sites) -> None:
    site = sites.add(robots=answer("<html><title>Welcome</title>", type="text/html"))
    _, allowed = await verdicts(site, "/other")
    assert allowed == {"/other": True}


async def test_bom_is_skipped(sites: Sites) -> None:
    boms = {"BOM": b"\xef\xbb\xbf", "2/3": b"\xef\xbb", "1/3": b"\xef"}
    await assert_early_is_forbidden(sites, {name: bom + EARLY for name, bom in boms.items()})


async def test_a_file_of_600_kib_counts_up_to_the_limit(sites: Sites) -> None:
    """What is beyond 512,000 bytes is ignored; the file is a normal one."""
    body = filled(LIMIT) + b"Disallow: /late\n"
    body = filled(600 * 1024, start=body)
    result, allowed = await verdicts(sites.add(robots=body), "/early", "/late")
    assert allowed == {"/early": False, "/late": True}
    assert result.stat("rep/outcome/rules") == 1


async def test_a_line_that_the_limit_cuts_is_ignored(sites: Sites) -> None:
    """What would be left of it, `Disallow: /`, forbids everything."""
    cut = b"Disallow: /late\n"
    body = filled(LIMIT - len(b"Disallow: /")) + cut + filled(1000, start=b"")
    _, allowed = await verdicts(sites.add(robots=body), "/early", "/late", "/other")
    assert allowed == {"/early": False, "/late": True, "/other": True}


async def test_a_line_that_ends_at_the_limit_counts(sites: Sites) -> None:
    last = b"Disallow: /last\n"
    body = filled(LIMIT - len(last)) + last + b"Disallow: /late\n"
    _, allowed = await verdicts(sites.add(robots=body), "/early", "/last", "/late")
    assert allowed == {"/early": False, "/last": False, "/late": True}


async def test_a_file_of_exactly_the_limit_is_not_cut(sites: Sites) -> None:
    """Its last line needs no line end."""
    last = b"Disallow: /last"
    body = filled(LIMIT - len(last)) + last
    assert len(body) == LIMIT
    _, allowed = await verdicts(sites.add(robots=body), "/early", "/last")
    assert allowed == {"/early": False, "/last": False}


async def test_the_transfer_is_stopped_at_the_limit(sites: Sites) -> None:
    stream = Stream(EARLY, 100 * 1024 * 1024)
    _, allowed = await verdicts(sites.add(robots=stream), "/early", "/other")
    assert allowed == {"/early": False, "/other": True}
    # What the kernel buffers was sent too: megabytes, but not a hundred of them.
    assert LIMIT <= stream.sent < stream.length / 2


async def test_the_transfer_of_unknown_length_is_stopped(sites: Sites) -> None:
    stream = Stream(EARLY, 100 * 1024 * 1024, announce=False)
    _, allowed = await verdicts(sites.add(robots=stream), "/early", "/other")
    assert allowed == {"/early": False, "/other": True}
    assert stream.sent < stream.length / 2


async def test_a_limit_of_the_project_does_not_fail_the_file(sites: Sites) -> None:
    """DOWNLOAD_MAXSIZE is about pages: with it, a long robots.txt is cut, not failed."""
    site = sites.add(robots=filled(600 * 1024))
    result = await crawl([site.url("/early"), site.url("/other")], {"DOWNLOAD_MAXSIZE": 300_000})
    assert isinstance(result.failure(site.url("/early")), RobotsDisallowed)
    assert result.status(site.url("/other")) == 200
    result.assert_clean()


ZLIB = zlib.compress(EARLY)
COMPRESSED = {
    "gzip": gzipped(EARLY),
    "deflate": answer(ZLIB, headers=[("Content-Encoding", "deflate")]),
    # Without zlib's header and checksum, as some servers understand "deflate".
    "raw deflate": answer(ZLIB[2:-4], headers=[("Content-Encoding", "deflate")]),
}


async def test_a_compressed_file_is_decoded(sites: Sites) -> None:
    await assert_early_is_forbidden(sites, COMPRESSED)


async def test_the_limit_counts_decoded_bytes(sites: Sites) -> None:
    """5 KB on the wire, 600 KiB decoded."""
    body = filled(600 * 1024, start=filled(LIMIT - 11) + b"Disallow: /late\n")
    site = sites.add(robots=gzipped(body))
    _, allowed = await verdicts(site, "/early", "/late", "/other")
    assert allowed == {"/early": False, "/late": True, "/other": True}


async def test_compressed_and_over_the_limit_on_the_wire(sites: Sites) -> None:
    """The transfer is cut within the gzip stream; what came before that is used."""
    noise = random.Random(5).randbytes(1_500_000).translate(None, b"\r\n\0")
    body = (
        EARLY + b"#" + noise[:90_000] + b"\nDisallow: /middle\n#" + noise + b"\nDisallow: /late\n"
    )
    site = sites.add(robots=gzipped(body))
    _, allowed = await verdicts(site, "/early", "/middle", "/late")
    assert allowed == {"/early": False, "/middle": False, "/late": True}


async def test_a_gzip_bomb_is_a_normal_file(sites: Sites) -> None:
    """64 MiB in 64 KiB: a normal file whose first 512,000 bytes are read."""
    resource = pytest.importorskip("resource")
    robots = gzip_bomb(EARLY, 64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    site = sites.add(robots=robots)
    result, allowed = await verdicts(site, "/early", "/other")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert allowed == {"/early": False, "/other": True}
    assert result.stat("rep/outcome/rules") == 1
    assert grown < 40 * 1024  # KiB


async def test_body_that_is_not_the_gzip_it_says(sites: Sites) -> None:
    """An answer that cannot be decoded is no answer: unreachable, and no traceback."""
    bodies = {"plain": EARLY, "cut": gzip.compress(EARLY)[:-20]}
    encoding = [("Content-Encoding", "gzip")]
    answers = {name: answer(body, headers=encoding) for name, body in bodies.items()}
    await assert_unreachable(sites, answers)


SOFT = {
    "title with 404": "<html><head><title>Error 404</title></head><body>Oops",
    "title not found": "<html><head><title>Page Not Found</title></head>",
    "heading": "<html><body><h1>404 - File not found</h1><p>Sorry",
}
REAL = {
    "title 503": "<html><head><title>503 Service Unavailable</title></head><h1>Error</h1>",
    "404 in the text": "<html><head><title>Maintenance</title></head><p>404 times sorry",
    "empty": "",
}


def with_status(status: int, pages: dict[str, str]) -> dict[str, Behaviour]:
    return {
        f"{status}, {name}": answer(page, status, type="text/html") for name, page in pages.items()
    }


async def test_5xx_that_says_not_found_is_a_404(sites: Sites) -> None:
    answers = {**with_status(500, SOFT), **with_status(503, SOFT)}
    table = {name: sites.add(robots=robots) for name, robots in answers.items()}
    result = await crawl([site.url("/page") for site in table.values()])
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert result.status(site.url("/page")) == 200
    assert result.stat("rep/outcome/missing") == len(table)
    result.assert_clean()


async def test_soft_404_can_be_switched_off(sites: Sites) -> None:
    await assert_unreachable(sites, with_status(503, SOFT), {"REP_SOFT_404": False})


async def test_5xx_that_says_something_else(sites: Sites) -> None:
    await assert_unreachable(sites, with_status(503, REAL))


async def test_429_that_says_not_found_is_still_busy(sites: Sites) -> None:
    """Only 5xx pages are read for that."""
    await assert_unreachable(sites, with_status(429, {"title": "<title>404 not found</title>"}))


def noisy(seed: int) -> list[Behaviour]:
    """Random bytes, as an answer, as a body, as headers, as a chunk."""
    chance = random.Random(seed)
    noise = [chance.randbytes(chance.randrange(1, 4000)) for _ in range(8)]
    return [
        raw(noise[0]),
        raw(head(200) + noise[1]),
        raw(b"HTTP/1.1 200 OK\r\n" + noise[2] + b"\r\n\r\n" + noise[3]),
        raw(b"HTTP/1.1 " + noise[4] + b"\r\n\r\n"),
        raw(head(200, [("Transfer-Encoding", "chunked")]) + noise[5]),
        raw(head(200, [("Content-Encoding", "gzip")]) + noise[6]),
        raw(head(301, [("Location", noise[7][:200].decode("latin-1"))])),
    ]


async def test_nothing_a_server_sends_makes_a_traceback(sites: Sites) -> None:
    noise = {
        f"seed {seed}, {number}": sites.add(robots=robots)
        for seed in range(6)
        for number, robots in enumerate(noisy(seed))
    }
    good = [sites.add(robots=EARLY) for _ in range(12)]
    result = await crawl([site.url("/page") for site in [*noise.values(), *good]])
    with every_row() as row:
        for name, site in noise.items():
            with row(name):
                error = result.failure(site.url("/page"))
                assert error is None or isinstance(error, RobotsUnreachable | RobotsDisallowed)
    assert [result.status(site.url("/page")) for site in good] == [200] * len(good)
    result.assert_clean()
