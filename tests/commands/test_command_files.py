"""`scrapy-rep FILE URL…`: files without Scrapy, by the code of `scrapy robots`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.process import environment
from tests.helpers.robots_command import files_here, robots_here
from tests.helpers.rows import every_row

RULES = "User-agent: *\nDissallow: /cart\nAllow: /cart/help\nUser-agent: GPTBot\nDisallow: /\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.txt").write_text(RULES)
    (tmp_path / "n.txt").write_text(
        RULES.replace("GPTBot", "CCBot") + "Sitemap: https://a.b/s.xml\n"
    )
    return tmp_path


# What follows `scrapy-rep`, and what it is for `scrapy robots`.
SAME = [
    (["r.txt", "/cart", "/cart/help", "/x"], ["--file", "r.txt", "/cart", "/cart/help", "/x"]),
    (["--agent=GPTBot", "r.txt", "/x", "--show"], ["--agent=GPTBot", "--file=r.txt", "/x", "--show"]),
    (["r.txt", "--agents-known"], ["--file=r.txt", "--agents-known"]),
    (["r.txt", "/x", "--agents-of-file", "--csv"], ["--file=r.txt", "/x", "--agents-of-file", "--csv"]),
    (["r.txt", "-", "--json"], ["--file=r.txt", "-", "--json"]),
    (["r.txt", "/cart", "--explain"], ["--file=r.txt", "/cart", "--explain"]),
    (["r.txt", "/caf\udce9", "http://a:b/"], ["--file=r.txt", "/caf\udce9", "http://a:b/"]),
    (["none.txt", "/"], ["--file=none.txt", "/"]),
]  # fmt: skip
SAME += [
    (one, one)
    for one in (
        ["--file", "r.txt", "/cart"],
        ["--lint", "r.txt", "n.txt"],
        ["--lint", "r.txt", "--fail-on=error"],
        ["--lint", "www.e.com"],
        ["--compare", "r.txt", "n.txt"],
        ["--compare", "r.txt", "n.txt", "-"],
    )
]


def test_it_prints_what_scrapy_robots_prints(folder: Path) -> None:
    with every_row() as row:
        for ours, scrapys in SAME:
            with row(" ".join(ours)):
                stdin = b"/cart\n/x\n"
                expected = robots_here(folder, *scrapys, stdin=stdin)
                done = files_here(folder, *ours, stdin=stdin)
                assert (done.out, done.err, done.status) == (
                    expected.out,
                    expected.err,
                    expected.status,
                )
                assert done.out or done.err


WRONG = [
    ([], "no file given"),
    (["https://a.b/x"], "a site is asked by Scrapy: scrapy robots https://a.b/x"),
    (["https://a.b/\x1b[31m"], "a site is asked by Scrapy: scrapy robots https://a.b/\\x1b[31m"),
    (["--lint", "https://a.b/"], "a site is asked by Scrapy: scrapy robots, with the same options"),
    (["--compare", "r.txt", "https://a.b/"], "a site is asked by Scrapy: scrapy robots, with the same options"),
    (["--sitemaps", "https://a.b/"], "--sitemaps needs Scrapy: scrapy robots --sitemaps"),
    (["r.txt", "/", "--spider=tea"], "--spider needs Scrapy: scrapy robots --spider"),
    (["r.txt"], "no URL given"),
    (["r.txt", "/", "--agents"], "no such option: '--agents'; did you mean --agents-of-file or --agents-known?"),
    (["r.txt", "/", "-s", "A=b"], "no such option: '-s'"),
    (["r.txt", "/", "--fail-on=error"], "--fail-on has no effect on verdicts"),
    (["r.txt", "/", "--agent=A/1"], "--agent is 'A/1', but must be a product token such as FooBot (letters, - and _), or several joined by commas; did you mean A?"),
]  # fmt: skip


def test_what_takes_scrapy_is_said(folder: Path) -> None:
    with every_row() as row:
        for arguments, error in WRONG:
            with row(error):
                done = files_here(folder, *arguments)
                assert (done.status, done.out) == (2, "")
                assert done.errors[-1] == f"scrapy-rep: error: {error}"


def test_ctrl_c_ends_it_with_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scrapy_rep.commands.verdicts.read_file", stopped)
    done = files_here(folder, "r.txt", "/")
    assert (done.status, done.errors) == (
        3,
        ["scrapy robots: stopped before it was done"],
    )


@pytest.mark.process
@pytest.mark.python
@pytest.mark.parametrize(
    "arguments",
    [
        "r.txt /cart --show",
        "--lint r.txt",
        "--compare r.txt n.txt",
        "r.txt --agents-known --json",
    ],
)
def test_nothing_of_scrapy_is_imported(folder: Path, arguments: str) -> None:
    """Its start takes most of a second."""
    code = (
        "import runpy, sys\n"
        "try:\n"
        "    runpy.run_module('scrapy_rep', run_name='__main__', alter_sys=True)\n"
        "finally:\n"
        "    roots = {name.partition('.')[0] for name in sys.modules}\n"
        "    print(sorted(roots & {'scrapy', 'twisted', 'asyncio', 'sqlite3'}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()],
        cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode in (0, 1), done.stderr.strip()) == (True, "[]")
    assert done.stdout
