"""Each setting: default, refusals, strings of command lines (crawls: test_wrong_settings.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings

from scrapy_rep.addon import Addon
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import (
    DEFAULTS,
    RepSettings,
    changed,
    setting_name,
    warn_of_unknown,
)
from scrapy_rep.storages import MemoryStorage


def names(kind: type, *others: str) -> list[str]:
    return [
        name
        for name, value in DEFAULTS.items()
        if type(value) is kind and name not in others
    ]


FLAGS = names(bool, "REP_CRAWL_DELAY", "REP_SITEMAPS", "REP_NOFOLLOW", "REP_NOINDEX")
URIS = ("REP_DECISIONS", "REP_REPORT")
DATES = ("REP_SITEMAP_SINCE", "REP_SITEMAP_UNTIL")
COUNTS = names(int)
POSITIVE = ("REP_RETRY_DELAY", "REP_RETRY_MAX_DELAY", "REP_DOWNLOAD_TIMEOUT")
SECONDS = names(float, *POSITIVE)
NO_NUMBERS = [
    "soon",
    "",
    [],
    True,
    "1 h",
    math.nan,
    math.inf,
    "nan",
    "inf",
    10**400,
    -1,
    "-5",
]


def read(**settings: Any) -> dict[str, Any]:
    checked = asdict(RepSettings.from_settings(Settings(settings)))
    by_name = {setting_name(name): value for name, value in checked.items()}
    return {name: value for name, value in by_name.items() if name in DEFAULTS}


def test_settings_have_their_documented_defaults() -> None:
    """None is the default: a project takes a setting back so, as everywhere in Scrapy."""
    assert read() == read(**dict.fromkeys(DEFAULTS)) == DEFAULTS
    assert [type(value) for value in read().values()] == [
        type(one) for one in DEFAULTS.values()
    ]


NO_TEXT = (5, True, [], {}, b"text", ["a"])
URI = "a path, or a URI that a feed storage can write to"
AGENT = "a product token (letters, - and _ only, such as FooBot)"
# Settings, values, and what the message says would be right.
WRONG: list[tuple[str | Sequence[str], Sequence[Any], str]] = [
    (FLAGS, ("yes", "maybe", 2, -1, [], [True], 0.5, "0.0"), "True or False"),
    (POSITIVE, [*NO_NUMBERS, 0, "0", 0.0], "a number of seconds, more than 0"),
    (SECONDS, NO_NUMBERS, "a number of seconds, 0 or more"),
    (COUNTS, [*NO_NUMBERS, 0, 1.5, "1.5", "1e3"], "a whole number, 1 or more"),
    ("REP_CACHE_STORAGE", NO_TEXT, "a storage class, or the path to one"),
    ("REP_CACHE_PATH", NO_TEXT, "the path of a file"),
    ("REP_CACHE_REDIS_URL", NO_TEXT, "the URL of a Redis server, such as redis://"),
    (("REP_CACHE_STORAGE", "REP_CACHE_PATH"), [""], ""),
    (URIS, NO_TEXT, URI),
    (
        "REP_SITEMAPS",
        ("yes", "starts", 2, [], ["start"], b"all"),
        "True, False, 'start' or 'all'",
    ),
    (
        "REP_CRAWL_DELAY",
        ["yes", *(value for value in NO_NUMBERS if value is not True)],
        "True, False, a number of seconds, or a dict such as {'most': 30, 'beyond': 'skip'}",
    ),
    (
        "REP_CRAWL_DELAY",
        (
            {"most": 0},
            {"most": -1},
            {"most": True},
            {"beyond": "drop"},
            {"least": 5},
            "{",
            {"beyond": []},
        ),
        "True, False, a number of seconds, or a dict such as {'most': 30, 'beyond': 'skip'}",
    ),
    (
        DATES,
        ("yesterday", "2026-13-01", "2026", 20260131, 0, True, ["2026-01-31"]),
        "a date or a datetime, or its text as in '2026-01-31'",
    ),
    (
        "REP_SITEMAP_SINCE",
        ("Last", "latest", ["last"]),
        "a date or a datetime, or its text as in '2026-01-31', or 'last'.",
    ),
    (
        "REP_SITEMAP_UNTIL",
        ("last",),
        "a date or a datetime, or its text as in '2026-01-31'.",
    ),
    (
        "REP_SITEMAP_CROSS_HOST",
        ("Strict", "", True, "all", ["any"]),
        "one of 'strict', 'any'",
    ),
    (
        "REP_UNREACHABLE",
        ("Drop", "", True, ["drop"], {}),
        "one of 'hold', 'drop', 'allow'",
    ),
    (
        "REP_UNREACHABLE_RULES",
        ("google-2025", "", True),
        "one of 'google', 'google-2026'",
    ),
    (
        "REP_FORBIDDEN",
        ("drop", "Hold", "", False, 403),
        "one of 'allow', 'disallow', 'hold'",
    ),
    ("REP_CHALLENGE", ("disallow", "", True, {}), "one of 'allow', 'hold'"),
    (
        "REP_OVERRIDES",
        (
            "a.example",
            ["a.example"],
            {5: None},
            {"*": None},
            {"a b": None},
            {"a": 5},
            "{",
        ),
        "a dict from hosts ('example.com', '*.example.com') to the paths",
    ),
    (
        "REP_OVERRIDES",
        (
            {"a": {}},
            {"a": {"file": "own.txt"}},
            {"a": {"until": "2026-12-31"}},
            {"a": {"path": "own.txt", "until": "2026-12-31"}},
            {"a": {"file": None, "until": "2026-12-31", "from": "2026-01-31"}},
            {"a": {"file": 5, "until": "2026-12-31"}},
            {"a": {"file": "", "until": "2026-12-31"}},
            {"a": {"file": None, "until": "soon"}},
            {"a": {"file": None, "until": None}},
            {"a": {"file": None, "until": 2026}},
        ),
        (
            "a dict from hosts ('example.com', '*.example.com') to the paths of robots.txt files, to None, "
            "or, if that ends at a date, to dicts such as {'file': 'own.txt', 'until': '2026-12-31'}"
        ),
    ),
    (
        "REP_NOFOLLOW",
        ("never", "drop", 2, []),
        "one of False, 'page', 'links', 'count', True",
    ),
    (
        "REP_USAGE",
        (
            "train-ai",
            {"train": "record"},
            {"tdm": "drop"},
            {"tdm": []},
            ["tdm"],
            5,
            "{",
        ),
        "a dict such as {'train-ai': 'record'}, with keys among train-ai, ",
    ),
    (
        "REP_USAGE_TOKENS",
        (
            "Foo Bot",
            ["*"],
            {"CCBot": "train"},
            {"CCBot": []},
            {"CCBot": 5},
            5,
            True,
            "[",
        ),
        "a list of product tokens, such as ['Google-Extended', ",
    ),
    ("REP_USAGE_FIELD", (5, True, ["usage"]), "the name of a field of items"),
    ("REP_NOINDEX", ("never", "page", 2, [], True), "one of False, 'drop', 'count'"),
    # No group names "Foo Bot": a value counts up to the first other character; "*" names no crawler.
    (
        "REP_USER_AGENT",
        ("Foo Bot", "FooBot/1.0", "*", "Föo", "FooBot,,Bar", ",", 0, True),
        AGENT,
    ),
    (
        "REP_USER_AGENT",
        (["FooBot", ""], ["FooBot", "*"], ["FooBot/1.0"], b"FooBot"),
        AGENT,
    ),
    ("REP_USER_AGENT", ([b"FooBot"], ["FooBot", None], [], (), Ellipsis), AGENT),
]


def test_a_limit_of_delays_is_a_number_or_a_dict() -> None:
    values: dict[Any, Any] = {
        False: False,
        "0": (0.0, False),
        "True": (60.0, False),
        "2.5": (2.5, False),
        '{"most": 30, "beyond": "skip"}': (30.0, True),
        '{"beyond": "skip"}': (60.0, True),
        '{"most": 30, "beyond": "limit"}': (30.0, False),
        '{"most": 30}': (30.0, False),
    }
    limits = {value: read(REP_CRAWL_DELAY=value)["REP_CRAWL_DELAY"] for value in values}
    assert limits == values
    assert [bool(limit) for limit in limits.values()] == [False] * 2 + [True] * 6


def test_a_wrong_value_is_an_error_that_names_a_right_one() -> None:
    for named, values, right in WRONG:
        for name, value in product(
            [named] if isinstance(named, str) else named, values
        ):
            with pytest.raises(SettingsError) as error:
                read(**{name: value})
            message = str(error.value)
            assert message.startswith(f"{name} is {value!r}, but must be {right}")
            assert message.endswith(".")
            assert "\n" not in message
            # A chained exception would be printed with the first.
            assert error.value.__suppress_context__, message


THAT_DAY = datetime(2026, 1, 31, tzinfo=timezone.utc)
# Settings, values as of `scrapy crawl -s NAME=VALUE` or settings.py, and what they mean.
RIGHT: list[tuple[str | Sequence[str], Sequence[Any], Any]] = [
    (FLAGS, ("True", "true", "1", 1, True), True),
    (FLAGS, ("False", "false", "0", "", 0, False), False),
    (POSITIVE, ("5.5", 5.5), 5.5),
    (POSITIVE, (" 7 ", 7), 7.0),
    ([name for name in SECONDS if name != "_REP_CACHE_MAX_TTL"], ["0"], 0.0),
    (COUNTS, ("5", 5), 5),
    ("REP_CACHE_MAX_ORIGINS", [5.0], 5),
    ("REP_UNREACHABLE", ["allow"], "allow"),
    ("REP_OVERRIDES", ['{"*.B\u00dc.example": null}'], {"*.xn--b-eha.example": (None, None)}),
    ("REP_OVERRIDES", [{"[::1]": Path("a", "b")}], {"[::1]": (str(Path("a", "b")), None)}),
    ("REP_OVERRIDES", [{}], None),
    (
        "REP_OVERRIDES",
        [
            '{"a.example": {"file": null, "until": "2026-12-31"}}',
            {"a.example": {"until": date(2026, 12, 31), "file": None}},
            {"a.example": {"until": "2026-12-31T01:00:00+01:00", "file": None}},
        ],
        {"a.example": (None, datetime(2026, 12, 31, tzinfo=timezone.utc))},
    ),
    ("REP_CACHE_STORAGE", ["somewhere.Storage"], "somewhere.Storage"),
    ("REP_CACHE_STORAGE", [MemoryStorage], MemoryStorage),
    ("REP_CACHE_REDIS_URL", ["redis://localhost"], "redis://localhost"),
    (("REP_CACHE_REDIS_URL", *URIS, *DATES, "REP_USER_AGENT"), [""], None),
    (URIS, ["s3://bucket/a"], "s3://bucket/a"),
    ((*URIS, "REP_CACHE_PATH"), [Path("a", "b")], str(Path("a", "b"))),
    ("REP_SITEMAPS", ("True", "true", "1", "all", True, 1), "all"),
    (("REP_SITEMAPS", "REP_NOFOLLOW", "REP_NOINDEX"), ("False", "0", "", False, 0), False),
    ("REP_SITEMAPS", ["start"], "start"),
    ("REP_NOFOLLOW", ("True", "true", "1", True, 1), True),
    *(("REP_NOFOLLOW", [text], text) for text in ("page", "links", "count")),
    *(("REP_NOINDEX", [text], text) for text in ("drop", "count")),
    ("REP_SITEMAP_CROSS_HOST", ["any"], "any"),
    (DATES, ("2026-01-31", " 2026-01-31T00:00:00 ", "2026-01-31T00:00:00Z"), THAT_DAY),
    (DATES, ("2026-01-31T01:00:00+01:00", date(2026, 1, 31)), THAT_DAY),
    (DATES, [datetime(2026, 1, 31)], THAT_DAY),
    ("REP_USER_AGENT", ["FooBot"], ("FooBot",)),
    ("REP_USER_AGENT", ("A-Images, a_b", ["A-Images", "a_b"]), ("A-Images", "a_b")),
]  # fmt: skip


def test_a_right_value_gets_its_meaning_and_type() -> None:
    for named, values, meaning in RIGHT:
        for name, value in product(
            [named] if isinstance(named, str) else named, values
        ):
            got = read(**{name: value})[name]
            assert (name, value, got, type(got)) == (
                name,
                value,
                meaning,
                type(meaning),
            )


def test_unknown_settings_are_warned_of_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_unknown(Settings(DEFAULTS))
    unknown = (
        "REP_UNREACHEABLE REP_HOLLD_MAX_WAIT REP_USERAGENT REP_SITEMAP REP_COLOUR RE_P"
    )
    warn_of_unknown(Settings(dict.fromkeys([*unknown.split(), "REP_CACHE_TTL"], 1)))
    [warning] = [
        one.getMessage() for one in caplog.records if one.levelname == "WARNING"
    ]
    assert warning == (
        "Unknown settings, which have no effect: REP_COLOUR, REP_HOLLD_MAX_WAIT (did you mean "
        "REP_HOLD_MAX_WAIT?), REP_SITEMAP (did you mean REP_SITEMAPS?), REP_UNREACHEABLE (did you mean "
        "REP_UNREACHABLE?), REP_USERAGENT (did you mean REP_USER_AGENT?)"
    )


def test_defaults_are_in_the_settings_below_what_the_project_sets() -> None:
    settings = Settings({"REP_HOLD_MAX_WAIT": 3})
    settings.set("REP_RETRY_DELAY", 4, "addon")
    Addon().update_settings(settings)
    settings.set("REP_CACHE_TTL", 86400, "spider")  # as by default
    theirs = {"REP_HOLD_MAX_WAIT": 3, "REP_RETRY_DELAY": 4}
    assert {name: settings[name] for name in DEFAULTS} == {**DEFAULTS, **theirs}
    assert changed(settings) == [*theirs]
    assert changed(Settings()) == []
