"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: files of SqliteStorage."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import SqliteStorage
from tests.helpers.behaviours import RULES
from tests.helpers.files import BROKEN, aside, ask, change
from tests.helpers.held import origin_of
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Sites
from tests.helpers.storing import (
    EARNED,
    assert_quiet,
    in_a_file,
    make_impatient,
    nothing,
    rules,
    some,
    visit,
    warning,
)

pytestmark = [pytest.mark.loop, pytest.mark.slow]

OTHERS = b"User-agent: *\nDisallow: /x\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "robots.sqlite"


@pytest.fixture
def in_file(tmp_path: Path) -> dict[str, Any]:
    return in_a_file(tmp_path)


@pytest.mark.parametrize("place", ["file/robots.sqlite", "folder", "file/a/b/robots.sqlite"])
async def test_no_place_for_a_file(sites: Sites, tmp_path: Path, place: str) -> None:
    """Below a file, or where a folder is."""
    (tmp_path / "file").write_text("somebody's")
    (tmp_path / "folder").mkdir()
    settings = {**in_a_file(tmp_path), "REP_CACHE_PATH": tmp_path / place}
    said = warning(await visit(some(sites), settings))
    assert "SqliteStorage" in said
    assert "The crawl goes on" in said
    assert str(tmp_path / place.split("/")[0]) in said
    assert (tmp_path / "file").read_text() == "somebody's"
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("kind", ["text", "another program's", "damaged within"])
async def test_a_file_that_is_not_ours(
    sites: Sites, path: Path, in_file: dict[str, Any], kind: str
) -> None:
    """It is set aside as it is, and a new one serves from then on."""
    BROKEN[kind](path)
    content = path.read_bytes()
    known = some(sites, 2)
    said = warning(await visit(known, in_file))
    [kept] = aside(path)
    assert kept.name in said
    assert kept.read_bytes() == content
    assert_quiet(await visit(known, in_file, fetched=[0, 0]))


async def test_overwritten_in_the_middle(sites: Sites, path: Path, in_file: dict[str, Any]) -> None:
    filled = SqliteStorage(path)
    for number in range(1000):
        filled.save(rules(f"http://{number}.example:80", b"%d" % number * 100))
    filled.close()
    # Different bodies: their hashes are all over the file.
    many = [sites.add(robots=f"{RULES}# {number}") for number in range(8)]

    def overwrite() -> None:
        with path.open("r+b") as file:
            file.write(b"\xaa" * path.stat().st_size)

    said = warning(await visit(many, in_file, nothing, nothing, overwrite))
    [kept] = aside(path)
    assert kept.name in said
    # What came after that is kept, at the latest what came last.
    assert_quiet(await visit(many[-1:], in_file, fetched=[0]))
    assert ask(path, "PRAGMA integrity_check") == "ok"


async def test_removed_in_the_middle(sites: Sites, path: Path, in_file: dict[str, Any]) -> None:
    """By somebody who wanted to empty the cache."""
    many = some(sites)

    def remove() -> None:
        for one in path.parent.glob(f"{path.name}*"):
            one.unlink()

    result = await visit(many, in_file, remove)
    assert len(warnings(result, without=EARNED)) <= 1
    assert_quiet(await visit(some(sites), in_file))


@pytest.mark.parametrize("held", ["BEGIN EXCLUSIVE", "PRAGMA locking_mode = EXCLUSIVE"])
async def test_a_locked_file_is_reported_and_used_again_when_free(
    sites: Sites, path: Path, in_file: dict[str, Any], held: str
) -> None:
    """By a program that holds it while the crawl runs, and longer or not so long."""
    known = some(sites, 2)
    await visit(known, in_file)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute(held)
    if held.startswith("PRAGMA"):
        other.execute("BEGIN EXCLUSIVE")
    # What can be read is read, if only writing is locked.
    result = await visit(known, in_file, fetched=[0, 0] if held.startswith("BEGIN") else [1, 1])
    assert "locked" in warning(result)
    result = await visit(some(sites), in_file, nothing, nothing, other.close)
    assert "locked" in warning(result)
    assert len(lines(result, "works again")) == 1
    assert aside(path) == []
    assert_quiet(await visit(known, in_file, fetched=[0, 0]))


async def test_a_newer_version(sites: Sites, path: Path, in_file: dict[str, Any]) -> None:
    """Two versions of this package on one file: the older one leaves it alone."""
    known = some(sites, 2)
    await visit(known, in_file)
    change(path, "PRAGMA user_version = 99")
    content = path.read_bytes()
    said = warning(await visit(known, in_file))
    assert "newer version of scrapy-rep" in said
    assert path.read_bytes() == content
    assert aside(path) == []


HEADERS = {
    "newer": '{"schema":99,"origin":{"like":"nobody knows"}}',
    "another body": rules(body=OTHERS).header(),
    "times that are none": '{"schema":1,"origin":"@","next_attempt_at":1e999,"attempts":1,'
    '"unreachable_since":1e400,"fresh_until":NaN}',
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
async def test_entries_of_another_form(
    sites: Sites, path: Path, in_file: dict[str, Any], header: str
) -> None:
    """They count as absent: one warning for all, and the file is fetched."""
    known = some(sites)
    await visit(known, in_file)
    for site in known[1:]:
        wrong = header.replace("@", origin_of(site))
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", wrong, origin_of(site))
    said = warning(await visit(known, in_file, fetched=[0, 1, 1, 1]))
    assert origin_of(known[1]) in said
    assert "Ignoring the entry of" in said
    assert_quiet(await visit(known, in_file, fetched=[0] * 4))


@pytest.mark.parametrize("query", ["DELETE FROM bodies", "UPDATE bodies SET packed = x'aa'"])
async def test_bodies_that_are_damaged(
    sites: Sites, path: Path, in_file: dict[str, Any], query: str
) -> None:
    """Never applied: fetched again, and mended by that."""
    known = some(sites, 2)
    await visit(known, in_file)
    change(path, query)
    # They had the same body: who fetches it first mends it for all.
    assert "Ignoring the entry of" in warning(await visit(known, in_file, fetched=[1, 0]))
    assert_quiet(await visit(known, in_file, fetched=[0, 0]))


async def test_a_table_that_somebody_dropped(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    await visit(some(sites, 1), in_file)
    change(path, "DROP TABLE entries")
    said = warning(await visit(some(sites), in_file))
    assert "its tables are not those of a robots.txt cache" in said
