"""What `scrapy robots` prints of verdicts. Examples of docs/check.md test more."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import sys
from pathlib import Path
from typing import Any
from unicodedata import combining, east_asian_width

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyHelpFormatter
from scrapy.settings import Settings

from scrapy_rep.commands.output import CommandError, Ending, ExitStatus, Output, wrapped
from scrapy_rep.commands.robots import RobotsCommand
from scrapy_rep.commands.task import question_about
from scrapy_rep.origins.agents import USUAL_URL, origin_of, path_in
from scrapy_rep.protocol.matching import comparable
from tests.helpers.robots_command import Stream, assert_wrong_usage, robots_here
from tests.helpers.scrapy_process import Done
from tests.protocol.strategies import urls

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
    assert done.errors == [
        "scrapy robots: only the first 2 of 13 agents are asked about"
    ]
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
    shown = by_file(folder, *urls, "--show", "--agent=A").out.splitlines()[len(urls) :]
    assert shown[1:6] == [
        ">    2  Disallow: /cart  <- disallowed: /cart, /cart/2, /cart/3 and 1 more",
        "     3  Dissalow: /日本語/  # why not",
        "     4  disallow /hidden",
        ">    5  Allow: /cart/help  <- allowed: /cart/help",
        "     6",
    ]


def test_a_url_is_compared_as_a_crawl_compares_it(folder: Path) -> None:
    """With a site's address or without."""
    path, url = by_file(folder, "/日本語/x", "http://a.example/日本語/x", "--json").json
    assert (path["allowed"], path["line"], url["allowed"], url["line"]) == (
        False,
        3,
        False,
        3,
    )
    assert path["rule"] == "Dissalow: /日本語/"  # as it stands
    assert path["path"] == url["path"] == "/%E6%97%A5%E6%9C%AC%E8%AA%9E/x"
    assert "  Of the URL, /%E6%97%A5%E" in by_file(folder, "/日本語/x", "--explain").out
    assert "Of the URL" not in by_file(folder, "/x", "--explain").out, "as it is"


@given(st.text() | urls())
@example("http://a.example/x?")
@example("http://a.example/\\x")
@example(" http://a.example//x;y#z")
@example("http://u:p@a.example/x;?")
@example("http://a.example/x;")
def test_what_is_compared_is_what_a_request_comes_to(url: str) -> None:
    """The command reads URLs without Scrapy."""
    try:
        asked = question_about(url)
    except CommandError:
        return
    request = Request(url)
    assert asked.origin == origin_of(request)
    assert asked.path == comparable(path_in(request))
    if usual := USUAL_URL.match(request.url):  # as nearly all are
        assert asked.path == comparable(usual[2])
    assert dict(asked.steps)["requested"] == request.url


def test_a_file_says_that_robots_txt_may_always_be_fetched(folder: Path) -> None:
    (folder / "r.txt").write_text("User-agent: *\nDisallow: /\n")
    for url, allowed in (
        ("/robots.txt", True),
        ("https://a.b/robots.txt", True),
        ("/robots.txt?", True),
        ("/x/robots.txt", False),
    ):
        (line,) = by_file(folder, url, "--json").json
        assert (line["allowed"], line["line"]) == (allowed, None if allowed else 2)
    shown = by_file(folder, "/robots.txt", "--explain").out
    assert "  robots.txt itself may always be fetched.\n" in shown


def test_help_has_no_heading_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapy takes a line that ends with a colon for one, wherever the terminal's width breaks it."""
    command: Any = RobotsCommand()
    command.settings = Settings()
    parser = ScrapyArgumentParser(formatter_class=ScrapyHelpFormatter)
    command.add_options(parser)
    for columns in range(40, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        ours = parser.format_help().partition("Global Options")[0]
        assert re.findall(r"(?m)^(.+)\n[=-]{4,}$", ours) == ["Usage", "Options"], (
            columns
        )


def test_no_option_is_short_for_another(folder: Path) -> None:
    """Neither one of ours nor one of Scrapy's; the error names what may have been meant."""
    asked = ("--file", "r.txt", "/x")
    for option, meant in (
        ("--agents", "; did you mean --agents-of-file or --agents-known?"),
        ("--age", "; did you mean --agent or --agents-of-file or --agents-known?"),
        ("--agents-of", "; did you mean --agents-of-file?"),
        ("--expl", "; did you mean --explain?"),
        ("--jsn", "; did you mean --json?"),
        ("--logf", ""),
        ("--nolo", ""),
    ):
        done = robots_here(folder, *asked, option, "gptbot")
        assert_wrong_usage(done, f"error: no such option: {option!r}{meant}")
    done = robots_here(folder, *asked, "--agents=gptbot")
    assert done.errors[-1].startswith(
        "scrapy: error: no such option: '--agents=gptbot'; did you"
    )


def test_lines_break_between_words_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere they stay whole, for grep."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    url = f"/cart/{'x' * 100}"
    for asked in (
        ["--file", "r.txt", url, "/cart/日本", "--agents-known"],
        [
            "--file",
            "r.txt",
            url,
            "/cart",
            "--explain",
            "--agent=GPTBot,Some-Other-Crawler-Of-Ours",
        ],
        ["--file", "r.txt", *(f"/cart/some-long-name-{n}" for n in range(4)), "--show"],
        ["--compare", "r.txt", "n.txt", "/cart/help", url],
        ["--lint", "r.txt", "n.txt"],
    ):
        (folder / "n.txt").write_text(
            RULES.replace("/cart", "/basket") + "Disallow: /a b\n"
        )
        whole = robots_here(folder, *asked).out
        out = Stream(terminal=True)
        robots_here(folder, *asked, stdout=out)
        assert out.text.split() == whole.split(), "no word is broken, none is lost"
        assert out.text.count("\n") > whole.count("\n")
        long = [line for line in out.text.splitlines() if columns_of(line) > 80]
        assert [line for line in long if len(line.split()) > 1] == []


@pytest.mark.parametrize(
    "asked", [["--file", "r.txt", "www.shop.example/x"], ["--agents-of-the-file", "x"]]
)
def test_complaints_break_between_words_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    # Newer Pythons colour what argparse says: its escapes have no columns, but they have characters.
    monkeypatch.setenv("NO_COLOR", "1")
    whole = robots_here(folder, *asked)
    err = Stream(terminal=True)
    robots_here(folder, *asked, stderr=err)
    assert err.text.split() == whole.err.split()
    assert (
        max(map(len, err.text.splitlines()))
        <= 50
        < max(map(len, whole.err.splitlines()))
    )


def columns_of(line: str) -> int:
    return sum(
        1 + (east_asian_width(one) in "WF") for one in line if not combining(one)
    )


def test_a_long_word_has_a_line_of_its_own() -> None:
    assert wrapped("a bc " + "d" * 9 + " e", 8) == ["a bc", "    " + "d" * 9, "    e"]
    assert wrapped("  a b " + "c " * 5, 12) == ["  a b c c c", "      c c"]
    assert wrapped("日本 語", 6) == ["日本", "   語"]
    assert wrapped(" " * 99 + "x y", 20)[1:] == [" " * 10 + "y"], (
        "it does not leave the screen"
    )
    assert wrapped("", 80) == [""]


def test_cells_of_csv_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    Output().csv(['a "b", c', None, 3, "x\ny", "é"])
    assert list(csv.reader([stream.getvalue()])) == [
        ['a "b", c', "", "3", "x\\ny", "é"]
    ]


def test_fields_below_a_line_are_those_that_it_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = {
        "outcome": "unreachable",
        "url": "/x",
        "path": "/x",
        "verdict": "unreachable",
    }
    Output().put_all(data, first_line=("verdict", "url"), lines={})
    assert (
        capsys.readouterr().out
        == "unreachable  /x\n  outcome  unreachable\n  path     /x\n\n"
    )


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
    elsewhere = f"standard output: {os.strerror(number)}", ExitStatus.USAGE
    expected = ("", ExitStatus.GOOD) if gone else elsewhere
    assert (str(raised.value), raised.value.status) == expected
