"""What crawls have left: `scrapy robots --cache` (REP.md section 5); `--held JOBDIR`, which changes
nothing there; `--report`. The examples of docs/command.md, which are tests, show more."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.holding.disk import FILE_NAME, SCHEMA
from scrapy_rep.storages import Entry, SqliteStorage, UnreadableEntry
from scrapy_rep.text import iso
from tests.helpers.behaviours import silence
from tests.helpers.crawling import crawl
from tests.helpers.files import script
from tests.helpers.held import Record
from tests.helpers.process import Crawl
from tests.helpers.robots_command import robots_here
from tests.helpers.scrapy_process import Done
from tests.helpers.servers import Sites
from tests.helpers.storing import A, in_a_file, missing, open_, rules
from tests.reporting.report.records import answer, line, many_lines, started

BODY = b"User-agent: *\nDisallow: /private\n# \xe9 \x1b[31m\n"
HASH = hashlib.sha256(BODY).hexdigest()
LONG_AGO, NOW = 1_700_000_000.0, float(int(time.time()))
SOON = NOW + 500
UNREACHABLE = {"unreachable_since": LONG_AGO, "attempts": 3, "next_attempt_at": SOON}
FRESH = rules("https://www.example.com", BODY, LONG_AGO, fresh_until=SOON)
FRESH = replace(FRESH, url="https://example.org/robots.txt", hops=1)
MISSING = replace(
    missing("http://example.com:8080", LONG_AGO), fresh_until=LONG_AGO + 1
)
DOWN = Entry("https://down.example", LONG_AGO, error="HTTP 503", **UNREACHABLE)  # type: ignore[arg-type]
DOWN = replace(DOWN, unreachable_since=NOW)
STALE = replace(FRESH, origin="https://stale.example", error="HTTP 500", **UNREACHABLE)  # type: ignore[arg-type]
ALL = [FRESH, MISSING, DOWN, STALE]


def asked(folder: Path, *arguments: str, **more: Any) -> Done:
    more["settings"] = {**in_a_file(folder), **more.get("settings", {})}
    return robots_here(folder, *arguments, **more)


def cache(folder: Path, *arguments: str, **more: Any) -> Done:
    return asked(folder, "--cache", *arguments, **more)


def keep(folder: Path, *entries: Entry) -> None:
    storage = open_(in_a_file(folder))
    for entry in entries:
        storage.save(entry)
    storage.close()


def kept(folder: Path, *hosts: str) -> set[str]:
    return {one["origin"] for one in cache(folder, "--json", *hosts).json}


async def test_cache_shows_what_a_crawl_has_learnt(
    sites: Sites, tmp_path: Path
) -> None:
    some = [sites.add(robots=one) for one in (BODY, 404, silence())]
    settings = {**in_a_file(tmp_path), "REP_DOWNLOAD_TIMEOUT": 0.3}
    await crawl([site.url("/private") for site in some], settings)
    names = ("origin", "state", "outcome", "sha256", "attempts")
    rules, gone, down = (site.url("") for site in some)
    found = {
        tuple(one[name] for name in names) for one in cache(tmp_path, "--json").json
    }
    assert found == {
        (rules, "fresh", "rules", HASH, 0),
        (gone, "fresh", "missing", None, 0),
        (down, "unreachable", "unreachable", None, 1),
    }
    assert "Timeout" in cache(tmp_path, f"{down}/").out
    assert cache(tmp_path, HASH).out.encode("utf-8", "surrogateescape") == BODY
    # Dropped: asked for again.
    assert cache(tmp_path, "--drop", f"{rules}/x").out == f"dropped {rules}\n"
    await crawl([f"{rules}/private", f"{gone}/private"], settings)
    assert [site.count("/robots.txt") for site in some[:2]] == [2, 1]


def test_cache_lists_each_entry_on_a_line(tmp_path: Path) -> None:
    page = rules("https://page.example", b"<!DOCTYPE html>", LONG_AGO, fresh_until=SOON)
    trouble = replace(MISSING, origin="https://trouble.example", status=500)
    # Of a project whose clock is years ahead: it is asked again.
    ahead = replace(FRESH, origin="https://ahead.example", fresh_until=4e9)
    long = replace(FRESH, origin=f"http://{'a' * 200}.example")
    keep(tmp_path, *ALL, page, trouble, ahead, long)
    done = cache(tmp_path)
    assert (done.status, done.err) == (0, "")
    fetched = "fetched 2023-11-14T22:13:20Z, fresh until"
    due = f"{fetched} 2023-11-14T22:13:21Z"
    assert sorted(done.out.splitlines()) == [
        f"ask           http://example.com:8080  HTTP 404  {due}",
        f"ask           https://ahead.example  HTTP 200  {fetched} 2096-10-02T07:06:40Z",
        f'ask           https://trouble.example  HTTP 500 with a page that says "not found"  {due}',
        f"fresh         {long.origin}  HTTP 200  {fetched} {iso(SOON)}",
        f"fresh         https://page.example  HTTP 200, an HTML page  {fetched} {iso(SOON)}",
        f"fresh         https://www.example.com  HTTP 200  {fetched} {iso(SOON)}",
        "stale         https://stale.example  HTTP 200  since 2023-11-14T22:13:20Z: HTTP 500",
        f"unreachable   https://down.example  no answer  since {iso(NOW)}: HTTP 503",
    ]
    # By Google's newer rules, 12 hours without a file close a site, whatever copy there is.
    settings = {"REP_UNREACHABLE_RULES": "google-2026"}
    (stale,) = cache(tmp_path, "--json", "stale.example", settings=settings).json
    assert stale["state"] == "unreachable"


def test_hosts_and_urls_choose_what_is_shown_or_dropped(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    for hosts, found in (
        ("EXAMPLE.com", {MISSING}),
        ("*example.com", {FRESH, MISSING}),
        ("down.example stale.example", {DOWN, STALE}),
        ("*", set(ALL)),
    ):
        assert kept(tmp_path, *hosts.split()) == {one.origin for one in found}
    done = cache(
        tmp_path, "https://www.example.com:443/any?page", "https://down.example/"
    )
    assert "  url                https://example.org/robots.txt\n" in done.out
    assert "  attempts           3\n" in done.out
    assert "\x1b" not in done.out, "a site steers the terminal"
    (shown,) = cache(tmp_path, "--json", "https://www.example.com/").json
    assert shown["body"] == BODY.decode("utf-8", "replace")
    done = cache(tmp_path, "--drop", "*.example")
    assert {*done.out.splitlines()} == {
        f"dropped {one.origin}" for one in (DOWN, STALE)
    }
    done = cache(tmp_path, "--drop", "https://down.example/", "none.example")
    assert (done.status, done.errors) == (
        1,
        ["scrapy robots: https://down.example: nothing cached"],
    )
    error = "scrapy: error: --drop needs hosts or URLs; '*' drops everything"
    assert cache(tmp_path, "--drop", HASH).errors[-1] == error
    assert kept(tmp_path) == {FRESH.origin, MISSING.origin}
    dropped = cache(tmp_path, "--drop", "*", "--json").json
    assert sorted(one["origin"] for one in dropped) == [MISSING.origin, FRESH.origin]
    assert kept(tmp_path) == set()


def test_nothing_found_is_status_1_and_says_so(tmp_path: Path) -> None:
    done = cache(tmp_path)
    assert (done.status, done.err) == (1, "scrapy robots: the cache is empty\n")
    keep(tmp_path, FRESH)
    assert cache(tmp_path, f"{FRESH.origin}/", "https://example.com/").status == 1
    done = cache(tmp_path, "other.example", "s3://a", "https://example.com/", "0" * 64)
    assert done.status == 2
    assert done.errors == [
        "scrapy robots: no robots.txt for the scheme 's3': 's3://a'",
        f"scrapy robots: robots.txt with hash {'0' * 64}: not in the cache",
        "scrapy robots: https://example.com: nothing cached",
        "scrapy robots: nothing cached for other.example",
    ]


@pytest.mark.linux
def test_a_full_disk_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    (tmp_path / "m.jsonl").write_bytes(b"".join(many_lines(3)))
    for arguments in ("--cache", f"--cache {HASH}", "--report m.jsonl"):
        with Path("/dev/full").open("w") as full:
            done = asked(tmp_path, *arguments.split(), stdout=full)
        said = "scrapy robots: standard output: No space left on device\n"
        assert (done.status, done.err) == (2, said)


def test_a_cache_that_cannot_be_used_is_status_3(tmp_path: Path) -> None:
    """A report does without it."""
    (tmp_path / "robots.sqlite").mkdir()
    refused = {
        "url": f"{A}/x",
        "rule": "Disallow: /x",
        "line": 2,
        "group": "*",
        "sha256": HASH,
    }
    records = [
        started(),
        answer("rules", 1, A, sha256=HASH),
        line("disallowed", 2, A, **refused),
    ]
    (tmp_path / "m.jsonl").write_bytes(b"".join(records))
    for arguments, status, out in (
        (["--cache"], 3, ""),
        (["--report", "m.jsonl"], 0, "</html>"),
    ):
        done = asked(tmp_path, *arguments)
        assert done.err.startswith("scrapy robots: the cache can't be used: ")
        assert done.status == status
        assert done.out.endswith(out)


NEVER_AGAIN = {"REP_RETRY_DELAY": 60, "REP_RETRY_MAX_DELAY": 600}


def stamps(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Of each file but SQLite's index of its log, which readers lock."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.process
def test_what_a_crawl_holds_while_it_runs_and_after_it_was_killed(
    sites: Sites, tmp_path: Path
) -> None:
    down, slow, job = sites.add(robots=503), sites.add(robots=502), tmp_path / "job"
    urls = [down.url("/0"), slow.url("/0"), slow.url("/1")]
    crawl = Crawl(
        tmp_path / "crawl", urls, {**in_a_file(tmp_path), "JOBDIR": job, **NEVER_AGAIN}
    )
    crawl.wait_for("held", 3)

    def why() -> list[str | None]:
        return [one["error"] for one in asked(tmp_path, "--held", "job", "--json").json]

    # The storage is written a little later.
    crawl.wait_until(lambda: why() == ["HTTP 502", "HTTP 503"], "what is held, and why")
    crawl.kill()
    before = stamps(job)
    done = asked(tmp_path, "--held", "job")
    assert (done.status, done.err) == (0, "")
    told = re.sub(r"(?<=for )\d+ s|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "…", done.out)
    since = "held for …  robots.txt unreachable since …"
    assert told.splitlines() == [
        f"2 requests  {slow.url('')}  {since} (HTTP 502), next attempt not before …",
        f"1 request  {down.url('')}  {since} (HTTP 503), next attempt not before …",
        "# 3 requests of 2 origins held",
    ]
    one, _ = asked(tmp_path, "--held", "job", "--json").json
    assert one.pop("next_attempt_at") > one.pop("unreachable_since")
    assert one.pop("held_seconds") >= 0
    assert one == {
        "origin": slow.url(""),
        "requests": 2,
        "error": "HTTP 502",
        "attempts": 1,
    }
    assert stamps(job) == before


class Damaged(SqliteStorage):
    def load_many(self, origins: Iterable[str]) -> dict[str, Any]:
        return {origin: UnreadableEntry("damaged") for origin in origins}


async def test_what_a_stopped_crawl_holds(sites: Sites, tmp_path: Path) -> None:
    """Why is not known where the project keeps nothing, or what can't be read."""
    job, record = tmp_path / "job", Record(on_held=lambda *_: record.close())
    await record.crawl(sites.add(robots=503).url("/x"), JOBDIR=str(job), **NEVER_AGAIN)
    before, names = stamps(job), {path.name for path in job.iterdir()}
    unread = "reason unknown: REP_CACHE_STORAGE doesn't know it as unreachable"
    lost = "reason unknown: REP_CACHE_STORAGE is in memory, so only the crawl knows it"
    for settings, words in (
        ({}, lost),
        ({"REP_CACHE_STORAGE": f"{__name__}.Damaged"}, unread),
    ):
        line, _ = robots_here(
            tmp_path, "--held", "job", settings=settings
        ).out.splitlines()
        assert line.endswith(f"  {words}")
    # No file from which the next run would conclude that the crawl was killed.
    assert {path.name for path in job.iterdir()} == names
    assert stamps(job) == before
    (tmp_path / "robots.sqlite").mkdir()
    done = asked(tmp_path, "--held", "job")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("scrapy robots: the cache can't be used: ")


def test_many_origins_are_looked_up_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has a limit of 32,766 values in a query, unless it was built with a higher one."""
    insert = "INSERT INTO held VALUES (NULL, 'http://{}:80', 1.0, 0, x'', 0, 0)"
    (tmp_path / "job").mkdir()
    rows = map(insert.format, range(1200))
    script(tmp_path / "job" / FILE_NAME, f"{SCHEMA} BEGIN", *rows, "COMMIT")
    sizes, load = [], SqliteStorage.load_many

    def counted(storage: SqliteStorage, origins: Any) -> Any:
        sizes.append(len(origins))
        return load(storage, origins)

    monkeypatch.setattr(SqliteStorage, "load_many", counted)
    assert asked(tmp_path, "--held", "job").out.endswith(
        "# 1,200 requests of 1,200 origins held\n"
    )
    assert sizes == [500, 500, 200]


def test_a_folder_with_nothing_held_or_what_is_none(tmp_path: Path) -> None:
    for name, content in {"broken": b"x" * 5000, "other": b""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rep-held.sqlite").write_bytes(content)
    (tmp_path / "empty").mkdir()
    for path, status, said in (
        ("empty", 0, "# 0 requests of 0 origins held\n"),
        ("none", 2, "scrapy robots: 'none' is not a directory\n"),
        ("broken", 3, "sqlite can't be read: DatabaseError: file is not a database\n"),
        ("other", 3, "sqlite can't be read: OperationalError: no such table: held\n"),
    ):
        done = robots_here(tmp_path, "--held", path)
        assert done.status == status
        assert (done.err if status else done.out).endswith(said)
    assert list((tmp_path / "empty").iterdir()) == []


def test_two_crawls_side_by_side_with_what_the_storage_has(tmp_path: Path) -> None:
    bodies = [
        b"User-agent: *\nDisallow: /old\n",
        b"User-agent: *\nDisallow: /new\n# Not for you\n",
    ]
    old, new = (rules(A, body) for body in bodies)
    keep(tmp_path, old, new)
    refused = {"url": f"{A}/new", "rule": "Disallow: /new", "line": 2, "group": "*"}
    first = [started("monday"), answer("rules", 1, A, sha256=old.sha256), b"\xff\n[]\n"]
    second = [started("tuesday"), answer("rules", 90, A, sha256=new.sha256)]
    second += [line("disallowed", 91, A, **refused, sha256=new.sha256)]
    (tmp_path / "1.jsonl").write_bytes(b"".join(first))
    others = [
        json.dumps({**json.loads(one), "crawl": "b" * 12}) + "\n" for one in second
    ]
    (tmp_path / "2.jsonl").write_text("".join(others))
    done = asked(tmp_path, "--report", "1.jsonl", "2.jsonl")
    assert done.status == 0
    assert done.out.startswith("<!DOCTYPE html>")
    for text in ("monday", "tuesday", "Disallow: /old", "# Not for you"):
        assert text in done.out
    assert "could not be read: 2." in done.err
