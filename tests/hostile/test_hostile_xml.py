"""XML made to keep the event loop, or to lose what comes after it: it costs itself, no more."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import sitemaps as unpack
from tests.helpers.rows import every_row
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


MANY = "&" * 1_000_000
MEANT = [f"http://a.test/?{'&a=b' * 20}&{number}" for number in range(1_000)]
# What stands in a <urlset>, the URLs that are found, and the problem.
BODIES: dict[str, tuple[str, list[str], str | None]] = {
    "many attributes of many tags": (
        f"{BEFORE}{f'<a {attributes(1_000)}/>' * 100}{BEFORE}",
        [*GOOD, *GOOD],
        None,
    ),
    "text of any length is not kept": (f"<x>{'x = ' * MEBIBYTE}</x>{BEFORE}", GOOD, None),
    "CDATA without an end": (f"{BEFORE}{'<![CDATA[' * 1000}&]]>{BEFORE}", [*GOOD, *GOOD], None),
    "ampersands that are meant": (
        "".join(f"<url><loc>{u}</loc></url>" for u in MEANT),
        MEANT,
        None,
    ),
    "nothing but ampersands": (
        f"<url><loc>http://a.test/{MANY}</loc></url>{BEFORE}<x>{MANY}</x>{BEFORE}",
        [*GOOD, *GOOD],
        "a text is longer than 65536 characters",
    ),
}


def test_what_is_read_of_long_bodies() -> None:
    with every_row() as row:
        for name, (body, urls, problem) in BODIES.items():
            with row(name):
                reader, entries = read(f"<urlset>{body}</urlset>")
                assert [one["loc"] for one in entries if not one.get("broken")] == urls
                assert (problem or "") in (reader.problem or "")
                assert bool(reader.problem) is bool(problem)


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


def test_children_of_one_entry() -> None:
    children = "".join(f"<c{number}/>" for number in range(20_000))
    links = "<x:link href='http://a.test/a'/>" * 20_000
    reader, [entry] = read(
        f"<urlset xmlns:x='x'><url><loc>http://a.test/</loc>{links}{children}</url></urlset>"
    )
    assert (entry["loc"], reader.problem) == ("http://a.test/", None)
    assert len(entry["alternate"]) == 1_000
    assert len(entry) == 1_000
