"""REP.md section 9: a file's content alone tells what it is. An entry counts if its URL is intact:
damage elsewhere costs the text that it is in, damage within `loc` the page, and neither ends the file."""

from __future__ import annotations

import gzip
import random
from itertools import product

import pytest

from scrapy_rep.protocol import sitemaps as unpack
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from tests.helpers.rows import every_row
from tests.helpers.sitemaps import NAMESPACE, atom, index, rss, urlset
from tests.protocol.reading import BEFORE, GOOD, read

FIRST = "http://a.test/1"
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
def test_all_formats_are_read_plain_and_compressed_in_steps_of_any_size(
    kind: Kind,
) -> None:
    plain = FORMATS[kind].encode()
    packed = gzip.compress(plain)
    for body in (plain, packed, gzip.compress(packed)):
        for step in (*range(1, 60), unpack.STEP):
            reader, entries = read(body, step=step)
            assert [entry["loc"] for entry in entries] == URLS
            assert (reader.kind, reader.count, reader.problem) == (kind, 3, None)
            assert reader.bytes == len(plain)


EXTENDED = f"""
<urlset xmlns="{NAMESPACE}" xmlns:xhtml="http://www.w3.org/1999/xhtml"
 xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><url>
  <loc>\n http://a.test/ </loc> <lastmod> 2026-01-31 </lastmod>
  <changefreq>daily</changefreq><priority>0.5</priority>
  <image:image><image:loc> http://a.test/1.png </image:loc><image:title>x</image:title></image:image>
  <image:image><image:loc><![CDATA[http://a.test/?2&3]]></image:loc></image:image>
  <image:loc>http://a.test/wrong.png</image:loc>
  <video:video><video:content_loc>http://a.test/v</video:content_loc></video:video>
  <news:news><news:publication><news:name>N</news:name><news:language>en</news:language>
  </news:publication><news:title>A &amp; B</news:title></news:news>
  <xhtml:link rel="alternate" hreflang="de" href="http://a.test/de?a&amp;b"/>
  <xhtml:link rel="alternate" hreflang="fr" href=" http://a.test/fr "/>
  <xhtml:link rel="canonical" href="http://a.test/canonical"/>
</url></urlset>"""
ENTRY = {
    "loc": "http://a.test/",
    "lastmod": "2026-01-31",
    "changefreq": "daily",
    "priority": "0.5",
    "alternate": ["http://a.test/de?a&b", "http://a.test/fr"],
    "hreflang": {"de": "http://a.test/de?a&b", "fr": "http://a.test/fr"},
    "news": {"name": "N", "language": "en", "title": "A & B"},
}
MEDIA = {
    "images": ["http://a.test/1.png", "http://a.test/?2&3"],
    "videos": ["http://a.test/v"],
}


def test_entries_have_the_fields_of_their_elements_and_extensions() -> None:
    for media, entry in ((False, ENTRY), (True, ENTRY | MEDIA)):
        reader, entries = read(EXTENDED, media=media)
        assert (entries, reader.problem) == ([entry], None)
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
    "http://a.test/?a & b && c": "http://a.test/?a & b && c",
}


def test_a_loc_is_read_however_it_is_escaped() -> None:
    next_ = "<url><loc>http://a.test/next</loc></url>"
    for (text, loc), step in product(LOCS.items(), (unpack.STEP, 1)):
        body = f"<urlset><url><loc>{text}</loc></url>{next_}</urlset>"
        reader, (first, second) = read(body, step=step)
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
    *(
        "",
        "<url><loc>http://a.test/cut",
        "<url><loc>http://a.test/cut</loc>",
        "<<<>>>",
        "</wrong>",
    ),
    *("<url", "<![CDATA[", "<!-- ", "\x00\x01\x02", "<?php echo 1"),
    *("<p>" * 1000, "<url><loc>http://a.test/\x00</loc></url>"),
]


def test_broken_xml_yields_what_comes_before_the_break() -> None:
    for broken in BROKEN:
        reader, entries = read("<urlset>" + BEFORE + broken)
        assert [entry["loc"] for entry in entries if not entry.get("broken")] == GOOD, (
            broken
        )
        assert (reader.problem or "").startswith("broken XML, line "), broken
        assert reader.kind is Kind.URLSET


NO_SITEMAP = {
    "": "it is empty",
    "\ufeff": "it is empty",
    "<!DOCTYPE html><html><body>Not found": "it is an HTML page, not a sitemap",
    "\n<!-- x --> <HTML lang='en'>": "it is an HTML page, not a sitemap",
    '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">': "<html>",
    "<error>no</error>": "its root element is <error>, so it is not a sitemap",
    "<": "broken XML",
    "<?xml version='1.0'?>": "broken XML",
    "GIF89a\0\1\2": "it is neither XML nor text",
}


def test_what_is_not_a_sitemap_gives_a_problem() -> None:
    for (body, problem), pack in product(NO_SITEMAP.items(), (bytes, gzip.compress)):
        reader, entries = read(pack(body.encode()))
        assert (entries, reader.kind) == ([], None)
        assert problem in (reader.problem or "")


A = "<sitemap><loc>http://a.test/1</loc></sitemap>"
NO_ENTRIES = [
    (f"<urlset>{A}</urlset>", "<sitemap> is no entry of a urlset"),
    (f"<urlset><Url>{A}</Url><Url/></urlset>", "<Url> is no entry of a urlset"),
    ("<sitemapindex><x><y/></x></sitemapindex>", "<x> is no entry of a sitemapindex"),
    (f"<sitemapindex>{A}<url/></sitemapindex>", "<url> is no entry of a sitemapindex"),
    (
        f"<s:sitemapindex><s:url/>{A}</s:sitemapindex>",
        "<url> is no entry of a sitemapindex",
    ),
    ("<urlset></urlset>", ""),
    ("<urlset><script/><url><loc>http://a.test/1</loc></url></urlset>", ""),
]


def test_elements_that_are_no_entries_of_their_root_give_a_problem() -> None:
    for body, problem in NO_ENTRIES:
        reader, _ = read(body)
        assert problem in (reader.problem or "")
        assert bool(problem) == bool(reader.problem)


TAGS_MISSING = (
    "<loc>{}</loc>",
    "<url>{}</url>",
    "<url> <![CDATA[{}]]> </url>",
    "<url>{}<!-- x --></url>",
)


def test_urls_count_though_tags_around_them_are_missing() -> None:
    for entry in TAGS_MISSING:
        assert (
            locs(f"<urlset>{''.join(map(entry.format, URLS[:1] * 2))}</urlset>")
            == URLS[:1] * 2
        )
    two = f"<loc>{URLS[0]}</loc><loc>{URLS[2]}</loc><lastmod>2026</lastmod>"
    _, entries = read(f"<urlset><url>{two}</url><url> </url><url/></urlset>")
    assert entries == [{"loc": URLS[0]}, {"loc": URLS[2], "lastmod": "2026"}]
    for damaged, found in (("", []), ("&x;", [{"broken": True}])):
        _, entries = read(
            f"<urlset><url><loc>{damaged}</loc><loc>{URLS[0]}</loc></url></urlset>"
        )
        assert entries == [*found, {"loc": URLS[0]}]


def test_feeds_have_one_link_for_an_entry_and_elements_of_other_names() -> None:
    item = f"<item><link>{URLS[0]}</link><link>{URLS[2]}</link></item><item>{URLS[2]}</item>"
    reader, entries = read(
        f"<rss><image><url>http://a.test/i</url></image>{item}</rss>"
    )
    assert (entries, reader.problem) == ([{"loc": URLS[0]}], None)


def test_a_url_without_its_entry_brings_no_images() -> None:
    image = "<image:image><image:loc>http://a.test/i</image:loc></image:image>"
    second = f"<url><loc>{URLS[2]}</loc><lastmod>2026</lastmod>{image}</url>"
    reader, entries = read(f"<urlset><loc>{URLS[0]}</loc>{image}{second}</urlset>")
    assert entries == [{"loc": URLS[0]}, {"loc": URLS[2], "lastmod": "2026"}]
    assert reader.problem is None


def test_what_stands_before_the_xml_costs_nothing() -> None:
    for before in (
        *(
            "<br />\n<b>Warning</b>: no <b>x</b>\n",
            "Notice: x in y.php\n",
            "\ufeff\ufeff",
        ),
        *("x", "<style>a{}</style>"),
    ):
        for kind in (Kind.URLSET, Kind.INDEX, Kind.RSS, Kind.ATOM):
            assert locs(before + FORMATS[kind]) == URLS, before
        assert locs(before + FORMATS[Kind.URLSET].partition("?>")[2]) == URLS
    # The mark counts, not the declaration.
    latin = (
        "<?xml version='1.0' encoding='iso-8859-1'?>"
        + FORMATS[Kind.URLSET].partition("?>")[2]
    )
    assert locs("\ufeff\ufeff" + latin) == URLS
    # What is in comments and in pages isn't that.
    assert locs("<!-- <rss> -->" + FORMATS[Kind.URLSET]) == URLS
    for before in (
        *(
            "<html><pre>",
            "x\n<html><pre>",
            "<title>x</title><pre>",
            "x <!-- ",
            "\ufeff\ufeff<!-- ",
        ),
        *('{"a": "x ', '["', "<script>a = '", "GIF89a\1 \0"),
    ):
        reader, entries = read(
            before + FORMATS[Kind.URLSET].partition("?>")[2].lstrip()
        )
        assert (entries, reader.kind) == ([], None), before


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
    first, second = (
        gzip.compress(b"http://a.test/1\n"),
        gzip.compress(b"http://a.test/2\n"),
    )
    for body in (
        first + second,
        first + second + b"\0" * 600,
        first + b"\0\0" + second + b"rub",
    ):
        reader, entries = read(body)
        assert [entry["loc"] for entry in entries] == [
            "http://a.test/1",
            "http://a.test/2",
        ]
        assert reader.problem is None
    many = gzip.compress(
        "\n".join(
            f"http://a.test/{random.Random(n).random()}" for n in range(3000)
        ).encode()
    )
    reader, entries = read(first + many[:20_000] + b"rub" * 9 + many[20_027:])
    assert len(entries) > 100
    assert "broken gzip" in (reader.problem or "")


def test_a_text_sitemap_is_read_line_by_line() -> None:
    wanted = ["http://a.test/1", "http://a.test/2", "no URL", "http://a.test/ä"]
    for end in ("\n", "\r\n", "\r", "\n\n \t\n"):
        text = end.join(
            ["http://a.test/1", "  http://a.test/2\t", "no URL", "http://a.test/ä"]
        )
        for body, step in product(
            (text, text + end, "\ufeff" + text), (1, unpack.STEP)
        ):
            assert locs(body, step=step) == wanted
    assert locs(text.encode("utf-16")) == wanted
    assert locs(text.encode("latin-1")) == [*wanted[:3], "http://a.test/%E4"]


def test_encodings_of_xml_and_what_is_none() -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1"):
        name = encoding.removesuffix("-sig").removesuffix("-le")
        body = urlset(["http://a.test/ä?a=1&b=2"]).replace("UTF-8", name)
        assert locs(body.encode(encoding)) == ["http://a.test/ä?a=1&b=2"]
    for name in ("zlib_codec", "unicode_escape", "utf-7", "idna", "x-none", "rot13"):
        assert (
            locs(f"<?xml version='1.0' encoding='{name}'?>" + urlset(URLS)) == URLS
        ), name


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


LOC, LINK = "<loc>http://a.test/p</loc>", "<link>http://a.test/p</link>"
SURROGATES = "&#55357;&#56832;"

# Each stands in an entry beside its `loc`.
ELSEWHERE = {
    "an undeclared prefix": "<image:image><image:loc>http://a.test/i.png</image:loc></image:image>",
    "an undeclared prefix of an attribute": "<x:mobile y:z='1'/>",
    "an HTML entity": "<title>x&nbsp;y&rsquo;</title>",
    "a NUL, a control character": "<title>x\0y\x01</title>",
    "a pair of surrogates": f"<title>{SURROGATES}</title>",
    "no character": "<title>&#xD83D;&#x110000;&#0;&#99999999;</title>",
    "an end tag is missing": "<title>x",
    "one tag is missing within another": "<title>x<b>y</title>",
    "tags cross": "<b>x<i>y</b>z</i>",
    "a tag that HTML doesn't close": "<br>",
    "an ampersand, a sign": "<title>x & y &co 1 < 2</title>",
    "quotes are missing": "<title lang='en>x</title><title lang=en a='1' a='2'>x</title>",
    "a tag is cut": "<title",
    "CDATA's end": "<title>x]]></title>",
    "a comment within": "<title>x<!-- y -- z -->y</title>",
    "a NUL in a name": "<ti\0tle>x</title>",
    "lastmod": "<lastmod>2026-01-\x0231</lastmod>",
    "an alternate": "<l:link rel='alternate' href='http://a.test/&eacute;'/>",
}


@pytest.mark.parametrize("damage", ELSEWHERE.values(), ids=ELSEWHERE)
def test_damage_elsewhere_costs_that_text_only(damage: str) -> None:
    next_ = "<url><loc>http://a.test/next</loc><lastmod>2026</lastmod></url>"
    for one, step in product((damage + LOC, LOC + damage), (unpack.STEP, 1)):
        body = f"<urlset xmlns='{NAMESPACE}'><url>{one}</url>{next_}</urlset>"
        found, last = read(body, step=step)[1]
        assert found["loc"] == "http://a.test/p"
        assert not {"broken", "lastmod", "alternate"} & set(found)
        assert last == {"loc": "http://a.test/next", "lastmod": "2026"}
        assert not {"\x01", "\0"} & set("".join(found.values()))


WITHIN = {
    "an element": "http://a.test/<b>x</b>1",
    "an HTML entity": "http://a.test/caf&eacute;",
    "a control character": "http://a.test/\x01",
    "a NUL": "http://a.test/\0",
    "a pair of surrogates": f"http://a.test/{SURROGATES}",
    "no character": "http://a.test/&#0;",
    "no UTF-8": b"http://a.test/caf\xe9",
    "no UTF-8, in CDATA": b"<![CDATA[http://a.test/caf\xe9]]>",
    "an end tag": "http://a.test/</b>x",
    "its end tag is missing": "http://a.test/x<lastmod>2026</lastmod></url><url>",
    "CDATA's end": "http://a.test/]]>",
    "a text without end": "http://a.test/" + "x" * 70_000,
}


@pytest.mark.parametrize("damage", WITHIN.values(), ids=WITHIN)
def test_damage_within_loc_costs_that_page_only(damage: str | bytes) -> None:
    """However many there are: libxml2 is silent after 100 errors."""
    loc = damage if isinstance(damage, bytes) else damage.encode()
    many = 3 if len(loc) > 1000 else 150
    bad, good = (
        b"<url><loc>" + loc + b"</loc></url>",
        b"<url><loc>http://a.test/good</loc></url>",
    )
    for root in (b"<urlset>", b"<urlset xmlns='x'>"):
        reader, entries = read(root + (bad + good) * many + b"</urlset>")
        sound = [
            entry["loc"]
            for entry in entries
            if not entry.get("broken") and entry.get("loc")
        ]
        assert sound == ["http://a.test/good"] * many
        assert sum(entry.get("broken", False) for entry in entries) == many
        assert (reader.problem or "").startswith("broken XML, line 1: ")


@pytest.mark.parametrize(
    ("encoding", "data"), [("utf-16", b"\xff\xfe"), ("gbk", b""), ("shift_jis", b"")]
)
def test_bytes_that_are_no_text_in_other_encodings(encoding: str, data: bytes) -> None:
    bad = b"\x00\xd8" if data else b"\xff"
    head = (
        f"<?xml version='1.0' encoding='{encoding}'?><urlset><url><loc>http://a.test/"
    )
    tail = "</loc></url><url><loc>http://a.test/good</loc></url></urlset>"
    codec = "utf-16-le" if data else encoding
    _, entries = read(data + head.encode(codec) + bad + tail.encode(codec))
    assert [entry.get("broken") for entry in entries] == [True, None]


def test_an_entry_is_not_lost_with_what_is_around_it() -> None:
    one = "<url><loc>http://a.test/1</loc></url>"
    rubbish = (
        "\x01 < & &nbsp;|</url></x>|<url>|<!-- x -->|<?php x ?>|<![CDATA[<]]>|</urlset>"
    )
    rubbish += "|</urlset><urlset>|<a|<!x>|<!|<a b='|<url/>|<url></url>"
    for some in rubbish.split("|"):
        _, entries = read(f"<urlset>{one}{some}{one}</urlset>")
        assert [entry.get("loc") for entry in entries] == ["http://a.test/1"] * 2, some


MIXED = [
    f"<urlset><url xmlns='{NAMESPACE}'>{LOC}</url></urlset>",
    f"<urlset xmlns='{NAMESPACE}'><url xmlns='{NAMESPACE.replace('http', 'https')}'>{LOC}</url></urlset>",
    f"<urlset xmlns:s='{NAMESPACE}'><s:url>{LOC}</s:url></urlset>",
    f"<urlset xmlns:s='{NAMESPACE}'><url><s:loc>http://a.test/p</s:loc></url></urlset>",
    "<ns0:urlset><ns1:url><ns2:loc>http://a.test/p</ns2:loc></ns1:url></ns0:urlset>",
    f"<sitemapindex xmlns='x'><sitemap xmlns='y'>{LOC}</sitemap></sitemapindex>",
    f"<rss><channel><item xmlns='x'>{LINK}</item></channel></rss>",
    "<feed><entry><link href='http://a.test/p'/></entry></feed>",
]


def test_namespaces_that_are_missing_wrong_or_mixed() -> None:
    for body in MIXED:
        reader, [entry] = read(body)
        assert (entry["loc"], reader.problem) == ("http://a.test/p", None), body


def of_urlset(children: str) -> str:
    return f"<urlset><url>{children}</url></urlset>"


def of_rss(children: str) -> str:
    return f"<rss><channel><item>{children}</item></channel></rss>"


# Of an extension, which is no page; of RSS, which has several names for it.
FOREIGN = [
    "<image:loc>http://a.test/i</image:loc>",
    "<image><loc>http://a.test/i</loc></image>",
]
CHILDREN: list[tuple[str, str | None]] = [
    *((of_urlset(foreign + LOC), "http://a.test/p") for foreign in FOREIGN),
    *((of_urlset(LOC + foreign), "http://a.test/p") for foreign in FOREIGN),
    *((of_urlset(f"{foreign}<a>x</a>"), None) for foreign in FOREIGN),
    (of_rss("<guid>http://a.test/p</guid>"), "http://a.test/p"),
    (of_rss("<guid isPermaLink='true'>http://a.test/p</guid>"), "http://a.test/p"),
    (of_rss("<guid isPermaLink='false'>http://a.test/p</guid><title>x</title>"), None),
    (of_rss(f"<guid>http://a.test/g</guid>{LINK}"), "http://a.test/p"),
    (of_rss("<link/><guid>http://a.test/p</guid>"), "http://a.test/p"),
    (of_rss(f"<atom:link href='http://a.test/a'/>{LINK}"), "http://a.test/p"),
    (
        of_rss(f"<link xmlns='http://www.w3.org/2005/Atom' href='x'/>{LINK}"),
        "http://a.test/p",
    ),
    (
        "<feed><entry><link title='a > b' href='http://a.test/p'/></entry></feed>",
        "http://a.test/p",
    ),
    (
        "<urlset><url a='/>'><loc b='\">'>http://a.test/p</loc></url></urlset>",
        "http://a.test/p",
    ),
]


def test_which_element_is_an_entrys_url() -> None:
    for body, loc in CHILDREN:
        [entry] = read(body)[1]
        assert entry.get("loc") == loc, body


def test_elements_with_names_of_ours() -> None:
    names = ("alternate", "broken", "hreflang", "images", "news", "videos")
    children = "".join(f"<{name}>x</{name}><{name}><a>x</a></{name}>" for name in names)
    link = "<x:link hreflang='de' href='http://a.test/de'/><news:news><news:title>x</news:title></news:news>"
    [entry] = read(f"<urlset><url>{children}{link}{LOC}</url></urlset>", media=True)[1]
    assert (entry["loc"], entry["alternate"]) == (
        "http://a.test/p",
        ["http://a.test/de"],
    )
    assert "broken" not in entry


TEXTS: dict[str, str | None] = {
    "http://a.test/1\nhttp://a.test/2": None,
    "# mine\n# all of it\nhttp://a.test/1": None,
    "HTTPS://a.test/1": None,
    '{"urls": ["http://a.test/1"]}': "it is text",
    "Notice: Undefined index in /x.php on line 3\n": "it is text",
    "/a\n/b\n": "it is text",
}


def test_a_text_is_a_sitemap_if_its_first_lines_are_urls() -> None:
    for (text, problem), encoding in product(TEXTS.items(), ("utf-8", "utf-16")):
        reader, entries = read(text.encode(encoding))
        assert reader.kind is (None if problem else Kind.TEXT)
        assert bool(entries) is (problem is None)
        assert (reader.problem or "").startswith(problem or "")


INSTRUCTIONS: dict[str, list[str]] = {
    f"<?xml version='1.0'><urlset><url><loc>{FIRST}</loc></url></urlset>": [FIRST],
    f"<?xml version='1.0'?><?style x='y'?><urlset><url><loc>{FIRST}</loc></url></urlset>": [
        FIRST
    ],
    f"<?php <urlset> ?><urlset><url><loc>{FIRST}</loc></url></urlset>": [FIRST],
    f"<urlset><? no end ><url><loc>{FIRST}</loc></url></urlset>": [FIRST],
    f"<urlset><? {'x' * 70_000} ><url><loc>{FIRST}</loc></url></urlset>": [FIRST],
    f"<urlset><url><?a?><loc><?b?>{FIRST}<?c <loc>?></loc></url></urlset>": [FIRST],
    f"<urlset><? <url><loc>{FIRST}</loc></url>": [FIRST],
}


def test_processing_instructions_are_no_content() -> None:
    """Whether they have an end or not, and in whatever pieces they come."""
    with every_row() as row:
        for body, urls in INSTRUCTIONS.items():
            with row(body[:60]):
                for size in (1, 7, len(body)):
                    pieces = [
                        body[at : at + size].encode()
                        for at in range(0, len(body), size)
                    ]
                    entries = [
                        one for some in SitemapReader().read(pieces) for one in some
                    ]
                    assert [entry["loc"] for entry in entries] == urls


LINKS: list[tuple[str, list[str]]] = [
    ("<feed xml:base='https://y.test/b/'><entry xml:base='c/'><link href='d'/></entry></feed>", ["https://y.test/b/c/d"]),
    ("<feed><entry><link xml:base='https://y.test/' href='d'/></entry><entry><link href='e'/></entry></feed>", ["https://y.test/d", "https://x.test/blog/e"]),
    ("<feed xml:base='&amp;'><entry><link href='d'/></entry></feed>", ["https://x.test/blog/d"]),
    ("<feed xml:base='http://['><entry><link href='d'/></entry></feed>", ["d"]),
    ("<rss><channel><item><guid>no-link</guid></item></channel></rss>", ["no-link"]),
    ("<rss><channel><item xml:base='/y/'><link>d</link></item></channel></rss>", ["https://x.test/y/d"]),
    ("<urlset xml:base='/y/'><url><loc>d</loc></url></urlset>", ["d"]),
    ("<feed><entry><link href='mailto:a@x.test'/></entry></feed>", ["mailto:a@x.test"]),
]  # fmt: skip


def test_links_of_feeds_may_be_relative() -> None:
    """By xml:base, else where the feed is from. Sitemaps' own may not."""
    for body, urls in LINKS:
        reader = SitemapReader(url="https://x.test/blog/feed")
        found = [
            entry["loc"] for some in reader.read([body.encode()]) for entry in some
        ]
        assert (body, found) == (body, urls)
