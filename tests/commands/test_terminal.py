"""What commands print on a terminal: it fits, whatever is long, and is aligned by columns, not by
characters. Elsewhere a line is as long as it is."""

from __future__ import annotations

import errno
import io
import os
from tempfile import TemporaryFile
from typing import Any

import pytest

from scrapy_rep.commands import tree, verdicts
from scrapy_rep.commands.ending import CommandError, Status
from scrapy_rep.commands.sitemaps import Sitemap
from scrapy_rep.commands.terminal import Output, Progress, fitted, shortened, width, wrapped
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.sitemaps import Kind

LONG = "/a/very/long/path/that/goes/on/and/on/for/quite/a/while/until/the/end/of/the/line"
RULES = f"""\
User-agent: *
Disallow: {LONG}/*/{LONG}$
Disallow: /漢字
"""


class Terminal(io.StringIO):
    encoding: Any = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(
        "scrapy_rep.commands.terminal.shutil.get_terminal_size",
        lambda: os.terminal_size((80, 24)),
    )
    monkeypatch.setenv("NO_COLOR", "1")
    return Terminal()


def explained(*urls: str, agents: tuple[str, ...] = ("FooBot",)) -> list[Any]:
    robots = RobotsFile(Outcome.RULES, RULES.encode(), Facts(file="robots.txt"))
    return [robots.explain(url, url, (agent,)) for url in urls for agent in agents]


URLS = (f"{LONG}/x/{LONG}", "/%E6%BC%A2%E5%AD%97", "/other")


@pytest.mark.parametrize(
    ("one", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("ｗ", 2), ("é", 1), ("", 0)]
)
def test_the_width_of_text_is_counted_in_columns(one: str, columns: int) -> None:
    assert width(one) == columns


@pytest.mark.parametrize(
    ("one", "columns", "short"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcdef…ijk"),
        ("漢字漢字漢字", 12, "漢字漢字漢字"),
        ("漢字漢字漢字", 10, "漢字漢…字"),
        ("abc", 1, "…"),
    ],
)
def test_text_is_shortened_in_its_middle(one: str, columns: int, short: str) -> None:
    assert shortened(one, columns) == short
    assert width(short) <= columns


@pytest.mark.parametrize(
    ("one", "lines"),
    [
        ("", [""]),
        ("abcdefgh", ["abcdefgh"]),
        ("abcdefghi", ["abcdefgh", "i"]),
        ("abcde fghijk", ["abcde", "fghijk"]),
        ("a bcdefghijk", ["a bcdefg", "hijk"]),  # that blank is too far off
        ("漢字漢字漢", ["漢字漢字", "漢"]),
        ("abcdefg漢", ["abcdefg", "漢"]),
        ("one two three four", ["one two", "three", "four"]),
    ],
)
def test_text_is_wrapped_at_blanks_if_they_are_near(one: str, lines: list[str]) -> None:
    assert wrapped(one, 8) == lines


def test_text_wider_than_a_column_is_wrapped_by_character() -> None:
    assert wrapped("漢字", 1) == ["漢", "字"]


def test_the_widest_columns_are_cut_down_first() -> None:
    assert fitted([10, 50, 30], 60) == [10, 25, 25]
    assert fitted([10, 50], 60) == [10, 50]
    assert fitted([500_000, 9], 5) == [8, 8]
    assert fitted([], 5) == []


def test_a_table_of_urls_fits_the_terminal(terminal: Terminal) -> None:
    verdicts.table(Output(terminal), explained(*URLS))
    lines = terminal.getvalue().splitlines()
    assert max(map(width, lines)) <= 80
    assert lines[:2] == ["verdict     group  because", "    URL"]
    assert lines[2].startswith("disallowed  *      line 2: Disallow: /a/very/")
    assert "…" in lines[2]
    assert lines[2].endswith("/the/line$")
    # Each URL is complete.
    assert "".join(line.strip() for line in lines[3:6]) == URLS[0]
    assert "disallowed  *      line 3: Disallow: /漢字" in lines


def test_what_fits_stands_beside_the_rest(terminal: Terminal) -> None:
    verdicts.table(Output(terminal), explained("/x", "/y"))
    assert terminal.getvalue().splitlines()[:3] == [
        "verdict  group  because          URL",
        "allowed  *      no rule matches  /x",
        "allowed  *      no rule matches  /y",
    ]


def test_without_a_terminal_nothing_is_cut() -> None:
    stream = io.StringIO()
    verdicts.table(Output(stream), explained(*URLS))
    lines = stream.getvalue().splitlines()
    assert lines[1].startswith(f"disallowed  *      line 2: Disallow: {LONG}/*/{LONG}$  {LONG}")
    # The last column begins at the same column of a terminal in each row.
    begins = [width(line[: line.rindex(url)]) for line, url in zip(lines[1:], URLS, strict=False)]
    assert len(set(begins)) == 1


def test_a_block_is_wrapped_beside_its_labels(terminal: Terminal) -> None:
    (one,) = explained(URLS[0])
    verdicts.block(Output(terminal), one, explain=False, most_delay=0)
    _, agent, because, *more = terminal.getvalue().splitlines()
    assert agent == "  agent       FooBot"
    assert because.startswith("  because     line 2: Disallow: /a/very/long/path")
    assert more[0].startswith(" " * 14)
    assert more[0][14] != " "
    assert max(map(width, (agent, because, *more))) <= 80


def test_many_agents_are_columns_before_the_url(terminal: Terminal) -> None:
    agents = ("FooBot", "BarBot", "OtherBot", "LastBot")
    verdicts.matrix(Output(terminal), explained(*URLS, agents=agents), len(agents))
    lines = terminal.getvalue().splitlines()
    assert lines[0].split() == [*agents]
    assert lines[1] == "    URL"
    assert max(map(width, lines)) <= 80


def test_a_terminal_that_knows_ascii_alone(terminal: Terminal) -> None:
    class Ascii(Terminal):
        encoding = "ascii"

    stream = Ascii()
    verdicts.table(Output(stream), explained(URLS[0], "/x"))
    assert "~" in stream.getvalue()
    assert stream.getvalue().isascii()


def sitemap(url: str, **more: Any) -> Sitemap:
    return Sitemap(url, listed_in="http://a.example/robots.txt", depth=1, **more)


def test_a_tree_of_sitemaps_fits_the_terminal(terminal: Terminal) -> None:
    shown = tree.Tree(Output(terminal), ["FooBot"])
    url = f"http://a.example{LONG}.xml"
    shown.add(sitemap(url, kind=Kind.URLSET, problem="HTTP 503 " * 5), (True,))
    shown.add(sitemap("http://a.example/s.xml", kind=Kind.URLSET, problem="empty"), (True,))
    *long, last = terminal.getvalue().splitlines()
    assert max(map(width, long)) <= 80
    assert [line[:24].strip() for line in long[1:]] == [""] * (len(long) - 1)
    assert long[1].startswith(" " * 24)
    assert last.endswith("└── http://a.example/s.xml  (empty)")


def test_progress_takes_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    Progress(terminal).tell("漢" * 100)
    assert terminal.getvalue() == "\r\x1b[K" + "漢" * 39


@pytest.mark.parametrize(
    ("error", "windows", "message", "status"),
    [
        (errno.EPIPE, False, "", Status.GOOD),
        (errno.EINVAL, True, "", Status.GOOD),
        (errno.EINVAL, False, "standard output: Invalid argument", Status.USAGE),
        (errno.ENOSPC, True, "standard output: No space left on device", Status.USAGE),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, error: int, windows: bool, message: str, status: Status
) -> None:
    """On Windows, writing to its pipe is an invalid argument."""
    if windows:
        gone = {errno.EPIPE, errno.EINVAL}
        monkeypatch.setattr("scrapy_rep.commands.terminal._READER_GONE", gone)
    with TemporaryFile("w") as file:

        class Pipe(io.StringIO):
            fileno = file.fileno

            def flush(self) -> None:
                raise OSError(error, os.strerror(error))

        with pytest.raises(CommandError, match=f"^{message}$") as raised:
            Output(Pipe()).flush()
    assert raised.value.status is status
