"""REP_DECISIONS: decisions on record, in real crawls, wherever Scrapy's feed storages write."""

from __future__ import annotations

import errno
import json
import re
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from scrapy.extensions.feedexport import BlockingFeedStorage

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.reporting import record_file
from scrapy_rep.reporting.record_file import Feed
from scrapy_rep.storages import SqliteStorage
from tests.helpers.behaviours import in_turn
from tests.helpers.crawling import Clock, StepSpider, assert_ended_at_start, crawl
from tests.helpers.ftp import FtpSite
from tests.helpers.held import HOLD, a_while, assert_clean, origin_of, urls
from tests.helpers.log import lines
from tests.helpers.process import Crawl
from tests.helpers.recorded import context_of
from tests.helpers.servers import Site, Sites
from tests.reporting.conftest import Record, read

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]
RULES = "# ours\nUser-agent: *\nDisallow: /private\nAllow: /private/open\n"
HASH = sha256(RULES.encode()).hexdigest()


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(robots=RULES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().install(monkeypatch)


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_a_disallowed_request_is_one_whole_line(
    site: Site, record: Record
) -> None:
    url = site.url("/private/1")
    [one] = (
        await record([url, site.url("/page"), site.url("/private/open")])
    ).decisions
    assert re.fullmatch(r"[0-9a-f]{12}", one.pop("crawl"))
    for name in ("time", "fetched"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one.pop(name))
    assert one == {
        "url": url,
        "agent": "testbot",
        "origin": origin_of(site),
        "verdict": "disallowed",
        "rule": "Disallow: /private",
        "line": 3,
        "group": "*",
        "sha256": HASH,
        "status": 200,
        "reason": None,
        "dry_run": False,
    }


@pytest.mark.loop
async def test_held_and_released(sites: Sites, record: Record) -> None:
    site = sites.add(robots=in_turn(503, RULES))
    found = await record(StepSpider, HOLD, steps=[site.url("/private"), "data:,"])
    assert found.told("verdict", "line", "sha256", "status", "reason") == [
        ("held", None, None, None, "HTTP 503"),
        ("released", None, None, None, None),
        ("disallowed", 3, HASH, 200, None),
    ]
    assert_clean(found.result)


async def test_given_up_and_unreachable(sites: Sites, record: Record) -> None:
    down = sites.refused()
    steps = [f"{down}/1", f"{down}/2", "http://:80/x"]
    found = await record(
        StepSpider, {**HOLD, "_REP_HOLD_DEAD_HOST_TRIES": 2}, steps=steps
    )
    verdicts = ("held", "given_up", "unreachable", "unreachable")
    assert found.told("url", "verdict") == list(
        zip([steps[0], *steps], verdicts, strict=True)
    )
    _, given_up, dropped, invalid = found.decisions
    assert "; the host is down" in given_up["reason"]
    assert dropped["reason"].startswith("DownloadConnectionRefusedError: ")
    assert invalid["origin"] is None
    assert "no origin" in invalid["reason"]
    assert_clean(found.result)


async def test_by_an_older_copy(sites: Sites, record: Record, clock: Clock) -> None:
    site = sites.add(robots=in_turn(RULES, 503))
    steps = [site.url("/x"), 90000, site.url("/private")]
    found = await record(StepSpider, steps=steps, clock=clock)
    assert found.told("verdict", "line", "sha256", "reason", "fetched", "time") == [
        ("disallowed", 3, HASH, "an older copy is applied; HTTP 503",
         "2027-01-15T08:00:00.000Z", "2027-01-16T09:00:00.000Z"),
    ]  # fmt: skip
    assert [one["sha256"] for one in found.of("answer")] == [HASH, None]


async def test_after_thirty_days(sites: Sites, record: Record, clock: Clock) -> None:
    site = sites.add(robots=503)
    steps = [*[site.url("/1"), 8 * 86400] * 4, site.url("/2")]
    found = await record(StepSpider, steps=steps, clock=clock)
    assert found.told("url", "verdict", "reason")[3:] == [
        (site.url("/1"), "unreachable", "HTTP 503"),
        (
            site.url("/2"),
            "allowed",
            "unreachable for longer than REP_UNREACHABLE_LIMIT; HTTP 503",
        ),
    ]


async def test_the_body_can_be_got_back(
    sites: Sites, tmp_path: Path, record: Record, clock: Clock
) -> None:
    newer = "User-agent: *\nDisallow: /p\n"
    site, cache = sites.add(robots=in_turn(RULES, newer)), tmp_path / "robots.sqlite"
    settings = {"REP_CACHE_STORAGE": SqliteStorage, "REP_CACHE_PATH": str(cache)}
    steps = [site.url("/private"), 90000, site.url("/private")]
    found = await record(StepSpider, settings, steps=steps, clock=clock)
    storage = SqliteStorage(cache)
    bodies = [storage.body(one["sha256"]) for one in found.decisions]
    storage.close()
    assert bodies == [RULES.encode(), newer.encode()]


@pytest.mark.loop
async def test_a_second_run_appends_to_the_file(
    site: Site, path: Path, record: Record
) -> None:
    wanted = [site.url("/private/1"), site.url("/private/2")]
    for url in wanted:
        found = await record(url, {"REP_DECISIONS": path.as_uri()})
        assert len(lines(found.result, "Decisions are in")) == 1
    assert found.told("url") == [(url,) for url in wanted]


async def test_placeholders_are_filled_in_and_folders_made(
    site: Site, tmp_path: Path
) -> None:
    await crawl(
        site.url("/private"), {"REP_DECISIONS": f"{tmp_path}/new/%(name)s-%(time)s"}
    )
    [path] = tmp_path.glob("new/*")
    assert re.fullmatch(r"list-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\+00-00", path.name)
    assert len(read(path)) > 1


async def test_lines_go_to_stdout_in_few_goes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []

    class CountedWrites(BytesIO):
        def write(self, data: Any) -> int:
            writes.append(data)
            return super().write(data)

    monkeypatch.setattr(sys, "stdout", type("Stdout", (), {"buffer": CountedWrites()}))
    await crawl(urls(site, 200, "/private"), {"REP_DECISIONS": "stdout:"})
    monkeypatch.undo()
    written = [json.loads(line) for line in b"".join(writes).splitlines()]
    assert [one["line"] for one in written if one["verdict"] == "disallowed"] == [
        3
    ] * 200
    assert len(writes) < 20


async def test_an_ftp_password_is_never_shown(
    site: Site, tmp_path: Path, ftp_site: FtpSite
) -> None:
    url = ftp_site.serve(tmp_path, ("me", "secret")).url("/d.jsonl", "me:secret@")
    result = await crawl(site.url("/private"), {"REP_DECISIONS": url})
    assert len(read(tmp_path / "d.jsonl")) > 1
    assert len(lines(result, "Decisions are in ftp://me:***@")) == 1
    ours = [
        one.getMessage() for one in result.records if one.name.startswith("scrapy_rep")
    ]
    assert "secret" not in "".join(ours)
    assert_clean(result)


class SlowStorage(BlockingFeedStorage):
    stored: bytes = b""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:
        pass

    def _store_in_thread(self, file: Any) -> None:
        file.seek(0)
        type(self).stored = file.read()
        file.close()


class BrokenStorage(SlowStorage):
    def _store_in_thread(self, file: Any) -> None:
        file.close()
        raise ConnectionError("the bucket is gone")


STORAGES = {"slow": SlowStorage, "broken": BrokenStorage}


@pytest.mark.scrapy_api
async def test_a_storage_of_the_project(site: Site, tmp_path: Path) -> None:
    settings = {"FEED_STORAGES": STORAGES, "FEED_TEMPDIR": str(tmp_path)}
    result = await crawl(
        urls(site, 3, "/private"), {**settings, "REP_DECISIONS": "slow://x"}
    )
    assert SlowStorage.stored.count(b'"verdict": "disallowed"') == 3
    assert list(tmp_path.iterdir()) == []
    assert_clean(result)


@pytest.mark.parametrize(
    ("name", "value"), [("_WRITE_SECONDS", 0.02), ("_WRITE_BYTES", 1)]
)
async def test_written_as_the_crawl_goes(
    site: Site,
    path: Path,
    record: Record,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: float,
) -> None:
    monkeypatch.setattr(record_file, name, value)
    seen: list[int] = []

    class WatchingSpider(StepSpider):
        async def parse(self, response: Any, **kwargs: Any) -> Any:
            await a_while(0.1)
            seen.append([one["verdict"] for one in read(path)].count("disallowed"))
            return StepSpider.parse(self, response, **kwargs)

    steps = [
        site.url("/private/1"),
        site.url("/1"),
        site.url("/private/2"),
        site.url("/2"),
    ]
    await record(WatchingSpider, steps=steps)
    assert seen == [1, 2]


@pytest.mark.process
def test_a_kill_loses_little(sites: Sites, tmp_path: Path, path: Path) -> None:
    """No half line is left. Only a process can be killed: this one kills itself."""
    site = sites.add(robots="User-agent: *\nDisallow: /private")
    many, settings = urls(site, 350, "/private"), {"REP_DECISIONS": path}
    run = Crawl(tmp_path / "runs", many, settings, ends="SIGKILL failed 300").join()
    assert run.reason is None
    found = read(path)
    shortest = min(len(line) for line in path.read_bytes().splitlines())
    assert len(found) > 300 - record_file._WRITE_BYTES / shortest
    decided = [one["url"] for one in found if one["verdict"] == "disallowed"]
    assert len(set(decided)) == len(decided) > 10


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        # A folder where the file should be: root may write everywhere else.
        ("{path}", f"IsADirectoryError: [Errno {errno.EISDIR}] Is a directory: '{{path}}'"),
        pytest.param("/dev/full", "No space left on device", marks=pytest.mark.linux),
        ("broken://x", "ConnectionError: the bucket is gone"),
    ],
)  # fmt: skip
async def test_what_cannot_be_written_is_an_error(
    site: Site, tmp_path: Path, uri: str, error: str
) -> None:
    uri, error = uri.format(path=tmp_path), error.format(path=tmp_path)
    settings = {"REP_DECISIONS": uri, "FEED_STORAGES": STORAGES}
    result = await crawl(urls(site, 5, "/private"), settings)
    told, *lost = lines(result, level="ERROR")
    assert told.startswith(f"REP_DECISIONS: can't write to {uri}")
    # What was written is in the storage's file, but not where it was to go.
    assert lost == [f"REP_DECISIONS: {uri} lacks 8 lines that could not be written"] * (
        uri[0] == "/"
    )
    assert error in told
    assert len(result.failures) == 5
    result.assert_clean()


BAD = {
    "sftp://host/x": "can't be written: no feed storage writes to sftp:.",
    "http://me:secret@host/x": "can't be written: no feed storage writes to http:.",
    "%(nonsense)s.jsonl": "has no attribute 'nonsense'",
    "ftp:": "can't be written",
    "ftp://host:port/x": "can't be written",
    "ftp://[x": "can't be written",
}


def test_a_uri_that_nothing_can_write_to() -> None:
    for uri, why in BAD.items():
        with pytest.raises(SettingsError) as raised:
            Feed(context_of(), "REP_DECISIONS", uri, overwrite=True)
        said = str(raised.value)
        assert said.startswith(f"REP_DECISIONS is {uri.replace('secret', '***')!r}, ")
        assert why in said


@pytest.mark.parametrize("setting", ["REP_DECISIONS", "REP_REPORT"])
async def test_a_wrong_uri_ends_the_crawl_at_its_start(
    site: Site, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    for name in ("boto3", "boto3.session"):
        monkeypatch.setitem(sys.modules, name, None)
    result = await crawl(site.url("/"), {setting: "s3://bucket/x"})
    why = (
        f"{setting} is 's3://bucket/x', which can't be written: missing boto3 library."
    )
    assert_ended_at_start(result, site, why)
