"""`scrapy robots --lint URL|FILE`. More is shown by the examples of docs/check.md, which are tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.behaviours import LongBody, answer, redirect
from tests.helpers.robots_command import Stream as Terminal
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file

BAD = "Useragent: *\nDissallow: /x\nAllow: shop\nSitemap: /s.xml\n"


def found(lines: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(line["source"], line["line"], line["code"]) for line in lines]


def test_findings_decide_about_the_exit_status_from_a_severity_on(
    tmp_path: Path,
) -> None:
    rules = {
        "good": "Disallow: /x",
        "warning": "Dissallow: /x",
        "note": "Disallow: /x*",
    }
    for name, rule in rules.items():
        (tmp_path / name).write_text(f"User-agent: *\n{rule}\n")
    for line, status in (
        ("warning --fail-on error", 0),
        ("warning --fail-on warning", 1),
        ("note --fail-on warning", 0),
        ("note --fail-on note", 1),
        ("note good", 1),
    ):
        done = robots_here(tmp_path, "--lint", *line.split())
        assert (line, done.status, done.err) == (line, status, "")
        assert done.out
    assert done.out.endswith("\n# note: 1 note\n# good: nothing to report\n")
    done = robots_here(tmp_path, "--lint", "good", "--json")
    assert (done.status, done.out, done.err) == (0, "", "")
    (line, *_) = robots_here(tmp_path, "--lint", "-", "--json", stdin=BAD).json
    fields = "source line lines code message fix agents text severity"
    assert list(line) == fields.split()
    assert found([line]) == [("standard input", 1, "typo")]


def test_each_finding_has_its_lines_and_a_fix_and_all_are_counted(
    tmp_path: Path,
) -> None:
    body = "User-agent: *\nDisallow: /a*\nDisallow: b\nDisallow: /c*\nDisallow: d\nDisallow: e\n"
    done = robots_here(
        tmp_path, "--lint", "-", stdin=body + "Disallow: f\nDisallow: g\nDisallow: h\n"
    )
    assert done.out.splitlines() == [
        (
            "standard input:2: note: the * at the end matches nothing more; it only makes the rule "
            "longer, and the longest rule wins [trailing-star]"
        ),
        "    Disallow: /a*  (also line 4)",
        "    fix: delete the *, unless the rule has to win over another one that is as long",
        "standard input:3: error: can never match: paths start with / [never-matches]",
        "    Disallow: b  (also lines 5, 6, 7 and 2 more)",
        '    fix: did you mean "/b"?',
        "# standard input: 1 error, 1 note",
    ]


# A line with each of many findings.
MANY = (
    "Allow: x\nCrawl-delay: 1\nUser-agent: *\nUser-agent: a/1\nDisallow: /a b\nDisallow: c\n"
    "Disallow: /d*\nDisallow: /d\nDisallow: /D\nDisallow: /d\nDissallow: /e\ndisallow /f\nFoo: 1\n"
    "Noindex: 1\nhello\nCrawl-delay: 2\nUser-agent: *\nSitemap: /s\nAllow:\nDsallow: /\n"
)


def test_a_file_gets_40_lines_and_the_most_severe_findings(tmp_path: Path) -> None:
    lines = robots_here(tmp_path, "--lint", "-", "--json", stdin=MANY).json
    assert len(lines) > 15
    printed = robots_here(tmp_path, "--lint", "-", stdin=MANY).out.splitlines()
    assert len(printed) <= 40
    errors = [f"[{line['code']}]" for line in lines if line["severity"] == "error"]
    assert [code for code in errors if code not in "".join(printed)] == []
    assert printed[-2].startswith(
        f"# standard input: {len(lines) - 12} other findings, see --json: "
    )


def test_severities_have_colours_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    body = b"User-agent: *\nDisallow: x\nDissallow: /y: error: z\nDisallow: /z*\n"
    (tmp_path / "r.txt").write_bytes(body)
    screen = Terminal(terminal=True)
    robots_here(tmp_path, "--lint", "r.txt", stdout=screen)
    for number, severity, colour in (
        (2, "error", 31),
        (3, "warning", 33),
        (4, "note", 36),
    ):
        assert f"r.txt:{number}: \x1b[{colour}m{severity}\x1b[0m: " in screen.text
    assert screen.text.count("\x1b") == 2 * 4
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal(terminal=True)
    robots_here(tmp_path, "--lint", "r.txt", stdout=screen)
    assert "\x1b" not in screen.text


async def test_lint_of_a_site_reads_its_current_robots_txt(
    sites: Sites, tmp_path: Path
) -> None:
    """Whatever page of it is named; as it is served now, past the cache."""
    site = sites.add(
        robots="User-agent: *\nDisallow: /\n", pages={"/r.txt": f"{BAD}Disallow: /s\n"}
    )
    kept = in_a_file(tmp_path)
    await robots_crawls(tmp_path, site.url("/"), settings=kept)
    site.set("/robots.txt", redirect("/r.txt"))
    pages = site.url("/a/page"), site.url("/b")
    done = await robots_crawls(tmp_path, "--lint", *pages, "--json", settings=kept)
    assert (done.status, done.err) == (1, "")
    codes = ["typo", "never-matches", "relative-sitemap", "sitemap-disallowed"]
    assert found(done.json) == [
        (site.url("/robots.txt"), line, code)
        for line, code in zip([1, 3, 4, 4], codes, strict=True)
    ]
    assert done.json[0]["lines"] == [1, 2]
    assert [hit.path for hit in site.requests[1:]] == ["/robots.txt", "/r.txt"]
    done = await robots_crawls(tmp_path, site.url("/"), "--json", settings=kept)
    assert done.json[0]["from_cache"] is True


async def test_lint_of_a_long_file_says_where_reading_stops(
    sites: Sites, tmp_path: Path
) -> None:
    """No more of it is fetched than counts."""
    stream = LongBody(b"User-agent: *\nDisallow: /x\n", 50_000_000)
    site = sites.add(robots=stream)
    (line,) = (await robots_crawls(tmp_path, "--lint", site.url("/"), "--json")).json
    assert line["code"] == "beyond-limit"
    assert line["message"].startswith("from this line on the file is ignored")
    assert stream.sent < 20_000_000
    body = b"User-agent: *\nDisallow: /x\n" + (b"#" * 99 + b"\n") * 6000
    (line,) = robots_here(tmp_path, "--lint", "-", "--json", stdin=body).json
    assert (line["code"], line["line"]) == ("beyond-limit", 5122)


@pytest.mark.linux
async def test_a_full_disk_is_not_blamed_on_the_site(
    sites: Sites, tmp_path: Path
) -> None:
    urls = [sites.add(robots=BAD).url("/") for _ in range(2)]
    with Path("/dev/full").open("w") as full:  # noqa: ASYNC230 (it is no disk)
        done = await robots_crawls(tmp_path, "--lint", *urls, stdout=full)
    assert done.errors == ["scrapy robots: standard output: No space left on device"]
    assert done.status == 2


async def test_no_file_and_no_answer(sites: Sites, tmp_path: Path) -> None:
    gone, down = sites.add(robots=404), sites.add(robots=503)
    page = sites.add(robots=answer("<!doctype html><title>Hi</title>"))
    urls = [site.url("/") for site in (gone, down, page)]
    done = await robots_crawls(tmp_path, "--lint", *urls, "--json")
    assert done.status == 3
    assert [line["code"] for line in done.json] == ["no-file", "html"]
    assert done.errors == [
        f"scrapy robots: {down.url('/robots.txt')}: unreachable: HTTP 503"
    ]
