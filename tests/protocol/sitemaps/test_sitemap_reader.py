"""REP.md section 9, formats: what a file is, and what is in it, is told by its content alone."""

from __future__ import annotations

import gzip
import random
from itertools import product

import pytest

from scrapy_rep.protocol.sitemaps import Kind
from scrapy_rep.protocol.sitemaps import reader as unpack
from tests.helpers.sitemaps import BEFORE, GOOD, NAMESPACE, atom, index, read, rss, urlset

URLS = ["http://a.test/1", "http://a.test/2?x=1&y=2", "http://a.test/käse"]


def locs(*pieces: bytes | str, **limits: int) -> list[str]:
    return [entry["loc"] for entry in read(*pieces, **limits)[1] if "loc" in entry]


FORMATS = {
    Kind.URLSET: urlset(URLS),
    Kind.INDEX: index(URLS),
    Kind.TEXT: "\n".join(URLS),
    Kind.RSS: rss(URLS),
    Kind.ATOM: atom(URLS),
}


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_all_formats_are_read_plain_and_compressed_in_steps_of_any_size(kind: Kind) -> None:
    plain = FORMATS[kind].encode()
    packed = gzip.compress(plain)
    for body in (plain, packed, gzip.compress(packed)):
        for step in (*range(1, 60), unpack.STEP):
            reader, entries = read(body, step=step)
            assert [entry["loc"] for entry in entries] == URLS
            assert (reader.kind, reader.count, reader.problem) == (kind, 3, None)
            assert reader.bytes == len(plain)


def test_entries_have_the_fields_of_their_elements() -> None:
    reader, entries = read(
        f'<urlset xmlns="{NAMESPACE}" xmlns:xhtml="http://www.w3.org/1999/xhtml" '
        'xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><url>\n'
        "  <loc>\n http://a.test/ </loc> <lastmod> 2026-01-31 </lastmod>"
        "<changefreq>daily</changefreq><priority>0.5</priority>"
        "<image:image><image:loc>http://a.test/image.png</image:loc></image:image>"
        "<image:loc>http://a.test/wrong.png</image:loc>"
        '<xhtml:link rel="alternate" hreflang="de" href="http://a.test/de?a&amp;b"/>'
        '<xhtml:link rel="alternate" hreflang="fr" href=" http://a.test/fr "/>'
        '<xhtml:link rel="canonical" href="http://a.test/canonical"/>'
        "</url></urlset>"
    )
    assert entries == [
        {
            "loc": "http://a.test/",
            "lastmod": "2026-01-31",
            "changefreq": "daily",
            "priority": "0.5",
            "alternate": ["http://a.test/de?a&b", "http://a.test/fr"],
            "hreflang": {"de": "http://a.test/de?a&b", "fr": "http://a.test/fr"},
        }
    ]
    assert reader.problem is None
    assert read(rss(URLS[:1]))[1][0]["lastmod"] == "Mon, 06 Sep 2021 00:01:00 +0000"
    assert read(atom(URLS[:1]))[1][0]["lastmod"] == "2003-12-13T18:30:02Z"


LOCS = {
    "<![CDATA[http://a.test/?a=1&b=2]]>": "http://a.test/?a=1&b=2",
    "<![CDATA[ http://a.test/?a=1&amp;b ]]>": "http://a.test/?a=1&amp;b",
    "http://a.test/?a=1&amp;b=2": "http://a.test/?a=1&b=2",
    "http://a.test/&#x41;&#66;": "http://a.test/AB",
    "http://a.test/&lt;&gt;&quot;&apos;": "http://a.test/<>\"'",
    "http://a.test/<!-- a comment -->x": "http://a.test/x",
    # Wrong, and very common: an ampersand that should be &amp;.
    "http://a.test/?a=1&b=2&c;": None,
    "http://a.test/?a=1&b=2": "http://a.test/?a=1&b=2",
    "http://a.test/?a=1&": "http://a.test/?a=1&",
    "http://a.test/?a & b && c": "http://a.test/?a & b && c",
    "\n\t http://a.test/a b \n": "http://a.test/a b",
}


def test_a_loc_is_read_however_it_is_escaped() -> None:
    next_ = "<url><loc>http://a.test/next</loc></url>"
    for (text, loc), step in product(LOCS.items(), (unpack.STEP, 1)):
        body = f"<urlset><url><loc>{text}</loc></url>{next_}</urlset>"
        reader, entries = read(body, step=step)
        first, second = entries
        assert second == {"loc": "http://a.test/next"}
        if loc is None:
            assert first["broken"]
            assert "Entity 'c' not defined" in (reader.problem or "")
        else:
            assert first == {"loc": loc}
            assert reader.problem is None


def test_a_cdata_section_cut_in_two() -> None:
    """Wherever that is, and its end too: `&` is mended after it, and not in it."""
    rest = "<url><loc>http://a.test/<![CDATA[?a=1&b=22]]>&c=3</loc></url></urlset>"
    for at in range(len(rest)):
        found = locs(f"<urlset>{BEFORE}{rest[:at]}", rest[at:])
        assert found == [*GOOD, "http://a.test/?a=1&b=22&c=3"], at


BROKEN = [
    *("", "<url><loc>http://a.test/cut", "<url><loc>http://a.test/cut</loc>", "<<<>>>", "</wrong>"),
    *(
        "</urlset></urlset>",
        "<url",
        "<![CDATA[",
        "<!-- ",
        "\x00\x01\x02",
        "<?php echo 1",
        "<p>" * 1000,
    ),
    "<url><loc>http://a.test/\x00</loc></url>",
]


def test_broken_xml_yields_what_comes_before_the_break() -> None:
    for broken in BROKEN:
        reader, entries = read("<urlset>" + BEFORE + broken)
        assert [entry["loc"] for entry in entries if not entry.get("broken")] == GOOD, broken
        assert (reader.problem or "").startswith("broken XML, line "), broken
        assert reader.kind is Kind.URLSET


def test_what_comes_after_an_error_is_read_where_it_can_be() -> None:
    body = b"<urlset><url><loc>http://a.test/\xe9\xff</loc></url>" + BEFORE.encode() + b"</urlset>"
    reader, entries = read(body)
    assert [entry.get("loc") for entry in entries if not entry.get("broken")] == GOOD
    assert "broken XML, line 1" in (reader.problem or "")


def test_an_entry_in_an_entry() -> None:
    """A missing end tag does not hide what follows."""
    _, entries = read(
        "<urlset><url><loc>http://a.test/a</loc><url><loc>http://a.test/b</loc></url>" + BEFORE
    )
    found = [entry["loc"] for entry in entries if not entry.get("broken")]
    assert found[-21:] == ["http://a.test/b", *GOOD]


NO_SITEMAP = {
    "": "it is empty",
    " \n\t": "it is empty",
    "\ufeff": "it is empty",
    "<!DOCTYPE html><html><body>Not found": "it is an HTML page, not a sitemap",
    "\n<!-- x --> <HTML lang='en'>": "it is an HTML page, not a sitemap",
    '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">': "<html>",
    "<error>no</error>": "its root element is <error>, so it is not a sitemap",
    "<url><loc>http://a.test/</loc></url>": "its root element is <url>",
    "<": "broken XML",
    "<?xml version='1.0'?>": "broken XML",
    "GIF89a\0\1\2": "it is neither XML nor text",
}


def test_what_is_not_a_sitemap_gives_a_problem() -> None:
    for (body, problem), pack in product(NO_SITEMAP.items(), (bytes, gzip.compress)):
        data = pack(body.encode())
        reader, entries = read(data)
        assert entries == []
        assert reader.kind is None
        assert problem in (reader.problem or "")


def test_truncated_gzip_gives_the_entries_before_the_cut() -> None:
    urls = [f"http://a.test/{random.Random(n).random()}" for n in range(2000)]
    packed = [gzip.compress(body.encode()) for body in (urlset(urls), "\n".join(urls))]
    for body, cut in product(packed, (5, 12, 100, -30, -8, -4)):
        reader, entries = read(body[:cut])
        found = [entry["loc"] for entry in entries]
        assert found == urls[: len(found)]
        assert cut > 0 or len(found) >= 1900
        assert "gzip" in (reader.problem or "")


def test_gzip_of_several_members_and_with_rubbish_at_its_end() -> None:
    first, second = gzip.compress(b"http://a.test/1\n"), gzip.compress(b"http://a.test/2\n")
    for body in (first + second, first + second + b"\0" * 600, first + b"\0\0" + second + b"rub"):
        reader, entries = read(body)
        assert [entry["loc"] for entry in entries] == ["http://a.test/1", "http://a.test/2"]
        assert reader.problem is None
    many = gzip.compress(
        "\n".join(f"http://a.test/{random.Random(n).random()}" for n in range(3000)).encode()
    )
    reader, entries = read(first + many[:20_000] + b"rub" * 9 + many[20_027:])
    assert len(entries) > 100
    assert "broken gzip" in (reader.problem or "")
    reader, entries = read(b"\x1f\x8b\x08" + b"rubbish" * 100)
    assert entries == []
    assert "broken gzip" in (reader.problem or "")


def test_a_text_sitemap_is_read_line_by_line() -> None:
    wanted = ["http://a.test/1", "http://a.test/2", "no URL", "http://a.test/ä"]
    for end in ("\n", "\r\n", "\r", "\n\n \t\n"):
        text = end.join(["http://a.test/1", "  http://a.test/2\t", "no URL", "http://a.test/ä"])
        for body, step in product((text, text + end, "\ufeff" + text), (1, unpack.STEP)):
            assert locs(body, step=step) == wanted
    assert locs(text.encode("utf-16")) == wanted
    assert locs(text.encode("latin-1"))[:3] == wanted[:3]


def test_encodings_of_xml() -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1"):
        name = encoding.removesuffix("-sig").removesuffix("-le")
        body = urlset(["http://a.test/ä?a=1&b=2"]).replace("UTF-8", name)
        assert locs(body.encode(encoding)) == ["http://a.test/ä?a=1&b=2"]


def test_reading_stops_at_the_limits() -> None:
    urls = [f"http://a.test/{n}" for n in range(2000)]
    for body in (urlset(urls), "\n".join(urls), rss(urls)):
        reader, entries = read(body, max_entries=100)
        assert [entry["loc"] for entry in entries] == urls[:100]
        assert reader.problem == "more than 100 entries: the rest is ignored"
        reader, entries = read(body, max_entries=2000)
        assert (len(entries), reader.problem) == (2000, None)

        reader, entries = read(body, max_bytes=20_000)
        found = [entry["loc"] for entry in entries]
        assert found == urls[: len(found)]
        assert 100 < len(found) < 1900
        assert reader.problem == "longer than 20000 bytes: the rest is ignored"
        assert reader.bytes == 20_000
        assert read(body, max_bytes=len(body))[0].problem is None
