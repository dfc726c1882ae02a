"""Headers of any kind: whatever they say, an answer is one that is known and kept like others."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.exceptions import ResponseDataLossError
from scrapy.http import Headers, Response

from scrapy_rep.origins import answer
from scrapy_rep.origins.agents import origin_of, path_in
from scrapy_rep.origins.answer import MAX_HEADER, header_text
from scrapy_rep.origins.fetcher import redirect_target
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.freshness import backoff, fresh_seconds, latest, retry_after
from scrapy_rep.protocol.syntax import is_name, product_token
from tests.fuzz.strategies import damaged
from tests.helpers.timing import in_a_slice

pytestmark = pytest.mark.slow
NOW = 1_800_000_000.0
ASKED = [
    f"{origin}/robots.txt"
    for origin in ("http://a.example", "https://[::1]:8443", "ftp://a")
]
LONGEST = MAX_HEADER + 100
NUMBERS = [
    b"0",
    b"60",
    b"-1",
    b"1.5",
    b"9" * 19,
    b"9" * 5000,
    b"1e9",
    b"0x10",
    b"\xb2",
    b"+5",
]
CACHE_CONTROL = damaged(
    [
        b'public, max-age="3600", s-maxage=5',
        b"no-store, no-cache, max-age=0,max-age = 600",
    ],
    [
        b"max-age",
        b"s-maxage",
        b"=",
        b'"',
        b",",
        b" ",
        b"\t",
        b"no-cache",
        b";",
        *NUMBERS,
    ],
    LONGEST,
)
DATES = damaged(
    [b"Wednesday, 21-Oct-15 07:28:00 GMT", b"Wed Oct 21 07:28:00 2015", b"2024-05", b"120",
     b"Fri, 31 Dec 9999 23:59:59 -2359", b"2024-05-06T07:08:09.5+02:00", b"Mon, 1 Jan 1 0:0 +2359",
     b"9999-12-31T23:59:59-23:59", b"0001-01-01"],
    [b",", b" ", b"-", b":", b"(", b")", b".", b"+", b"Feb", b"29", b"99", b"GMT", b"EST", b"T",
     b"+9999", b"-2400", b"Z", b"0", b"AM", b"\\", b'"', "\u0661".encode(), *NUMBERS],
    70_000,
)  # fmt: skip
ENCODINGS = damaged(
    [
        b"gzip",
        b"gzip, deflate",
        b"identity, X-GZIP",
        b"br",
        b"zstd,gzip,gzip,gzip,gzip",
    ],
    [b",", b" ", b"gzip", b"identity", b"\t", b"\x1b", b"deflate", b"\xff", b";q=1"],
    LONGEST,
)
LOCATIONS = damaged(
    [b"https://u:p@b.example:8443/x?y=z#f", b"//b.example/x", b"/x", b"?x", b"http://[2001:db8::1]:80/",
     "http://exämple.com/ä?ä".encode(), b"http://xn--exmple-cua.com./"],
    [b"http://", b"https:", b"ftp://", b"%%", b"//", b"/", b"\\", b"@", b":", b"[", b"]", b"%", b"%0a",
     b"?", b"#", b"..", b".", b" ", b"\t", b"\r\n", b"\0", b"\x1b", b"\xe4", "ä".encode(), b"65536",
     "\uff0f".encode(), "\u2100".encode(), "\u3002".encode(), "\u00ad".encode(), b"xn--", b"::1",
     b"%25eth0", b"v1.a", b"a" * 70, b"data:,x", b"javascript:x", b"\x85", "\u202e".encode()],
    LONGEST,
)  # fmt: skip
USER_AGENTS = damaged(
    [
        b"Mozilla/5.0 (compatible; FooBot/1.2; +https://a.example)",
        b"FooBot",
        b"curl/8 (x) bot",
    ],
    [b"(", b")", b";", b"/", b" ", b"bot", b"+", b"://", b"Mozilla", b"\xff", b"\0"],
    LONGEST,
)


def text(value: bytes) -> str:
    return value.decode("latin-1")


@pytest.mark.python  # the standard library reads dates and URLs
@given(CACHE_CONTROL, DATES, DATES, DATES)
def test_times_of_any_kind(
    cache_control: bytes, age: bytes, again: bytes, changed: bytes
) -> None:
    some = Headers({"Cache-Control": cache_control, "Age": age, "Retry-After": again})
    values = [
        header_text(some, name) for name in ("Cache-Control", "Age", "Retry-After")
    ]
    assert all(len(value or "") <= MAX_HEADER for value in values)

    def read() -> tuple[float, float | None]:
        lifetime = fresh_seconds(*values[:2], default=5.0, minimum=2.0, maximum=9.0)
        when = latest(changed.decode("utf-8", "replace"))  # of a sitemap
        assert when is None or (when < datetime.now(timezone.utc)) in (True, False)
        return lifetime, retry_after(values[2], NOW)

    lifetime, seconds = in_a_slice(read)
    assert 2 <= lifetime <= 9
    assert seconds is None or 0 <= seconds < 1e19
    assert (
        0 < backoff(1, base=5.0, maximum=600.0, jitter=0.5, retry_after=seconds) <= 600
    )


@given(st.lists(ENCODINGS, max_size=3), USER_AGENTS)
def test_names_of_any_kind(values: list[bytes], user_agent: bytes) -> None:
    token = in_a_slice(lambda: product_token(text(user_agent)))
    assert token is None or is_name(token)
    try:
        found = in_a_slice(lambda: answer.content_encodings(values))
    except ResponseDataLossError as error:
        assert str(error).isprintable()
        return
    assert len(found) <= answer.MAX_ENCODINGS
    assert not {"", "identity"} & set(found)
    assert all(name == name.strip().lower() for name in found)


@pytest.mark.python  # the standard library reads dates and URLs
@given(LOCATIONS, st.sampled_from(ASKED))
@example(b"http://\0b.example/", ASKED[0])
@example(b"//b?.example/x", ASKED[0])
@example(b"?'x", ASKED[0])
@example(b"http://" + b"%" * 99 + b"\xc3\xa4/", ASKED[0])  # a label that is too long
@example(b"http://" + "\ufdfa".encode() * 1300 + b"/", ASKED[0])  # 18 letters each
def test_redirects_to_anywhere(location: bytes, url: str) -> None:
    response = Response(url, headers={"Location": location})
    target = in_a_slice(lambda: redirect_target(url, response))
    if target is None:
        return
    assert len(target) <= 3 * MAX_HEADER + len(url)
    request, origin = Request(target), Origin.from_url(target)
    again = Response(url, headers={"Location": target})
    if not origin.host.startswith("["):  # older w3lib loses the brackets
        assert origin_of(request) == origin
        assert redirect_target(url, again) == target or len(target) > MAX_HEADER
    assert origin.scheme in ("http", "https")
    assert "@" not in request.url.split("/")[2]
    assert "#" not in request.url
    assert request.url.isascii()
    assert request.url.isprintable()
    assert path_in(request).startswith("/")
