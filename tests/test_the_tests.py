"""Rules that the tests themselves keep."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def test_nothing_imports_from_a_test_module() -> None:
    """What two of them need is in tests/helpers, or in a module of their folder."""
    pattern = re.compile(r"^\s*(?:from|import) \S*\btest_.*", re.MULTILINE)
    assert [
        found
        for path in sorted(TESTS.rglob("*.py"))
        for found in pattern.findall(path.read_text("utf-8"))
    ] == []


def test_names_of_tests_say_the_behaviour() -> None:
    """Three words at least, and no name twice in a file: the second would hide the first."""
    short, twice = [], []
    for path in sorted(TESTS.rglob("test_*.py")):
        tests = re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
        short += [f"{path.name}: {test}" for test in tests if len(test.split("_")) < 4]
        twice += [f"{path.name}: {test}" for test in set(tests) if tests.count(test) > 1]
    assert short == []
    assert twice == []
