"""Whose robots.txt is it? (REP.md section 1)"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_rep.protocol import Origin
from tests.protocol.strategies import any_text
from tests.protocol.tables import check

CANONICAL = [
    ("https://example.com/", "https://example.com", "plain"),
    ("https://example.com", "https://example.com", "no path"),
    ("https://example.com?q", "https://example.com", "no path but a query"),
    ("https://example.com#f", "https://example.com", "no path but a fragment"),
    ("https://example.com/a/b?c#d", "https://example.com", "path, query and fragment are no part"),
    ("http://example.com/", "http://example.com", "http is not https"),
    ("ftp://example.com/", "ftp://example.com", "ftp"),
    ("http://example.com:80/", "http://example.com", "the default port of http"),
    ("https://example.com:443/", "https://example.com", "the default port of https"),
    ("ftp://example.com:21/", "ftp://example.com", "the default port of ftp"),
    ("https://example.com:444/", "https://example.com:444", "another port"),
    ("https://example.com:80/", "https://example.com:80", "the default port of another scheme"),
    ("http://example.com:443/", "http://example.com:443", "the default port of another scheme"),
    ("http://example.com:/", "http://example.com", "an empty port"),
    ("http://example.com:0080/", "http://example.com", "zeros in front of a port"),
    ("http://example.com:65535/", "http://example.com:65535", "the largest port"),
    ("HTTP://EXAMPLE.COM/", "http://example.com", "scheme and host in capitals"),
    ("http://www.example.com/", "http://www.example.com", "a sub domain is another host"),
    ("http://u:p@example.com/", "http://example.com", "user info is no part"),
    ("http://u@example.com:8080/", "http://example.com:8080", "a user without a password"),
    ("http://u:p@x@example.com/", "http://example.com", "an at sign in the password"),
    ("http://u:8080@example.com/", "http://example.com", "a password like a port"),
    ("http://example.com/@other.example/", "http://example.com", "an at sign in the path"),
    ("http://example.com?@other.example", "http://example.com", "an at sign in the query"),
    ("https://www.ex\u00e4mple.com/", "https://www.xn--exmple-cua.com", "punycode"),
    ("https://www.EX\u00c4MPLE.com/", "https://www.xn--exmple-cua.com", "punycode of capitals"),
    ("https://www.XN--EXMPLE-CUA.com/", "https://www.xn--exmple-cua.com", "written as punycode"),
    ("https://exa\u0308mple.com/", "https://xn--exmple-cua.com", "a combining mark"),
    ("http://\u30c4.example/", "http://xn--bdk.example", "one letter"),
    ("http://example\u3002com/", "http://example.com", "an ideographic full stop is a dot"),
    ("http://127.0.0.1/", "http://127.0.0.1", "an IPv4 address"),
    ("http://127.0.0.1:8080/", "http://127.0.0.1:8080", "an IPv4 address with a port"),
    ("http://[::1]/", "http://[::1]", "an IPv6 address"),
    ("http://[::1]:80/", "http://[::1]", "an IPv6 address with the default port"),
    ("http://[::1]:8080/", "http://[::1]:8080", "an IPv6 address with a port"),
    ("http://u:p@[::1]:8080/", "http://[::1]:8080", "an IPv6 address with user info"),
    ("http://[2001:DB8::A]/", "http://[2001:db8::a]", "an IPv6 address in capitals"),
    ("http://[2001:db8:0:0::a]/", "http://[2001:db8::a]", "another spelling of an address"),
    ("http://foo_bar.example/", "http://foo_bar.example", "an underscore, seen in the wild"),
    ("http://localhost/", "http://localhost", "a name without a dot"),
    ("http://" + "a" * 63 + ".example/", "http://" + "a" * 63 + ".example", "a long label"),
]


def test_a_url_has_the_canonical_origin() -> None:
    check(CANONICAL, lambda url: str(Origin.from_url(url)))
    for url, canonical, reason in CANONICAL:
        origin = Origin.from_url(url)
        assert origin.robots_url == canonical + "/robots.txt"
        assert {origin: reason}[Origin.from_url(canonical)] == reason


def test_the_longest_name_has_an_origin() -> None:
    host = "a." * 124 + "example"
    assert Origin.from_url(f"http://{host}/x").host == host
    assert len(host) == 255


def test_an_origin_has_a_scheme_a_host_and_a_port() -> None:
    origin = Origin.from_url("HTTPS://u:p@WWW.Ex\u00e4mple.com/a?b#c")
    assert (origin.scheme, origin.host, origin.port) == ("https", "www.xn--exmple-cua.com", 443)
    assert Origin.from_url("http://example.com:8080").port == 8080
    assert Origin.from_url("ftp://example.com").port == 21


INVALID = [
    ("", "nothing"),
    ("example.com", "no scheme"),
    ("//example.com/", "a relative scheme"),
    ("/a", "a path"),
    ("http", "a word"),
    ("http:", "a scheme alone"),
    ("http://", "no host"),
    ("http:///a", "no host but a path"),
    ("http://?a", "no host but a query"),
    ("http://:80/", "no host but a port"),
    ("http://u:p@/", "no host but user info"),
    ("http:/example.com/", "one slash"),
    ("http://[", "an open bracket"),
    ("http://[]/", "an empty address"),
    ("http://[::1/", "a bracket that is not closed"),
    ("http://[::1]x/", "something behind the bracket"),
    ("http://[::1]:x/", "a port of an address that is none"),
    ("http://[1.2.3.4]/", "an IPv4 address in brackets"),
    ("http://[::g]/", "no IPv6 address"),
    ("http://::1/", "an IPv6 address without brackets"),
    ("http://example.com:x/", "a port that is none"),
    ("http://example.com:-1/", "a negative port"),
    ("http://example.com:65536/", "a port too large"),
    ("http://example.com:99999999999/", "a port far too large"),
    ("http://example.com:\u0661/", "a digit that is not ASCII"),
    ("http://example.com:80:80/", "two ports"),
    ("data:,x", "data"),
    ("file:///etc/hosts", "file"),
    ("s3://bucket/key", "s3"),
    ("about:blank", "about"),
    ("mailto:a@example.com", "mailto"),
    ("httpx://example.com/", "a scheme that starts with http"),
    ("http://\u200b/", "an invisible host"),
    ("http://" + "\u00e9" * 64 + ".example/", "a label too long for punycode"),
    ("http://" + "a." * 124 + "example./", "a name of 256 characters"),
    ("http://" + "\u00e9." * 60 + "example/", "punycode of 367 characters"),
    ("http://" + "a." * 1_000_000, "a name of two megabytes"),
    ("http://\ud800.example/", "half a character"),
    ("http://a\0b.example/", "a NUL"),
    ("http://a b.example/", "a blank"),
    ("http://\u00e4\x7f.example/", "a control character, beside what is not ASCII"),
    ("http://[fe80::1%\x1b]/", "a zone that is no text"),
    ("http://" + "a" * 250 + ".example/", "a name that is too long"),
]
# Characters that the preparation of international names turns into delimiters of a URL: they
# would send the request for robots.txt to another host (CVE-2019-9636).
DECEPTIVE = [
    ("http://a.example\uff0f.b.example/", "a wide slash"),
    ("http://a.example\uff1a80/", "a wide colon"),
    ("http://a.example\uff20b.example/", "a wide at sign"),
    ("http://a.example\uff03.b.example/", "a wide number sign"),
    ("http://a.example\uff1f.b.example/", "a wide question mark"),
    ("http://a.example\u2100.b.example/", "a character with a slash in it"),
]


def test_an_invalid_url_has_no_origin() -> None:
    for url, reason in (*INVALID, *DECEPTIVE, ("data:," + "x" * 100_000, "a long one")):
        with pytest.raises(ValueError, match=r".") as caught:
            pytest.fail(f"{reason}: {Origin.from_url(url)}")
        message = str(caught.value)
        message.encode()  # fit for a log
        assert "\n" not in message
        assert len(message) < 1000


HOST_PARTS = st.lists(
    st.sampled_from(
        [*"aA1.-_:@[]/?#\\% \t\n", "::1", ":80", "xn--", "\u00e9", "\u00df", "\u3002", "\uff0f"]
    ),
    max_size=8,
).map("".join)


@given(st.one_of(any_text, HOST_PARTS, any_text.map("http://{}".format)))
@example("http://\uff0f")
def test_any_text_is_an_origin_or_an_error(text: str) -> None:
    for url in (text, f"http://{text}", f"https://{text}/a"):
        try:
            origin = Origin.from_url(url)
        except ValueError:
            continue
        assert origin.host == origin.host.lower()
        assert origin.host.isascii()
        assert 0 <= origin.port <= 65535
        assert Origin.from_url(str(origin)) == origin
        assert Origin.from_text(str(origin)) == origin
        assert Origin.from_url(origin.robots_url) == origin
