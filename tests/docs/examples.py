"""Examples of README.md and docs/, and the sites of example_project/ at the manual's addresses."""

from __future__ import annotations

import asyncio
import importlib
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.helpers import behaviours
from tests.helpers.docs import ROOT, blocks
from tests.helpers.servers import Connection, Hit, Site, Sites

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.joinpath("docs").glob("*.md")),
]


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    begun = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert begun, title
    rest = text[begun.end() :]
    end = re.search(rf"^#{{1,{len(begun[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


class Example(NamedTuple):
    """A command, and what it prints (of a log: some lines)."""

    page: Path
    command: str
    output: str


def examples() -> list[Example]:
    found = []
    for path in PAGES:
        for block in blocks(path.read_text("utf-8"), "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append(Example(path, command, output))
    return found


EXAMPLE = ROOT / "example_project"
SLOWER = 4  # times: under load, others than the slow site are slow, too


class ExampleSites:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._addresses = {name: module.address(name) for name in module.SITES}
        self._scripts = {
            urlsplit(where).netloc: module.Script(name)
            for name, where in self._addresses.items()
        }

    async def __call__(self, hit: Hit, connection: Connection) -> None:
        parts = urlsplit(hit.target)
        found = self._scripts[parts.netloc].answer(
            parts._replace(scheme="", netloc="").geturl()
        )
        await asyncio.sleep(SLOWER * found.delay)
        headers = dict(found.headers)
        if found.location:
            headers["Location"] = self._fill(found.location)
        answer = behaviours.answer(
            self._fill(found.body), found.status, headers.items(), type=found.type
        )
        await answer(hit, connection)

    def _fill(self, text: str) -> str:
        return str(self._module.fill(text, self._addresses))


def example_proxy(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("EXAMPLE_SITES", raising=False)
    site = sites.add()
    every = ExampleSites(importlib.import_module("example.sites"))
    pages: Any = SimpleNamespace(
        get=lambda path, default: every
    )  # a proxy has no paths of its own
    site.pages = pages
    return site


def example_copy(folder: Path) -> Path:
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.log")
    return Path(shutil.copytree(EXAMPLE, folder / "example_project", ignore=ignored))
