"""REP_DECISIONS: the audit trail, in real crawls, wherever Scrapy's feed storages write."""

from __future__ import annotations

import errno
import json
import re
import sys
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.reporting import audit_trail as trail
from scrapy_rep.reporting.audit_trail import Feed
from scrapy_rep.reporting.record import OTHERS
from scrapy_rep.storages import SqliteStorage
from tests.helpers.behaviours import in_turn
from tests.helpers.crawling import Clock, CrawlResult, StepSpider, assert_ended_at_start, crawl
from tests.helpers.ftp import FtpSite
from tests.helpers.held import DEFER, a_while, assert_clean, origin_of, urls
from tests.helpers.log import lines
from tests.helpers.process import Crawl
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]

RULES = "# ours\nUser-agent: *\nDisallow: /private\nAllow: /private/open\n"
HASH = sha256(RULES.encode()).hexdigest()

FIELDS = [
    "time", "url", "agent", "origin", "verdict", "rule", "line", "group", "sha256", "fetched",
    "status", "reason", "dry_run", "crawl",
]  # fmt: skip


def records(path: Path) -> list[dict[str, Any]]:
    """The decisions in a file; each line is complete and has all fields, in their order."""
    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert [name for name in one if name in FIELDS] == FIELDS
        datetime.fromisoformat(one["time"].replace("Z", "+00:00"))
    return [one for one in found if one["verdict"] not in OTHERS]


def told(found: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(one[field] for field in fields) for one in found]


# -- what is written -------------------------------------------------------------------------


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_a_disallowed_request_is_one_whole_line(sites: Sites, tmp_path: Path) -> None:
    site, path = sites.add(robots=RULES), tmp_path / "decisions.jsonl"
    url = site.url("/private/1")
    await crawl([url, site.url("/page"), site.url("/private/open")], {"REP_DECISIONS": str(path)})
    [one] = records(path)
    assert re.fullmatch(r"[0-9a-f]{12}", one.pop("crawl"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one.pop("time"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one.pop("fetched"))
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


async def test_allowed_requests_are_written_too_if_wanted(sites: Sites, tmp_path: Path) -> None:
    """REP_DECISIONS_ALL: what is allowed too, by which line if it was one."""
    rules, missing, path = sites.add(robots=RULES), sites.add(robots=404), tmp_path / "d.jsonl"
    steps = [rules.url("/private/open"), rules.url("/x"), missing.url("/x"), rules.url("/private")]
    result = await crawl(
        StepSpider,
        {"REP_DECISIONS": str(path), "REP_DECISIONS_ALL": True, "REP_USER_AGENT": "foo,testbot"},
        steps=[*steps, Request(rules.url("/y"), meta={"dont_obey_robotstxt": True})],
    )
    assert told(records(path), "url", "agent", "verdict", "line", "group", "sha256", "status") == [
        (steps[0], "foo,testbot", "allowed", 4, "*", HASH, 200),
        (steps[1], "foo,testbot", "allowed", None, "*", HASH, 200),
        (steps[2], "foo,testbot", "allowed", None, None, None, 404),
        (steps[3], "foo,testbot", "disallowed", 3, "*", HASH, 200),
    ]
    assert_clean(result)


@pytest.mark.loop
async def test_held_and_released(sites: Sites, tmp_path: Path) -> None:
    site, path = sites.add(robots=in_turn(503, RULES)), tmp_path / "d.jsonl"
    result = await crawl(
        StepSpider, {**DEFER, "REP_DECISIONS": str(path)}, steps=[site.url("/private"), "data:,"]
    )
    fields = ("verdict", "line", "sha256", "status", "reason")
    assert told(records(path), *fields) == [
        ("held", None, None, None, "HTTP 503"),
        ("released", None, None, None, None),
        ("disallowed", 3, HASH, 200, None),
    ]
    assert_clean(result)


async def test_given_up_and_unreachable(sites: Sites, tmp_path: Path) -> None:
    down, path = sites.refused(), tmp_path / "d.jsonl"
    steps: list[Any] = [f"{down}/1", f"{down}/2", "http://:80/x"]
    result = await crawl(
        StepSpider,
        {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 2, "REP_DECISIONS": str(path)},
        steps=steps,
    )
    found = records(path)
    assert told(found, "url", "verdict") == [
        (steps[0], "held"),
        (steps[0], "given_up"),
        (steps[1], "unreachable"),
        ("http://:80/x", "unreachable"),
    ]
    assert "; the host is down" in found[1]["reason"]
    assert found[2]["reason"].startswith("DownloadConnectionRefusedError: ")
    assert found[3]["origin"] is None
    assert "no origin" in found[3]["reason"]
    assert_clean(result)


async def test_by_an_older_copy(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, with the hash of the copy and when that was fetched."""
    clock = Clock().install(monkeypatch)
    site, path = sites.add(robots=in_turn(RULES, 503)), tmp_path / "d.jsonl"
    steps = [site.url("/x"), 90000, site.url("/private")]
    await crawl(StepSpider, {"REP_DECISIONS": str(path)}, steps=steps, clock=clock)
    [one] = records(path)
    assert (one["verdict"], one["line"], one["sha256"]) == ("disallowed", 3, HASH)
    assert one["reason"] == "an older copy is applied; HTTP 503"
    assert one["fetched"] == "2027-01-15T08:00:00.000Z"
    assert one["time"] == "2027-01-16T09:00:00.000Z"


async def test_after_thirty_days(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allow, but no plain one."""
    clock = Clock().install(monkeypatch)
    site, path = sites.add(robots=503), tmp_path / "d.jsonl"
    steps = [*[site.url("/1"), 8 * 86400] * 4, site.url("/2")]
    await crawl(StepSpider, {"REP_DECISIONS": str(path)}, steps=steps, clock=clock)
    assert told(records(path)[3:], "url", "verdict", "reason") == [
        (site.url("/1"), "unreachable", "HTTP 503"),
        (site.url("/2"), "allowed", "unreachable for longer than REP_UNREACHABLE_LIMIT; HTTP 503"),
    ]


async def test_the_body_can_be_got_back(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the hash, from a storage that outlives the crawl; also one that was replaced since."""
    clock = Clock().install(monkeypatch)
    newer = "User-agent: *\nDisallow: /p\n"
    site, path = sites.add(robots=in_turn(RULES, newer)), tmp_path / "d.jsonl"
    cache = tmp_path / "robots.sqlite"
    storing = {"REP_CACHE_STORAGE": SqliteStorage, "REP_CACHE_PATH": str(cache)}
    settings = {**storing, "REP_DECISIONS": str(path)}
    steps = [site.url("/private"), 90000, site.url("/private")]
    await crawl(StepSpider, settings, steps=steps, clock=clock)
    storage = SqliteStorage(cache)
    try:
        bodies = [storage.body(one["sha256"]) for one in records(path)]
    finally:
        storage.close()
    assert bodies == [RULES.encode(), newer.encode()]


async def test_hostile_text_stays_on_one_line(sites: Sites, tmp_path: Path) -> None:
    """It stays one line a decision, of well-formed JSON."""
    robots = b'User-agent: *\nDisallow: /\xff"\\\xe2\x80\xa8{}%s\nDisallow: /\xc3\xa4\n'
    site, path = sites.add(robots=robots), tmp_path / "d.jsonl"
    verbatim = hasattr(Request, "_url_is_verbatim")  # older Scrapy encodes every URL
    bad = Request(site.url("/ä\ud800" if verbatim else "/ä"), meta={"verbatim_url": True})
    result = await crawl([bad, site.url("/%FF%22%5C%E2%80%A8{}%s")], {"REP_DECISIONS": str(path)})
    found = records(path)
    assert len(found) == result.stat("robotstxt/forbidden") >= 1
    assert {one["verdict"] for one in found} == {"disallowed"}
    result.assert_clean()


# -- where it is written ---------------------------------------------------------------------


@pytest.mark.loop
async def test_a_second_run_appends_to_the_file(sites: Sites, tmp_path: Path) -> None:
    site, path = sites.add(robots=RULES), tmp_path / "d.jsonl"
    for url in (site.url("/private/1"), site.url("/private/2")):
        result = await crawl(url, {"REP_DECISIONS": path.as_uri()})
        assert len(lines(result, "Decisions are in")) == 1
    assert told(records(path), "url") == [(site.url("/private/1"),), (site.url("/private/2"),)]


async def test_placeholders_are_filled_in_and_folders_made(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    await crawl(site.url("/private"), {"REP_DECISIONS": f"{tmp_path}/new/%(name)s-%(time)s"})
    [path] = tmp_path.glob("new/*")
    assert re.fullmatch(r"list-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\+00-00", path.name)
    assert len(records(path)) == 1


async def test_lines_go_to_stdout_in_few_goes(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []

    class Counting(BytesIO):
        def write(self, data: Any) -> int:
            writes.append(data)
            return super().write(data)

    monkeypatch.setattr(sys, "stdout", type("Stdout", (), {"buffer": Counting()}))
    site = sites.add(robots=RULES)
    await crawl(urls(site, 200, "/private"), {"REP_DECISIONS": "stdout:"})
    monkeypatch.undo()
    written = [json.loads(line) for line in b"".join(writes).splitlines()]
    assert [one["line"] for one in written if one["verdict"] == "disallowed"] == [3] * 200
    assert len(writes) < 20


@pytest.fixture
def ftp_url(tmp_path: Path, ftp_site: FtpSite) -> str:
    folder = tmp_path / "ftp"
    folder.mkdir()
    return ftp_site.serve(folder, ("me", "secret")).url("", "me:secret@")


async def test_an_ftp_password_is_never_shown(sites: Sites, tmp_path: Path, ftp_url: str) -> None:
    """Nobody sees the password."""
    site = sites.add(robots=RULES)
    result = await crawl(site.url("/private"), {"REP_DECISIONS": f"{ftp_url}/d.jsonl"})
    assert len(records(tmp_path / "ftp" / "d.jsonl")) == 1
    assert len(lines(result, "Decisions are in ftp://me:***@")) == 1
    ours = [one.getMessage() for one in result.records if one.name.startswith("scrapy_rep")]
    assert "secret" not in "".join(ours)
    assert_clean(result)


class SlowStorage(BlockingFeedStorage):
    """One of a project's own, that stores in a thread."""

    stored: bytes = b""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:
        pass

    def _store_in_thread(self, file: Any) -> None:
        file.seek(0)
        type(self).stored = file.read()
        file.close()


@pytest.mark.scrapy_api
async def test_a_storage_of_the_project(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    settings = {"FEED_STORAGES": {"slow": SlowStorage}, "FEED_TEMPDIR": str(tmp_path)}
    result = await crawl(urls(site, 3, "/private"), {**settings, "REP_DECISIONS": "slow://x"})
    assert SlowStorage.stored.count(b'"verdict": "disallowed"') == 3
    assert list(tmp_path.iterdir()) == []
    assert_clean(result)


# -- when it is written ----------------------------------------------------------------------


async def test_written_as_the_crawl_goes(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "_SECONDS", 0.02)
    site, path = sites.add(robots=RULES), tmp_path / "d.jsonl"
    seen: list[int] = []

    class WatchingSpider(StepSpider):
        async def parse(self, response: Any, **kwargs: Any) -> Any:
            await a_while(0.1)
            seen.append(len(records(path)))
            return StepSpider.parse(self, response, **kwargs)

    steps = [site.url("/private/1"), site.url("/1"), site.url("/private/2"), site.url("/2")]
    await crawl(WatchingSpider, {"REP_DECISIONS": str(path)}, steps=steps)
    assert seen == [1, 2]


@pytest.mark.process
def test_a_kill_loses_little(sites: Sites, tmp_path: Path) -> None:
    """What has gathered since the last write, and no half line is left behind. Only a process can be
    killed; this one kills itself, after its 300th refusal."""
    site, path = sites.add(robots="User-agent: *\nDisallow: /private"), tmp_path / "d.jsonl"
    settings = {"REP_DECISIONS": path}
    many = urls(site, 350, "/private")
    run = Crawl(tmp_path / "runs", many, settings, ends="SIGKILL failed 300").join()
    assert run.reason is None
    found = records(path)
    shortest = min(len(line) for line in path.read_bytes().splitlines())
    assert len(found) > 300 - trail._BYTES / shortest
    decided = [one["url"] for one in found if one["verdict"] == "disallowed"]
    assert len(set(decided)) == len(decided) > 10


# -- what can go wrong -----------------------------------------------------------------------


def errors(result: CrawlResult) -> list[str]:
    return lines(result, level="ERROR")


async def test_a_file_that_cannot_be_opened_is_one_error(sites: Sites, tmp_path: Path) -> None:
    """A folder where the file should be: root may write everywhere else."""
    site = sites.add(robots=RULES)
    result = await crawl(urls(site, 5, "/private"), {"REP_DECISIONS": str(tmp_path)})
    [error] = errors(result)
    assert error == (
        f"REP_DECISIONS: can't write to {tmp_path}, so no more decisions are recorded: "
        f"IsADirectoryError: [Errno {errno.EISDIR}] Is a directory: '{tmp_path}'"
    )
    assert len(result.failures) == 5
    result.assert_clean()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
async def test_a_full_disk_is_one_error(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(urls(site, 5, "/private"), {"REP_DECISIONS": "/dev/full"})
    [error] = errors(result)
    assert "No space left on device" in error
    assert len(result.failures) == 5
    result.assert_clean()


async def test_a_storage_that_fails_is_one_error(sites: Sites, tmp_path: Path) -> None:
    class Broken(SlowStorage):
        def _store_in_thread(self, file: Any) -> None:
            file.close()
            raise ConnectionError("the bucket is gone")

    site = sites.add(robots=RULES)
    settings = {"REP_DECISIONS": "slow://x", "FEED_STORAGES": {"slow": Broken}}
    result = await crawl(urls(site, 5, "/private"), settings)
    [error] = errors(result)
    assert "ConnectionError: the bucket is gone" in error
    result.assert_clean()


BAD = {
    "sftp://host/x": "no feed storage writes to sftp:, only to file, ftp, ",
    "http://me:secret@host/x": "no feed storage writes to http:, only to file, ftp, ",
    "%(nonsense)s.jsonl": "the spider has no attribute 'nonsense'",
    "ftp:": "can't be written",
    "ftp://host:port/x": "can't be written",
    "ftp://[x": "can't be written",
}


def test_a_uri_that_nothing_can_write_to() -> None:
    for uri, why in BAD.items():
        with pytest.raises(SettingsError) as raised:
            Feed(get_crawler(), "REP_DECISIONS", uri, overwrite=True)
        said = str(raised.value)
        assert said.startswith(f"REP_DECISIONS is {uri.replace('secret', '***')!r}, ")
        assert why in said


@pytest.mark.parametrize("setting", ["REP_DECISIONS", "REP_REPORT"])
async def test_a_wrong_uri_ends_the_crawl_at_its_start(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """In the words of Scrapy's own storage."""
    for name in ("boto3", "boto3.session"):
        monkeypatch.setitem(sys.modules, name, None)
    site = sites.add(robots=RULES)
    result = await crawl(site.url("/"), {setting: "s3://bucket/x"})
    why = f"{setting} is 's3://bucket/x', which can't be written: missing boto3 library."
    assert_ended_at_start(result, site, why)
