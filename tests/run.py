"""The tests, on a machine that has Python and nothing else.

    python3 tests/run.py                what a change has to pass: some minutes
    python3 tests/run.py quick          while you write it: no processes, less than a minute
    python3 tests/run.py everything     before a release: all tests in every mode
    python3 tests/run.py fuzz           much new input for each parser, a hundred random crawls

Makes a virtual environment with tox in it and runs tox: newest and oldest Scrapy, three kinds of
reactor, types, lint, the manual, the wheel. Other arguments go to tox, and what follows `--` to pytest; these two can
follow the words above, too:

    python3 tests/run.py -e newest -- tests/origins/test_bodies.py -k gzip
    python3 tests/run.py quick -- tests/protocol
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST = ROOT / ".tox" / "newest"
ENVIRONMENT = ROOT / ".venv-tests"
TOGETHER = "oldest,typing,no-reactor,default-reactor,docs,package,lint"
INSTALLED = "tox-is-installed"


def make_environment(path: Path) -> Path:
    python = path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if python.exists():
        return python
    # Debian's python3 comes without ensurepip, which venv needs: it is in python3-venv.
    if importlib.util.find_spec("ensurepip"):
        maker = "venv"
    elif importlib.util.find_spec("virtualenv"):
        maker = "virtualenv"
    else:
        sys.exit(
            "This Python can't make virtual environments: install Debian's package "
            "python3-venv (apt-get install python3-venv), or virtualenv."
        )
    subprocess.run([sys.executable, "-m", maker, str(path)], check=True)
    return python


def tox_arguments(arguments: list[str]) -> list[str]:
    match arguments:
        case ["quick", *others]:
            environments, options = ["-e", "newest"], ["--quick"]
        case ["everything", *others]:
            environments, options = [], ["--everything"]
        case ["fuzz", *others]:
            # No stacks of tests that are meant to take so long.
            options = ["tests/fuzz", "--hypothesis-profile=search"]
            options += ["--timeout=0", "--override-ini=faulthandler_timeout=0"]
            environments = ["-e", "newest"]
        case _:
            return arguments
    for_tox, for_pytest = others, []
    if "--" in others:
        at = others.index("--")
        for_tox, for_pytest = others[:at], others[at + 1 :]
    return [*environments, *for_tox, "--", *options, *for_pytest]


def main(arguments: list[str]) -> int:
    python = make_environment(ENVIRONMENT)
    if not (ENVIRONMENT / INSTALLED).exists():
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        # With uv, the environments take half a minute instead of two.
        subprocess.run([*install, "tox>=4.24", "tox-uv"], check=True)
        (ENVIRONMENT / INSTALLED).touch()
    tox = [str(python), "-m", "tox"]
    if arguments and arguments[0] != "everything":
        if any("-reactor" in one for one in arguments) and not NEWEST.exists():
            status_of([*tox, "run", "-e", "newest", "--notest"])
        return status_of([*tox, "run", *tox_arguments(arguments)])
    print("Making the environments: half a minute", flush=True)
    parallel = ["run-parallel", "--parallel-no-spinner"]
    if status_of([*tox, *parallel, "--notest"], stdout=subprocess.DEVNULL):
        # pip's settings, an index of one's own say, aren't uv's. What else goes wrong is told below.
        tox += ["--runner", "virtualenv"]
        status_of([*tox, *parallel, "--notest"], stdout=subprocess.DEVNULL)
    # Those that measure time run with the newest alone.
    newest = status_of([*tox, "run", "-e", "newest", *tox_arguments(arguments)])
    return (
        status_of([*tox, *parallel, "-e", TOGETHER, *tox_arguments(arguments)])
        or newest
    )


def status_of(command: list[str], stdout: int | None = None) -> int:
    return subprocess.run(command, cwd=ROOT, check=False, stdout=stdout).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
