"""From bytes to lines (REP.md sections 2 and 6); groups (section 7); their crawl delay (section 12)."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import check, verdict

ALLOWED = (True, 0)
MAX_BYTES = 512_000
MAX_LINE = 16_663
ALL = b"User-agent: *\n"


def disallowed(line: int) -> tuple[bool, int]:
    return False, line


SITEMAPS = [
    (b"sitemap:/s.xml", ["/s.xml"], "relative, as written"),
    (b"SITE-MAP : /s.xml # x", ["/s.xml"], "site-map, blanks, a comment"),
    (
        b"Sitemap https://a.example/s",
        ["//a.example/s"],
        "the first colon is the separator",
    ),
    (b"Sitemaps: /s.xml", ["/s.xml"], "by prefix"),
    (b"Sitemap:", [], "an empty value"),
    (
        b"Sitemap: /b\nSitemap: /a\nUser-agent: *\nSitemap: /b",
        ["/b", "/a", "/b"],
        "in order",
    ),
    (
        "Sitemap: /\u00e9%e9?x=1&y".encode(),
        ["/\u00e9%e9?x=1&y"],
        "neither encoded nor decoded",
    ),
]


def test_sitemap_lines_are_listed_in_order() -> None:
    check(SITEMAPS, lambda body: list(RobotsTxt.parse(body).sitemaps))


def test_a_byte_order_mark_does_not_count_as_part_of_its_line() -> None:
    for mark in (b"", b"\xef\xbb", b"\xef\xbb\xbf"):
        assert verdict(
            mark + b" " * (MAX_LINE - 14) + ALL + b"Disallow: /x", "/x"
        ) == disallowed(2)


def filled(head: bytes, size: int) -> bytes:
    """*head* and comments after it, *size* bytes in all, the last a line end."""
    comment = b"#" * 99 + b"\n"
    whole, rest = divmod(size - len(head), len(comment))
    return head + comment * whole + (b"#" * (rest - 1) + b"\n" if rest else b"")


# (what stands at the limit, how many bytes of it are within, does the rule count, reason)
LIMIT = [
    (b"Disallow: /x", 12, True, "the file ends at the limit"),
    (b"Disallow: /x\n", 13, True, "its line end is the last byte"),
    (
        b"Disallow: /x\nDisallow: /x",
        13,
        True,
        "its line end is the last byte, more follows",
    ),
    (b"Disallow: /x\n", 12, True, "its line end is the first byte beyond"),
    (b"Disallow: /x\rDisallow: /x", 12, True, "CR is the first byte beyond"),
    (b"Disallow: /x\r\nDisallow: /x", 13, True, "the limit cuts CRLF in two"),
    (b"Disallow: /xy", 12, False, "the limit cuts it in two"),
    (b"Disallow: /x", 11, False, "the limit cuts it in two, at the end of the file"),
    (b"Disallow: /x", 0, False, "it starts at the limit"),
    (b"Disallow: /x", -100, False, "it is beyond"),
]


def test_only_whole_lines_within_the_size_limit_count() -> None:
    for line, within, counts, reason in LIMIT:
        before = filled(ALL, MAX_BYTES - within)
        answer = disallowed(before.count(b"\n") + 1) if counts else ALLOWED
        assert verdict(before + line, "/x") == answer, reason
    assert verdict(b"Disallow: /" * 60_000, "/x") == ALLOWED  # no line end at all
    body = b"\n" * (MAX_BYTES - 100) + ALL + b"Disallow: /"
    assert verdict(body, "/x") == disallowed(MAX_BYTES - 98)
    robots = RobotsTxt.parse(
        filled(ALL, MAX_BYTES) + b"Crawl-delay: 1\nSitemap: /s.xml\n"
    )
    assert (robots.crawl_delay("FooBot"), robots.sitemaps) == (None, ())


CHAIN_FILE = (
    b"User-agent: googlebot\nDisallow: /googlebot\nUser-agent: googlebot-image\n"
)
CHAIN_FILE += b"Disallow: /image\nUser-agent: *\nDisallow: /all\n"
# (chain, the group that applies, reason)
CHAINS = [
    (["googlebot-image", "googlebot"], "googlebot-image", "the most specific"),
    (["googlebot-news", "googlebot"], "googlebot", "the next where it is missing"),
    (["Googlebot-Image"], "Googlebot-Image", "a token as the crawler writes it"),
    (["other", "another"], "*", "all, where none is there"),
    (["*"], "*", "a star is no token of a crawler"),
    (["", "googlebot"], "googlebot", "an empty one is passed over"),
]


def test_the_first_agent_of_a_chain_with_a_group_decides() -> None:
    robots = RobotsTxt.parse(CHAIN_FILE)
    check(CHAINS, lambda chain: robots.decide("/x", chain).agent)
    # Never merged.
    body = "User-agent: a\nAllow: /x\nUser-agent: b\nDisallow: /x/y"
    assert verdict(body, "/x/y", ["a", "b"]) == (True, 2)
    assert verdict(body, "/x/y", ["b", "a"]) == (False, 4)


def test_a_crawler_that_ignores_the_global_group() -> None:
    for start, group in (("", None), ("User-agent: FooBot\n", "FooBot")):
        robots = RobotsTxt.parse(f"User-agent: *\n{start}Disallow: /".encode())
        decision = robots.decide("/x", "FooBot", obey_global=False)
        assert (decision.allowed, decision.agent) == (group is None, group)
        # What is known of one kind of crawler must not answer for the other.
        assert not robots.allowed("/x", "FooBot")


def test_lines_are_counted_across_groups() -> None:
    """Also behind a run of rules, which are read at once, and with a blank line at its end."""
    run = "\n".join(["User-agent: a", *(f"Disallow: /{n} # {n}" for n in range(9))])
    other = "User-agent: b\nAllow: /\nUser-agent: a\nDisallow: /x\n"
    assert verdict(f"{run}\n{other}", "/x", "a") == (False, 14)
    assert verdict(f"{run}\n\n{other}", "/x", "a") == (False, 15)
    assert verdict(f"{run}\nUser-agent: a\nDisallow: /x", "/x", "a") == (False, 12)


SLOW = "User-agent: FooBot\nCrawl-delay: 3"
SLOWER = "User-agent: foobot\nCrawl-delay: 7"
NONSENSE = [
    *[
        "soon",
        "-1",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "5s",
        "1,5",
        "1_0",
        "1e3",
        "+5",
        "0x10",
        "٣",
        ".",
        "",
        "1 2",
    ],
    "9" * 400,
]
DELAYS = [
    ("User-agent: *\nCrawl-delay: 5", 5.0, "of the group for all"),
    ("User-agent: FooBot\nDisallow: /\nUser-agent: *\nCrawl-delay: 5", None, "never mixed"),
    ("User-agent: FooBot\nCrawl-delay: .5", 0.5, "no zero before the point"),
    ("User-agent: FooBot\nCrawl-delay: 5.", 5.0, "nothing behind the point"),
    ("User-agent: FooBot\nCRAWL-DELAY : 5 # slow", 5.0, "in capitals, with a comment"),
    ("User-agent: FooBot\nCrawl-delay: 3\nCrawl-delay: 9\nCrawl-delay: 5", 9.0, "the largest"),
    ("Crawl-delay: 5\nUser-agent: FooBot\nDisallow: /", None, "before the first group"),
    *((f"User-agent: FooBot\nCrawl-delay: {value}", None, f"nonsense: {value!r}") for value in NONSENSE),
]  # fmt: skip


def test_the_crawl_delay_of_the_agents_group_is_read() -> None:
    check(DELAYS, lambda body: RobotsTxt.parse(body.encode()).crawl_delay("FooBot"))
    robots = RobotsTxt.parse(b"User-agent: *\nCrawl-delay: 5")
    assert robots.crawl_delay("FooBot", obey_global=False) is None


LINES = [
    (
        "Crawl-delay: 1\nUser-agent: FooBot\nCrawl-delay: 5",
        (5.0, 3),
        "a line of nobody's first",
    ),
    (
        "User-agent: b\nUser-agent: FooBot\n\nCrawl-delay: 5",
        (5.0, 4),
        "behind two agents",
    ),
    (f"{SLOW}\nDisallow: /\nuser-agent: b\nAllow: /\n{SLOWER}", (7.0, 7), "the larger"),
    (f"\n{SLOW}\nAllow: /\n{SLOW}", (3.0, 3), "the first of two that say the same"),
    (
        "User-agent: FooBot\r\nUser-agents\r\nCrawl-delay: 5",
        (5.0, 3),
        "an agent without a name",
    ),
]


def test_the_line_that_asks_for_the_delay_is_known() -> None:
    check(
        LINES,
        lambda body: (RobotsTxt.parse(body.encode()).pace("FooBot").slowest or ())[:2],
    )
    body = LINES[0][0].encode()
    prepared = RobotsTxt(lambda: pytest.fail("the file is read again"))
    prepared.preload(body, "FooBot", with_delay=True)
    assert (prepared.pace("FooBot").slowest or ())[:2] == LINES[0][1]


def test_a_crawl_delay_ends_no_group_of_rules() -> None:
    """Verdicts are Google's: for rules, the agents on both sides of the line share a group."""
    robots = RobotsTxt.parse(
        b"User-agent: a\nCrawl-delay: 60\nUser-agent: *\nDisallow: /x"
    )
    for agent, delay in (("a", 60.0), ("b", None)):
        assert not robots.allowed("http://example.com/x", agent)
        assert robots.crawl_delay(agent) == delay
