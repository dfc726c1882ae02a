"""The sites of example_project/ at the addresses that the manual has, behind a proxy: tests that run
at once don't meet, and nothing listens at a port of its own."""

from __future__ import annotations

import asyncio
import importlib
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.helpers import behaviours
from tests.helpers.docs import ROOT
from tests.helpers.servers import Connection, Hit, Site, Sites

EXAMPLE = ROOT / "example_project"


class _Every(dict[str, Any]):
    """The proxy has one behaviour, whatever the path is."""

    def get(self, key: object, default: Any = None) -> Any:
        return self[""]


class ExampleSites:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._addresses = {name: module.address(name) for name in module.SITES}
        self._scripts = {
            urlsplit(where).netloc: module.Script(name) for name, where in self._addresses.items()
        }

    async def __call__(self, hit: Hit, connection: Connection) -> None:
        parts = urlsplit(hit.target)
        target = parts._replace(scheme="", netloc="").geturl()
        found = self._scripts[parts.netloc].answer(target)
        await asyncio.sleep(found.delay)
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
    """A proxy behind which the sites are."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("EXAMPLE_SITES", raising=False)
    site = sites.add()
    site.pages = _Every({"": ExampleSites(importlib.import_module("example.sites"))})
    return site


def example_copy(folder: Path) -> Path:
    """The project, in a folder of the test's own."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.log")
    return Path(shutil.copytree(EXAMPLE, folder / "example_project", ignore=ignored))
