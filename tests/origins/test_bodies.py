"""REP.md sections 2, 3 and 6: what is read of a body, and under whose name it is asked for."""

from __future__ import annotations

import gzip
import itertools
import random
import re
import zlib
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep import may_fetch
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.answer import decode
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import (
    RULES,
    RULES_BYTES,
    Behaviour,
    LongBody,
    answer,
    encoded,
    gzipped,
    head,
    raw,
    redirect,
)
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

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
        "cut by it": filled(LIMIT - len(b"Disallow: /"))
        + LATE
        + filled(1000, start=b""),
        "ends at it, forbids /late": filled(LIMIT - len(LATE))
        + LATE
        + b"Disallow: /other\n",
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
    "deflate": encoded(ZLIB, "deflate"),
    # Without zlib's header and checksum, as some servers understand "deflate".
    "raw deflate": encoded(ZLIB[2:-4], "deflate"),
}
OTHERS: dict[str, bytes] = {}
for module, name in (("brotli", "br"), ("backports.zstd", "zstd")):
    with suppress(ImportError):
        OTHERS[name] = data = import_module(module).compress(EARLY)
        ENCODINGS[name] = encoded(data, name)
        ENCODINGS[f"{name}, gzip"] = encoded(gzip.compress(data), f"{name}, gzip")


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_a_file_counts_up_to_the_limit_however_it_is_encoded(
    sites: Sites,
) -> None:
    """The rest is a normal file, whatever the project's own limit is."""
    table = {
        name: sites.add(robots=body) for name, body in {**ENCODINGS, **long()}.items()
    }
    paths = ("/early", "/late", "/other")
    pages = [site.url(path) for site in table.values() for path in paths]
    result = await crawl(pages, {"DOWNLOAD_MAXSIZE": 300_000})
    result.assert_clean()
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                errors = [result.failure(site.url(path)) for path in paths]
                wanted = [True, "forbids /late" in name, False]
                assert [
                    isinstance(error, RobotsDisallowed) for error in errors
                ] == wanted
                assert [site.count(path) for path in paths] == [
                    not one for one in wanted
                ]
                assert site.count("/robots.txt") == 1
    assert result.stat("rep/outcome/rules") == len(table)


@pytest.mark.download
@pytest.mark.parametrize("announce", [True, False])
async def test_the_transfer_is_stopped_at_the_limit(
    sites: Sites, announce: bool
) -> None:
    stream = LongBody(EARLY, 100 * 1024 * 1024, announce=announce)
    site = sites.add(robots=stream)
    result = await crawl([site.url("/early"), site.url("/other")])
    assert result.disallowed(site.url("/early"))
    assert result.status(site.url("/other")) == 200
    # What the kernel buffers was sent too: megabytes, but not a hundred of them.
    assert LIMIT <= stream.sent < stream.length / 2


Pairs = list[tuple[str, str]]
GZIP = gzip.compress(RULES_BYTES)


def sent_as(encoding: str, body: bytes) -> tuple[Pairs, bytes]:
    return [("Content-Encoding", encoding), ("Content-Length", str(len(body)))], body


# Headers and bodies of answers whose body nobody can read to its end.
BODIES: dict[str, tuple[Pairs, bytes]] = {
    "no gzip": sent_as("gzip", RULES_BYTES),
    "half of gzip": sent_as("gzip", GZIP[:-20]),
    "no deflate": sent_as("deflate", RULES_BYTES),
    "half of deflate": sent_as("deflate", zlib.compress(RULES_BYTES)[:-9]),
    "no Brotli": sent_as("br", RULES_BYTES),
    "no Zstandard": sent_as("zstd", RULES_BYTES),
    "a chain": sent_as("br, gzip", GZIP),
    "too long a chain": sent_as(", ".join(["gzip"] * 9), GZIP),
    "nobody's encoding": sent_as("compress", b"\x1f\x9d\x90" + RULES_BYTES),
    "a cut body": ([("Content-Length", "999")], RULES_BYTES),
    "no last chunk": ([("Transfer-Encoding", "chunked")], b"2\r\nUs\r\n"),
}
BODIES |= {f"half of {name}": sent_as(name, data[:-6]) for name, data in OTHERS.items()}
MOVED, BUSY = [("Location", "/rules")], [("Retry-After", "300")]
ANSWERS: list[tuple[int, Pairs, str]] = [
    (404, [], "missing"),
    (403, [("Cache-Control", "max-age=3600")], "missing"),
    (301, MOVED, "rules"),
    (302, [], "missing"),
    (503, BUSY, "busy"),
    (200, [], "broken"),
]


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_status_and_headers_count_whatever_the_body_is(sites: Sites) -> None:
    table: dict[str, tuple[Site, str, int]] = {}
    for (name, (about, body)), (status, said, means) in itertools.product(
        BODIES.items(), ANSWERS
    ):
        site = sites.add(
            robots=raw(head(status, [*said, *about]) + body), pages={"/rules": RULES}
        )
        table[f"{status}, {name}"] = site, means, status
    resolved, pages = (
        Resolved(),
        [site.url("/private") for site, _, _ in table.values()],
    )
    result = await crawl(pages, ONE_ATTEMPT, signal_handlers=resolved.handlers)
    with every_row() as row:
        for name, (site, means, status) in table.items():
            with row(name):
                error = result.failure(site.url("/private"))
                [one] = resolved.of(site.url())
                if means == "missing":
                    assert error is None
                    assert (one["outcome"], one["status"]) == (Outcome.MISSING, status)
                elif means == "rules":
                    assert isinstance(error, RobotsDisallowed)
                    assert (one["hops"], one["status"]) == (1, 200)
                else:
                    assert isinstance(error, RobotsUnreachable)
                    told = (
                        f"HTTP {status}"
                        if means == "busy"
                        else "ResponseDataLossError: "
                    )
                    assert error.reason.startswith(told)
    waits = re.findall(r"no attempt is due for (?:300|29\d)\.\d s", result.log)
    assert len(waits) == len(BODIES)  # by Retry-After
    result.assert_clean()


@pytest.mark.parametrize("on", [True, False])
async def test_an_error_page_may_say_that_the_file_is_missing(
    sites: Sites, on: bool
) -> None:
    """Of a 5xx, what can be read of the page is read; not if it is to be asked again."""
    page = b"<title>Page not found</title>" + b"." * 1000
    length = [("Content-Length", "9999")]
    table: dict[str, tuple[Behaviour, bool]] = {
        "whole": (answer(page, 500, type="text/html"), True),
        "429": (answer(page, 429, type="text/html"), False),
        "maintenance": (answer("<title>Maintenance</title><p>404 times", 503), False),
        "cut": (raw(head(503, length) + page), True),
        "half of gzip": (encoded(gzip.compress(page)[:-10], "gzip", status=503), True),
        "Retry-After": (answer(page, 503, [("Retry-After", "60")]), False),
        "an unreadable Retry-After": (
            answer(page, 503, [("Retry-After", "soon")]),
            False,
        ),
        "no page": (encoded(page, "gzip", status=503), False),
    }
    added = {name: sites.add(robots=robots) for name, (robots, _) in table.items()}
    pages = [site.url("/page") for site in added.values()]
    result = await crawl(pages, {**ONE_ATTEMPT, "REP_SOFT_404": on})
    passed = {
        name: result.status(site.url("/page")) == 200 for name, site in added.items()
    }
    assert passed == {name: on and passes for name, (_, passes) in table.items()}
    result.assert_clean()


@pytest.mark.parametrize(
    ("module", "encoding"),
    [("brotli", "br"), ("backports.zstd", "zstd"), ("gzip", "gzip")],
)
def test_bombs_in_any_encoding_are_cut(module: str, encoding: str) -> None:
    library = pytest.importorskip(module)
    data = library.compress(RULES_BYTES + bytes(4 << 20))
    text, complete = decode(data, encoding)
    assert (len(text), complete) == (512_001, False)
    assert text.startswith(RULES_BYTES)


OTHER = "OtherBot/2.0 (+https://example.com/other)"


async def test_robots_txt_is_asked_for_under_the_name_of_who_needs_it(
    sites: Sites,
) -> None:
    """Sites may forbid one name everything, and refuse others their robots.txt."""
    named, direct, moved, asked, plain = (sites.add(robots=RULES) for _ in range(5))
    moved.set("/rules", RULES)
    moved.set("/robots.txt", redirect("/rules"))
    agent = {"User-Agent": OTHER}

    class AsksUnderAName(ListSpider):
        async def parse(self, response: Any, **kwargs: Any) -> None:
            assert self.crawler.engine is not None
            assert not await may_fetch(self.crawler, asked.url("/private"))
            request = Request(direct.url("/private"), headers=agent)
            with pytest.raises(RobotsDisallowed):
                await self.crawler.engine.download_async(request)

    requests = [Request(site.url("/private"), headers=agent) for site in (named, moved)]
    requests.append(Request(plain.url("/private"), headers={"User-Agent": ""}))
    result = await crawl(AsksUnderAName, requests=[*requests, "data:,start"])
    assert all(result.disallowed(one.url) for one in requests)
    names = {
        hit.header("User-Agent")
        for one in (named, direct, moved)
        for hit in one.requests
    }
    assert names == {OTHER}
    own = {hit.header("User-Agent") for site in (asked, plain) for hit in site.requests}
    assert own == {result.spider.settings["USER_AGENT"]}
    assert [len(one.requests) for one in (named, direct, moved, asked, plain)] == [
        1,
        1,
        2,
        1,
        1,
    ]
    result.assert_clean()
