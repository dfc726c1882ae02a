"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: files of SqliteStorage, disks, classes of the user's."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import Entry, SqliteStorage, Storage
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.files import Disk, aside, ask, change
from tests.helpers.held import origin_of
from tests.helpers.log import lines
from tests.helpers.servers import Sites
from tests.helpers.storing import (
    assert_quiet,
    in_a_file,
    make_impatient,
    nothing,
    rules,
    some,
    visit,
    warning,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)


@pytest.fixture
def in_file(tmp_path: Path) -> dict[str, Any]:
    return in_a_file(tmp_path)


# Files


async def test_no_place_for_a_file(sites: Sites, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("somebody's")
    settings = {**in_a_file(tmp_path), "REP_CACHE_PATH": tmp_path / "file/a/robots.sqlite"}
    said = warning(await visit(some(sites, 2), settings))
    assert "SqliteStorage" in said
    assert "The crawl goes on" in said
    assert str(tmp_path / "file") in said
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.loop
async def test_overwritten_in_the_middle(sites: Sites, path: Path, in_file: dict[str, Any]) -> None:
    filled = SqliteStorage(path)
    filled.save_many([rules(f"http://{n}.example:80", b"%d" % n * 100) for n in range(1000)])
    filled.close()
    # Different bodies: their hashes are all over the file.
    many = [sites.add(robots=f"{RULES}# {number}") for number in range(4)]

    def overwrite() -> None:
        with path.open("r+b") as file:
            file.write(b"\xaa" * path.stat().st_size)

    said = warning(await visit(many, in_file, nothing, nothing, overwrite))
    [kept] = aside(path)
    assert kept.name in said
    # What came after that is kept, at the latest what came last.
    assert_quiet(await visit(many[-1:], in_file, fetched=[0]))
    assert ask(path, "PRAGMA integrity_check") == "ok"


@pytest.mark.loop
async def test_a_locked_file_is_reported_and_used_again_when_free(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    """By a program that holds it while the crawl runs."""
    known = some(sites, 1)
    await visit(known, in_file)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    result = await visit(some(sites, 3), in_file, nothing, other.close)
    assert "locked" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert aside(path) == []
    assert_quiet(await visit(known, in_file, fetched=[0]))


async def test_what_is_broken_in_the_file_is_fetched_again(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    """Entries, and bodies: one warning for all, and it is mended by that."""
    known = [sites.add(robots=f"{RULES}# {number}") for number in range(5)]
    await visit(known, in_file)
    too_large = json.dumps({**json.loads(rules(origin_of(known[2])).header()), "fetched_at": 1e300})
    headers = ['{"schema":99,"origin":{"like":"nobody knows"}}', too_large, b"\xff\xfe{}"]
    for site, header in zip(known[1:], headers, strict=False):
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", header, origin_of(site))
    damage = "UPDATE bodies SET packed = x'aa' WHERE sha256 = (SELECT sha256 FROM entries WHERE origin = ?)"
    change(path, damage, origin_of(known[4]))
    said = warning(await visit(known, in_file, fetched=[0, 1, 1, 1, 1]))
    assert f"Ignoring the robots.txt cache's entry for {origin_of(known[1])}" in said
    assert_quiet(await visit(known, in_file, fetched=[0] * 5))


# Disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", "600k")
    yield made
    made.close()


@pytest.mark.process
async def test_a_read_only_disk(sites: Sites, disk: Disk) -> None:
    """The crawl works without its cache, before there is a file and afterwards."""
    settings, known = in_a_file(disk.folder), some(sites, 2)
    disk.read_only()
    assert "SqliteStorage" in warning(await visit(known, settings))
    assert list(disk.folder.iterdir()) == []
    disk.read_only(False)
    assert_quiet(await visit(known, settings))
    disk.read_only()
    assert "SqliteStorage" in warning(await visit(some(sites, 2), settings))
    disk.read_only(False)
    assert_quiet(await visit(known, settings, fetched=[0, 0]))


def immutable(path: Path, on: bool) -> bool:
    """Let nobody change the file, root neither. Return whether that can be done here."""
    chattr = shutil.which("chattr")
    line = [str(chattr), "+i" if on else "-i", str(path)]
    return chattr is not None and subprocess.run(line, check=False).returncode == 0


@pytest.mark.process
async def test_a_file_that_can_not_be_changed_is_read(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    known = some(sites, 2)
    await visit(known, in_file)
    if not immutable(path, True):
        pytest.skip("can't make a file immutable: needs root, and chattr")
    try:
        result = await visit([*known, *some(sites, 2)], in_file, fetched=[0, 0, 1, 1])
    finally:
        immutable(path, False)
    assert "readonly" in warning(result)
    assert result.stat("rep/cache/recalled") == 2
    assert aside(path) == []
    assert_quiet(await visit(known, in_file, fetched=[0, 0]))


# Classes


class Fails(Storage):
    """Does nothing right."""

    def load(self, origin: str) -> Entry | None:
        raise ZeroDivisionError("a bug of the user's")

    save = lease = release = purge = load  # type: ignore[assignment]

    def close(self) -> None:
        raise ZeroDivisionError("a bug of the user's")


@pytest.mark.loop
async def test_a_class_that_raises(sites: Sites) -> None:
    result = await visit(some(sites), {"REP_CACHE_STORAGE": Fails})
    said = warning(result)
    assert "(Fails)" in said
    assert "ZeroDivisionError: a bug of the user's" in said
    assert result.stat("rep/cache/unsaved") == 4
    assert lines(result, "works again") == []


async def test_a_missing_package_ends_the_crawl_before_a_fetch(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "scrapy_rep.storages.redis", raising=False)
    [site] = some(sites, 1)
    settings = {"REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage"}
    result = await crawl(site.url("/x"), settings)
    assert result.reason == "rep_settings_error"
    [error] = lines(result, level="ERROR")
    assert error.startswith("REP_CACHE_STORAGE is 'scrapy_rep.storages.RedisStorage', which can't")
    assert "pip install scrapy-rep[redis]" in error
    assert "Traceback" not in result.log
    assert site.requests == []
