"""CONTRIBUTING.md and the workflows name what is there."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.helpers.docs import ROOT, section

TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text("utf-8")


def environments() -> set[str]:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini", encoding="utf-8")
    named = {name.partition(":")[2] for name in config.sections() if ":" in name}
    return named | set(config["tox"]["envlist"].split(", "))


def test_environments_and_files_are_there() -> None:
    named = re.findall(r"tests/run\.py -e ([\w-]+)", TEXT)
    (others,) = re.findall(r"`python3 tests/run\.py -e lint`, or (.*?) \|", TEXT)
    assert {*named, *re.findall(r"`([\w-]+)`", others)} <= environments()
    paths = re.findall(r"\b(?:tests|docs|scrapy_rep)/[\w/]+\.(?:py|md)\b", TEXT)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert re.findall(r"-k (test_\w+)", TEXT)
    for name in re.findall(r"-k (test_\w+)", TEXT):
        assert f"def {name}(" in ROOT.joinpath("tests/origins/test_bodies.py").read_text("utf-8")


def test_the_layout_names_every_folder() -> None:
    layout = section(TEXT, "Layout")
    folders = [path.parent.name for path in ROOT.glob("scrapy_rep/*/__init__.py")]
    assert [folder for folder in folders if f"{folder}/" not in layout] == []


def test_every_mark_is_explained() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    marks = re.findall(r"^(\w+):", config["tool:pytest"]["markers"].strip(), re.MULTILINE)
    text = section(TEXT, "How the tests are organised")
    assert [one for one in marks if f"`{one}`" not in text and one != "needs_reactor"] == []


def test_workflows_run_the_same_commands() -> None:
    if not ROOT.joinpath(".github").exists():
        pytest.skip("not in a clone of the repository")
    commands = [
        command
        for path in ROOT.glob(".github/workflows/*.yml")
        for command in re.findall(r"- run: (.+)$", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(commands) >= 3
    ours = (".ci/run", "python3 tests/run.py")
    assert [one for one in commands if not any(our in one for our in ours)] == []


def test_how_it_is_built_names_files_that_are_there() -> None:
    text = ROOT.joinpath("docs/DESIGN.md").read_text("utf-8")
    named = re.findall(r"`((?:[\w]+/)+(?:\w+\.py)?)`|`(\w+\.py)`", text)
    paths = [one or other for one, other in named]
    assert len(paths) > 20
    missing = [
        path
        for path in paths
        if not (ROOT / path).exists() and not (ROOT / "scrapy_rep" / path).exists()
    ]
    assert missing == []
