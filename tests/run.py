"""All tests, on a machine that has Python and nothing else: ``python3 tests/run.py``.

Makes a virtual environment with tox in it and runs tox: newest and oldest Scrapy, three kinds of
reactor, types, lint. Arguments go to tox: ``python3 tests/run.py -e newest -- -k sitemap``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-tests"


def make_environment(path: Path) -> Path:
    """Return the Python of the virtual environment at *path*, made if it isn't there."""
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


def main(arguments: list[str]) -> int:
    python = make_environment(ENVIRONMENT)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "tox>=4.24"], check=True)
    tox = [str(python), "-m", "tox", "run", *arguments]
    return subprocess.run(tox, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
