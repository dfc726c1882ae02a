"""What `scrapy robots` prints of verdicts and of two files. Examples of docs/check.md test more."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyHelpFormatter
from scrapy.settings import Settings

from scrapy_rep.commands.output import Ending, Output, Status
from scrapy_rep.commands.robots import RobotsCommand
from scrapy_rep.protocol.syntax import cut
from tests.helpers.robots_command import robots_here
from tests.helpers.scrapy_process import Done

RULES = """\
User-agent: *
Disallow: /cart
Dissalow: /日本語/  # why not
disallow /hidden
Allow: /cart/help

User-agent: GPTBot
Disallow: /

User-agent: bingbot
Crawl-delay: 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.txt").write_text(RULES, encoding="utf-8")
    return tmp_path


def by_file(folder: Path, *arguments: str) -> Done:
    done = robots_here(folder, "--file", "r.txt", *arguments)
    assert done.err == ""
    return done


def test_agents_that_the_file_names_come_after_those_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there are too many is said once."""
    names = [f"bot-{letter}" for letter in "abcdefghijkl"]
    text = "".join(f"User-agent: {name}\n" for name in names) + "Disallow: /\n"
    (tmp_path / "r.txt").write_text(text)
    asked = ("/", "/x", "--agents-of-file", "--agent", "Foo")
    *lines, total = by_file(tmp_path, *asked).out.splitlines()
    assert (len(lines), total) == (2 * 14, "# 4 allowed, 24 disallowed")
    agents = [one["agent"] for one in by_file(tmp_path, *asked, "--json").json]
    assert agents == ["Foo", *names, "*"] * 2
    monkeypatch.setattr("scrapy_rep.commands.verdicts._MAX_AGENTS", 2)
    done = robots_here(tmp_path, "--file", "r.txt", *asked, "--json")
    assert done.errors == ["scrapy robots: only the first 2 of 13 agents are asked about"]
    assert [one["agent"] for one in done.json] == ["Foo", *names[:2], "*"] * 2


def test_a_chain_is_called_so_in_every_form(folder: Path) -> None:
    (folder / "p.html").write_text("<meta name=robots content=noindex>")
    chain, words = ("--agent", "Googlebot,GPTBot"), "GPTBot, as fallback for Googlebot"
    for asked in (("--file", "r.txt", "/x"), ("--page", "--file", "p.html")):
        (line,) = robots_here(folder, *asked, *chain, "--json").json
        assert (line["agent"], line["agent_in_words"]) == ("Googlebot,GPTBot", words)
        for form in ([], ["--explain"], ["--csv"]) if "/x" in asked else ([],):
            assert words in robots_here(folder, *asked, *chain, *form).out


def test_the_lines_that_decided_are_marked(folder: Path) -> None:
    urls = ["/cart", "/cart/2", "/cart/3", "/cart/4", "/cart/help", "/none"]
    shown = by_file(folder, *urls, "--show").out.splitlines()[len(urls) :]
    assert shown[1:6] == [
        ">    2  Disallow: /cart  <- disallowed: /cart, /cart/2, /cart/3 and 1 more",
        "     3  Dissalow: /日本語/  # why not",
        "     4  disallow /hidden",
        ">    5  Allow: /cart/help  <- allowed: /cart/help",
        "     6",
    ]


def test_a_path_alone_is_compared_as_a_crawl_compares_it(folder: Path) -> None:
    """A URL is compared as it stands, as Google's matcher does; that is said."""
    path, url = by_file(folder, "/日本語/x", "http://a.example/日本語/x", "--json").json
    assert (path["allowed"], path["line"], url["allowed"]) == (False, 3, True)
    assert path["rule"] == "Dissalow: /日本語/"  # as it stands
    assert path["path"] == "/%E6%97%A5%E6%9C%AC%E8%AA%9E/x"
    shown = by_file(folder, "http://a.example/日本語/x").out.splitlines()[0]
    assert shown.endswith("; compared as it stands, but a crawl encodes it")
    steps = by_file(folder, "/日本語/x", "--explain").out
    assert re.search(r"path: /日本語/x\n.+compared: /%E6%97%A5", steps)
    assert re.search(r"\n  path +/x\n", by_file(folder, "/x", "--explain").out), "as the URL"


def compare(folder: Path, *arguments: str, new: str, stdin: bytes = b"") -> Done:
    (folder / "n.txt").write_text(new, encoding="utf-8")
    done = robots_here(folder, "--compare", "r.txt", "n.txt", *arguments, stdin=stdin)
    assert done.err == ""
    return done


def test_what_changes_from_one_file_to_another(folder: Path) -> None:
    new = RULES.replace("GPTBot", "CCBot")
    changes = compare(folder, "-", "--json", new=new, stdin=b"/x\n").json
    found = [(one["agent"], one["old"]["line"], one["new"]["line"]) for one in changes]
    assert found == [("GPTBot", 8, None), ("CCBot", None, 8)]
    line, *_ = compare(folder, "--json", new=new).json
    assert [*line] == ["change", "source", "line", "text", "group"]
    assert [*line.values()] == ["removed", "r.txt", 7, "User-agent: GPTBot", "GPTBot"]
    # Of a long file, what counts.
    long = "User-agent: GPTBot\n" + "#\n" * 300_000
    (data,) = compare(folder, "/cart/help", "--json", "--agent", "GPTBot", new=long).json
    assert data["new"]["sha256"] == hashlib.sha256(cut(long.encode())).hexdigest()


def test_what_means_the_same_is_no_change(folder: Path) -> None:
    """Order, spelling, and what is said twice."""
    (folder / "r.txt").write_text("User-agent: *\nDisallow: /é\nDisallow: /b\n", encoding="utf-8")
    new = "useragent: *\nDisallow: /b\ndisallow: /%c3%a9\nUser-agent: *\nDisallow: /b\n"
    done = compare(folder, new=new)
    assert (done.status, done.out) == (0, "# 0 lines changed\n")
    assert compare(folder, "/é", "/b", new=new).out == "# 0 verdicts changed\n"


def test_help_has_no_heading_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapy takes a line that ends with a colon for one, wherever the terminal's width breaks it."""
    command: Any = RobotsCommand()
    command.settings = Settings()
    parser = ScrapyArgumentParser(formatter_class=ScrapyHelpFormatter)
    command.add_options(parser)
    for columns in range(40, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        ours = parser.format_help().partition("Global Options")[0]
        assert re.findall(r"(?m)^(.+)\n[=-]{4,}$", ours) == ["Usage", "Options"], columns


def test_cells_of_csv_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    Output().csv(['a "b", c', None, 3, "x\ny", "é"])
    assert list(csv.reader([stream.getvalue()])) == [['a "b", c', "", "3", "x\\ny", "é"]]


def test_fields_below_a_line_are_those_that_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"outcome": "unreachable", "url": "/x", "path": "/x", "verdict": "unreachable"}
    Output().put_all(data, "verdict", "url")
    assert capsys.readouterr().out == "unreachable  /x\n  outcome  unreachable\n  path     /x\n\n"


@pytest.mark.parametrize(
    "system, number, gone",
    [
        ("nt", errno.EINVAL, True),
        ("nt", errno.EPIPE, True),
        ("nt", errno.ENOSPC, False),
        ("posix", errno.EPIPE, True),
        ("posix", errno.EINVAL, False),
    ],
)
def test_on_windows_a_pipe_without_a_reader_may_be_an_invalid_argument(
    monkeypatch: pytest.MonkeyPatch, system: str, number: int, gone: bool
) -> None:
    class Pipe(io.StringIO):
        def flush(self) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sys, "stdout", Pipe())
    monkeypatch.setattr(os, "name", system)
    with pytest.raises(Ending) as raised:
        Output().flush()
    monkeypatch.undo()
    elsewhere = f"standard output: {os.strerror(number)}", Status.USAGE
    expected = ("", Status.GOOD) if gone else elsewhere
    assert (str(raised.value), raised.value.status) == expected
