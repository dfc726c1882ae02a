"""Content-Usage, Content-Signal, TDM reservations, licenses, policy tokens; and all of them together."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from scrapy_rep.preferences import PURPOSES, Statement, Usage
from scrapy_rep.preferences.middlewares import actions, tokens
from scrapy_rep.preferences.statements import (
    MAX_LICENSES,
    MAX_PREFERENCES_LENGTH,
    MAX_STATEMENT_TEXT,
    Reservation,
    TdmFile,
    header_statements,
    link_licenses,
    preferences,
    read_preferences,
    read_signals,
    reservation_in,
    signals,
    split_rule,
    token_statement,
)
from scrapy_rep.protocol import RobotsTxt

# draft-ietf-aipref-vocab-08, "Exemplary Serialization Format"; unknown keys (RFC 9651); the too long.
PREFERENCES: dict[str, dict[str, str]] = {
    "train-ai=y, search=n": {"train-ai": "y", "search": "n"},
    'train-ai=y, train-ai, search=n, search="n"': {},
    "train-ai;allow=n, train-ai=y": {"train-ai": "y"},
    'train-ai;has;parameters="?"': {},
    "Train-ai=y": {},
    "train-ai=Y": {},
    "train-ai=yes": {},
    "ai-use=n": {"ai-input": "n"},
    "train-ai=y, train-ai=n": {"train-ai": "n"},
    "other=y, search=y": {"search": "y"},
    '  en="Applepie", rating=1.5;x, feelings=(joy sadness) ,\t a=1, a=2, b=?0, search=y': {
        "search": "y"
    },
    "": {},
    "train-ai=n" + ", a" * (MAX_PREFERENCES_LENGTH // 3): {},
    "train-ai=n" + ", a" * (MAX_PREFERENCES_LENGTH // 3 - 4): {"train-ai": "n"},
}


def test_preferences_as_the_vocabulary_has_them() -> None:
    assert {value: preferences(value) for value in PREFERENCES} == PREFERENCES
    for value in ("a=1,", "a = 1", "A=1", "a=(1 2", 'a="\xc3\xa4"', "a\0=1"):
        with pytest.raises(ValueError, match=r"."):
            read_preferences(value)
        assert preferences("train-ai=n, " + value) == {}


# draft-ietf-aipref-attach-05, "Processing Content-Usage Rules".
SPLIT = {
    "train-ai=n": ("", "train-ai=n"),
    "/ train-ai=n": ("/", "train-ai=n"),
    "/a\t \ttrain-ai=n": ("/a", "train-ai=n"),
    "/a*b$ train-ai=n, search=y": ("/a*b$", "train-ai=n, search=y"),
    "/a": ("/a", ""),
    "": ("", ""),
}


def test_a_path_ends_at_a_blank_or_tab() -> None:
    assert {value: split_rule(value) for value in SPLIT} == SPLIT


def test_headers_are_one_dictionary_cut_into_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [one] = header_statements("Content-Usage", [b"train-ai=n, search=y", b"search=n"])
    assert one.says == {"train-ai": "n", "search": "n"}
    assert str(one) == "header Content-Usage: train-ai=n, search=y, search=n"
    for values in ([b"train-ai=n", b"Search=n"], [b"\xff" * 100_000]):
        [one] = header_statements("Content-Usage", values)
        assert one.says == {}
    assert len(one.text) == 1_000
    # The parser is asked for by name.
    monkeypatch.setitem(sys.modules, "http_sf", None)
    assert header_statements("Content-Usage", []) == []
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'scrapy-rep\[usage\]'"):
        header_statements("Content-Usage", [b"train-ai=n"])


LINES = {
    "search=yes, ai-input=no,ai-train=NO": {
        "search": "y",
        "ai-input": "n",
        "train-ai": "n",
    },
    "search=yes,use=reference": {"search": "y", "train-ai": "n"},
    "ai-train=no; search=yes": {"train-ai": "n", "search": "y"},
    "ai-train=yes;use=Immediate": {"train-ai": "n", "search": "n"},
    "use=immediate, search=yes, ai-input=yes": {
        "train-ai": "n",
        "search": "n",
        "ai-input": "y",
    },
    "ai-train=yes, use=full": {"train-ai": "y"},
    "use=full, use=reference": {"train-ai": "n"},
    "use=no, use=links": {},
    "ai-train = no": {"train-ai": "n"},
    "ai-train=no, ai-train=yes": {"train-ai": "n"},
    "ai-train=yes, ai-train=no": {"train-ai": "n"},
    "ai-train=n, search=maybe, other=no, =no, ,": {},
    "ai-train": {},
    "": {},
}


def test_signals_of_a_line() -> None:
    assert {line: signals(line) for line in LINES} == LINES
    # Blanks around the equals sign are noticed.
    assert read_signals("search=yes , ai-train= no") == [
        ("search", "yes", False), ("ai-train", "no", True)
    ]  # fmt: skip


def told(reservation: Reservation) -> tuple[dict[str, str] | None, str | None]:
    statement = reservation.statement
    return None if statement is None else statement.says, reservation.policy


NO = {"tdm": "n"}

RESERVED = "tdm-reservation"
POLICY = ("tdm-policy", "https://a.example/p", None)


def test_headers_and_metas_that_reserve_mining() -> None:
    found = [
        told(
            reservation_in(
                "header", [*((RESERVED, value, None) for value in values), POLICY]
            )
        )
        for values in ([" 1 "], ["0"], ["0", "1"], ["true"], ["1, 1"], [""], [])
    ]
    policy = "https://a.example/p"
    reserved, nothing = (NO, policy), (None, policy)
    assert found == [
        reserved,
        ({}, policy),
        reserved,
        nothing,
        nothing,
        nothing,
        nothing,
    ]
    assert told(reservation_in("header", [(RESERVED, "1", None)])) == (NO, None)
    many = iter([(RESERVED, "0", None)] * 50_000)
    assert told(reservation_in("header", many)) == ({}, None)
    assert len(list(many)) > 49_000, "the rest is not even looked at"


def test_what_a_source_leaves_out_resets_nothing() -> None:
    page = reservation_in("meta", [(RESERVED, "1", 3)])
    header = reservation_in("header", [(RESERVED, "0", None), POLICY])
    file = TdmFile(
        b'[{"location": "/", "tdm-reservation": 1, "tdm-policy": "/other"}]'
    ).about("/")
    policy = POLICY[1]
    assert told(page | header | file) == (NO, policy)
    assert told(page | file) == (NO, "/other")
    assert told(reservation_in("header", [(RESERVED, "yes", None)]) | file) == (
        NO,
        "/other",
    )
    assert told(reservation_in("meta", [("tdm-policy", " ", 1)]) | header) == (
        {},
        policy,
    )
    assert told(header | file) == ({}, policy)


LOCATIONS = [
    {"location": "/a/free", "tdm-reservation": 0},
    {"location": "/a/", "tdm-reservation": 1, "tdm-policy": "https://a.example/p"},
    {"location": "/*.png$", "tdm-reservation": "1"},
    {"location": "/odd", "tdm-reservation": 2},
    {"location": "/ä", "tdm-reservation": 1, "tdm-policy": 5},
    {"tdm-reservation": 1},
    {"location": ["/"], "tdm-reservation": 1},
    {"location": "odd", "tdm-reservation": 1},
    "/",
    None,
]

FOUND: dict[str, Any] = {
    "/a/x": (NO, "https://a.example/p"),
    "/a/free/x": ({}, None),
    "/x.png": (NO, None),
    "/%C3%A4": (NO, None),
    **dict.fromkeys(["/x.png?y", "/odd", "/"], (None, None)),
}


def test_the_first_location_of_a_file_counts() -> None:
    body = json.dumps(LOCATIONS).encode()
    for file in (TdmFile(body), TdmFile(b"\xef\xbb\xbf" + body)):
        assert {path: told(file.about(path)) for path in FOUND} == FOUND
    useless = (
        b"",
        b"{}",
        b"1",
        b"[" * 100_000,
        b"\xff",
        b"[1e999999]",
        b"[%b]" % (b"1" * 10_000),
    )
    assert {TdmFile(body).about("/") for body in useless} == {Reservation()}


RSL = 'type="application/rsl+xml"'
LINKS = {
    f'<https://a.example/l>; rel="license"; {RSL}': ["https://a.example/l"],
    "<l>;TYPE=application/rsl+xml;REL=License": ["l"],
    f'<a>; rel=next, <l>; rel="x license y"; {RSL},<b>': ["l"],
    '<l>; rel="license"': [],
    f'<l>; rel="nolicense"; {RSL}': [],
    f'<l>; rel="license-x"; {RSL}': [],
    f"<l>; {RSL}": [],
    "<" * 50_000: [],
}


def test_links_to_licenses() -> None:
    assert {text: link_licenses([text.encode()]) for text in LINKS} == LINKS
    links = [b"<l>;rel=license;type=application/rsl+xml"] * 1_000
    assert len(link_licenses(links)) == MAX_LICENSES


TOLD = {
    "User-agent: CCBot\nDisallow: /": "n",
    "User-agent: *\nDisallow: /": "n",
    "User-agent: CCBot\nAllow: /": "y",
    "User-agent: CCBot\nDisallow:": "y",
    "User-agent: CCBot\nDisallow: /other": None,
    "User-agent: *\nAllow: /": None,
    "User-agent: CCBot\nDisallow: /\nAllow: /x": "y",
    "User-agent: CCBot": None,
}


def test_what_a_policy_token_is_told() -> None:
    found = {}
    for lines in TOLD:
        decision = RobotsTxt.parse(lines.encode()).decide("/x", "CCBot")
        statement = token_statement("CCBot", decision, ["search"])
        found[lines] = statement and statement.says["search"]
        assert statement is None or statement.source == "robots.txt for CCBot"
    assert found == TOLD


def test_any_no_wins_then_yes() -> None:
    """draft-ietf-aipref-vocab-08, "Combining Preferences"."""
    yes, no, more = (
        Statement("x", 1, "a", {"search": "y"}),
        Statement("y", None, "b", {"search": "n", "tdm": "y"}),
        Statement("z", 3, "c"),
    )
    usage = Usage((more, yes, no))
    assert usage.verdicts == {**dict.fromkeys(PURPOSES), "search": "n", "tdm": "y"}
    assert usage.decisive("search") is no
    assert Usage((more, yes))["search"] == "y"
    assert Usage((more,))["search"] is None
    assert str(yes) == "x, line 1: a"
    with pytest.raises(KeyError, match="ai-train"):
        usage["ai-train"]


def test_settings_as_a_command_line_has_them() -> None:
    assert (
        actions('{"tdm": "record"}') == actions({"tdm": "record"}) == {"tdm": "record"}
    )
    assert actions(None) is actions({}) is actions("") is None
    both = {"Google-Extended": ("train-ai",), "CCBot": ("train-ai",)}
    assert (
        tokens("Google-Extended, CCBot")
        == tokens('["Google-Extended", "CCBot"]')
        == both
    )
    assert tokens({"CCBot": ["search", "tdm"]}) == {"CCBot": ("search", "tdm")}
    assert tokens([]) is None


def test_a_long_header_of_signals_counts_but_is_not_kept() -> None:
    [one] = header_statements(
        "Content-Signal", [b"ai-train=yes" + b" " * 100_000, b"AI-Train = no"]
    )
    assert (one.says, len(one.text)) == ({"train-ai": "n"}, MAX_STATEMENT_TEXT)
