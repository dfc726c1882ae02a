"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: disks that are full or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, answer
from tests.helpers.files import Disk, aside, ask
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import (
    EARNED,
    assert_quiet,
    in_a_file,
    make_impatient,
    nothing,
    some,
    visit,
    warning,
)

pytestmark = pytest.mark.loop

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


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", "600k")
    yield made
    made.close()


def large(sites: Sites, count: int, size: int = 10_000) -> list[Site]:
    """Sites whose files can't be made smaller than *size* (bytes)."""
    return [
        sites.add(robots=answer(RULES.encode() + b"#" + os.urandom(size).hex().encode()))
        for _ in range(count)
    ]


@pytest.mark.process
async def test_a_full_disk(sites: Sites, disk: Disk) -> None:
    """What does not fit is not kept; what was kept is not lost."""
    settings = in_a_file(disk.folder)
    path = disk.folder / "robots.sqlite"
    first = some(sites, 2)
    await visit(first, settings)
    ballast = disk.folder / "ballast"
    ballast.write_bytes(bytes(150_000))
    result = await visit(large(sites, 12, 100_000), settings)
    said = warnings(result, without=EARNED)
    assert len(said) == len(lines(result, "works again")) + 1
    assert "database or disk is full" in said[0]
    assert "The crawl goes on" in said[0]
    assert aside(path) == []
    disk.fill()
    assert "The crawl goes on" in warning(await visit(large(sites, 3), settings))
    # SQLite needs some room to read, too.
    ballast.unlink()
    await visit(first, settings, fetched=[0, 0])
    assert ask(path, "PRAGMA integrity_check") == "ok"


@pytest.mark.process
async def test_there_is_room_again(sites: Sites, disk: Disk) -> None:
    settings = in_a_file(disk.folder)
    many = large(sites, 6)
    result = await visit(many, settings, disk.fill, nothing, nothing, disk.filler.unlink)
    # One for each time that there was none: SQLite makes some room itself when it cleans up.
    told, again = len(warnings(result, without=EARNED)), len(lines(result, "works again"))
    assert told == again >= 1
    assert_quiet(await visit(many[-1:], settings, fetched=[0]))


@pytest.mark.process
async def test_a_crawl_works_without_its_cache_on_a_read_only_disk(
    sites: Sites, disk: Disk
) -> None:
    """From the beginning, or from some moment on."""
    settings = in_a_file(disk.folder)
    known = some(sites)
    disk.read_only()
    said = warning(await visit(known, settings))
    assert "SqliteStorage" in said
    assert list(disk.folder.iterdir()) == []
    disk.read_only(False)
    assert_quiet(await visit(known, settings))
    disk.read_only()
    assert "SqliteStorage" in warning(await visit(some(sites), settings))
    disk.read_only(False)
    assert_quiet(await visit(known, settings, fetched=[0] * 4))


def immutable(path: Path, on: bool) -> bool:
    """Let nobody change the file, root neither. Return whether that can be done here."""
    chattr = shutil.which("chattr")
    line = [str(chattr), "+i" if on else "-i", str(path)]
    return chattr is not None and subprocess.run(line, check=False).returncode == 0


@pytest.mark.process
async def test_a_file_that_can_not_be_changed(
    sites: Sites, path: Path, in_file: dict[str, Any]
) -> None:
    """What is in it is read all the same."""
    known = some(sites)
    await visit(known, in_file)
    if not immutable(path, True):
        pytest.skip("can't make a file immutable: needs root, and chattr")
    try:
        result = await visit(known, in_file, fetched=[0] * 4)
        assert "readonly" in warning(result)
        assert result.stat("rep/cache/recalled") == 4
        assert "readonly" in warning(await visit(some(sites), in_file))
    finally:
        immutable(path, False)
    assert aside(path) == []
    assert_quiet(await visit(known, in_file, fetched=[0] * 4))
