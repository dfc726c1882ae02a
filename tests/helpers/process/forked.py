"""`scrapy …` in a process of its own, forked from one that has imported Scrapy already: most of what
a short crawl costs is those imports.

    process = ScrapyProcess(["crawl", "pages"], cwd=tmp_path, output=log)

The process is a real one, with a process number, signals and an exit status; only `python -m scrapy`
itself, and what Python reads from its environment when it starts (but for PYTHONIOENCODING), can't be
tested so.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PATIENCE = 60.0
"""Seconds, for whatever should take one: other tests may run on the same machine."""

_FORKSERVER = multiprocessing.get_context("forkserver")
_ROOT = Path(__file__).resolve().parents[3]


def _start_server() -> None:
    """Start the server, unless it runs. It finds `tests` by the environment: older Pythons don't
    hand it the path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), before]))
    try:
        _FORKSERVER.set_forkserver_preload(["tests.helpers.process.preloaded"])
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _run(
    arguments: Sequence[str], cwd: str, variables: Mapping[str, str], files: Sequence[str]
) -> None:
    """In the new process: be `scrapy`."""
    for number, (path, flags) in enumerate(
        zip(files, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2), strict=True)
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    encoding = variables.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [cwd, *filter(None, paths)]
    sys.argv = ["scrapy", *arguments]

    from scrapy.cmdline import execute

    execute()


class ScrapyProcess:
    """One process. Starts at once; the methods are those of `subprocess.Popen`."""

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
        """:param output: the file that standard output is appended to; *errors* that for standard
        error, the same if it is None; *given* is standard input"""
        _start_server()
        files = [str(given), str(output), str(errors or output)]
        self._process: Any = _FORKSERVER.Process(
            target=_run,
            args=(list(arguments), str(cwd), dict(variables), files),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        status = self._process.exitcode
        return None if status is None else int(status)

    def wait(self, timeout: float) -> int:
        """:raises TimeoutError: it still runs after *timeout* (seconds)"""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise TimeoutError(f"still runs after {timeout} s")
        return status

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


class Done:
    """What a process left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> list[dict[str, Any]]:
        """Its output, a JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def errors(self) -> list[str]:
        return self.err.splitlines()


def run_scrapy(
    arguments: Sequence[str], *, cwd: Path, variables: Mapping[str, str], given: str | bytes = b""
) -> Done:
    """Run `scrapy` to its end.

    :param given: what it reads from standard input
    :raises TimeoutError: it does not end
    """
    with TemporaryDirectory() as folder:
        stdin, stdout, stderr = (Path(folder, name) for name in ("stdin", "stdout", "stderr"))
        stdin.write_bytes(given.encode() if isinstance(given, str) else given)
        process = ScrapyProcess(
            arguments, cwd=cwd, variables=variables, given=stdin, output=stdout, errors=stderr
        )
        status = process.wait(PATIENCE)
        return Done(status, stdout.read_text("utf-8"), stderr.read_text("utf-8"))
