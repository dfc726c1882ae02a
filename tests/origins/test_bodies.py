"""REP.md sections 2, 3 and 6: what is read of a body, and what is taken for a rule."""

from __future__ import annotations

import random
import zlib

import pytest

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import Behaviour, Stream, answer, gzip_bomb, gzipped, head, raw
from tests.helpers.crawling import crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

LIMIT = 512_000
EARLY = b"User-agent: *\nDisallow: /early\n"
LATE = b"Disallow: /late\n"


def filled(length: int, start: bytes = EARLY) -> bytes:
    """`start` and comment lines, exactly `length` bytes, the last of them a line end."""
    line = b"#" + b"." * 98 + b"\n"
    room = length - len(start)
    body = start + line * (room // 100)
    rest = length - len(body)
    return body + (b"#" * (rest - 1) + b"\n" if rest else b"")


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size).translate(None, b"\r\n\0")


def long() -> dict[str, Behaviour | bytes]:
    """Around the limit. Each forbids /early, and perhaps /late."""
    over = filled(600 * 1024, start=filled(LIMIT - 11) + LATE)
    packed = b"%b#%b\n%b#%b\n" % (EARLY, noise(90_000), LATE, noise(1_500_000))
    return {
        "beyond the limit": filled(LIMIT) + LATE + filled(9000, start=b""),
        # What would be left of it, `Disallow: /`, forbids everything.
        "cut by it": filled(LIMIT - len(b"Disallow: /")) + LATE + filled(1000, start=b""),
        "ends at it, forbids /late": filled(LIMIT - len(LATE)) + LATE + b"Disallow: /other\n",
        "no line end, forbids /late": filled(LIMIT - len(LATE) + 1) + LATE[:-1],
        "beyond it when decoded": gzipped(over),
        "cut within gzip, forbids /late": gzipped(packed),
    }


ZLIB = zlib.compress(EARLY)
ENCODINGS: dict[str, Behaviour | bytes] = {
    "HTML": answer(b"<html>\n" + EARLY + b"</html>", type="text/html"),
    "BOM": b"\xef\xbb\xbf" + EARLY,
    "2/3 of a BOM": b"\xef\xbb" + EARLY,
    "1/3 of a BOM": b"\xef" + EARLY,
    "gzip": gzipped(EARLY),
    "deflate": answer(ZLIB, headers=[("Content-Encoding", "deflate")]),
    # Without zlib's header and checksum, as some servers understand "deflate".
    "raw deflate": answer(ZLIB[2:-4], headers=[("Content-Encoding", "deflate")]),
}


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_a_file_counts_up_to_the_limit_however_it_is_encoded(sites: Sites) -> None:
    """The rest is a normal file, whatever the project's own limit is."""
    table = {name: sites.add(robots=body) for name, body in {**ENCODINGS, **long()}.items()}
    paths = ("/early", "/late", "/other")
    result = await crawl(
        [site.url(path) for site in table.values() for path in paths],
        {"DOWNLOAD_MAXSIZE": 300_000},
    )
    result.assert_clean()
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                errors = [result.failure(site.url(path)) for path in paths]
                wanted = [True, "forbids /late" in name, False]
                assert [isinstance(error, RobotsDisallowed) for error in errors] == wanted
                assert [site.count(path) for path in paths] == [not one for one in wanted]
                assert site.count("/robots.txt") == 1
    assert result.stat("rep/outcome/rules") == len(table)


@pytest.mark.download
@pytest.mark.parametrize("announce", [True, False])
async def test_the_transfer_is_stopped_at_the_limit(sites: Sites, announce: bool) -> None:
    stream = Stream(EARLY, 100 * 1024 * 1024, announce=announce)
    site = sites.add(robots=stream)
    result = await crawl([site.url("/early"), site.url("/other")])
    assert isinstance(result.failure(site.url("/early")), RobotsDisallowed)
    assert result.status(site.url("/other")) == 200
    # What the kernel buffers was sent too: megabytes, but not a hundred of them.
    assert LIMIT <= stream.sent < stream.length / 2


async def test_a_gzip_bomb_is_a_normal_file(sites: Sites) -> None:
    """64 MiB in 64 KiB: a normal file whose first 512,000 bytes are read."""
    resource = pytest.importorskip("resource")
    site = sites.add(robots=gzip_bomb(EARLY, 64))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await crawl(site.url("/early"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert isinstance(result.failure(site.url("/early")), RobotsDisallowed)
    assert grown < 40 * 1024  # KiB


SOFT = [
    "<html><head><title>Error 404</title></head><body>Oops",
    "<html><head><title>Page Not Found</title></head>",
    "<html><body><h1>404 - File not found</h1><p>Sorry",
]
REAL = [
    "<html><head><title>503 Service Unavailable</title></head><h1>Error</h1>",
    "<html><head><title>Maintenance</title></head><p>404 times sorry",
    "",
]


@pytest.mark.parametrize("on", [True, False])
async def test_5xx_that_says_not_found_is_a_404(sites: Sites, on: bool) -> None:
    pages = [(status, page) for status in (500, 503) for page in SOFT]
    soft = [sites.add(robots=answer(page, status, type="text/html")) for status, page in pages]
    pages = [(503, page) for page in REAL] + [(429, page) for page in SOFT]
    real = [sites.add(robots=answer(page, status, type="text/html")) for status, page in pages]
    result = await crawl([site.url("/x") for site in (*soft, *real)], {"REP_SOFT_404": on})
    assert set(result.responses) == ({site.url("/x") for site in soft} if on else set())
    assert all(isinstance(one, RobotsUnreachable) for one in result.failures.values())
    assert len(result.failures) == len(real) + (0 if on else len(soft))
    result.assert_clean()


def noisy(seed: int) -> list[Behaviour]:
    """Random bytes, as an answer, as a body, as headers, as a chunk."""
    chance = random.Random(seed)
    some = [chance.randbytes(chance.randrange(1, 4000)) for _ in range(8)]
    return [
        raw(some[0]),
        raw(head(200) + some[1]),
        raw(b"HTTP/1.1 200 OK\r\n" + some[2] + b"\r\n\r\n" + some[3]),
        raw(b"HTTP/1.1 " + some[4] + b"\r\n\r\n"),
        raw(head(200, [("Transfer-Encoding", "chunked")]) + some[5]),
        raw(head(200, [("Content-Encoding", "gzip")]) + some[6]),
        raw(head(301, [("Location", some[7][:200].decode("latin-1"))])),
    ]


@pytest.mark.download
async def test_nothing_a_server_sends_makes_a_traceback(sites: Sites) -> None:
    noise = [sites.add(robots=robots) for seed in range(6) for robots in noisy(seed)]
    good = [sites.add(robots=EARLY) for _ in range(12)]
    result = await crawl([site.url("/page") for site in [*noise, *good]])
    for error in result.failures.values():
        assert isinstance(error, RobotsUnreachable | RobotsDisallowed)
    assert [result.status(site.url("/page")) for site in good] == [200] * len(good)
    result.assert_clean()
