"""What README.md and the manual in docs/ say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.joinpath("docs").glob("*.md"))]


def page(name: str) -> str:
    """A page of docs/."""
    return ROOT.joinpath("docs", name).read_text("utf-8")


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    begun = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert begun, title
    rest = text[begun.end() :]
    end = re.search(rf"^#{{1,{len(begun[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


class Example(NamedTuple):
    """A command, and what it prints (of a log: some lines)."""

    page: Path
    command: str
    output: str


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples() -> list[Example]:
    found = []
    for path in PAGES:
        for block in blocks(path.read_text("utf-8"), "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append(Example(path, command, output))
    return found
