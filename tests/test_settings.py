"""Every REP_ setting: its default, what is refused and with which words, what a command line's
strings mean. What a crawl does with a wrong one is in test_wrong_settings.py."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings, set_defaults, setting_name, warn_of_unknown
from scrapy_rep.storages import MemoryStorage

# tests/docs/test_reference.py compares them with the manual.
DEFAULTS = {setting_name(item.name): item.default for item in fields(RepSettings)}


def names(kind: type, *others: str) -> list[str]:
    """The settings whose default is of that kind, without the *others*."""
    return [name for name, value in DEFAULTS.items() if type(value) is kind and name not in others]


FLAGS = names(bool, "REP_CRAWL_DELAY", "REP_SITEMAPS", "REP_NOFOLLOW", "REP_NOINDEX")
URIS = ("REP_DECISIONS", "REP_REPORT")
INTEGERS = ("REP_SITEMAP_PRIORITY", "REP_SITEMAP_PAGE_PRIORITY")
COUNTS = names(int, *INTEGERS)
POSITIVE = ("REP_RETRY_DELAY", "REP_RETRY_MAX_DELAY", "REP_DOWNLOAD_TIMEOUT", "REP_CACHE_EXPIRY")
SECONDS = names(float, *POSITIVE)

NO_NUMBERS = ["soon", "", [], True, "1 h", math.nan, math.inf, "nan", "inf", 10**400, -1, "-5"]


def read(**settings: Any) -> dict[str, Any]:
    checked = asdict(RepSettings.from_settings(Settings(settings)))
    return {setting_name(name): value for name, value in checked.items()}


def test_settings_have_their_documented_defaults() -> None:
    """None is the default: a project takes a setting back so, as everywhere in Scrapy."""
    assert read() == read(**dict.fromkeys(DEFAULTS)) == DEFAULTS
    assert [type(value) for value in read().values()] == [type(one) for one in DEFAULTS.values()]


def wrong_values() -> Iterator[tuple[str, Any, str]]:
    """Setting, value, and what the message says would be right."""
    for name in FLAGS:
        for value in ("yes", "maybe", 2, -1, [], [True], 0.5, "0.0"):
            yield name, value, "True or False"
    for name in POSITIVE:
        for value in [*NO_NUMBERS, 0, "0", 0.0]:
            yield name, value, "a number of seconds, more than 0"
    for name in SECONDS:
        for value in NO_NUMBERS:
            yield name, value, "a number of seconds, 0 or more"
    for name in COUNTS:
        for value in [*NO_NUMBERS, 0, 1.5, "1.5", "1e3"]:
            yield name, value, "a whole number, 1 or more"
    for value in (5, True, [], {}, b"text", ["a"]):
        yield "REP_CACHE_STORAGE", value, "a storage class, or the path to one"
        yield "REP_CACHE_PATH", value, "the path of a file"
        yield "REP_CACHE_REDIS_URL", value, "the URL of a Redis server, such as redis://"
        yield "REP_CACHE_REDIS_PREFIX", value, "text"
    for name in ("REP_CACHE_STORAGE", "REP_CACHE_PATH", "REP_CACHE_REDIS_PREFIX"):
        yield name, "", ""
    for name in URIS:
        for value in (5, True, [], {}, b"text", ["a"]):
            yield name, value, "a path, or a URI that a feed storage can write to"
    for name in INTEGERS:
        for value in ("soon", "", [], True, 1.5, "1.5", math.nan, math.inf):
            yield name, value, "a whole number"
    for value in ("yes", "starts", 2, [], ["start"], b"all"):
        yield "REP_SITEMAPS", value, "True, False, 'start' or 'all'"
    for value in ["yes", *(value for value in NO_NUMBERS if value is not True)]:
        yield "REP_CRAWL_DELAY", value, "True, False or a number of seconds"
    for value in ("yesterday", "2026-13-01", "2026", 20260131, 0, True, ["2026-01-31"]):
        yield "REP_SITEMAP_SINCE", value, "a date or a datetime, or its text as in '2026-01-31'"
    for value in ("Strict", "", True, "all", ["any"]):
        yield "REP_SITEMAP_CROSS_HOST", value, "one of 'strict', 'any'"
    for value in ("Drop", "deferred", "", True, ["drop"], {}):
        yield "REP_UNREACHABLE", value, "one of 'defer', 'drop', 'allow'"
    for value in ("google-2025", "", True, ["google"]):
        yield "REP_UNREACHABLE_RULES", value, "one of 'google', 'google-2026'"
    for value in ("drop", "Defer", "", False, 403):
        yield "REP_FORBIDDEN", value, "one of 'allow', 'disallow', 'defer'"
    for value in ("disallow", "", True, {}):
        yield "REP_CHALLENGE", value, "one of 'allow', 'defer'"
    hosts = "a dict from hosts ('example.com', '*.example.com') to the paths"
    for value in ("a.example", ["a.example"], {5: None}, {"*": None}, {"a b": None}, {"a": 5}, "{"):
        yield "REP_OVERRIDES", value, hosts
    for value in ("never", "drop", 2, [], "PAGE"):
        yield "REP_NOFOLLOW", value, "one of False, 'page', 'links', 'count', True"
    for value in ("train-ai", {"train": "record"}, {"tdm": "drop"}, {"tdm": []}, ["tdm"], 5, "{"):
        yield (
            "REP_USAGE",
            value,
            "a dict such as {'train-ai': 'record'}, with keys among train-ai, ",
        )
    for value in ("Foo Bot", ["*"], {"CCBot": "train"}, {"CCBot": []}, {"CCBot": 5}, 5, True, "["):
        yield "REP_USAGE_TOKENS", value, "a list of product tokens, such as ['Google-Extended', "
    for value in (5, True, ["usage"]):
        yield "REP_USAGE_FIELD", value, "the name of a field of items"
    for value in ("never", "page", 2, [], True):
        yield "REP_NOINDEX", value, "one of False, 'drop', 'count'"
    # No group names "Foo Bot": a value counts up to the first other character; "*" names no crawler.
    texts = ("Foo Bot", "FooBot/1.0", "*", "Föo", "FooBot,,Bar", ",")
    lists = (["FooBot", ""], ["FooBot", "*"], ["FooBot/1.0"], [b"FooBot"], ["FooBot", None], [], ())
    for value in (*texts, *lists, 0, True, b"FooBot", Ellipsis):
        yield "REP_USER_AGENT", value, "a product token (letters, - and _ only, such as FooBot)"


def test_a_wrong_value_is_an_error_that_names_a_right_one() -> None:
    for name, value, right in wrong_values():
        with pytest.raises(SettingsError) as error:
            read(**{name: value})
        message = str(error.value)
        assert message.startswith(f"{name} is {value!r}, but must be {right}")
        assert message.endswith(".")
        assert "\n" not in message
        # A chained exception would be printed with the first.
        assert error.value.__suppress_context__, message


def test_message_for_a_whole_header_proposes_its_token() -> None:
    header = "Mozilla/5.0 (compatible; FooBot/1.2; +https://example.com/bot)"
    with pytest.raises(SettingsError, match=r"perhaps 'FooBot'\.$"):
        read(REP_USER_AGENT=header)


RIGHT_VALUES: list[tuple[str, Any, Any]] = [
    # As `scrapy crawl -s NAME=VALUE` hands them over.
    *[(name, text, True) for name in FLAGS for text in ("True", "true", "1")],
    *[(name, text, False) for name in FLAGS for text in ("False", "false", "0", "")],
    *[(name, "5.5", 5.5) for name in POSITIVE],
    *[(name, " 7 ", 7.0) for name in POSITIVE],
    *[(name, "0", 0.0) for name in SECONDS if name != "REP_CACHE_MAX_TTL"],
    *[(name, "5", 5) for name in COUNTS],
    *[(name, text, int(text)) for name in INTEGERS for text in ("5", "-5", "0")],
    ("REP_UNREACHABLE", "allow", "allow"),
    ("REP_OVERRIDES", '{"*.B\u00dc.example": null}', {"*.xn--b-eha.example": None}),
    ("REP_OVERRIDES", {"[::1]": Path("a", "b")}, {"[::1]": str(Path("a", "b"))}),
    ("REP_OVERRIDES", {}, None),
    ("REP_CACHE_STORAGE", "somewhere.Storage", "somewhere.Storage"),
    ("REP_CACHE_STORAGE", MemoryStorage, MemoryStorage),
    ("REP_CACHE_PATH", Path("a", "b"), str(Path("a", "b"))),
    ("REP_CACHE_REDIS_URL", "", None),
    ("REP_CACHE_REDIS_URL", "redis://localhost", "redis://localhost"),
    *[(name, "", None) for name in URIS],
    *[(name, "s3://bucket/a", "s3://bucket/a") for name in URIS],
    *[(name, Path("a", "b"), str(Path("a", "b"))) for name in URIS],
    *[("REP_SITEMAPS", text, "all") for text in ("True", "true", "1", "all", True, 1)],
    *[("REP_SITEMAPS", text, False) for text in ("False", "0", "", False, 0)],
    ("REP_SITEMAPS", "start", "start"),
    *[("REP_NOFOLLOW", text, True) for text in ("True", "true", "1", True, 1)],
    *[("REP_NOFOLLOW", text, False) for text in ("False", "0", "", False, 0, None)],
    *[("REP_NOFOLLOW", text, text) for text in ("page", "links", "count")],
    *[("REP_NOINDEX", text, False) for text in ("False", "0", "", False, 0, None)],
    *[("REP_NOINDEX", text, text) for text in ("drop", "count")],
    ("REP_SITEMAP_CROSS_HOST", "any", "any"),
    ("REP_SITEMAP_SINCE", "", None),
    *[
        ("REP_SITEMAP_SINCE", value, datetime(2026, 1, 31, tzinfo=timezone.utc))
        for value in (
            "2026-01-31",
            " 2026-01-31T00:00:00 ",
            "2026-01-31T00:00:00Z",
            "2026-01-31T01:00:00+01:00",
            date(2026, 1, 31),
            datetime(2026, 1, 31),
        )
    ],
    ("REP_USER_AGENT", "FooBot", ("FooBot",)),
    ("REP_USER_AGENT", "FooBot-Images, foo_bot", ("FooBot-Images", "foo_bot")),
    ("REP_USER_AGENT", "", None),
    # As settings.py may have them.
    *[(name, number, bool(number)) for name in FLAGS for number in (1, 0, True, False)],
    *[(name, 7, 7.0) for name in POSITIVE],
    ("REP_CACHE_MAX_ORIGINS", 5.0, 5),
    ("REP_USER_AGENT", ["FooBot-Images", "FooBot"], ("FooBot-Images", "FooBot")),
    ("REP_USER_AGENT", None, None),
]


def test_a_right_value_gets_its_meaning_and_type() -> None:
    for name, value, meaning in RIGHT_VALUES:
        got = read(**{name: value})[name]
        assert (name, value, got) == (name, value, meaning)
        assert (name, value, type(got)) == (name, value, type(meaning))


def test_the_lower_of_two_settings_is_not_above_the_higher() -> None:
    for low, high in (
        ("REP_RETRY_DELAY", "REP_RETRY_MAX_DELAY"),
        ("REP_CACHE_MIN_TTL", "REP_CACHE_MAX_TTL"),
    ):
        assert read(**{low: 20, high: "20"})[low] == 20.0
        message = f"{low} is 20.5, but must not be more than {high}, which is 20.0."
        with pytest.raises(SettingsError, match=f"^{re.escape(message)}$"):
            read(**{low: "20.5", high: 20})
    with pytest.raises(SettingsError, match=r"^REP_RETRY_DELAY is 601\.0, .* which is 600\.0\.$"):
        read(REP_RETRY_DELAY=601)


def test_unknown_settings_are_warned_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_unknown(Settings(DEFAULTS))
    misspelt = {
        "REP_UNREACHEABLE": "REP_UNREACHABLE",
        "REP_DEFFER_GRACE": "REP_DEFER_GRACE",
        "REP_USERAGENT": "REP_USER_AGENT",
        "REP_SITEMAP": "REP_SITEMAPS",
    }
    told = sorted(f"{name} (did you mean {meant}?)" for name, meant in misspelt.items())
    names = [*misspelt, "REP_COLOUR", "REP_CACHE_TTL", "RE_P"]
    warn_of_unknown(Settings(dict.fromkeys(names, 1)))
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        f"Unknown settings, which have no effect: {', '.join(['REP_COLOUR', *told])}"
    ]


def test_defaults_are_in_the_settings_below_what_the_project_sets() -> None:
    settings = Settings({"REP_DEFER_GRACE": 3})
    settings.set("REP_RETRY_DELAY", 4, "addon")
    set_defaults(settings)
    assert settings["REP_DEFER_GRACE"] == 3
    assert settings["REP_RETRY_DELAY"] == 4
    assert settings["REP_CACHE_TTL"] == 86400.0
    others = {"REP_DEFER_GRACE", "REP_RETRY_DELAY"}
    assert {name for name in DEFAULTS if settings.getpriority(name) == 0} == {*DEFAULTS} - others
