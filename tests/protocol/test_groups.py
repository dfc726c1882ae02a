"""Groups and user agents (REP.md section 7). What belongs to a group is in `test_golden.py`."""

from __future__ import annotations

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import check, verdict

CHAIN_FILE = b"""\
User-agent: googlebot
Disallow: /googlebot
User-agent: googlebot-image
Disallow: /image
User-agent: *
Disallow: /all
"""
# (chain, the group that applies, reason)
CHAINS = [
    (["googlebot-image", "googlebot"], "googlebot-image", "the most specific"),
    (["googlebot-news", "googlebot"], "googlebot", "the next where it is missing"),
    (["googlebot", "googlebot-image"], "googlebot", "the order is the crawler's"),
    (["Googlebot-Image"], "Googlebot-Image", "a token as the crawler writes it"),
    (["other", "another"], "*", "all, where none is there"),
    ([], "*", "no token at all"),
    (["*"], "*", "a star is no token of a crawler"),
    (["", "googlebot"], "googlebot", "an empty one is passed over"),
]


def test_the_first_agent_of_a_chain_with_a_group_decides() -> None:
    robots = RobotsTxt.parse(CHAIN_FILE)
    check(CHAINS, lambda chain: robots.decide("/x", chain).agent)
    check(CHAINS, lambda chain: robots.decide("/x", tuple(chain)).agent)


def test_a_chain_is_never_merged() -> None:
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
    run = "\n".join(["User-agent: a", *(f"Disallow: /{n}" for n in range(9))])
    other = "User-agent: b\nAllow: /\nUser-agent: a\nDisallow: /x\n"
    assert verdict(f"{run}\n{other}", "/x", "a") == (False, 14)
    assert verdict(f"{run}\n\n{other}", "/x", "a") == (False, 15)
    assert verdict(f"{run}\nUser-agent: a\nDisallow: /x", "/x", "a") == (False, 12)
