"""Whose robots.txt is it? (REP.md section 1)"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_rep.protocol import Origin
from tests.protocol.strategies import any_text

CANONICAL = {
    # No path, query, fragment, user info or default port; what looks like one of these.
    "https://example.com": (
        "https://example.com/ https://example.com https://example.com?q https://example.com#f "
        "https://example.com/a/b?c#d https://example.com:443/"
    ),
    "http://example.com": (
        "http://example.com/ http://example.com:80/ http://example.com:/ http://example.com:0080/ "
        "HTTP://EXAMPLE.COM/ http://u:p@example.com/ http://u:p@x@example.com/ "
        "http://u:8080@example.com/ http://example.com/@other.example/ "
        "http://example.com?@other.example http://example\u3002com/"
    ),
    "ftp://example.com": "ftp://example.com/ ftp://example.com:21/",
    "http://example.com:8080": "http://u@example.com:8080/",
    # Itself: default ports of other schemes, sub domains, addresses, names seen in the wild.
    **{
        origin: f"{origin}/"
        for origin in (
            "https://example.com:444 https://example.com:80 http://example.com:443 "
            "http://example.com:65535 http://www.example.com http://127.0.0.1 http://127.0.0.1:8080 "
            f"http://foo_bar.example http://localhost http://{'a' * 63}.example"
        ).split()
    },
    # Punycode, and IPv6 addresses in other spellings.
    "https://www.xn--exmple-cua.com": (
        "https://www.ex\xe4mple.com/ https://www.EX\xc4MPLE.com/ https://www.XN--EXMPLE-CUA.com/"
    ),
    "https://xn--exmple-cua.com": "https://exa\u0308mple.com/",
    "http://xn--bdk.example": "http://\u30c4.example/",
    "http://[::1]": "http://[::1]/ http://[::1]:80/",
    "http://[::1]:8080": "http://[::1]:8080/ http://u:p@[::1]:8080/",
    "http://[2001:db8::a]": "http://[2001:DB8::A]/ http://[2001:db8:0:0::a]/",
}


def test_a_url_has_the_canonical_origin() -> None:
    for canonical, urls in CANONICAL.items():
        for url in urls.split():
            origin = Origin.from_url(url)
            assert (url, str(origin)) == (url, canonical)
            assert origin.robots_url == canonical + "/robots.txt"
            assert {origin: 1}[Origin.from_url(canonical)]
    host = "a." * 124 + "example"
    assert len(host) == 255
    assert Origin.from_url(f"http://{host}/x").host == host
    assert Origin.from_url("HTTPS://Ex\u00e4mple.com/a") == (
        "https",
        "xn--exmple-cua.com",
        443,
    )


# No scheme, or one that the protocol doesn't cover; no host; half an address; no port.
NOTHING = (
    " example.com //example.com/ /a http http: http:// http:///a http://?a http://:80/ "
    "http://u:p@/ http:/example.com/ http://[ http://[]/ http://[::1/ http://[::1]x/ "
    "http://[::1]:x/ http://[1.2.3.4]/ http://[::g]/ http://::1/ http://example.com:x/ "
    "http://example.com:-1/ http://example.com:65536/ http://example.com:99999999999/ "
    "http://example.com:\u0661/ http://example.com:80:80/ data:,x file:///etc/hosts "
    "s3://bucket/key mailto:a@example.com httpx://example.com/"
)
INVALID = [
    *NOTHING.split(" "),
    # What no name holds; and what is too long for one, also as punycode.
    *(
        "http://\u200b/",
        "http://\ud800.example/",
        "http://a\0b.example/",
        "http://a b.example/",
    ),
    *("http://\u00e4\x7f.example/", "http://[fe80::1%\x1b]/"),
    *(
        f"http://{name}example./"
        for name in ("a." * 124, "\u00e9." * 60, "a" * 250, "\u00e9" * 64)
    ),
    *("http://" + "a." * 1_000_000, "data:," + "x" * 100_000),
    # IDNA would turn these into delimiters, and ask another host for robots.txt (CVE-2019-9636).
    *(
        f"http://a.example{wide}.b.example/"
        for wide in "\uff0f\uff1a\uff20\uff03\uff1f\u2100"
    ),
]


def test_an_invalid_url_has_no_origin() -> None:
    for url in INVALID:
        with pytest.raises(ValueError, match=r".") as caught:
            pytest.fail(f"{url[:100]!a}: {Origin.from_url(url)}")
        message = str(caught.value)
        message.encode()  # fit for a log
        assert "\n" not in message
        assert len(message) < 1000


@pytest.mark.parametrize(
    "name, host",
    [
        ("a\xad" * 40 + ".example", "a" * 40 + ".example"),
        ("u\u0308" * 40 + ".example", "xn--tda" + "a" * 39 + ".example"),
        (".".join(["\uff41" * 61] * 4), ".".join(["a" * 61] * 4)),
        # As long as a host may be: four labels of 63 characters.
        (".".join(["\xa1" * 58] * 4), ".".join(["xn--7a" + "a" * 57] * 4)),
    ],
)
def test_a_host_may_be_longer_than_its_punycode(name: str, host: str) -> None:
    assert Origin.from_url(f"http://{name}/") == ("http", host, 80)


HOST_PARTS = st.lists(
    st.sampled_from(
        [
            *"aA1.-_:@[]/?#\\% \t\n",
            "::1",
            ":80",
            "xn--",
            "\u00e9",
            "\u00df",
            "\u3002",
            "\uff0f",
        ]
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
        assert Origin.from_url(origin.robots_url) == origin
