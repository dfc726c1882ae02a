from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.robots_command import SHOPBOT, make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, [f"USER_AGENT = {SHOPBOT!r}"])


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with `r.txt`: the RULES of the test's module."""
    (tmp_path / "r.txt").write_text(request.module.RULES, encoding="utf-8")
    return tmp_path
