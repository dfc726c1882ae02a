"""`scrapy robots --report FILE…`: the report of crawls, from their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry, SqliteStorage
from scrapy_rep.storages.entry import pack_body
from tests.helpers.report import answer, line, many_lines, started
from tests.helpers.robots_command import project, robots

pytestmark = pytest.mark.process

__all__ = ["project"]

A = "http://a.example"


def test_two_crawls_side_by_side_with_what_the_storage_has(project: Path) -> None:
    """Files that only the storage has: lines around the rule, and what changed between the crawls."""
    bodies = [b"User-agent: *\nDisallow: /old\n", b"User-agent: *\nDisallow: /new\n# Not for you\n"]
    (_, old), (_, new) = map(pack_body, bodies)
    storage = SqliteStorage(project / "robots.sqlite")
    for body in bodies:
        packed, sha256 = pack_body(body)
        about = {"packed": packed, "sha256": sha256, "updated_at": 1.8e9, "fetched_at": 1.8e9}
        storage.save(Entry(A, outcome=Outcome.RULES, status=200, fresh_until=4e9, **about))  # type: ignore[arg-type]
    storage.close()
    refused = {"url": f"{A}/new", "rule": "Disallow: /new", "line": 2, "group": "*", "sha256": new}
    first = [started("monday"), answer("rules", 1, A, sha256=old)]
    second = [started("tuesday"), answer("rules", 90, A, sha256=new)]
    second += [line("disallowed", 91, A, **refused)]
    (project / "1.jsonl").write_bytes(b"".join(first))
    others = [json.dumps({**json.loads(one), "crawl": "b" * 12}) + "\n" for one in second]
    (project / "2.jsonl").write_text("".join(others))
    settings = {
        "REP_CACHE_STORAGE": "scrapy_rep.storages.SqliteStorage",
        "REP_CACHE_PATH": str(project / "robots.sqlite"),
    }
    done = robots(project, "--report", "1.jsonl", "2.jsonl", settings=settings)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("<!DOCTYPE html>")
    for text in ("monday", "tuesday", "Disallow: /old", "# Not for you"):
        assert text in done.out


def test_what_is_no_record(project: Path) -> None:
    (project / "bad.jsonl").write_bytes(b"\xff\n[]\n")
    done = robots(project, "--report", "bad.jsonl")
    assert done.status == 0
    assert "could not be read: 2." in done.err
    assert robots(project, "--report").status == 2
    done = robots(project, "--report", "nowhere.jsonl")
    assert (done.status, done.out) == (2, "")
    assert "nowhere.jsonl: No such file or directory" in done.err
    (project / "m.jsonl").write_bytes(b"".join(many_lines(3)))
    assert "</html>" in robots(project, "--report", "m.jsonl").out
