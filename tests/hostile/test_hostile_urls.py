"""URLs that take long to encode: whatever has one from a site uses one function with limits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse
from w3lib.url import safe_url_string

from scrapy_rep import pages as rules
from scrapy_rep import text
from scrapy_rep.pages import _LinkResolver, _marked_links
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.origin import MAX_HOST, MAX_URL
from scrapy_rep.text import MAX_IDN, Encoder, encoded, resolve_sitemap
from tests.helpers.rows import every_row
from tests.helpers.timing import in_a_slice
from tests.hostile.links import LABELS, LONG, hostile_pages


@pytest.mark.parametrize(
    "url",
    [
        f"http://{LONG}/",
        f"http://{LABELS}/",
        f"http://{'é' * 64}.example/",
        f"http://u:p@{LABELS}:80/",
        f"//{LONG}/x",
        f"http:/\\{LONG}/x",
        f" \thttp://é{LONG * 1000}/",
        "http://a.example/" + "x" * MAX_URL,
        b"http://" + LONG.encode() + b"/",
        "http://a..é/",
    ],
)  # fmt: skip
def test_what_is_beyond_the_limits_is_no_url(
    url: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "safe_url_string", None)
    with pytest.raises(ValueError, match="valid host|longer than|no valid"):
        encoded(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://bücher.example/é?é#é",
        "HTTP://BÜCHER.Example:8080/",
        "http://u:p@bücher.example/",
        "http://bücher.example。com/",
        "http://faß.example",
        "http://℀.example/",
        "http://ex％41.example/",
        "http://é.example\\x",
        "/" + "é" * 300,
        "é" * 300 + "/x",
        b"http://b\xc3\xbccher.example/\xe9",
        "http://bü\tcher.example/",
    ],
)
def test_all_others_are_as_in_a_request(url: str | bytes) -> None:
    def result(function: object) -> str:
        try:
            return function(url)  # type: ignore[operator,no-any-return]
        except ValueError:
            return "invalid"

    found = result(encoded)
    assert found in (result(safe_url_string), "invalid")
    assert (found == "invalid") == (url in ("http://℀.example/",))


def test_hosts_are_encoded_once_and_have_a_limit_in_all() -> None:
    encode = Encoder()
    hosts = [f"bücher{number:04}.example" for number in range(MAX_IDN)]
    for _ in range(1000):
        assert encode(f"http://{hosts[0]}/x") == "http://xn--bcher0000-q9a.example/x"
    few = MAX_IDN // len(hosts[0])
    for host in hosts[:few]:
        encode(f"http://{host}/")
    with pytest.raises(ValueError, match="too many hosts"):
        encode(f"http://{hosts[few]}/")
    assert encode("http://plain.example/é") == "http://plain.example/%C3%A9"


@pytest.mark.parametrize("take", [Origin.from_url, resolve_sitemap])
@pytest.mark.parametrize(
    "host", [".".join(["é" * 30] * 5), LABELS[:60], "\u1e9b\u0323." * 30]
)
def test_the_dearest_host_takes_no_slice(
    take: Callable[[str], object], host: str
) -> None:
    assert len(host) <= MAX_HOST
    with suppress(ValueError):
        in_a_slice(lambda: take(f"http://{host}/"))


@pytest.mark.alone
def test_the_links_of_a_page_take_no_slice() -> None:
    with every_row() as row:
        for name, body in hostile_pages().items():
            with row(name):
                data = body.encode()

                def read(data: bytes = data) -> int:
                    response = HtmlResponse(
                        "http://a.example/x/y", body=data, encoding="utf-8"
                    )
                    return len(_marked_links(response))

                # Those that need no work are resolved, however many others there are.
                assert in_a_slice(read) <= rules._MAX_LINKS


def test_what_a_page_links_is_known_beside_hostile_links() -> None:
    body = "<a rel=nofollow href=/marked>" + hostile_pages()["hosts of 80 labels"]
    response = HtmlResponse("http://a.example/", body=body.encode(), encoding="utf-8")
    assert _marked_links(response) == {"http://a.example/marked"}


REFERENCES = st.lists(
    st.sampled_from(
        ["a", "B", "/", "//", ".", "..", "/../", "?", "#", ":", ";", "x=1", "%41", "%zz", "é", "~", "&", "'", " ",
         "http://", "https://", "HTTP://", "b.example", "ü.example", ":8080", ":080", "@", "mailto:", "[", "|"]
    ), max_size=7,
).map("".join)  # fmt: skip
BASES = [
    "",
    *[
        "/q/",
        "d/e",
        "//b.example",
        "http://c.example//x//y?z/",
        "..",
        "?q",
        "é/ü",
        "mailto:x",
    ],
]


@given(REFERENCES, st.sampled_from(BASES))
def test_the_short_way_leads_to_the_same_url(reference: str, base: str) -> None:
    url = "http://a.example/x/../y//z"
    try:
        resolved = urljoin(urljoin(url, base), reference)
        wanted = safe_url_string(resolved).partition("#")[0]
    except ValueError:
        wanted = ""
    found = _LinkResolver(url, base, "utf-8")(reference)
    assert found in (wanted, "")
    if not found and wanted:  # a host that isn't valid
        with pytest.raises(ValueError, match="host"):
            encoded(resolved)
