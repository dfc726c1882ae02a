"""What is published: built, checked, and tried as its users get it.

    python3 tests/run.py -e release                 leaves both archives in dist/
    python3 tests/run.py -e release -- v0.1.0       also checks that this tag may be published

The wheel is installed into an environment of its own, with Scrapy alone. There the package is
imported, the command answers, and it is measured what the package adds to an import and to the start
of each `scrapy` command. Needs build and twine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
ROBOTS = ROOT / "example_project" / "files" / "messy-robots.txt"
# Starts of a program, of which the fastest counts.
TIMES = 7
# Seconds of processor time that the package may add to the start of each `scrapy` command.
MOST_ADDED = 0.1


def main(tags: list[str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    archives = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))
    [wheel] = DIST.glob("*.whl")
    version = wheel.name.split("-")[1]
    assert {path.name for path in archives} == {
        wheel.name,
        f"scrapy_rep-{version}.tar.gz",
    }
    for tag in tags:
        check_tag(tag, version)
    with tempfile.TemporaryDirectory() as folder:
        try_out(Path(folder), wheel, version)


def check_tag(tag: str, version: str) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if tag != f"v{version}":
        sys.exit(f"The tag is {tag}, but scrapy_rep.__version__ is {version}.")
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE
    ):
        sys.exit(f"CHANGELOG.md has no heading with a date for {version}.")


def try_out(folder: Path, wheel: Path, version: str) -> None:
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, scrapy = str(programs / "python"), str(programs / "scrapy")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "install", "scrapy")
    without = {
        "import scrapy": fastest(folder, python, "-c", "import scrapy"),
        "scrapy version": fastest(folder, scrapy, "version"),
        "scrapy settings": fastest(folder, scrapy, "settings", "--get", "BOT_NAME"),
    }
    run(*pip, "install", "--no-deps", str(wheel))
    run(*pip, "check")
    code = "import scrapy_rep; from scrapy_rep import *; print(scrapy_rep.__version__)"
    assert output(folder, python, "-W", "error", "-c", code) == version
    asked = output(
        folder, scrapy, "robots", "--file", str(ROBOTS), "/cgi/x", "--agent", "FooBot"
    )
    assert "Allow: /cgi (group FooBot)" in asked
    print(f"{'':28}{'Scrapy alone':>14}{'and scrapy-rep':>16}")
    for name, command in {
        "import scrapy": [python, "-c", "import scrapy, scrapy_rep"],
        "scrapy version": [scrapy, "version"],
        "scrapy settings": [scrapy, "settings", "--get", "BOT_NAME"],
    }.items():
        seconds = fastest(folder, *command)
        print(f"{name:28}{1000 * without[name]:11.0f} ms{1000 * seconds:13.0f} ms")
        assert seconds - without[name] < MOST_ADDED, f"{name} takes too long"
    for name, code in {
        "import scrapy_rep": "import scrapy_rep",
        "import scrapy_rep.protocol": "import scrapy_rep.protocol",
        "its middleware": "from scrapy_rep import RepMiddleware",
    }.items():
        print(f"{name:28}{1000 * fastest(folder, python, '-c', code):27.0f} ms")
    print(f"{'python':28}{1000 * fastest(folder, python, '-c', ''):27.0f} ms")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def output(folder: Path, *command: str) -> str:
    """Return what *command* prints, run far from the repository."""
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode in (0, 1), command
    return done.stdout.strip()


def fastest(folder: Path, *command: str) -> float:
    """Return the seconds of processor time that *command* takes, once it is compiled."""
    found = []
    for _ in range(TIMES + 1):
        before = os.times()
        output(folder, *command)
        after = os.times()
        user = after.children_user - before.children_user
        found.append(user + after.children_system - before.children_system)
    return min(found[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
