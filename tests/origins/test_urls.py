"""Where a listed sitemap is (REP.md section 9)."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.text import MAX_SITEMAP_URL, resolve_sitemap
from tests.helpers.rows import every_row

PARTS = [
    *["http://", "https://", "example.com", "/", "/", "s.xml"] * 3, "ftp://", "HTTP://", "//",
    "Example.COM", "www.", "127.0.0.1", "[::1]", "a_b", "xn--bcher-kva", "b\u00fccher", ":80", ":8080",
    ":443", ":", "u:p@", "?a=1&b=2", "#c", ";", "%2f", "%zz", "{x}", "|", "^", " ", "\t", "\\", "..", ".",
    "-", "~", "'", '"', "*", "$", "\u30c4", "data:", "x",
]  # fmt: skip
HOST = Origin("https", "example.com", 443)
texts = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.text(max_size=20)
)
urls = st.one_of(
    texts, texts.map("http://example.com/".__add__), texts.map("https://".__add__)
)


@given(urls)
@example("http://:/")
@example("http://example.com:80/s.xml")
@example("http://Example.com/s.xml")
@example("https://a..b/s.xml")
@example("https://" + 70 * "a" + "/s.xml")
@example("http://example.com/it's.xml")
@example("http://example.com/s.xml?it's")
@example("http://example.com/s.xml?#")
@example("http://example.com/s.xml?")
@example("http://example.com/s.xml#c#c")
@example("https://example.com\\[s.xml")
@example("ftp://example.com/s.xml")
def test_a_listed_sitemap_is_where_its_request_goes(value: str) -> None:
    request, origin = None, None
    with suppress(ValueError):  # a port that is none, say
        request = Request(value)
        origin = Origin.from_url(request.url)
    if re.match(
        "[a-z]+:", value
    ):  # else it is relative to the file: for the tests of seeding
        ((_, found),) = listed_sitemaps(HOST.robots_url, [value])
        on_the_web = request and origin and origin.scheme in ("http", "https")
        wanted = (request.url, str(origin)) if request and on_the_web else None
        assert (found and (found.url, str(found.origin))) == wanted


def test_a_robots_txt_can_list_the_same_sitemap_twice() -> None:
    body = (
        b"Sitemap: https://example.com/s.xml\n" * 2
        + b"Sitemap: https://example.com:443/s.xml"
    )
    listed = listed_sitemaps("", RobotsTxt.parse(body).sitemaps)
    urls = ["https://example.com/s.xml", "https://example.com:443/s.xml"]
    assert [(found.url, str(found.origin)) for _, found in listed if found] == [
        (url, "https://example.com") for url in urls
    ]


ROBOTS = "http://site.test/a/robots.txt"
NONE = "not a URL that a sitemap can have"
SCHEME = "only http and https URLs can be sitemaps"
PATH = "/" + "x" * (MAX_SITEMAP_URL - 1)
# What stands there, and what it is: listed by the robots.txt above; listed by an index. More are in tests/seeding.
TABLE = {
    " http://ä.test/ä b": (
        "http://xn--4ca.test/%C3%A4%20b",
        "http://xn--4ca.test/%C3%A4%20b",
    ),
    # As Scrapy requests it.
    "http:\\\\a.test\\s.xml": ("http://a.test/s.xml", "http://a.test/s.xml"),
    "http://a\\[.test/": ("http://a/%5B.test/", "http://a/%5B.test/"),
    # A scheme without a host.
    "http:/a.test/s.xml": (NONE, NONE),
    "HTTPS:/s.xml": (NONE, NONE),
    "http:///a.test/s.xml": (NONE, NONE),
    "?s": ("http://site.test/a/robots.txt?s", NONE),
    "//a.test/s.xml": ("http://a.test/s.xml", NONE),
    PATH: ("http://site.test" + PATH, NONE),
    PATH + "x": (NONE, NONE),
    "ftp://a.test/s.xml": (SCHEME, SCHEME),
    "http://[": (NONE, NONE),
    "http://" + "ä." * 1000: (NONE, NONE),
}


def test_where_a_listed_sitemap_is() -> None:
    with every_row() as row:
        for value, in_either in TABLE.items():
            for base, expected in zip((ROBOTS, None), in_either, strict=True):
                with row((value[:30], base)):
                    if expected in (NONE, SCHEME):
                        with pytest.raises(ValueError, match=f"^{expected}$"):
                            resolve_sitemap(value, base)
                        continue
                    url, origin, relative = resolve_sitemap(value, base)
                    assert url == expected
                    assert url.startswith(f"{origin}/")
                    assert relative is (in_either[1] == NONE)
