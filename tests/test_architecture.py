"""Imports go one way, for types too (docs/DESIGN.md has the picture); rules for tests."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What is at the top of the package. Each imports from the rows above; a folder from itself, too.
LAYERS = [
    {"protocol"},
    {"text"},
    {"engine"},
    {"robotparser", "exceptions", "signals", "inspection"},
    {"settings"},
    {"storages"},
    {"origins"},
    {"reporting"},
    {"holding"},
    {"seeding"},
    {"middleware"},
    {"pages"},
    {"preferences"},
    {"commands", "addon"},
]
# What imports can stand in.
STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules(folder: str) -> dict[str, Path]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    # Scripts of benchmarks/ import each other by their names alone.
    names = [one.removesuffix(".__init__").removeprefix("benchmarks.") for one in names]
    return dict(zip(names, paths, strict=True))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    """Half a million nodes: each later crawl, which collects garbage, would take half a second longer."""
    yield
    parsed.cache_clear()


def named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def imports(path: Path, known: dict[str, Path], *, top: bool = False) -> Iterator[str]:
    """Yield which of *known* a file imports; with *top*, only while it is imported itself."""
    nodes: list[ast.AST] = [parsed(path)]
    while nodes:
        node = nodes.pop()
        yield from (name for name in named(node) if name in known)
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if not (top and later):
            nodes += (
                one for one in ast.iter_child_nodes(node) if isinstance(one, STATEMENTS)
            )


def test_imports_go_one_way() -> None:
    top = {path.stem for path in (ROOT / "scrapy_rep").iterdir() if path.name[0] != "_"}
    assert top - {"py"} == set(LEVEL)  # py.typed
    package = modules("scrapy_rep")
    against = [
        f"{name} imports {other}"
        for name, path in package.items()
        for other in imports(path, package)
        if "." in name and "." in other
        if (here := name.split(".")[1]) != (there := other.split(".")[1])
        and LEVEL[there] >= LEVEL.get(here, len(LAYERS))  # __main__ is above all
    ]
    assert against == []


def test_the_picture_agrees_with_the_layers_and_files_exist() -> None:
    text = (ROOT / "docs" / "DESIGN.md").read_text("utf-8")
    picture = text.partition("```text\n")[2].partition("```")[0]
    rows = [
        set(re.findall(r"(\w+)(?:/|\.py)(?= |$)", line)) for line in picture.split("\n")
    ]
    assert [row for row in rows if row] == LAYERS[::-1]
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", text)
    assert named
    places = (ROOT, ROOT / "scrapy_rep")
    assert [
        one for one in named if not any((place / one).exists() for place in places)
    ] == []


def test_the_protocol_needs_neither_scrapy_nor_a_clock_nor_io() -> None:
    """Nor does what reads statements about use."""
    statements = "scrapy_rep.preferences.statements"
    allowed = {
        *sys.stdlib_module_names,
        "scrapy_rep.protocol",
        statements,
        "http_sf",
        "w3lib",
    }
    allowed -= {
        "asyncio",
        "http",
        "io",
        "os",
        "random",
        "socket",
        "ssl",
        "time",
        "urllib.request",
    }
    alone = {statements: modules("scrapy_rep")[statements]}
    for name, path in {**alone, **modules("scrapy_rep/protocol")}.items():
        for one in (one for node in ast.walk(parsed(path)) for one in named(node)):
            within = {
                one[:at] for at in range(len(one) + 1) if one[at : at + 1] in ("", ".")
            }
            assert within & allowed, f"{name} imports {one}"


def test_nothing_imports_in_circles() -> None:
    """In the package, not for types either."""
    for folder in ("scrapy_rep", "tests", "benchmarks"):
        found, top = modules(folder), folder != "scrapy_rep"
        graph = {
            # A package and what is in it: the one names the other, and a few ask for the version.
            name: set(imports(path, found, top=top))
            - {name, name.rpartition(".")[0], "scrapy_rep"}
            for name, path in found.items()
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" imports ".join(reversed(error.args[1])))


def test_names_of_tests_say_the_behaviour() -> None:
    """Of two with one name, the second hides the first. No file imports from another's tests."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text("utf-8")
        wrong += re.findall(r"^\s*(?:from|import) \S*\btest_.*", text, re.MULTILINE)
        tests = re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)
        wrong += [f"{path.name}: {one}" for one in tests if len(one.split("_")) < 4]
        wrong += [f"{path.name}: {one}" for one in set(tests) if tests.count(one) > 1]
    assert wrong == []
