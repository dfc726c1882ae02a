"""`scrapy robots --cache`: what a crawl has left in the storage is listed, shown
and dropped (REP.md section 5)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry, SqliteStorage
from scrapy_rep.storages.entry import pack_body
from tests.helpers.behaviours import silence
from tests.helpers.crawling import crawl
from tests.helpers.robots_command import robots_here
from tests.helpers.scrapy_process import Done
from tests.helpers.servers import Sites

BODY = b"User-agent: *\nDisallow: /private\n# \xe9 \x1b[31m\n"
HASH = hashlib.sha256(BODY).hexdigest()
LONG_AGO, FAR_OFF = 1_700_000_000.0, 4_000_000_000.0

PACKED, SHA256 = pack_body(BODY)
FRESH = Entry(
    "https://www.example.com",
    updated_at=LONG_AGO,
    outcome=Outcome.RULES,
    status=200,
    url="https://example.org/robots.txt",
    hops=1,
    packed=PACKED,
    sha256=SHA256,
    fetched_at=LONG_AGO,
    fresh_until=FAR_OFF,
)
MISSING = Entry(
    "http://example.com:8080",
    updated_at=LONG_AGO,
    outcome=Outcome.MISSING,
    status=404,
    url="http://example.com:8080/robots.txt",
    fetched_at=LONG_AGO,
    fresh_until=LONG_AGO + 1,
)
DOWN = Entry(
    "https://down.example",
    updated_at=LONG_AGO,
    unreachable_since=FAR_OFF - 10,
    attempts=3,
    next_attempt_at=FAR_OFF,
    error="HTTP 503",
)
STALE = replace(
    FRESH, origin="https://stale.example", unreachable_since=LONG_AGO, attempts=2,
    next_attempt_at=FAR_OFF, error="HTTP 500",
)  # fmt: skip
ALL = [FRESH, MISSING, DOWN, STALE]


def kept_in(folder: Path) -> dict[str, Any]:
    path = str(folder / "robots.sqlite")
    return {"REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage", "REP_CACHE_PATH": path}


def cache(folder: Path, *arguments: str, **more: Any) -> Done:
    return robots_here(folder, "--cache", *arguments, settings=kept_in(folder), **more)


def keep(folder: Path, *entries: Entry) -> None:
    storage = SqliteStorage(folder / "robots.sqlite")
    for entry in entries:
        storage.save(entry)
    storage.close()


def kept(folder: Path) -> set[str]:
    return {one["origin"] for one in cache(folder, "--json").json}


async def test_cache_shows_what_a_crawl_has_learnt(sites: Sites, tmp_path: Path) -> None:
    rules, missing, silent = (sites.add(robots=one) for one in (BODY, 404, silence()))
    urls = [site.url("/private") for site in (rules, missing, silent)]
    settings = {**kept_in(tmp_path), "REP_DOWNLOAD_TIMEOUT": 0.3}
    await crawl(urls, settings)

    entries = {one["origin"]: one for one in cache(tmp_path, "--json").json}
    origins = [site.url("") for site in (rules, missing, silent)]
    assert sorted(entries) == sorted(origins)
    states = [(entries[one]["state"], entries[one]["outcome"]) for one in origins]
    assert states == [("fresh", "rules"), ("fresh", "missing"), ("unreachable", "unreachable")]
    assert entries[origins[0]]["sha256"] == HASH
    assert entries[origins[2]]["attempts"] == 1
    assert "Timeout" in entries[origins[2]]["error"]

    assert cache(tmp_path, urls[0]).out.startswith(f"fresh  {origins[0]}\n")
    assert cache(tmp_path, HASH).out.encode("utf-8", "surrogateescape") == BODY

    # Dropped: asked for again.
    assert cache(tmp_path, "--drop", urls[0]).out == f"dropped {origins[0]}\n"
    await crawl(urls[:2], settings)
    assert [site.count("/robots.txt") for site in (rules, missing)] == [2, 1]


def test_cache_lists_each_entry_on_a_line(tmp_path: Path) -> None:
    """With the origin whole, and the state in the word that JSON has for it."""
    keep(tmp_path, *ALL, replace(FRESH, origin="http://" + "a" * 200 + ".example"))
    done = cache(tmp_path)
    assert (done.status, done.err) == (0, "")
    long, *lines = done.out.splitlines()
    fetched = "fetched 2023-11-14T22:13:20Z, fresh until"
    assert lines == [
        f"ask           http://example.com:8080  404: no restrictions  {fetched} 2023-11-14T22:13:21Z",
        "unreachable   https://down.example  none yet  since 2096-10-02T07:06:30Z: HTTP 503",
        "stale         https://stale.example  200: rules  since 2023-11-14T22:13:20Z: HTTP 500",
        f"fresh         https://www.example.com  200: rules  {fetched} 2096-10-02T07:06:40Z",
    ]
    assert long.startswith(f"fresh         http://{'a' * 200}.example  200: rules")


def test_cache_says_what_is_strange_about_an_answer(tmp_path: Path) -> None:
    page, sha256 = pack_body(b"<!DOCTYPE html><title>Shop</title>")
    keep(
        tmp_path,
        replace(FRESH, origin="https://page.example", packed=page, sha256=sha256),
        replace(MISSING, origin="https://trouble.example", status=500),
    )
    lines = cache(tmp_path).out.splitlines()
    answers = [re.split(r"  +", line)[2] for line in lines]
    assert answers == ["200: an HTML page", '500: "not found", no restrictions']


def test_the_state_is_that_by_the_rules_of_the_project(tmp_path: Path) -> None:
    """By Google's newer ones, 12 hours without a file close a site, whatever copy there is."""
    keep(tmp_path, STALE)
    settings = {**kept_in(tmp_path), "REP_UNREACHABLE_RULES": "google-2026"}
    (line,) = robots_here(tmp_path, "--cache", "--json", settings=settings).json
    assert line["state"] == "unreachable"


def test_hosts_filter_the_list(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    for hosts, found in (
        (["www.example.com"], {FRESH}),
        (["EXAMPLE.com"], {MISSING}),
        (["*example.com"], {FRESH, MISSING}),
        (["down.example", "stale.example"], {DOWN, STALE}),
        (["*"], set(ALL)),
    ):
        listed = {one["origin"] for one in cache(tmp_path, "--json", *hosts).json}
        assert listed == {one.origin for one in found}


def test_cache_shows_the_entries_of_urls(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    done = cache(tmp_path, "https://www.example.com:443/any?page", "https://down.example/")
    for text in (
        "  redirects    1, to https://example.org/robots.txt\n",
        "  failed attempts    3\n",
    ):
        assert text in done.out
    assert "\x1b" not in done.out, "a site steers the terminal"
    (shown,) = cache(tmp_path, "--json", "https://www.example.com/").json
    assert shown["body"] == BODY.decode("utf-8", "replace")


def test_drop_removes_the_entries_it_names_alone(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    assert sorted(cache(tmp_path, "--drop", "*.example").out.splitlines()) == [
        "dropped https://down.example",
        "dropped https://stale.example",
    ]
    assert kept(tmp_path) == {FRESH.origin, MISSING.origin}
    assert cache(tmp_path, "--drop", "https://down.example/").status == 1
    assert cache(tmp_path, "--drop").status == 2
    error = "scrapy: error: --drop takes hosts and URLs, not hashes"
    assert cache(tmp_path, "--drop", HASH).errors[-1] == error
    assert kept(tmp_path) == {FRESH.origin, MISSING.origin}
    cache(tmp_path, "--drop", "*")
    assert kept(tmp_path) == set()


def test_nothing_found_is_status_1_and_says_so(tmp_path: Path) -> None:
    done = cache(tmp_path)
    assert (done.status, done.err) == (1, "scrapy robots: the cache is empty\n")
    keep(tmp_path, FRESH)
    assert cache(tmp_path, f"{FRESH.origin}/", "https://example.com/").status == 1
    done = cache(tmp_path, "other.example", "https://example.com/", "0" * 64)
    assert (done.status, done.errors) == (
        1,
        [
            f"scrapy robots: robots.txt with hash {'0' * 64}: not in the cache",
            "scrapy robots: nothing cached for https://example.com",
            "scrapy robots: nothing cached for other.example",
        ],
    )


def test_a_cache_that_cannot_be_used_is_status_3(tmp_path: Path) -> None:
    (tmp_path / "robots.sqlite").mkdir()
    done = cache(tmp_path)
    (error,) = done.errors
    assert done.status == 3
    assert error.startswith("scrapy robots: the cache can't be used: ")


def test_a_full_disk_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    keep(tmp_path, *ALL)
    for arguments in ((), (HASH,)):
        with Path("/dev/full").open("w") as full:
            done = cache(tmp_path, *arguments, stdout=full)
        assert done.err == "scrapy robots: standard output: No space left on device\n"
        assert done.status == 2
