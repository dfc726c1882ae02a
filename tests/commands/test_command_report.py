"""`scrapy robots --report FILE…`: the report of crawls, from their records."""

from __future__ import annotations

import json
from pathlib import Path

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry, SqliteStorage
from scrapy_rep.storages.entry import pack_body
from tests.helpers.report import answer, line, many_lines, started
from tests.helpers.robots_command import robots_here

A = "http://a.example"


def test_two_crawls_side_by_side_with_what_the_storage_has(tmp_path: Path) -> None:
    """Files that only the storage has: lines around the rule, and what changed between the crawls."""
    bodies = [b"User-agent: *\nDisallow: /old\n", b"User-agent: *\nDisallow: /new\n# Not for you\n"]
    (_, old), (_, new) = map(pack_body, bodies)
    storage = SqliteStorage(tmp_path / "robots.sqlite")
    for body in bodies:
        packed, sha256 = pack_body(body)
        about = {"packed": packed, "sha256": sha256, "updated_at": 1.8e9, "fetched_at": 1.8e9}
        storage.save(Entry(A, outcome=Outcome.RULES, status=200, fresh_until=4e9, **about))  # type: ignore[arg-type]
    storage.close()
    refused = {"url": f"{A}/new", "rule": "Disallow: /new", "line": 2, "group": "*", "sha256": new}
    first = [started("monday"), answer("rules", 1, A, sha256=old)]
    second = [started("tuesday"), answer("rules", 90, A, sha256=new)]
    second += [line("disallowed", 91, A, **refused)]
    (tmp_path / "1.jsonl").write_bytes(b"".join(first))
    others = [json.dumps({**json.loads(one), "crawl": "b" * 12}) + "\n" for one in second]
    (tmp_path / "2.jsonl").write_text("".join(others))
    path = str(tmp_path / "robots.sqlite")
    settings = {"REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage", "REP_CACHE_PATH": path}
    done = robots_here(tmp_path, "--report", "1.jsonl", "2.jsonl", settings=settings)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("<!DOCTYPE html>")
    for text in ("monday", "tuesday", "Disallow: /old", "# Not for you"):
        assert text in done.out


def test_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\n[]\n")
    done = robots_here(tmp_path, "--report", "bad.jsonl")
    assert done.status == 0
    assert "could not be read: 2." in done.err
    (tmp_path / "m.jsonl").write_bytes(b"".join(many_lines(3)))
    assert "</html>" in robots_here(tmp_path, "--report", "m.jsonl").out


def test_a_report_needs_neither_the_cache_nor_somewhere_to_go(tmp_path: Path) -> None:
    refused = {"url": f"{A}/x", "rule": "Disallow: /x", "line": 2, "group": "*", "sha256": "0" * 64}
    (tmp_path / "m.jsonl").write_bytes(
        started() + answer("rules", 1, A, sha256="0" * 64) + line("disallowed", 2, A, **refused)
    )
    (tmp_path / "robots.sqlite").mkdir()
    path = str(tmp_path / "robots.sqlite")
    settings = {"REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage", "REP_CACHE_PATH": path}
    done = robots_here(tmp_path, "--report", "m.jsonl", settings=settings)
    assert done.status == 0
    assert "the cache can't be used: " in done.err
    assert "</html>" in done.out
    with Path("/dev/full").open("w") as full:
        done = robots_here(tmp_path, "--report", "m.jsonl", stdout=full)
    assert done.errors == ["scrapy robots: standard output: No space left on device"]
