"""REP.md section 9: one function says where a sitemap is that a file lists, for all that ask."""

from __future__ import annotations

import pytest

from scrapy_rep.engine.text import MAX_SITEMAP_URL, resolve_sitemap
from tests.helpers.rows import every_row

ROBOTS = "http://site.test/a/robots.txt"
NONE = "not a URL that a sitemap can have"
SCHEME = "only http and https URLs can be sitemaps"
PATH = "/" + "x" * (MAX_SITEMAP_URL - 1)

# What stands there, and what it is: listed by the robots.txt above; listed by an index.
TABLE = {
    "http://a.test/s.xml": ("http://a.test/s.xml", "http://a.test/s.xml"),
    "HTTP://A.test/s.xml": ("http://a.test/s.xml", "http://a.test/s.xml"),
    " http://a.test/s.xml": ("http://a.test/s.xml", "http://a.test/s.xml"),
    "http://a.test/ä b": ("http://a.test/%C3%A4%20b", "http://a.test/%C3%A4%20b"),
    "http://ä.test/": ("http://xn--4ca.test/", "http://xn--4ca.test/"),
    # As Scrapy requests it.
    "http:\\\\a.test\\s.xml": ("http://a.test/s.xml", "http://a.test/s.xml"),
    "http://a\\[.test/": ("http://a/%5B.test/", "http://a/%5B.test/"),
    # A scheme without a host.
    "http:/a.test/s.xml": (NONE, NONE),
    "http:s.xml": (NONE, NONE),
    "HTTPS:/s.xml": (NONE, NONE),
    "http:///a.test/s.xml": (NONE, NONE),
    "http:": (NONE, NONE),
    # Relative.
    "s.xml": ("http://site.test/a/s.xml", NONE),
    "/s.xml": ("http://site.test/s.xml", NONE),
    "?s": ("http://site.test/a/robots.txt?s", NONE),
    "//a.test/s.xml": ("http://a.test/s.xml", NONE),
    PATH: ("http://site.test" + PATH, NONE),
    PATH + "x": (NONE, NONE),
    # Others.
    "ftp://a.test/s.xml": (SCHEME, SCHEME),
    "javascript:alert(1)": (NONE, NONE),
    "http://[": (NONE, NONE),
    "http://a.test:x/": (NONE, NONE),
    "http://" + "ä." * 1000: (NONE, NONE),
}


def test_where_a_listed_sitemap_is() -> None:
    with every_row() as row:
        for value, (in_robots_txt, in_index) in TABLE.items():
            with row(value[:30]):
                assert_resolves(value, ROBOTS, in_robots_txt, relative=in_index == NONE)
                assert_resolves(value, None, in_index, relative=False)


def assert_resolves(value: str, base: str | None, expected: str, *, relative: bool) -> None:
    if expected in (NONE, SCHEME):
        with pytest.raises(ValueError, match=f"^{expected}$"):
            resolve_sitemap(value, base)
        return
    url, origin, is_relative = resolve_sitemap(value, base)
    assert url == expected
    assert url.startswith(f"{origin}/")
    assert is_relative is relative
