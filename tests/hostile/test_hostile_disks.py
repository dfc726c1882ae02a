"""Files that vanish, disks that are full, and entries that can't be read, beside others that can."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import IO, Any

import pytest

from scrapy_rep.reporting import record_file
from scrapy_rep.reporting.record_file import append
from scrapy_rep.storages import SqliteStorage
from scrapy_rep.text import counted
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import StepSpider, crawl
from tests.helpers.files import change
from tests.helpers.held import a_while, origin_of, urls
from tests.helpers.log import lines, warnings
from tests.helpers.recorded import decisions, lines_of
from tests.helpers.robots_command import robots_here
from tests.helpers.servers import Sites
from tests.helpers.storing import A, B, in_a_file, missing, rules


@pytest.mark.parametrize("gone", ["", "-wal -shm", "-wal -shm .lock", "replaced"])
def test_a_file_that_is_gone(tmp_path: Path, gone: str) -> None:
    path, other = tmp_path / "robots.sqlite", SqliteStorage(tmp_path / "other.sqlite")
    storage = SqliteStorage(path)
    storage.save(rules(A))
    other.save(missing(B))
    other.close()
    replaced = gone == "replaced"
    for suffix in ["", *("-wal -shm" if replaced else gone).split()]:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if replaced:
        (tmp_path / "other.sqlite").rename(path)
    assert storage.load(A) is None
    assert storage.load(B) == (missing(B) if replaced else None)
    storage.save(rules(A))
    reader = SqliteStorage(path)
    assert reader.load(A) == rules(A), "another process finds it"
    reader.close()
    storage.close()


@pytest.mark.loop
async def test_deleted_in_a_crawl(sites: Sites, tmp_path: Path) -> None:
    stored = in_a_file(tmp_path)
    path: Path = stored["REP_CACHE_PATH"]
    before, after = sites.add(robots=RULES), sites.add(robots=RULES)
    result = await crawl(
        StepSpider, stored, steps=[before.url("/x"), path.unlink, after.url("/x")]
    )
    result.assert_clean()
    assert warnings(result) == []
    storage = SqliteStorage(path)
    assert storage.load(origin_of(after)) is not None
    storage.close()


class SmallDisk(io.FileIO):
    """A file on a disk that has room for so many bytes."""

    room = 0

    def write(self, data: Any) -> int:
        some = bytes(data)[: SmallDisk.room]
        if not some:
            raise OSError(errno.ENOSPC, "No space left on device")
        SmallDisk.room -= len(some)
        return super().write(some)

    def truncate(self, size: int | None = None) -> int:
        SmallDisk.room += self.seek(0, io.SEEK_END) - (size or 0)
        return super().truncate(size)


class SmallDiskStorage:
    def __init__(self, uri: str, *, feed_options: Any = None) -> None:
        self.path = uri.removeprefix("small:")

    def open(self, spider: Any) -> IO[bytes]:
        return io.BufferedWriter(SmallDisk(self.path, "ab"))

    def store(self, file: IO[bytes]) -> None:
        file.close()


@pytest.mark.parametrize("room", [0, 4, 6, 9, 27, 30])
def test_complete_lines_alone(tmp_path: Path, room: int) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"an earlier run\n")
    SmallDisk.room = room
    whole = b"first\nsecond\nthird, longer\n\n"
    left = bytearray(whole)
    with SmallDisk(path, "ab") as file:
        if room < len(whole):
            with pytest.raises(OSError, match="No space left"):
                append(file, left)
            text = path.read_bytes()
            assert text.endswith(b"\n")
            assert text + left == b"an earlier run\n" + whole
            SmallDisk.room = 1000
        append(file, left)
    assert left == b""
    assert path.read_bytes() == b"an earlier run\n" + whole


def test_what_another_process_wrote_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"

    class SharedDisk(SmallDisk):
        def write(self, data: Any) -> int:
            try:
                return super().write(data)
            except OSError:
                with path.open("ab") as other:
                    other.write(b"theirs\n")
                raise

    SmallDisk.room = 3
    with SharedDisk(path, "ab") as file, pytest.raises(OSError, match="No space left"):
        append(file, bytearray(b"first\n"))
    assert path.read_bytes() == b"firtheirs\n"


@pytest.mark.parametrize("again", [True, False])
async def test_decisions_on_a_full_disk(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(record_file, "_WRITE_SECONDS", 0.01)
    monkeypatch.setattr(record_file, "_MAX_WAITING_BYTES", 100_000 if again else 1)
    site, path = sites.add(robots=RULES), tmp_path / "d.jsonl"
    SmallDisk.room = 2000
    seen: list[int] = []

    class WaitingSpider(StepSpider):
        async def parse(self, response: Any, **kwargs: Any) -> Any:
            for _ in range(2):
                await a_while(0.1)
                text = path.read_bytes()
                assert text == b"" or text.endswith(b"\n")
                seen.append(text.count(b"\n"))
                if again or response.url.endswith("/2"):
                    SmallDisk.room = 1_000_000
            return StepSpider.parse(self, response, **kwargs)

    steps = [
        *urls(site, 4, "/private"),
        site.url("/1"),
        site.url("/private/last"),
        site.url("/2"),
    ]
    settings = {
        "REP_DECISIONS": f"small:{path}",
        "FEED_STORAGES": {"small": SmallDiskStorage},
    }
    result = await crawl(WaitingSpider, settings, steps=steps)
    result.assert_clean()
    records, errors = decisions(path), lines(result, level="ERROR")
    assert 2 < seen[0] < 6
    assert (seen[1] > seen[0]) is again
    assert "Until that works, decisions wait" in errors[0]
    assert len(errors) == (1 if again else 2)
    if again:
        assert [one["url"] for one in records] == [*urls(site, 4, "/private"), steps[5]]
    else:  # of five decisions, an answer, the allowed, the beginning and the end
        assert f"lacks {counted(9 - len(lines_of(path)), 'line')}" in errors[1]


def test_others_are_shown(tmp_path: Path) -> None:
    stored = in_a_file(tmp_path)
    path, storage = stored["REP_CACHE_PATH"], SqliteStorage(stored["REP_CACHE_PATH"])
    a, b, c, d, e = (f"http://{name}.example" for name in "abcde")
    storage.save_many(
        [*map(rules, (a, b, c, d)), rules(e, b"User-agent: *\nDisallow: /e\n")]
    )
    storage.close()
    for origin, header in {
        b: rules(b).header().replace(b, "nonsense"),
        c: b"\xff\xfe{}",
        d: rules(d).header().replace("{", '{"hops":1e300,', 1),
    }.items():
        change(path, "UPDATE entries SET header = ? WHERE origin = ?", header, origin)
    for how in ((), ("--json", "a.example")):
        done = robots_here(tmp_path, "--cache", *how, settings=stored)
        assert [one for one in (a, b, c, d) if one in done.out] == [a]
        [line] = done.err.splitlines()
        assert line.startswith(
            "scrapy robots: skipped 3 unreadable entries; the first: "
        )
    damaged = rules(a).sha256
    change(path, "UPDATE bodies SET packed = x'00' WHERE sha256 = ?", damaged)
    done = robots_here(
        tmp_path, "--cache", f"{a}/", f"{e}/", str(damaged), settings=stored
    )
    assert "Disallow: /e" in done.out
    assert len(done.errors) == 2
    assert "the cache can't be used" not in done.err
