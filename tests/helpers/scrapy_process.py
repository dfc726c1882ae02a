"""`scrapy …` in a process of its own, forked from one that has imported Scrapy already: most of what a
short crawl costs is those imports. It is a real process; only `python -m scrapy` itself, and what
Python reads from its environment when it starts, can't be tested so."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory
from typing import Any

import scrapy

PATIENCE = 150.0
"""Seconds, for whatever should take one: other tests may run on the same machine."""
_FORKSERVER = get_context("forkserver")
_FORKSERVER.set_forkserver_preload(
    [
        *(
            "lxml.etree",
            "scrapy.cmdline",
            "scrapy.core.engine",
            "scrapy.core.scheduler",
        ),
        *(
            "scrapy.core.downloader.handlers.http11",
            "scrapy.squeues",
            "scrapy_poet.commands",
        ),
        *(
            "scrapy_rep.addon",
            "scrapy_rep.middleware",
            "scrapy_rep.storages",
            "scrapy_rep.seeding",
        ),
        "scrapy_rep.commands.robots",
        *(
            module.name
            for part in (
                "commands",
                "downloadermiddlewares",
                "spidermiddlewares",
                "extensions",
            )
            for module in iter_modules(
                [f"{scrapy.__path__[0]}/{part}"], f"scrapy.{part}."
            )
            if "statsmailer" not in module.name  # deprecated: it warns
        ),
    ]
)


def _run(
    arguments: Sequence[str],
    cwd: str,
    variables: Mapping[str, str],
    files: Sequence[str],
) -> None:
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, path in enumerate(files):
        opened = os.open(path, appending if number else os.O_RDONLY, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    encoding = variables.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(
        2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = [
        cwd,
        *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    sys.argv = ["scrapy", *arguments]
    from scrapy.cmdline import execute

    execute()


class ScrapyProcess(_FORKSERVER.Process):  # type: ignore[name-defined, misc]
    """Starts at once. *output* gets stdout, and stderr if *errors* is None; *given* is stdin."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        given: Path = Path(os.devnull),
    ) -> None:
        files = [str(given), str(output), str(errors or output)]
        super().__init__(
            target=_run,
            args=(list(arguments), str(cwd), dict(variables), files),
            daemon=True,
        )
        self.start()

    def wait(self, timeout: float = PATIENCE) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise TimeoutError(f"still runs after {timeout} s")
        return int(self.exitcode)

    def send_signal(self, number: int) -> None:
        if self.exitcode is None:
            os.kill(self.pid, number)


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def errors(self) -> list[str]:
        return self.err.splitlines()


def run_scrapy(
    arguments: Sequence[str],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    given: str | bytes = b"",
) -> Done:
    with TemporaryDirectory() as folder:
        stdin, stdout, stderr = (
            Path(folder, name) for name in ("stdin", "stdout", "stderr")
        )
        stdin.write_bytes(given.encode() if isinstance(given, str) else given)
        process = ScrapyProcess(
            arguments,
            cwd=cwd,
            variables=variables,
            given=stdin,
            output=stdout,
            errors=stderr,
        )
        return Done(
            process.wait(), stdout.read_text("utf-8"), stderr.read_text("utf-8")
        )
