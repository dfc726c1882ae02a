"""REP.md section 9, formats: what a file is, and what is in it, is told by its content alone."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys

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
@pytest.mark.parametrize("packed", [0, 1, 2], ids=["plain", "gzip", "gzip-twice"])
def test_all_formats_are_read_plain_and_compressed(kind: Kind, packed: int) -> None:
    body = FORMATS[kind].encode()
    for _ in range(packed):
        body = gzip.compress(body)
    reader, entries = read(body)
    assert [entry["loc"] for entry in entries] == URLS
    assert (reader.kind, reader.count, reader.problem) == (kind, 3, None)
    assert reader.bytes == len(FORMATS[kind].encode())


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_in_steps_of_any_size(kind: Kind) -> None:
    for body in (FORMATS[kind].encode(), gzip.compress(FORMATS[kind].encode())):
        for step in range(1, 100):
            assert locs(body, step=step) == URLS


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


@pytest.mark.parametrize(
    "namespace",
    ["", ' xmlns="http://www.google.com/schemas/sitemap/0.84"', ' xmlns="anything"'],
)
def test_elements_are_read_in_any_namespace(namespace: str) -> None:
    assert locs(f"<urlset{namespace}><url><loc>http://a.test/</loc></url></urlset>") == [
        "http://a.test/"
    ]
    prefixed = namespace.replace("xmlns=", "xmlns:s=")
    if namespace:
        body = f"<s:urlset{prefixed}><s:url><s:loc>http://a.test/</s:loc></s:url></s:urlset>"
        assert locs(body) == ["http://a.test/"]


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


@pytest.mark.parametrize(("text", "loc"), LOCS.items())
def test_a_loc_is_read_however_it_is_escaped(text: str, loc: str | None) -> None:
    body = f"<urlset><url><loc>{text}</loc></url><url><loc>http://a.test/next</loc></url></urlset>"
    for step in (unpack.STEP, 1):
        reader, entries = read(body, step=step)
        first, second = entries
        assert second == {"loc": "http://a.test/next"}
        if loc is None:
            assert first["broken"]
            assert "Entity 'c' not defined" in (reader.problem or "")
        else:
            assert first == {"loc": loc}
            assert reader.problem is None


@pytest.mark.parametrize("length", [1, 100], ids=["short", "long"])
def test_a_cdata_section_cut_in_two(length: int) -> None:
    """Wherever that is, and its end too: `&` is mended after it, and not in it."""
    start = f"<urlset>{BEFORE}"
    cdata = f"<![CDATA[?a=1&b={'2' * length}]]>"
    rest = f"<url><loc>http://a.test/{cdata}&c=3</loc></url></urlset>"
    for at in range(len(rest)):
        found = locs(start + rest[:at], rest[at:])
        assert found == [*GOOD, f"http://a.test/?a=1&b={'2' * length}&c=3"], at


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "<url><loc>http://a.test/cut",
        "<url><loc>http://a.test/cut</loc>",
        "<<<>>>",
        "</wrong>",
        "</urlset></urlset>",
        "<url",
        "<![CDATA[",
        "<!-- ",
        "\x00\x01\x02",
        "<url><loc>http://a.test/\x00</loc></url>",
        "<?php echo 1",
        "<p>" * 1000,
    ],
)
def test_broken_xml_yields_what_comes_before_the_break(broken: str) -> None:
    reader, entries = read("<urlset>" + BEFORE + broken)
    good = [entry["loc"] for entry in entries if not entry.get("broken")]
    assert good == GOOD
    assert reader.problem is not None
    assert reader.problem.startswith("broken XML, line ")
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


@pytest.mark.parametrize(("body", "problem"), NO_SITEMAP.items())
def test_what_is_not_a_sitemap_gives_a_problem(body: str, problem: str) -> None:
    for data in (body.encode(), gzip.compress(body.encode())):
        reader, entries = read(data)
        assert entries == []
        assert reader.kind is None
        assert problem in (reader.problem or "")


@pytest.mark.parametrize("cut", [5, 12, 100, -30, -8, -4])
def test_truncated_gzip_gives_the_entries_before_the_cut(cut: int) -> None:
    urls = [f"http://a.test/{random.Random(n).random()}" for n in range(2000)]
    for body in (urlset(urls), "\n".join(urls)):
        reader, entries = read(gzip.compress(body.encode())[:cut])
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
    reader, entries = read(b"\x1f\x8b\x08" + b"rubbish" * 100)
    assert entries == []
    assert "broken gzip" in (reader.problem or "")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n \t\n"])
def test_a_text_sitemap_is_read_line_by_line(end: str) -> None:
    text = end.join(["http://a.test/1", "  http://a.test/2\t", "no URL", "http://a.test/ä"])
    wanted = ["http://a.test/1", "http://a.test/2", "no URL", "http://a.test/ä"]
    for body in (text, text + end, "\ufeff" + text):
        assert locs(body) == wanted
        assert locs(*(body.encode()[at : at + 1] for at in range(len(body.encode())))) == wanted
    assert locs(text.encode("utf-16")) == wanted
    assert locs(text.encode("latin-1"))[:3] == wanted[:3]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1"])
def test_encodings_of_xml(encoding: str) -> None:
    name = encoding.removesuffix("-sig").removesuffix("-le")
    body = urlset(["http://a.test/ä?a=1&b=2"]).replace("UTF-8", name)
    assert locs(body.encode(encoding)) == ["http://a.test/ä?a=1&b=2"]


def test_reading_stops_at_the_limits() -> None:
    urls = [f"http://a.test/{n}" for n in range(5000)]
    for body in (urlset(urls), "\n".join(urls), rss(urls)):
        reader, entries = read(body, max_entries=100)
        assert [entry["loc"] for entry in entries] == urls[:100]
        assert reader.problem == "more than 100 entries: the rest is ignored"
        reader, entries = read(body, max_entries=5000)
        assert (len(entries), reader.problem) == (5000, None)

        reader, entries = read(body, max_bytes=40_000)
        found = [entry["loc"] for entry in entries]
        assert found == urls[: len(found)]
        assert 200 < len(found) < 3000
        assert reader.problem == "longer than 40000 bytes: the rest is ignored"
        assert reader.bytes == 40_000
        assert read(body, max_bytes=len(body))[0].problem is None


@pytest.mark.process
def test_nothing_else_is_needed() -> None:
    """The reader is of use without a crawl, and without Scrapy or lxml."""
    code = "import sys; from scrapy_rep.protocol.sitemaps import SitemapReader; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "scrapy_rep.protocol.sitemaps.xml" in loaded
    assert not {"lxml", "scrapy", "twisted.internet", "scrapy.crawler", "sqlite3"} & loaded


def test_no_bytes_at_all_make_it_raise() -> None:
    chance = random.Random(9309)
    bodies = [body.encode() for body in FORMATS.values()]
    bodies += [gzip.compress(body) for body in bodies]
    for _ in range(1500):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(body))
            body[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        reader, _ = read(bytes(body))
        assert reader.problem is None or isinstance(reader.problem, str)
