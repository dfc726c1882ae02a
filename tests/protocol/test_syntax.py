"""From bytes to lines that mean something (REP.md section 6), and the size limit of section 2. How lines
are read is in `test_golden.py`."""

from __future__ import annotations

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import check, verdict

ALLOWED = (True, 0)
MAX_BYTES = 512_000
MAX_LINE = 16_663
ALL = b"User-agent: *\n"


def disallowed(line: int) -> tuple[bool, int]:
    return False, line


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


def test_sitemap_lines_are_listed_in_order() -> None:
    check(SITEMAPS, lambda body: list(RobotsTxt.parse(body).sitemaps))


def test_line_is_cut_after_so_many_bytes() -> None:
    """After 16,663 bytes, a byte order mark not counted."""
    start = b"Disallow: /"
    fits = start + b"x" * (MAX_LINE - len(start))
    path = fits.decode().removeprefix("Disallow: ")
    for end, bom in ((b"\n", b""), (b"\r", b"\xef\xbb"), (b"\r\n", b"\xef\xbb\xbf")):
        for line in (fits, fits + b"y", fits + b"y" * MAX_LINE):
            body = bom + b"User-agent: *" + end + line + end + b"Disallow: /y" + end
            assert verdict(body, path) == disallowed(2)
            assert verdict(body, path[:-1]) == ALLOWED
            assert verdict(body, "/y") == disallowed(3)


def test_what_stands_at_the_end_of_a_cut_line() -> None:
    line = b" " * (MAX_LINE - len(b"Disallow: /x$")) + b"Disallow: /x"
    assert verdict(ALL + line + b"$", "/xy") == ALLOWED  # the last byte that counts
    assert verdict(ALL + line + b" $", "/xy") == disallowed(2)
    first = b"User-agent: *" + b" " * (MAX_LINE - 13) + b"Disallow: /\n"
    assert verdict(first + b"Disallow: /x", "/x") == disallowed(2)


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


def test_only_whole_lines_within_the_size_limit_count() -> None:
    """512,000 bytes count; a line that the limit cuts in two does not."""
    for line, within, counts, reason in LIMIT:
        before = filled(ALL, MAX_BYTES - within)
        answer = disallowed(before.count(b"\n") + 1) if counts else ALLOWED
        assert verdict(before + line, "/x") == answer, reason


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
