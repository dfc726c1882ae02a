"""What `scrapy robots` prints of verdicts, in each form; and how it compares two files. By a file, in
this process: nothing is fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyHelpFormatter
from scrapy.settings import Settings

from scrapy_rep.commands import verdicts
from scrapy_rep.commands.robots import RobotsCommand
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


def test_a_line_for_each_url_with_the_rule_as_it_stands(folder: Path) -> None:
    long = "/x" * 300
    done = by_file(folder, "/日本語/x", "/hidden", long)
    assert done.status == 1
    assert done.out.splitlines() == [
        "disallowed   /日本語/x  r.txt:3: Dissalow: /日本語/ (group *)",
        "disallowed   /hidden  r.txt:4: disallow /hidden (group *)",
        f"allowed      {long}  no rule matches in the group for *",
        "# Scrapy: 1 allowed, 2 disallowed",
    ]


def test_totals_of_many_agents_are_one_line(tmp_path: Path) -> None:
    names = [f"bot-{letter}" for letter in "abcdefghijkl"]
    text = "".join(f"User-agent: {name}\n" for name in names) + "Disallow: /\n"
    (tmp_path / "r.txt").write_text(text)
    lines = by_file(tmp_path, "/", "/x", "--agents-of-file").out.splitlines()
    assert len(lines) == 2 * 13 + 1
    assert lines[-1] == "# 13 agents: 2 allowed, 24 disallowed"


def test_all_agents_that_the_file_names_and_all_others(folder: Path) -> None:
    done = by_file(folder, "/cart", "--agents-of-file", "--json")
    found = [(one["agent"], one["allowed"], one["line"]) for one in done.json]
    assert found == [("GPTBot", False, 8), ("bingbot", True, None), ("*", False, 2)]
    done = by_file(folder, "/cart", "--agents-of-file", "--agent", "Foo", "--json")
    assert [one["agent"] for one in done.json] == ["Foo", "GPTBot", "bingbot", "*"]


def test_a_file_that_names_too_many_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_MAX_AGENTS", 5)
    (tmp_path / "r.txt").write_text("".join(f"User-agent: bot-{one}\n" for one in "abcdefgh"))
    done = robots_here(tmp_path, "--file", "r.txt", "/", "--agents-of-file", "--csv")
    assert len(done.out.splitlines()) == 1 + 5 + 1
    assert done.errors == ["scrapy robots: only the first 5 of 9 agents are asked about"]


# -- a chain is one crawler ------------------------------------------------------------------

WORDS = "GPTBot, as fallback for Googlebot"
CHAIN = ("--agent", "Googlebot,GPTBot")


def test_a_chain_is_called_so_in_every_form(folder: Path) -> None:
    (folder / "p.html").write_text("<meta name=robots content=noindex>")
    for asked in (("--file", "r.txt", "/x"), ("--page", "--file", "p.html")):
        (line,) = robots_here(folder, *asked, *CHAIN, "--json").json
        assert (line["agent"], line["agent_in_words"]) == ("Googlebot,GPTBot", WORDS)
        for form in ([], ["--explain"], ["--csv"]) if "/x" in asked else ([],):
            assert WORDS in robots_here(folder, *asked, *CHAIN, *form).out


# -- the file, marked ------------------------------------------------------------------------


def test_the_lines_that_decided_are_marked(folder: Path) -> None:
    urls = ["/cart", "/cart/2", "/cart/3", "/cart/4", "/cart/help", "/none"]
    shown = by_file(folder, *urls, "--show").out.partition("# r.txt\n")[2].splitlines()
    assert shown == [
        "     1  User-agent: *",
        ">    2  Disallow: /cart  <- disallowed: /cart, /cart/2, /cart/3 and 1 more",
        "     3  Dissalow: /日本語/  # why not",
        "     4  disallow /hidden",
        ">    5  Allow: /cart/help  <- allowed: /cart/help",
        "     6",
        "     7  User-agent: GPTBot",
        "     8  Disallow: /",
        "     9",
        "    10  User-agent: bingbot",
        "    11  Crawl-delay: 5",
        "# Scrapy: 2 allowed, 4 disallowed",
    ]


# -- what is compared ------------------------------------------------------------------------


def test_a_path_alone_is_compared_as_a_crawl_compares_it(folder: Path) -> None:
    """A URL is compared as it stands, as Google's matcher does; that is said."""
    path, url = by_file(folder, "/日本語/x", "http://a.example/日本語/x", "--json").json
    assert (path["allowed"], path["line"], url["allowed"]) == (False, 3, True)
    assert path["path"] == "/%E6%97%A5%E6%9C%AC%E8%AA%9E/x"
    shown = by_file(folder, "http://a.example/日本語/x").out.splitlines()[0]
    assert shown.endswith("; compared as it stands, but a crawl encodes it")
    steps = by_file(folder, "/日本語/x", "--explain").out
    assert re.search(r"  path +/日本語/x\n  compared +/%E6%97%A5", steps)


def test_octets_are_counted_in_words(folder: Path) -> None:
    (folder / "r.txt").write_text("User-agent: *\nDisallow: /\n")
    assert "(1 octet; decides" in by_file(folder, "/x", "--explain").out


# -- compare ---------------------------------------------------------------------------------

NEW = RULES.replace("/cart/help", "/cart/info").replace("GPTBot", "CCBot")


@pytest.fixture
def both(folder: Path) -> Path:
    (folder / "n.txt").write_text(NEW, encoding="utf-8")
    return folder


def compare(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    done = robots_here(folder, "--compare", "r.txt", "n.txt", *arguments, stdin=stdin)
    assert done.err == ""
    return done


def test_all_agents_of_both_files_are_compared(both: Path) -> None:
    changes = compare(both, "-", "--json", stdin=b"/x\n").json
    found = [(one["agent"], one["old"]["line"], one["new"]["line"]) for one in changes]
    assert found == [("GPTBot", 8, None), ("CCBot", None, 8)]


def test_without_urls_what_changed_in_the_groups(both: Path) -> None:
    done = compare(both)
    assert done.status == 1
    assert done.out.splitlines()[-3:] == [
        "- r.txt:5: Allow: /cart/help (group *)",
        "+ n.txt:5: Allow: /cart/info (group *)",
        "# 6 lines changed",
    ]
    place = {"source": "r.txt", "line": 7, "text": "User-agent: GPTBot", "group": "GPTBot"}
    assert compare(both, "--json").json[0] == {"change": "removed", **place}


def test_what_means_the_same_is_no_change(both: Path) -> None:
    """Order, spelling, and what is said twice."""
    (both / "r.txt").write_text("User-agent: *\nDisallow: /é\nDisallow: /b\n", encoding="utf-8")
    (both / "n.txt").write_text(
        "useragent: *\nDisallow: /b\ndisallow: /%c3%a9\nUser-agent: *\nDisallow: /b\n"
    )
    assert (compare(both).status, compare(both).out) == (0, "# 0 lines changed\n")
    assert compare(both, "/é", "/b").out == "# 0 of 2 verdicts change\n"


def test_help_has_no_heading_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapy takes a line that ends with a colon for one, wherever the terminal's width breaks it."""
    command: Any = RobotsCommand()
    command.settings = Settings()
    parser = ScrapyArgumentParser(formatter_class=ScrapyHelpFormatter)
    command.add_options(parser)
    for columns in range(40, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        ours = parser.format_help().partition("Global Options")[0]
        headings = re.findall(r"^(.+)\n[=-]{4,}$", ours, re.MULTILINE)
        assert headings == ["Usage", "Options"], columns
