"""`scrapy robots` in processes of its own, inside a project and outside of any; and in this one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import scrapy.cmdline

import scrapy_rep.commands.ending
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


class _NoCrawl:
    """Stands in for Scrapy's `CrawlerProcess`. It starts nothing: it has no methods."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings


def _stream(content: bytes = b"", errors: str = "strict") -> TextIOWrapper:
    return TextIOWrapper(BytesIO(content), encoding="utf-8", errors=errors, write_through=True)


def robots_here(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    """Run `scrapy robots` in this process, for what crawls nothing: all of it but Scrapy's
    `CrawlerProcess` and its logging.

    :param folder: must not be in a Scrapy project: this process would keep the project's modules
    """
    out, err = _stream(), _stream(errors="backslashreplace")
    line = ["scrapy", *arguments_of("robots", *arguments, settings=NOT_FOUND_FAST)]
    ours = logging.getLogger("scrapy_rep")
    with patch.dict(os.environ), pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", line)
        patched.setattr(sys, "stdin", _stream(stdin))
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        # Newer Pythons ask it for the program's name.
        patched.setitem(sys.modules, "__main__", ModuleType("__main__"))
        patched.setattr(ours, "handlers", [*ours.handlers])
        patched.setattr(scrapy.cmdline, "CrawlerProcess", _NoCrawl)
        patched.setattr(scrapy.cmdline, "AsyncCrawlerProcess", _NoCrawl)
        patched.setattr(scrapy_rep.commands.ending, "configure_logging", lambda settings: None)
        with pytest.raises(SystemExit) as ended:
            scrapy.cmdline.execute([*line])
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    assert "Traceback" not in texts[1], texts[1]
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, *texts)


def assert_wrong_usage(done: Done, error: str) -> None:
    """It said what is wrong in one sentence, and printed nothing else."""
    assert (done.status, done.out) == (2, "")
    assert done.errors[-1].removeprefix("scrapy: ") == error


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


FIELDS = [
    *["url", "agent", "allowed", "line", "rule", "group", "reason", "path", "outcome", "origin"],
    *["robots_url", "file", "status", "hops", "final_url", "fetched_at", "fresh_until"],
    *["from_cache", "stale", "error", "setting", "sha256"],
    *["crawl_delay", "crawl_delay_line", "visit_time", "agent_in_words", "verdict"],
]
