"""What `scrapy robots` reads has limits, and its errors go nowhere but to standard error."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.helpers.process import environment
from tests.helpers.robots_command import robots_here
from tests.helpers.scrapy_process import ScrapyProcess

pytestmark = pytest.mark.process
ZERO = Path("/dev/zero")
BOUND = 400 << 20
"""Bytes of memory. Scrapy, and what else the process was forked with, takes a quarter of it."""


def run(
    folder: Path, *arguments: str, given: Path = ZERO, errors: str = "err"
) -> tuple[int, str, str]:
    """Run it with an address space that has no room for what is unlimited."""
    out, err, line = folder / "out", folder / errors, ["robots", *arguments]
    process = ScrapyProcess(
        line, cwd=folder, variables=environment(), output=out, errors=err, given=given
    )
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (BOUND, BOUND))
    status = process.wait(60)
    return status, out.read_text(), err.read_text() if err.is_file() else ""


CUT = "from this line on the file is ignored"


@pytest.mark.parametrize(
    ("arguments", "status", "said", "error"),
    [
        (["--lint", str(ZERO)], 1, CUT, ""),
        (["--lint", "-"], 1, CUT, ""),
        (["--file", str(ZERO), "http://a.example/"], 0, "allowed", ""),
        (["--page", "--file", str(ZERO)], 0, "rules              none", ""),
        ([], 2, "", "standard input: a line has no end\n"),
    ],
)
def test_what_has_no_end(
    tmp_path: Path, arguments: list[str], status: int, said: str, error: str
) -> None:
    code, out, err = run(tmp_path, *arguments)
    assert (code, bool(out), bool(err)) == (status, bool(said), bool(error))
    assert said in out
    assert err.endswith(error)


def test_a_line_that_is_too_long_costs_the_line(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("User-agent: *\nDisallow: /x\n")
    lines = [b"http://a.example/x", b"http://a.example/" + b"y" * 10_000_000, b"/x"]
    done = robots_here(tmp_path, "--file", "r.txt", "--json", stdin=b"\n".join(lines))
    assert [one["url"] for one in done.json] == ["http://a.example/x", "/x"]
    assert "longer than 65,536 bytes" in done.err
    assert len(done.err) < 500
    assert done.status == 2
    alone = robots_here(tmp_path, "--file", "r.txt", stdin=lines[1])
    assert (alone.status, alone.out) == (2, "")


def test_errors_never_go_to_standard_output(tmp_path: Path) -> None:
    line = "--json", "nonsense", "ftp:x"
    assert run(tmp_path, *line, errors="/dev/full") == (2, "", "")
    done = robots_here(tmp_path, *line, stderr=None)
    assert (done.status, done.out, done.err) == (2, "", "")
