"""`scrapy robots` in processes of its own, inside a project and outside of any."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.process import PATIENCE, arguments_of, environment
from tests.helpers.process.forked import Done, run_scrapy

NOT_FOUND_FAST: dict[str, Any] = {"REP_DOWNLOAD_TIMEOUT": 10}


def robots(
    folder: Path,
    *arguments: str,
    settings: dict[str, Any] | None = None,
    stdin: str | bytes = b"",
    variables: dict[str, str] | None = None,
) -> Done:
    """Run `scrapy robots` in `folder`."""
    line = arguments_of("robots", *arguments, settings={**NOT_FOUND_FAST, **(settings or {})})
    done = run_scrapy(line, cwd=folder, variables=environment(**(variables or {})), given=stdin)
    assert "Traceback" not in done.err, done.err
    return done


def make_project(folder: Path, settings: Sequence[str] = ()) -> Path:
    """A Scrapy project with these lines of settings."""
    package = folder / "shop"
    (package / "spiders").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "spiders" / "__init__.py").write_text("")
    (package / "settings.py").write_text(
        "\n".join(
            [
                'BOT_NAME = "shop"',
                'SPIDER_MODULES = ["shop.spiders"]',
                'ADDONS = {"scrapy_rep.Addon": 300}',
                *settings,
            ]
        )
    )
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, ['USER_AGENT = "Mozilla/5.0 (compatible; ShopBot/1.0; +x@y.z)"'])


def files_in(folder: Path) -> set[str]:
    """Names of what is there, Python's own apart."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def ends(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that was started by hand."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


__all__ = ["Done", "ends", "files_in", "make_project", "os", "project", "robots"]


FIELDS = [
    *["url", "agent", "allowed", "line", "rule", "group", "reason", "path", "outcome", "origin"],
    *["robots_url", "file", "status", "hops", "final_url", "fetched_at", "fresh_until"],
    *["from_cache", "stale", "error", "sha256"],
]
