"""The crawl delay that a group may hold: no part of the protocol, but read for those who ask
for it. Groups are those of REP.md section 7."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import check

SLOW = "User-agent: FooBot\nCrawl-delay: 3"
SLOWER = "User-agent: foobot\nCrawl-delay: 7"
NONSENSE = [*"soon|-1|nan|inf|-inf|1e999|5s|1,5|1_0|1e3|+5|0x10|٣|.||1 2".split("|"), "9" * 400]  # noqa: SIM905
DELAYS = [
    ("User-agent: *\nCrawl-delay: 5", 5.0, "of the group for all"),
    ("User-agent: FooBot\nCrawl-delay: 5", 5.0, "of the named group"),
    ("User-agent: BarBot\nCrawl-delay: 5", None, "not of another's"),
    ("User-agent: FooBot\nDisallow: /\nUser-agent: *\nCrawl-delay: 5", None, "never mixed"),
    ("User-agent: FooBot\nCrawl-delay: 0.5", 0.5, "parts of a second"),
    ("User-agent: FooBot\nCrawl-delay: .5", 0.5, "no zero before the point"),
    ("User-agent: FooBot\nCrawl-delay: 5.", 5.0, "nothing behind the point"),
    ("User-agent: FooBot\nCrawl-delay: 010", 10.0, "a zero in front"),
    ("User-agent: FooBot\nCrawl-delay: 0", 0.0, "none"),
    ("User-agent: FooBot\nDisallow: /\nCrawl-delay: 5", 5.0, "after a rule"),
    ("User-agent: FooBot\nCRAWL-DELAY : 5 # slow", 5.0, "in capitals, with a comment"),
    ("User-agent: FooBot\nCrawl-delay: 3\nCrawl-delay: 9\nCrawl-delay: 5", 9.0, "the largest"),
    ("User-agent: FooBot\nCrawl-delay: 3\nAllow: /\n" * 2, 3.0, "of merged groups"),
    (f"{SLOW}\nDisallow: /a\n{SLOWER}", 7.0, "the largest of merged groups"),
    (f"{SLOWER}\nDisallow: /a\n{SLOW}", 7.0, "whichever comes first"),
    ("User-agent: FooBot\nCrawl-delay: 5\nUser-agent: b\nAllow: /", 5.0, "before other agents"),
    ("User-agent: b\nCrawl-delay: 5\nUser-agent: FooBot\nAllow: /", None, "it ends the agents"),
    ("User-agent: b\nCrawl-delay: 60\nUser-agent: *\nDisallow: /x", None, "as in real files"),
    ("User-agent: b\nCrawl-delay: soon\nUser-agent: FooBot\nCrawl-delay: 5", 5.0, "so does nonsense"),
    ("User-agent: b\nUser-agent: FooBot\n\nCrawl-delay: 5\nAllow: /", 5.0, "of two agents"),
    (f"{SLOW}\n{SLOWER}\nUser-agent: b\nCrawl-delay: 60", 7.0, "one group after the other"),
    ("Crawl-delay: 5\nUser-agent: FooBot\nDisallow: /", None, "before the first group"),
    ("User-agent: FooBot\nCrawl-delay: 5\nCrawl-delay: soon", 5.0, "beside nonsense"),
    *((f"User-agent: FooBot\nCrawl-delay: {value}", None, f"nonsense: {value!r}") for value in NONSENSE),
    ("", None, "an empty file"),
]  # fmt: skip


def test_the_crawl_delay_of_the_agents_group_is_read() -> None:
    check(DELAYS, lambda body: RobotsTxt.parse(body.encode()).crawl_delay("FooBot"))
    check(DELAYS, lambda body: RobotsTxt.parse(body.encode()).crawl_delay(["nobody", "foobot"]))


def test_delay_of_a_crawler_that_ignores_the_global_group() -> None:
    robots = RobotsTxt.parse(b"User-agent: *\nCrawl-delay: 5")
    assert robots.crawl_delay("FooBot", obey_global=False) is None


LINES = [
    ("Crawl-delay: 1\nUser-agent: FooBot\nCrawl-delay: 5", (5.0, 3), "a line of nobody's first"),
    ("User-agent: b\nUser-agent: FooBot\n\nCrawl-delay: 5", (5.0, 4), "behind two agents"),
    (f"{SLOW}\nDisallow: /\nuser-agent: b\nAllow: /\n{SLOWER}", (7.0, 7), "the larger"),
    (f"\n{SLOW}\nAllow: /\n{SLOW}", (3.0, 3), "the first of two that say the same"),
    ("User-agent: FooBot\r\nUser-agents\r\nCrawl-delay: 5", (5.0, 3), "an agent without a name"),
]


def test_the_line_that_asks_for_the_delay_is_known() -> None:
    check(LINES, lambda body: (RobotsTxt.parse(body.encode()).pace("FooBot").slowest or ())[:2])
    body = LINES[0][0].encode()
    prepared = RobotsTxt(lambda: pytest.fail("the file is read again"))
    prepared.preload(body, "FooBot", with_delay=True)
    assert (prepared.pace("FooBot").slowest or ())[:2] == LINES[0][1]


def test_delays_of_many_agents_take_bounded_memory() -> None:
    robots = RobotsTxt.parse(
        b"User-agent: *\nCrawl-delay: 5\nAllow: /\nUser-agent: Foo\nCrawl-delay: 6\n"
    )
    names = [f"Foo{'o' * number}" for number in range(300)]
    assert {robots.crawl_delay(name) for name in names} == {5.0, 6.0}
    assert robots._paces is not None
    assert len(robots._paces) <= 2


def test_a_crawl_delay_ends_no_group_of_rules() -> None:
    """Verdicts are Google's: for rules, the agents on both sides of the line share a group."""
    robots = RobotsTxt.parse(b"User-agent: a\nCrawl-delay: 60\nUser-agent: *\nDisallow: /x")
    for agent, delay in (("a", 60.0), ("b", None)):
        assert not robots.allowed("http://example.com/x", agent)
        assert robots.crawl_delay(agent) == delay
