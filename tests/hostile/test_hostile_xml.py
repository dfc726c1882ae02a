"""XML made to keep the event loop, or to lose what comes after it: it costs itself, no more."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol.sitemaps import reader as unpack
from tests.helpers.sitemaps import BEFORE, GOOD, read

MEBIBYTE = 1 << 20


def attributes(count: int, value: str = "''") -> str:
    return " ".join(f"a{number}={value}" for number in range(count))


TOO_LONG = "a tag is longer than 65536 characters"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("value", ["''", "'>'", "\t''"])
@pytest.mark.parametrize("name", ["urlset", "a"])
def test_attributes_of_one_tag(name: str, value: str, encoding: str) -> None:
    tag = f"<{name} {attributes(200_000, value)}>"
    body = (
        f"{tag}{BEFORE}{BEFORE}</urlset>" if name == "urlset" else f"<urlset>{BEFORE}{tag}{BEFORE}"
    )
    reader, entries = read(body.encode(encoding))
    assert [entry["loc"] for entry in entries] == [*GOOD, *GOOD]
    assert reader.problem is not None
    assert reader.problem.endswith((TOO_LONG, "a tag is damaged"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_attributes_that_are_declared(encoding: str) -> None:
    """A thousand of them, in each of so many elements: they are not added."""
    declared = "".join(f"<!ATTLIST b a{number} CDATA 'x'>" for number in range(1_000))
    body = f"<!DOCTYPE urlset [{declared}]><urlset>{BEFORE}{'<b/>' * 1_000}</urlset>"
    for step in (unpack.STEP, 1):
        reader, entries = read(body.encode(encoding), step=step)
        assert ([entry["loc"] for entry in entries], reader.problem) == (GOOD, None)


def test_many_attributes_of_many_tags() -> None:
    tag = f"<a {attributes(1_000)}/>"
    reader, entries = read(f"<urlset>{BEFORE}{tag * 100}{BEFORE}</urlset>")
    assert (len(entries), reader.problem) == (2 * len(GOOD), None)


@pytest.mark.parametrize(
    ("start", "filling", "end"),
    [
        ("<!--", "x", "-->"),
        ("<!--", "<b/>", "-->"),
        ("<?a ", "<b/>", "?>"),
        ("<![CDATA[", "<b/>", "]]>"),
        ("<a x='", "<b/>", "'/>"),
        ("</urlset", " ", ">"),
    ],
)
def test_what_takes_long_to_end(start: str, filling: str, end: str) -> None:
    """What comes after it counts."""
    many = 4 * MEBIBYTE // len(filling)
    _, entries = read(f"<urlset>{BEFORE}{start}{filling * many}{end}{BEFORE}</urlset>")
    assert [entry["loc"] for entry in entries] == [*GOOD, *GOOD]


@pytest.mark.parametrize("kilobytes", [100, 900])
def test_a_sitemap_that_is_commented_out(kilobytes: int) -> None:
    old = "<url><loc>http://a.test/?old=1&amp;x=2</loc><x y='z' a='b'/></url>\n"
    comment = f"<!--{old * (kilobytes * 1000 // len(old))}-->"
    reader, entries = read(f"<urlset>{comment}{BEFORE}</urlset>")
    assert [entry["loc"] for entry in entries] == GOOD
    assert reader.problem is None


def test_text_of_any_length_is_not_kept() -> None:
    reader, entries = read(f"<urlset><x>{'x = ' * MEBIBYTE}</x>{BEFORE}</urlset>")
    assert (len(entries), reader.problem) == (len(GOOD), None)


def test_nothing_but_ampersands() -> None:
    many = "&" * 1_000_000
    body = f"<url><loc>http://a.test/{many}</loc></url>{BEFORE}<x>{many}</x>{BEFORE}"
    reader, entries = read(f"<urlset>{body}</urlset>")
    assert [entry["loc"] for entry in entries if not entry.get("broken")] == [*GOOD, *GOOD]
    assert "a text is longer than 65536 characters" in (reader.problem or "")


def test_ampersands_that_are_meant() -> None:
    urls = [f"http://a.test/?{'&a=b' * 20}&{number}" for number in range(1_000)]
    body = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    reader, entries = read(f"<urlset>{body}</urlset>")
    assert ([entry["loc"] for entry in entries], reader.problem) == (urls, None)


def test_cdata_without_an_end() -> None:
    reader, entries = read(f"<urlset>{BEFORE}{'<![CDATA[' * 1000}&]]>{BEFORE}</urlset>")
    assert (len(entries), reader.problem) == (2 * len(GOOD), None)


def test_children_of_one_entry() -> None:
    children = "".join(f"<c{number}/>" for number in range(20_000))
    links = "<x:link href='http://a.test/a'/>" * 20_000
    reader, [entry] = read(
        f"<urlset xmlns:x='x'><url><loc>http://a.test/</loc>{links}{children}</url></urlset>"
    )
    assert (entry["loc"], reader.problem) == ("http://a.test/", None)
    assert len(entry["alternate"]) == 1_000
    assert len(entry) == 1_000
