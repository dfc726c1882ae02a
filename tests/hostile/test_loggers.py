"""Functions that clean what others wrote and hide passwords, and the loggers that use them."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.settings import Settings

import scrapy_rep
from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.text import clean, json_line, text_of, without_password
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import captured_log, crawl
from tests.helpers.servers import Sites
from tests.hostile.evil import EVERYTHING, READABLE, assert_clean_text


@pytest.mark.python
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\u009b", r"\x9b"),
        ("\u0085", r"\x85"),
        ("\u2028\u202e", r"\u2028\u202e"),
        ("\n\r\t\0", r"\n\r\t\x00"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
        (READABLE, READABLE),
        ("a\\b", "a\\b"),
        ("", ""),
    ],
)
def test_what_is_cleaned_and_what_stays(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(clean(text)) == clean(text)


def test_json_keeps_the_values() -> None:
    line = json_line({"rule": EVERYTHING + READABLE, "status": 200, "none": None})
    assert line.isprintable()
    assert json.loads(line)["rule"] == (EVERYTHING + READABLE).replace("\ud800", "?")
    assert READABLE in json_line({"rule": READABLE})
    line.encode()


class Foreign(Exception):
    def __str__(self) -> str:
        return EVERYTHING


class Unprintable:
    def __str__(self) -> str:
        raise OverflowError


@pytest.mark.parametrize(
    "arguments",
    [
        ("%s", EVERYTHING),
        ("%s %d %.1f", Foreign(), 3, 2.5),
        ("%(error)s", {"error": Foreign(EVERYTHING)}),
        ("%(request)s", {"request": Request("data:,", meta={})}),
        (EVERYTHING,),
        (Foreign(),),
        ("%s", Unprintable()),
    ],
)
def test_arguments_of_log_messages(arguments: tuple[Any, ...]) -> None:
    with captured_log() as records:
        get_logger("scrapy_rep.test").warning(*arguments)
    [record] = records
    assert record.getMessage().isprintable()
    assert ("<Unprintable>" in record.getMessage()) is (
        "Unprintable" in repr(arguments)
    )


@pytest.mark.python
def test_tracebacks_of_hostile_exceptions() -> None:
    with captured_log() as records:
        try:
            raise ValueError(EVERYTHING)
        except ValueError:
            get_logger("scrapy_rep.test").exception("Bug: %s", "x")
    text = logging.Formatter("%(levelname)s %(message)s").format(records[0])
    assert_clean_text(text)
    head, first, *others = text.split("\n")
    assert (head, first) == ("ERROR Bug: x", "Traceback (most recent call last):")
    assert all(line.startswith("  ") for line in others)


OTHER_LOGGERS = re.compile(
    r"from logging import|import logger\b|\w\.logger\b|\blogging\.(?:getLogger|Logger|LoggerAdapter"
    r"|debug|info|warning|warn|error|exception|critical|fatal|log|basicConfig)\b"
)


def test_every_module_has_its_logger_from_one_place() -> None:
    package = Path(scrapy_rep.__file__).parent
    sources = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    found = {path for path, source in sources.items() if OTHER_LOGGERS.search(source)}
    assert found == {package / "engine/log.py"}


PASSWORDS = [
    "s3cret",
    "s3:cret",
    "s3@cret",
    "s3:c@r:e@t",
    "s3/c@ret",
    "s3/c:r?e#t",
    "@s3",
    ":s3@",
]
PASSWORDS += ["s3 cret", "s3cret" * 100]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize(
    "uri", ["ftp://me:{}@host:21/d/%(time)s", "redis://:{}@host/0", "s3://me@k:{}@b/x"]
)
def test_no_part_is_shown(uri: str, password: str) -> None:
    whole, hidden = uri.format(password), uri.format("***")
    assert without_password(whole) == hidden
    assert (
        text_of(ValueError(f"no such proxy: {whole}."))
        == f"ValueError: no such proxy: {hidden}"
    )


PLAIN = [
    *(
        "",
        "x",
        "d.jsonl",
        "/data/a:b@c",
        "file:///data/a:b@c",
        "ftp://me@h/x",
        "C:\\a@b",
    ),
    "s3://b/a@b",
]


@pytest.mark.parametrize("uri", PLAIN)
def test_what_has_no_password_stays(uri: str) -> None:
    assert without_password(uri) == uri
    assert text_of(ValueError(uri)) == "ValueError" + (f": {uri}" if uri else "")


URIS = (
    "ftp://me:xyz:zyx@x/y@127.0.0.1:1/d",
    "no://me:xyz@zyx@h/d",
    "ftp://me:xyz:z@zyx@h/%(xx)s",
)


@pytest.mark.parametrize("setting", ["REP_DECISIONS", "REP_REPORT"])
async def test_in_a_crawl(sites: Sites, setting: str) -> None:
    site = sites.add(robots=RULES)
    for uri in URIS:
        result = await crawl(site.url("/private"), {setting: uri})
        ours = [
            one.getMessage()
            for one in result.records
            if one.name.startswith("scrapy_rep")
        ]
        assert any("***" in one for one in ours)
        assert not [one for one in ours if "xyz" in one or "zyx" in one]


def test_in_wrong_settings() -> None:
    with pytest.raises(SettingsError) as raised:
        RepSettings.from_settings(
            Settings({"REP_CACHE_REDIS_URL": [b"redis://:pa:ss@h"]})
        )
    assert "***@h" in str(raised.value)
    assert "pa" not in str(raised.value).replace("path", "")
