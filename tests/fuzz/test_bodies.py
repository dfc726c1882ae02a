"""Bodies of any kind, encoded in any way: read as far as they count, or not an answer."""

from __future__ import annotations

import functools
import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.exceptions import IgnoreRequest, ResponseDataLossError
from scrapy.http import Response

from scrapy_rep.origins.answer import READ_BYTES, Transfer, answer_of
from scrapy_rep.origins.cache import LARGE_BYTES
from scrapy_rep.origins.fetcher import keep_what_counts
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.availability import Outcome, outcome_of
from scrapy_rep.protocol.syntax import MAX_BYTES, MAX_LINE, cut, normalise
from tests.fuzz.strategies import FILES, damaged
from tests.helpers.recorded import context_of
from tests.helpers.timing import in_a_slice
from tests.protocol.strategies import any_text, chains, tokens, urls

pytestmark = pytest.mark.slow


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, list[Any]] = {
    "gzip": [
        gzip.compress,
        lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    ],
    "x-gzip": [lambda data: gzip.compress(data, mtime=0) + b"\0\0"],
    "deflate": [zlib.compress, _deflated],
    "GZip": [lambda data: gzip.compress(data) + gzip.compress(b"") * 3],
}
LAYERS = [(name, way) for name, ways in PACKERS.items() for way in ways]
PACKED = damaged(
    [
        *(pack(b"User-agent: *\nDisallow: /\n" * 40) for _, pack in LAYERS),
        gzip.compress(gzip.compress(b"\0" * 3_000_000)),
        gzip.compress(b"", mtime=0) * 50,
        zlib.compress(b"x" * 600_000),
    ],
    [
        b"\x1f\x8b\x08",
        b"\0",
        gzip.compress(b"", mtime=0),
        b"\0\0\0\xff\xff",
        b"\x78\x9c",
        b"\xff",
    ],
    1_100_000,
)
NAMES = [
    "gzip",
    "x-gzip",
    "deflate",
    "GZIP",
    "identity",
    "br",
    "zstd",
    "compress",
    "x,y",
    "\x1b[m",
]


@functools.cache
def compression() -> HttpCompressionMiddleware:
    return HttpCompressionMiddleware.from_crawler(context_of().crawler)


def fetched(data: bytes, encodings: list[str], cut_off: bool = False) -> bytes:
    url, transfer = "http://a.example/robots.txt", Transfer(cut=cut_off)
    response = Response(url, headers={"Content-Encoding": encodings}, body=data)
    response = keep_what_counts(response, transfer)
    try:
        response = compression().process_response(Request(url), response)  # type: ignore[assignment]
    except Exception as error:
        # Whatever libraries raise: the fetcher expects anything of other components.
        raise IgnoreRequest from error
    answer = answer_of(response, transfer, url, 0, soft_404=True)
    if answer.error is not None:
        raise answer.error
    return answer.body


@given(FILES, st.lists(st.sampled_from(LAYERS), max_size=5), st.booleans())
def test_bodies_come_out_of_all_layers(
    body: bytes, layers: list[tuple[str, Any]], cut_off: bool
) -> None:
    data, names = body, []
    for name, pack in layers:
        data = pack(data)
        names.append(name)
    assert in_a_slice(lambda: fetched(data, names, cut_off)) == body[:READ_BYTES]


@given(PACKED, st.lists(st.sampled_from(NAMES), max_size=6), st.booleans())
def test_bodies_that_are_not_what_they_say(
    data: bytes, names: list[str], cut_off: bool
) -> None:
    try:
        body = in_a_slice(lambda: fetched(data, names, cut_off))
    except (ResponseDataLossError, IgnoreRequest) as error:
        assert len(str(error)) < 500
        return
    assert len(body) <= READ_BYTES


@given(FILES, st.integers(100, 999))
def test_files_of_any_kind(body: bytes, status: int) -> None:
    assert isinstance(in_a_slice(lambda: outcome_of(status, body)), Outcome)
    kept = cut(body)
    assert body.startswith(kept)
    assert len(kept) <= MAX_BYTES
    assert kept == body or kept[-1:] in b"\r\n" or body[MAX_BYTES] in b"\r\n"
    text = in_a_slice(lambda: normalise(body))
    assert not set("\r\0") & set(text)
    assert max(map(len, text.split("\n"))) <= MAX_LINE


@given(FILES, urls() | any_text, tokens | chains)
def test_questions_to_files_of_any_kind(
    body: bytes, url: str, agent: str | list[str]
) -> None:
    robots = RobotsTxt.parse(body)
    if len(body) <= LARGE_BYTES:
        in_a_slice(lambda: robots.rules(agent))
    else:
        robots.rules(agent)  # in a crawl: in a thread
    decision = in_a_slice(lambda: robots.decide(url, agent))
    assert robots.allowed(url, agent) is decision.allowed
    assert (
        decision.rule is None
        or decision.rule.line <= body.count(b"\n") + body.count(b"\r") + 1
    )
    assert len(str(decision.rule).encode()) <= 4 * MAX_LINE + 100
    delay = robots.crawl_delay(agent)
    assert delay is None or 0 <= delay < float("inf")
    assert all(len(sitemap.encode()) <= 4 * MAX_LINE for sitemap in robots.sitemaps)
