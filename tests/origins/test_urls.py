"""The short ways with a URL lead where the long ones do."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_rep.origins.requests import as_it_stands
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import path_of
from scrapy_rep.seeding.discovery import listed_sitemaps

PARTS = [
    *["http://", "https://", "example.com", "/", "/", "s.xml"] * 3, "ftp://", "HTTP://", "//",
    "Example.COM", "www.", "127.0.0.1", "[::1]", "a_b", "xn--bcher-kva", "b\u00fccher", ":80", ":8080",
    ":443", ":", "u:p@", "?a=1&b=2", "#c", ";", "%2f", "%zz", "{x}", "|", "^", " ", "\t", "\\", "..", ".",
    "-", "~", "'", '"', "*", "$", "\u30c4", "data:", "x",
]  # fmt: skip

HOST = Origin("https", "example.com", 443)

texts = st.one_of(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.text(max_size=20))
urls = st.one_of(texts, texts.map("http://example.com/".__add__), texts.map("https://".__add__))


def long_way(value: str) -> tuple[str, str] | None:
    """A listed sitemap's URL, and where it is; None if it is no URL."""
    try:
        url = Request(value).url
        origin = Origin.from_url(url)
    except ValueError:
        return None
    return (url, str(origin)) if origin.scheme in ("http", "https") else None


def origin(url: str) -> Origin | None:
    try:
        return Origin.from_url(url)
    except ValueError:
        return None


@given(urls)
@example("http://:/")
@example("http://example.com:80/s.xml")
@example("https://a..b/s.xml")
@example("https://" + 70 * "a" + "/s.xml")
@example("http://example.com/it's.xml")
@example("http://example.com/s.xml?it's")
@example("http://example.com/s.xml?#")
def test_a_url_that_stands_as_it_is(url: str) -> None:
    plain = as_it_stands(url)
    try:
        request = Request(url)
    except ValueError:  # a port that is none, say
        assert plain is None or origin(plain[0]) is None
        return
    if plain is not None:
        assert plain[1] == path_of(request.url)
        assert origin(plain[0]) == origin(request.url)


@given(urls)
@example("http://example.com:80/s.xml")
@example("http://Example.com/s.xml")
@example("https://a..b/s.xml")
@example("ftp://example.com/s.xml")
@example("http://example.com/s.xml#")
@example("http://example.com/s.xml#c#c")
@example("https://example.com\\[s.xml")
def test_sitemaps_that_a_file_lists(value: str) -> None:
    if not re.match("[a-z]+:", value):
        return  # relative to the file: for the tests of seeding
    ((_, found),) = listed_sitemaps(HOST.robots_url, [value])
    assert (found and (found.url, str(found.origin))) == long_way(value)


def test_a_robots_txt_can_list_the_same_sitemap_twice() -> None:
    body = b"Sitemap: https://example.com/s.xml\n" * 2 + b"Sitemap: https://example.com:443/s.xml"
    listed = listed_sitemaps("", RobotsTxt.parse(body).sitemaps)
    assert [found and (found.url, str(found.origin)) for _, found in listed] == [
        ("https://example.com/s.xml", "https://example.com"),
        ("https://example.com:443/s.xml", "https://example.com"),
    ]
