"""`scrapy robots --lint URL|FILE`."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.behaviours import Stream, answer, redirect
from tests.helpers.robots_command import files_in, robots_crawls, robots_here
from tests.helpers.servers import Sites

BAD = "Useragent: *\nDissallow: /x\nAllow: shop\nSitemap: /s.xml\n"


def found(lines: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(line["source"], line["line"], line["code"]) for line in lines]


def test_lint_of_files(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text(BAD)
    (tmp_path / "good.txt").write_text("User-agent: *\nDisallow: /x\n")
    done = robots_here(tmp_path, "--lint", "bad.txt", "good.txt")
    assert (done.status, done.err) == (1, "")
    *_, bad, text, good = done.out.splitlines()
    assert bad.startswith("bad.txt:4: warning: not a full URL, which the standard asks for")
    assert (text, good) == ("    Sitemap: /s.xml", "good.txt: nothing found")
    done = robots_here(tmp_path, "--lint", "-", "--json", stdin=BAD)
    assert done.status == 1
    assert found(done.json)[0] == ("standard input", 1, "typo")
    assert list(done.json[0]) == ["source", "line", "code", "message", "text", "severity"]
    done = robots_here(tmp_path, "--lint", "good.txt", "--json")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_the_exit_status_counts_from_a_severity_on(tmp_path: Path) -> None:
    (tmp_path / "warning.txt").write_text("User-agent: *\nDissallow: /x\n")
    (tmp_path / "note.txt").write_text("User-agent: *\nDisallow: /x*\n")
    for name, severity, status in (
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("warning", "note", 1),
        ("warning", None, 1),
        ("note", "warning", 0),
        ("note", None, 1),
    ):
        options = ["--fail-on", severity] if severity else []
        done = robots_here(tmp_path, "--lint", f"{name}.txt", *options)
        assert (name, severity, done.status) == (name, severity, status)
        assert done.out


async def test_lint_of_a_site_reads_its_current_robots_txt(sites: Sites, tmp_path: Path) -> None:
    """Its robots.txt, whatever page of it is named; as it is served now."""
    site = sites.add(robots=redirect("/r.txt"), pages={"/r.txt": BAD + "Disallow: /s\n"})
    done = await robots_crawls(tmp_path, "--lint", site.url("/a/page"), "--json")
    url = site.url("/robots.txt")
    assert (done.status, done.err) == (1, "")
    assert found(done.json) == [
        (url, 1, "typo"),
        (url, 2, "typo"),
        (url, 3, "never-matches"),
        (url, 4, "relative-sitemap"),
        (url, 4, "sitemap-disallowed"),
    ]
    assert [hit.path for hit in site.requests] == ["/robots.txt", "/r.txt"]


async def test_lint_bypasses_the_cache(sites: Sites, tmp_path: Path) -> None:
    """The owner has just changed it."""
    storage = {"REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage"}
    kept = {**storage, "REP_CACHE_PATH": str(tmp_path / "robots.sqlite")}
    site = sites.add(robots=BAD)
    await robots_crawls(tmp_path, site.url("/"), settings=kept)
    before = files_in(tmp_path)
    site.set("/robots.txt", "User-agent: *\nDisallow: /x\n")
    done = await robots_crawls(tmp_path, "--lint", site.url("/"), settings=kept)
    assert (done.status, done.out) == (0, f"{site.url('/robots.txt')}: nothing found\n")
    assert files_in(tmp_path) == before


async def test_lint_of_a_long_file_says_where_reading_stops(sites: Sites, tmp_path: Path) -> None:
    """No more of it is fetched than counts; of a file, all is read."""
    stream = Stream(b"User-agent: *\nDisallow: /x\n", 50_000_000)
    site = sites.add(robots=stream)
    (line,) = (await robots_crawls(tmp_path, "--lint", site.url("/"), "--json")).json
    assert line["code"] == "beyond-limit"
    assert line["message"].startswith("all bytes from this line on are ignored")
    assert stream.sent < 20_000_000
    body = b"User-agent: *\nDisallow: /x\n" + (b"#" * 99 + b"\n") * 6000
    (line,) = robots_here(tmp_path, "--lint", "-", "--json", stdin=body).json
    assert (line["code"], line["line"]) == ("beyond-limit", 5122)
    assert line["message"].startswith("88,100 bytes from this line on")


async def test_a_full_disk_is_not_blamed_on_the_site(sites: Sites, tmp_path: Path) -> None:
    urls = [sites.add(robots=BAD).url("/") for _ in range(2)]
    with Path("/dev/full").open("w") as full:  # noqa: ASYNC230 (it is no disk)
        done = await robots_crawls(tmp_path, "--lint", *urls, stdout=full)
    assert (done.status, done.errors) == (
        2,
        ["scrapy robots: standard output: No space left on device"],
    )


async def test_no_file_and_no_answer(sites: Sites, tmp_path: Path) -> None:
    gone, down = sites.add(robots=404), sites.add(robots=503)
    page = sites.add(robots=answer("<!doctype html><title>Hi</title>"))
    urls = [site.url("/") for site in (gone, down, page)]
    done = await robots_crawls(tmp_path, "--lint", *urls, "--json")
    assert done.status == 3
    assert [line["code"] for line in done.json] == ["no-file", "html", "empty"]
    assert done.errors == [
        f"scrapy robots: {down.url('/robots.txt')}: unreachable: HTTP 503",
    ]
