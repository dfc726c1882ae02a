"""What type checkers say to users: all of `user.py` is right, and no misspelt name is. Run it by
`python3 tests/run.py -e typing`; it needs mypy, pyright and scrapy-rep with the extra redis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--config-file=", "--no-incremental"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}
IMPORTS = re.compile(r"^(from scrapy_rep\S* import )(\([^)]*\)|.*)$", re.MULTILINE)


def misspelt(text: str) -> tuple[str, set[int]]:
    """A user's file with all of our names misspelt, each in a line of its own, and these lines."""

    def each(one: re.Match[str]) -> str:
        return "\n".join(
            f"{one[1]}{name}y as {name}" for name in re.findall(r"\w+", one[2])
        )

    bad = IMPORTS.sub(each, text)
    lines = enumerate(bad.splitlines(), 1)
    return bad, {number for number, line in lines if line.startswith("from scrapy_rep")}


def complaints(checker: str, path: Path) -> tuple[set[int], str]:
    """The lines of a file that a checker refuses, and all that it says."""
    done = subprocess.run(
        [sys.executable, *CHECKERS[checker], str(path)],
        cwd=path.parent,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if (done.returncode == 0) == bool(
        found := re.findall(r"\.py:(\d+):.*\berror", said)
    ):
        sys.exit(f"{checker} failed:\n{said}")
    return {int(line) for line in found}, said


def main() -> int:
    text = (HERE / "user.py").read_text("utf-8")
    status = 0
    with TemporaryDirectory() as folder:
        path = Path(folder, "user.py")
        for content, expected in ((text, set[int]()), misspelt(text)):
            path.write_text(f"{content}\n# pyright: strict\n", "utf-8")
            for checker in CHECKERS:
                found, said = complaints(checker, path)
                if missed := expected - found:
                    status = 1
                    lines = sorted(missed)
                    print(
                        f"{checker} lets misspelt names pass, in lines {lines} of:\n{content}"
                    )
                elif found and not expected:
                    status = 1
                    print(f"{checker} refuses what is right:\n{said}")
    return status


if __name__ == "__main__":
    sys.exit(main())
