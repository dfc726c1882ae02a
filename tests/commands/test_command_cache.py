"""`scrapy robots --cache` in a real project: what a crawl has left in the storage is listed, shown
and dropped (REP.md section 5)."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry, SqliteStorage
from scrapy_rep.storages.entry import pack_body
from tests.helpers.behaviours import silence
from tests.helpers.process import PATIENCE, command, environment
from tests.helpers.process.forked import ScrapyProcess
from tests.helpers.servers import Sites

pytestmark = pytest.mark.process

BODY = b"User-agent: *\nDisallow: /private\n# \xe9 \x1b[31m\n"
HASH = hashlib.sha256(BODY).hexdigest()
LONG_AGO, FAR_OFF = 1_700_000_000.0, 4_000_000_000.0

SPIDER = """
import scrapy

class OneSpider(scrapy.Spider):
    name = "one"

    def __init__(self, urls, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split(",")

    def parse(self, response):
        pass
"""

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


class Project:
    """A Scrapy project with a spider."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        package = folder / "project"
        package.mkdir(parents=True)
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.settings\n")
        (package / "__init__.py").touch()
        (package / "spider.py").write_text(SPIDER)
        self.settings(REP_CACHE_STORAGE="scrapy_rep.storages.SqliteStorage")

    @property
    def file(self) -> Path:
        return self.folder / ".scrapy" / "robots.sqlite"

    def settings(self, **settings: Any) -> None:
        values = {
            "ADDONS": {"scrapy_rep.Addon": 300},
            "SPIDER_MODULES": ["project.spider"],
            "USER_AGENT": "testbot/1.0",
            "REP_UNREACHABLE": "drop",
            "REP_DOWNLOAD_TIMEOUT": 3,
            "TELNETCONSOLE_ENABLED": False,
            **settings,
        }
        lines = [f"{name} = {value!r}\n" for name, value in values.items()]
        (self.folder / "project" / "settings.py").write_text("".join(lines))

    def keep(self, *entries: Entry) -> None:
        storage = SqliteStorage(self.file)
        for entry in entries:
            storage.save(entry)
        storage.close()

    def kept(self) -> set[str]:
        storage = SqliteStorage(self.file)
        origins = {one.origin for one in storage.entries() if isinstance(one, Entry)}
        storage.close()
        return origins

    def scrapy(self, *arguments: str, status: int = 0) -> tuple[bytes, str]:
        """Run it to its end; return what it printed, and its log."""
        with TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            process = ScrapyProcess(
                arguments, cwd=self.folder, variables=environment(), output=output, errors=errors
            )
            ended = process.wait(PATIENCE)
            log = errors.read_text("utf-8")
            assert ended == status, log
            assert "Traceback" not in log, log
            return output.read_bytes(), log

    def cache(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        output, errors = self.scrapy("robots", "--cache", *arguments, status=status)
        return output.decode(), errors


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "folder")


def test_cache_shows_what_a_crawl_has_learnt(sites: Sites, project: Project) -> None:
    rules, missing, silent = (sites.add(robots=one) for one in (BODY, 404, silence()))
    urls = [site.url("/private") for site in (rules, missing, silent)]
    project.scrapy("crawl", "one", "-a", f"urls={','.join(urls)}")

    output, _ = project.cache("--json")
    entries = {one["origin"]: one for one in map(json.loads, output.splitlines())}
    origins = [site.url("") for site in (rules, missing, silent)]
    assert sorted(entries) == sorted(origins)
    states = [(entries[one]["state"], entries[one]["outcome"]) for one in origins]
    assert states == [("fresh", "rules"), ("fresh", "missing"), ("unreachable", "unreachable")]
    assert entries[origins[0]]["sha256"] == HASH
    assert entries[origins[2]]["attempts"] == 1
    assert "Timeout" in entries[origins[2]]["error"]

    output, _ = project.cache(urls[0])
    assert output.startswith(f"fresh  {origins[0]}\n")
    assert project.scrapy("robots", "--cache", HASH)[0] == BODY

    # Dropped: asked for again.
    assert project.cache("--drop", urls[0])[0] == f"dropped {origins[0]}\n"
    project.scrapy("crawl", "one", "-a", f"urls={','.join(urls[:2])}")
    assert [site.count("/robots.txt") for site in (rules, missing)] == [2, 1]


def test_cache_lists_each_entry_on_a_line(project: Project) -> None:
    """With the origin whole, and the state in the word that JSON has for it."""
    project.keep(*ALL, replace(FRESH, origin="http://" + "a" * 200 + ".example"))
    output, errors = project.cache()
    assert errors == ""
    long, *lines = output.splitlines()
    fetched = "fetched 2023-11-14T22:13:20Z, fresh until"
    assert lines == [
        f"ask           http://example.com:8080  404: no restrictions  {fetched} 2023-11-14T22:13:21Z",
        "unreachable   https://down.example  none yet  since 2096-10-02T07:06:30Z: HTTP 503",
        "stale         https://stale.example  200: rules  since 2023-11-14T22:13:20Z: HTTP 500",
        f"fresh         https://www.example.com  200: rules  {fetched} 2096-10-02T07:06:40Z",
    ]
    assert long.startswith(f"fresh         http://{'a' * 200}.example  200: rules")


def test_cache_says_what_is_strange_about_an_answer(project: Project) -> None:
    page, sha256 = pack_body(b"<!DOCTYPE html><title>Shop</title>")
    project.keep(
        replace(FRESH, origin="https://page.example", packed=page, sha256=sha256),
        replace(MISSING, origin="https://trouble.example", status=500),
    )
    output, _ = project.cache()
    answers = [re.split(r"  +", line)[2] for line in output.splitlines()]
    assert answers == ["200: an HTML page", '500: "not found", no restrictions']


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (["www.example.com"], {FRESH}),
        (["EXAMPLE.com"], {MISSING}),
        (["*example.com"], {FRESH, MISSING}),
        (["down.example", "stale.example"], {DOWN, STALE}),
        (["*"], set(ALL)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_hosts_filter_the_list(project: Project, hosts: list[str], found: set[Entry]) -> None:
    project.keep(*ALL)
    output, _ = project.cache("--json", *hosts)
    origins = {json.loads(line)["origin"] for line in output.splitlines()}
    assert origins == {one.origin for one in found}


def test_cache_shows_the_entries_of_urls(project: Project) -> None:
    project.keep(*ALL)
    output, _ = project.cache("https://www.example.com:443/any?page", "https://down.example/")
    assert f"  SHA-256      {HASH}\n" in output
    assert "  redirects    1, to https://example.org/robots.txt\n" in output
    assert "  fetched      2023-11-14T22:13:20Z\n" in output
    assert "\nUser-agent: *\nDisallow: /private\n" in output
    assert "\x1b" not in output, "a site steers the terminal"
    assert "  failed attempts    3\n" in output
    shown = json.loads(project.cache("--json", "https://www.example.com/")[0])
    assert shown["body"] == BODY.decode("utf-8", "replace")


def test_drop_removes_the_entries_it_names_alone(project: Project) -> None:
    project.keep(*ALL)
    output, _ = project.cache("--drop", "*.example")
    assert sorted(output.splitlines()) == [
        "dropped https://down.example",
        "dropped https://stale.example",
    ]
    assert project.kept() == {FRESH.origin, MISSING.origin}
    project.cache("--drop", "https://down.example/", status=1)
    _, errors = project.cache("--drop", status=2)
    assert "'*' drops everything" in errors
    assert project.kept() == {FRESH.origin, MISSING.origin}
    project.cache("--drop", "*")
    assert project.kept() == set()


def test_nothing_found_is_status_1_and_says_so(project: Project) -> None:
    _, errors = project.cache(status=1)
    assert errors == "scrapy robots: the cache is empty\n"
    _, errors = project.cache("www.example.com", "https://example.com/", HASH, status=1)
    assert errors.splitlines() == [
        f"scrapy robots: robots.txt with hash {HASH}: not in the cache",
        "scrapy robots: nothing cached for https://example.com",
        "scrapy robots: nothing cached for www.example.com",
    ]


def test_a_cache_that_cannot_be_used_is_status_3(project: Project) -> None:
    project.settings(
        REP_CACHE_STORAGE="scrapy_rep.storages.SqliteStorage",
        REP_CACHE_PATH=str(project.folder / "scrapy.cfg" / "x"),
    )
    _, errors = project.cache(status=3)
    assert errors.startswith("scrapy robots: the cache can't be used: ")
    assert len(errors.splitlines()) == 1


def test_a_full_disk_is_not_blamed_on_the_cache(project: Project) -> None:
    project.keep(*ALL)
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(command('robots', '--cache'))} >/dev/full"],
        cwd=project.folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.stderr == "scrapy robots: standard output: No space left on device\n"
    assert done.returncode == 2
