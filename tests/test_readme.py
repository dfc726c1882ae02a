"""README.md says what the code does. (Its examples with `>>>` are run as doctests.)"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
from scrapy.settings import Settings

from scrapy_rep import signals
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.summary import PAGE_VERDICTS
from scrapy_rep.settings import RepSettings, setting_name
from tests.helpers.readme import section

SETTINGS = {setting_name(field.name): field.default for field in fields(RepSettings)}


def test_the_settings_table_is_that_of_the_code() -> None:
    rows = re.findall(
        r"^\| `(REP_\w+)` \| [^|]+ \| `([^`]+)` \|$", section("Settings"), re.MULTILINE
    )
    assert {name: ast.literal_eval(default) for name, default in rows} == SETTINGS


def test_each_setting_has_a_heading_and_an_example() -> None:
    parts = re.split(r"^### (\w+)\n", section("Settings"), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(texts) == list(SETTINGS)
    for name, text in texts.items():
        assert re.search(rf"```python\n{name} = .+\n```", text), name


@pytest.mark.parametrize("name", SETTINGS)
def test_the_example_of_a_setting_is_a_valid_value(name: str) -> None:
    example = re.search(rf"^{name} = (.+)$", section("Settings"), re.MULTILINE)
    assert example
    value = eval(example[1], {})  # noqa: S307 (our own README)
    assert value != SETTINGS[name], "an example that changes nothing"
    RepSettings.from_settings(Settings({name: value}))


def test_every_signal_is_documented() -> None:
    public = [name for name in vars(signals) if not name.startswith("_")]
    documented = re.findall(r"^\| `(\w+)` \|", section("Signals"), re.MULTILINE)
    assert sorted(documented) == sorted(public)


def test_every_stat_is_documented() -> None:
    code = "".join(
        path.read_text("utf-8") for path in Path(__file__).parent.parent.glob("scrapy_rep/**/*.py")
    )
    counted = set(re.findall(r'"(rep/[a-z_/]+[a-z])"', code))
    documented = set(re.findall(r"`(rep/[a-z_/]+)`", section("Stats")))
    assert counted
    assert counted <= documented
    # What the code puts together of two parts.
    outcomes = {f"rep/outcome/{outcome.value}" for outcome in Outcome}
    pages = {f"rep/page/{verdict}" for verdict, _, _ in PAGE_VERDICTS}
    assert documented - counted == outcomes | pages
