from pathlib import Path

import pytest

from tests.helpers.robots_command import SHOPBOT, make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, [f"USER_AGENT = {SHOPBOT!r}"])
