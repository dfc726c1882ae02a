"""What tests/README.md says of the tests is so: its examples are tests of this module."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.helpers.docs import blocks

HERE = Path(__file__).parent
PAGE = HERE.joinpath("README.md").read_text("utf-8")


def run_alone(code: str) -> dict[str, Any]:
    """The tests of one example, which sees nothing but itself."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "tests/README.md", "exec"), names)  # noqa: S102 (our own page)
    return {name: value for name, value in names.items() if name.startswith("test_")}


for example in blocks(PAGE, "python"):
    globals().update(run_alone(example))


def test_each_example_is_run() -> None:
    names = re.findall(r"^(?:async )?def (test_\w+)", PAGE, re.MULTILINE)
    assert len(names) >= 9
    assert set(names) <= set(globals())
    assert len(set(names)) == len(names)


def test_each_helper_has_a_line() -> None:
    helpers = {path.name for path in HERE.joinpath("helpers").glob("[!_]*.py")}
    listed = re.findall(r"^\| `(\w+\.py)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(helpers)


def test_no_two_modules_have_classes_of_one_name() -> None:
    """Who reads `World` in one of them knows what it is in the others."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(str(path.relative_to(HERE)))
    assert {name: files for name, files in modules.items() if len(files) > 1} == {}


def test_each_mark_has_a_line() -> None:
    setup = HERE.parent.joinpath("setup.cfg").read_text("utf-8")
    [marks] = re.findall(r"^markers =\n((?:    .*\n)+)", setup, re.MULTILINE)
    known = re.findall(r"^    (\w+):", marks, re.MULTILINE)
    [table] = re.findall(r"^## Marks\n(.*)", PAGE, re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", table.replace("pytestmark", ""))) == sorted(
        known
    )
