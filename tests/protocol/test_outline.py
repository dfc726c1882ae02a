"""What a file is made of, listed (REP.md sections 6 and 7). The example in docs/api.md shows more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scrapy_rep.protocol import CleanParam, RobotsTxt
from tests.helpers.rows import every_row
from tests.protocol.strategies import questions

# A file; of each group, its tokens and rules.
GROUPS: list[tuple[str, list[tuple[list[str], list[str]]]]] = [
    ("", []),
    ("Disallow: /x", []),
    (
        "user-agent: a\nsitemap: x\nuser-agent: B/1\ndisallow /x",
        [(["a", "b"], ["disallow /x"])],
    ),
    ("User-agent: a\nDisallow:\nUser-agent: a", [(["a"], ["Disallow:"]), (["a"], [])]),
    ("User-agent: 1\nUser-agent: *", [(["", "*"], [])]),
    ("\ufeffUser-agent: a\rAllow: /\x00x\n", [(["a"], ["Allow: /"])]),
]


def test_groups_are_listed_in_order_with_agents_and_rules() -> None:
    with every_row() as row:
        for text, expected in GROUPS:
            with row(text):
                assert [
                    (
                        [agent.token for agent in group.agents],
                        [str(line.rule) for line in group.rules],
                    )
                    for group in RobotsTxt.parse(text.encode()).groups
                ] == expected


@given(questions())
def test_the_rule_that_decides_is_among_those_listed(
    question: tuple[bytes, list[str]],
) -> None:
    body, urls = question
    robots = RobotsTxt(lambda: body)
    for url in urls:
        decision = robots.decide(url, "foo")
        named = [
            group
            for group in robots.groups
            if group.names((decision.agent or "").lower())
        ]
        assert bool(named) is (decision.agent is not None)
        if decision.rule is not None:
            assert decision.rule in [
                line.rule for group in named for line in group.rules
            ]


CLEAN_PARAMS: list[tuple[str, tuple[CleanParam, ...]]] = [
    ("Clean-param: ref /shop/*.php", (CleanParam(1, ("ref",), "/shop/*.php"),)),
    ("#\n \tCLEAN-PARAM : a&B&&c\t/x # y", (CleanParam(2, ("a", "B", "c"), "/x"),)),
    ("User-agent: a\nClean-param: é", (CleanParam(2, ("é",), ""),)),
    (
        "Clean-param: a  \nClean-param:b",
        (CleanParam(1, ("a",), ""), CleanParam(2, ("b",), "")),
    ),
    (
        "Clean-param:\nClean-param: & /x\nClean-param a\nClean-params: a\nx Clean-param: a",
        (),
    ),
]


def test_clean_params_are_listed_wherever_they_stand() -> None:
    with every_row() as row:
        for text, expected in CLEAN_PARAMS:
            with row(text):
                assert RobotsTxt.parse(text.encode()).clean_params == expected


@given(st.binary(max_size=200).map(lambda data: b"clean-param:" + data))
def test_any_bytes_can_be_listed(body: bytes) -> None:
    robots = RobotsTxt.parse(body)
    for one in robots.clean_params:
        assert one.line >= 1
        assert one.params
    assert robots.groups is not None
