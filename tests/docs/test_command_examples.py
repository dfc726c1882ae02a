"""The manual shows what `scrapy robots` prints: each example is run, and compared.

REP_UPDATE_DOCS=1 in the environment: they are rewritten.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.docs import Example, blocks, example_copy, example_proxy, examples, page, section
from tests.helpers.process import environment
from tests.helpers.robots_command import FIELDS, robots
from tests.helpers.scrapy_process import Done, run_scrapy
from tests.helpers.servers import Site, Sites

EXAMPLES = [one for one in examples() if one.command.startswith("scrapy robots")]


@pytest.fixture
def proxy(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Site:
    return example_proxy(sites, monkeypatch)


def timeless(text: str) -> str:
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "20YY-MM-DDThh:mm:ssZ", text)
    return re.sub(r"\bheld for \d+ \w+", "held for N s", text)


def folder_of(example: Example, folder: Path) -> Path:
    """The folder that an example is typed in: of the example's project, or of somebody who has none,
    with the files that the page shows."""
    if example.page.name != "check.md":
        return example_copy(folder)
    texts = blocks(page("check.md"), "text")
    for name, text in zip(("robots.txt", "urls.txt", "new.txt"), texts, strict=True):
        (folder / name).write_text(text)
    return folder


def printed(folder: Path, proxy: Site, example: Example) -> str:
    line = example.command
    # What a command above those examples leaves there.
    for option, begin in {"--cache": "scrapy robots", "--held": "scrapy crawl"}.items():
        if option in line:
            above = [text for text in blocks(page("command-look.md"), "sh") if begin in text]
            assert len(above) == 1
            run(folder, proxy, above[0])
    done = run(folder, proxy, line)
    assert done.err == ""
    return done.out


def run(folder: Path, proxy: Site, line: str) -> Done:
    words = shlex.split(line)[1:]
    variables = {"http_proxy": proxy.url("")}
    if words[0] == "crawl":
        return run_scrapy(words, cwd=folder, variables=environment(**variables))
    given = b""
    if "<" in words:
        given = (folder / words.pop()).read_bytes()
        words.remove("<")
    return robots(folder, *words[1:], stdin=given, variables=variables)


def rewrite(example: Example, out: str) -> None:
    head = f"```console\n$ {example.command}\n"
    text = example.page.read_text("utf-8")
    text = text.replace(f"{head}{example.output}```", f"{head}{out}```")
    example.page.write_text(text, "utf-8")


def test_the_fields_are_documented() -> None:
    text = section(page("command.md"), "JSON")
    rows = text.partition("| field | type |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in rows.splitlines() if row.startswith("| `")]
    assert sorted(re.findall("`([a-z0-9_]+)`", " ".join(cells))) == sorted(FIELDS)


def test_there_are_examples_of_everything() -> None:
    lines = "\n".join(example.command for example in EXAMPLES)
    options = "agent explain json csv file show compare agents-of-file held lint sitemaps cache page header"
    for option in (*(f"--{name}" for name in options.split()), "<"):
        assert option in lines


@pytest.mark.process
@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"{example.page.stem}: {example.command}" for example in EXAMPLES]
)
def test_an_example_prints_what_the_manual_shows(
    tmp_path: Path, proxy: Site, example: Example
) -> None:
    out = printed(folder_of(example, tmp_path), proxy, example)
    if os.environ.get("REP_UPDATE_DOCS") and timeless(out) != timeless(example.output):
        rewrite(example, out)
    else:
        assert timeless(out) == timeless(example.output)
