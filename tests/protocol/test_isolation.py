"""The core stands alone: no Scrapy, no Twisted, no I/O, no clock of its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scrapy_rep.protocol

PACKAGE = Path(scrapy_rep.protocol.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

IMPORT_ALL = """
import importlib, pkgutil, sys
import scrapy_rep.preferences, scrapy_rep.preferences.statements, scrapy_rep.protocol as core
for module in pkgutil.walk_packages(core.__path__, core.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({"scrapy", "twisted"} & {name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.process
def test_imports_neither_scrapy_nor_twisted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=PACKAGE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_asks_for_nothing_outside(module: Path) -> None:
    """What a module of the core imports is its own package or has neither clock nor I/O."""
    imported = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            imported.add(str(node.module))
    outside = {"asyncio", "http", "io", "os", "random", "socket", "ssl", "time", "urllib.request"}
    assert not {name for name in imported if name in outside or name.startswith("scrapy.")}
    libraries = {*sys.stdlib_module_names, "scrapy_rep"}
    assert {name.partition(".")[0] for name in imported} <= libraries
    assert all(
        name.startswith("scrapy_rep.protocol") for name in imported if name.startswith("scrapy_rep")
    )
