"""From bytes to lines that mean something (REP.md section 6), and the size limit of section 2.

Rows are (file, answer, reason): whether FooBot may fetch /x, and the deciding line.
"""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import google_only, rfc9309, rows, verdict

ALLOWED = (True, 0)
MAX_BYTES = 512_000
MAX_LINE = 16_663
ALL = b"User-agent: *\n"
PARTS_OF_A_BOM = [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"]


def disallowed(line: int) -> tuple[bool, int]:
    return False, line


LINES_AND_VALUES: list[tuple[Any, ...]] = [
    (b"User-agent: *\nDisallow: /", disallowed(2), "LF"),
    (b"User-agent: *\r\nDisallow: /", disallowed(2), "CRLF is one line end"),
    (b"User-agent: *\rDisallow: /", disallowed(2), "CR"),
    (b"\n\n\nUser-agent: *\n\nDisallow: /", disallowed(6), "empty lines count"),
    (b"\r\r\r\nUser-agent: *\r\r\nDisallow: /", disallowed(6), "mixed line ends"),
    (b"\n\rUser-agent: *\n\rDisallow: /", disallowed(5), "LFCR is two line ends"),
    (b"User-agent: *\nDisallow: /\n", disallowed(2), "a last line with its end"),
    (b"User-agent:*\nDisallow:/", disallowed(2), "no blanks"),
    (b" \tUser-agent\t :\t * \t\n\tDisallow : / ", disallowed(2), "blanks around everything"),
    (b"user-agent: *\ndisallow: /", disallowed(2), "small letters"),
    (b"USER-AGENT: *\nDISALLOW: /", disallowed(2), "capitals"),
    (b"uSER-aGENT: *\ndISALLOW: /", disallowed(2), "mixed case"),
    (b"# a\nUser-agent: * # b\n# c\nDisallow: / # d", disallowed(4), "comments"),
    (b"User-agent: *#\nDisallow: /#x", disallowed(2), "comments without blanks"),
    (b"User-agent: *\n#Disallow: /", ALLOWED, "a rule in a comment"),
    (b"User-agent: *\nDisallow #: /", ALLOWED, "a colon in a comment"),
    (b"User-agent: *\nAllow: /\n# \rDisallow: /x", disallowed(4), "a comment ends with CR too"),
    (b"", ALLOWED, "an empty file"),
    (b"<html><body>Disallow: /</body></html>", ALLOWED, "an HTML page"),
    (b"User-agent: *\n<p>\nDisallow: /", disallowed(3), "HTML between lines"),
]
GOOGLES_LINES: list[tuple[Any, ...]] = [
    (b"User-agent: *\nDisallow: /\x0bx", ALLOWED, "VT ends no line"),
    (b"User-agent: *\nDisallow: /\x0cx", ALLOWED, "FF ends no line"),
    (b"User-agent: *\nDisallow: /a\x0bDisallow: /", ALLOWED, "VT starts no line"),
    (b"User-agent: *\nDisallow: /a\x0cDisallow: /", ALLOWED, "FF starts no line"),
    (b"User-agent: *\nDisallow: /a\x1cDisallow: /", ALLOWED, "nor does FS"),
    (b"User-agent: *\nDisallow: /a\x85Disallow: /", ALLOWED, "nor NEL of latin-1"),
    (b"User-agent: *\nDisallow: /a\xc2\x85Disallow: /", ALLOWED, "nor NEL of UTF-8"),
    (b"User-agent: *\nDisallow: /a\xe2\x80\xa8Disallow: /", ALLOWED, "nor U+2028"),
    (b"User-agent: *\x0b\nDisallow: /\x0c", disallowed(2), "VT and FF around are blanks"),
    (b"\x0cUser-agent: *\n\x0bDisallow\x0c:\x0b/", disallowed(2), "and in front"),
    (b"User-agent: *\nDisallow: /\xa0", ALLOWED, "a no-break space is no blank"),
    (b"User-agent: *\nDisallow: /\0x", disallowed(2), "NUL ends the content of its line"),
    (b"User-agent: *\nDis\0allow: /", ALLOWED, "in the field too"),
    (b"User-agent: *\nAllow: /\0\rDisallow: /x\0", disallowed(3), "and not the line"),
    (b"User-agent: *\nDisallow: /\0#\n\0Disallow: /x", disallowed(2), "with a comment behind"),
    (b"User-agent: *\nDisallow\n", ALLOWED, "a field alone"),
    (b"User-agent: *\nDisallow", ALLOWED, "a field alone at the end"),
    (b"User-agent: *\nDisallow\t\n", ALLOWED, "a field and a blank"),
    (b"User-agent: *\nDisallow\0: /", ALLOWED, "a field and NUL"),
    (b"User-agent: *\nUser-agent\nDisallow: /", disallowed(3), "a user-agent field alone"),
    (b"User-agent: *\nAllow: /a\nUser-agent\nDisallow: /", disallowed(4), "starts no group"),
    (b"User-agent *\nDisallow /", disallowed(2), "a missing colon is forgiven"),
    (b"User-agent\t*\nDisallow \t /\t", disallowed(2), "with any blanks"),
    (b"User-agent *\nDisallow / # x", disallowed(2), "with a comment"),
    (b"User-agent: *\nDisallow / x", ALLOWED, "but not with three words"),
    (b"User-agent: *\nDisallow /\x0bx", ALLOWED, "VT separates no words"),
    (b"User-agent: *\nDisallow\x0b/", ALLOWED, "nor a field from its value"),
    (b"user agent *\nDisallow: /", ALLOWED, "'user agent' without a colon is three words"),
    (b"User-agent: *\nDisallow/", ALLOWED, "one word is no field and value"),
    (b"User-agent: *\nDisallow / : /x", disallowed(2), "the first colon separates"),
    (b"User-agent: *\nDisallow:: /", ALLOWED, "the second is part of the value"),
    (b"User-agent: *\n: Disallow: /", ALLOWED, "an empty field"),
    (b"User-agent: *\nDisallow: /x:y\nDisallow: /x", disallowed(3), "a colon in a value"),
    *(
        (bom + b"User-agent: *\nDisallow: /", disallowed(2), f"a BOM of {len(bom)} bytes")
        for bom in PARTS_OF_A_BOM
    ),
    (b"\xef\xbf" + ALL + b"Disallow: /", ALLOWED, "one byte of a BOM, then another byte"),
    (b"\xbb\xbf" + ALL + b"Disallow: /", ALLOWED, "a BOM without its first byte"),
    (b"\xef\xbb\xbf" * 2 + ALL + b"Disallow: /", ALLOWED, "a second BOM is no BOM"),
    (b"\n\xef\xbb\xbf" + ALL + b"Disallow: /", ALLOWED, "nor one on the second line"),
    (b"\xef\xbb\xbf", ALLOWED, "a BOM alone"),
    ("User-agent: *\nDisallow: /".encode("utf-16"), ALLOWED, "UTF-16 is not read"),
]
USER_AGENTS = ["user-agent", "useragent", "user agent"]
DISALLOWS = ["disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]
TYPOS: list[tuple[Any, ...]] = [
    *((f"{name.title()}: *\nDisallow: /".encode(), disallowed(2), name) for name in USER_AGENTS),
    *((f"User-agent: *\n{name.title()}: /".encode(), disallowed(2), name) for name in DISALLOWS),
    *((f"User-agent: *\n{name.upper()} /".encode(), disallowed(2), name) for name in DISALLOWS),
    (b"User-agents: *\nDisallow: /", disallowed(2), "user-agent by prefix"),
    (b"User-agent-x: *\nDisallow: /", disallowed(2), "user-agent by prefix"),
    (b"User agents of all: *\nDisallow: /", disallowed(2), "user agent by prefix"),
    (b"User-agent: *\nDisallowed: /", disallowed(2), "disallow by prefix"),
    (b"User-agent: *\nDisallow x y: /", disallowed(2), "disallow by prefix, with blanks"),
    (b"User-agent: *\nDisalowed: /", disallowed(2), "a typo by prefix"),
    (b"User-agent: *\nDisallow: /\nAllowed: /", (True, 3), "allow by prefix"),
    (b"User-agent: *\nDisallow: /\nAlow: /", disallowed(2), "no tolerated typo of allow"),
    (b"User-agent: *\nDisallaww: /", disallowed(2), "another by prefix"),
    (b"User-agent: *\nDissalllow: /", ALLOWED, "not each typo is tolerated"),
    (b"User-agent: *\nDis allow: /", ALLOWED, "nor a blank in it"),
    (b"User-agent: *\nxDisallow: /", ALLOWED, "no prefix"),
    (b"User_agent: *\nDisallow: /", ALLOWED, "an underscore is no hyphen"),
    (b"User--agent: *\nDisallow: /", ALLOWED, "nor two hyphens one"),
    (b"User-agent: *\nDisallow\xe9: /", disallowed(2), "by prefix, whatever follows"),
    ("User-agent: *\nDi\u017fallow: /".encode(), ALLOWED, "a long s is no s"),
]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        *rows("6", LINES_AND_VALUES, rfc9309),
        *rows("6", GOOGLES_LINES, google_only),
        *rows("6 field", TYPOS, google_only),
    ],
)
def test_a_file_is_read_leniently_line_by_line(body: bytes, answer: tuple[bool, int]) -> None:
    assert verdict(body, "/x") == answer


SITEMAPS = [
    (b"Sitemap: https://a.example/s.xml", ["https://a.example/s.xml"], "without any group"),
    (b"sitemap:/s.xml", ["/s.xml"], "relative, as written"),
    (b"SITE-MAP : /s.xml # x", ["/s.xml"], "site-map, blanks, a comment"),
    (b"Sitemap /s.xml", ["/s.xml"], "a missing colon"),
    (b"Sitemap https://a.example/s", ["//a.example/s"], "the first colon is the separator"),
    (b"Sitemaps: /s.xml", ["/s.xml"], "by prefix"),
    (b"Sitemap:", [], "an empty value"),
    (b"Sitemap", [], "a field alone"),
    (b"Sitemap: /b\nSitemap: /a\nUser-agent: *\nSitemap: /b", ["/b", "/a", "/b"], "in order"),
    ("Sitemap: /\u00e9%e9?x=1&y".encode(), ["/\u00e9%e9?x=1&y"], "neither encoded nor decoded"),
    (b"\xef\xbb\xbfSitemap: /s.xml", ["/s.xml"], "behind a BOM"),
]


@pytest.mark.parametrize(("body", "sitemaps"), rows("6, 9", SITEMAPS))
def test_sitemap_lines_are_listed_in_order(body: bytes, sitemaps: list[str]) -> None:
    assert RobotsTxt.parse(body).sitemaps == tuple(sitemaps)


@google_only
@pytest.mark.parametrize("bom", [b"", *PARTS_OF_A_BOM])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_line_is_cut(end: bytes, bom: bytes) -> None:
    """After 16,663 bytes, a BOM not counted."""
    start = b"Disallow: /"
    fits = start + b"x" * (MAX_LINE - len(start))
    for line in (fits, fits + b"y", fits + b"y" * MAX_LINE):
        body = bom + b"User-agent: *" + end + line + end + b"Disallow: /y" + end
        path = fits.decode().removeprefix("Disallow: ")
        assert verdict(body, path) == disallowed(2)
        assert verdict(body, path[:-1]) == ALLOWED
        assert verdict(body, "/y") == disallowed(3)


@google_only
@pytest.mark.parametrize(
    ("tail", "answer"),
    rows(
        "6",
        [
            (b"$", ALLOWED, "the last byte that counts"),
            (b" $", disallowed(2), "the first that does not"),
        ],
    ),
)
def test_end_of_a_cut_line(tail: bytes, answer: tuple[bool, int]) -> None:
    line = b" " * (MAX_LINE - len(b"Disallow: /x$")) + b"Disallow: /x" + tail
    assert verdict(ALL + line, "/xy") == answer


@google_only
def test_first_line_is_cut_too() -> None:
    line = b"User-agent: *" + b" " * (MAX_LINE - 13) + b"Disallow: /\n"
    assert verdict(line + b"Disallow: /x", "/x") == disallowed(2)
    assert verdict(b"#" * MAX_LINE + b"\n" + ALL + b"Disallow: /", "/x") == disallowed(3)


def filled(head: bytes, size: int) -> bytes:
    """*head* and comments after it, *size* bytes in all, the last a line end."""
    comment = b"#" * 99 + b"\n"
    whole, rest = divmod(size - len(head), len(comment))
    return head + comment * whole + (b"#" * (rest - 1) + b"\n" if rest else b"")


# (what stands at the limit, how many bytes of it are within, does the rule count, reason)
LIMIT = [
    (b"Disallow: /x", 12, True, "the file ends at the limit"),
    (b"Disallow: /x\n", 13, True, "its line end is the last byte"),
    (b"Disallow: /x\nDisallow: /x", 13, True, "its line end is the last byte, more follows"),
    (b"Disallow: /x\n", 12, True, "its line end is the first byte beyond"),
    (b"Disallow: /x\rDisallow: /x", 12, True, "CR is the first byte beyond"),
    (b"Disallow: /x\r\nDisallow: /x", 13, True, "the limit cuts CRLF in two"),
    (b"Disallow: /xy", 12, False, "the limit cuts it in two"),
    (b"Disallow: /x", 11, False, "the limit cuts it in two, at the end of the file"),
    (b"Disallow: /x", 0, False, "it starts at the limit"),
    (b"Disallow: /x", -100, False, "it is beyond"),
]


@rfc9309
@pytest.mark.parametrize(("line", "within", "counts"), rows("2", LIMIT))
def test_only_whole_lines_within_the_size_limit_count(
    line: bytes, within: int, counts: bool
) -> None:
    """512,000 bytes count; a line that the limit cuts in two does not."""
    before = filled(ALL, MAX_BYTES - within)
    answer = disallowed(before.count(b"\n") + 1) if counts else ALLOWED
    assert verdict(before + line, "/x") == answer


@rfc9309
def test_size_limit_without_any_line_end() -> None:
    assert verdict(b"Disallow: /" * 60_000, "/x") == ALLOWED
    assert verdict(ALL + b"Disallow: /" + b"x" * MAX_BYTES, "/" + "x" * 20_000) == ALLOWED


def test_a_rule_after_half_a_million_empty_lines_counts() -> None:
    body = b"\n" * (MAX_BYTES - 100) + ALL + b"Disallow: /"
    assert verdict(body, "/x") == disallowed(MAX_BYTES - 98)


def test_sitemaps_and_delays_beyond_the_limit_are_ignored() -> None:
    body = filled(ALL, MAX_BYTES) + b"Crawl-delay: 1\nSitemap: /s.xml\n"
    robots = RobotsTxt.parse(body)
    assert (robots.crawl_delay("FooBot"), robots.sitemaps) == (None, ())
