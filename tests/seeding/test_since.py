"""`REP_SITEMAP_SINCE = "last"`: pages that were changed since the spider's last crawl that ended in order."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.exceptions import CloseSpider
from scrapy.utils.test import get_crawler

from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol.freshness import moment
from scrapy_rep.seeding.since import Since
from scrapy_rep.seeding.spool import FILE_NAME
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import MemoryStorage, Storage
from scrapy_rep.text import iso
from tests.helpers.behaviours import once
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.log import lines
from tests.helpers.process import Crawl
from tests.helpers.redisserver import (
    RedisServer,
    fleet_settings,
    needs_scrapy_redis,
    needs_server,
)
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import (
    NAMESPACE,
    SeededSpider,
    index,
    lists,
    pages,
    seeded,
    urlset,
)
from tests.helpers.storing import in_a_file, on_a_server, open_
from tests.seeding.listed import Listed

pytestmark = pytest.mark.slow

LAST = {"REP_SITEMAP_SINCE": "last"}
# Seconds: a page that was changed an hour ago is older than any crawl of a test.
HOUR = 3600.0


def ago(seconds: float) -> str:
    text = iso(time.time() - seconds)
    assert text is not None
    return text


class News:
    """A site whose sitemap lists pages with their dates."""

    def __init__(self, sites: Sites) -> None:
        self.site = lists(sites.add(), "/map.xml")
        self.dates: dict[str, str | None] = {}
        self.has(old=ago(HOUR), undated=None, unreadable="recently")

    def has(self, **dates: str | None) -> None:
        """Put pages with these dates into the sitemap."""
        self.dates |= dates
        entries = ""
        for name, date in self.dates.items():
            lastmod = "" if date is None else f"<lastmod>{date}</lastmod>"
            entries += f"<url><loc>{self.site.url(f'/{name}')}</loc>{lastmod}</url>\n"
        self.site.set("/map.xml", f"<urlset xmlns='{NAMESPACE}'>{entries}</urlset>")


def names(result: CrawlResult) -> list[str]:
    return [url.rpartition("/")[2] for url in pages(result)]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_server)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of a storage that keeps the date."""
    if request.param == "sqlite":
        return {**in_a_file(tmp_path), **LAST}
    server: RedisServer = request.getfixturevalue("redis_server")
    return {**on_a_server(server.url, tmp_path.name), **LAST}


def date_in(stored: dict[str, Any], spider: str = "list") -> str | None:
    storage = open_(stored)
    try:
        return storage.load_value(f"last-crawl:{spider}")
    finally:
        storage.close()


def write(stored: dict[str, Any], value: str) -> None:
    storage = open_(stored)
    storage.save_value("last-crawl:list", value)
    storage.close()


async def test_only_what_was_changed_since_the_last_crawl_comes(
    sites: Sites, stored: dict[str, Any]
) -> None:
    """What has no date that can be read, comes each time."""
    news = News(sites)
    first = await seeded(news.site, **stored)
    assert names(first) == ["old", "undated", "unreadable"]
    assert len(lines(first, "No crawl of this spider that finished is on record")) == 1
    news.has(new=ago(-2.0))
    second = await seeded(news.site, **stored)
    assert names(second) == ["new", "undated", "unreadable"]
    assert len(lines(second, "if they were changed since", level=None)) == 1
    assert second.stat("rep/sitemaps/rejected/old") == 1


async def test_the_date_is_that_on_which_the_crawl_began(
    sites: Sites, stored: dict[str, Any]
) -> None:
    news = News(sites)
    before = int(time.time())
    await seeded(news.site, **stored)
    assert (date_in(stored) or "") <= ago(0)
    assert (date_in(stored) or "") >= (iso(before) or "")


async def test_a_crawl_that_does_not_end_in_order_leaves_the_date(
    sites: Sites, stored: dict[str, Any]
) -> None:
    news = News(sites)

    def stop(spider: ListSpider) -> None:
        raise CloseSpider("enough")

    start = [news.site.url("/start")]
    settings = {"REP_SITEMAPS": True, **stored}
    result = await crawl(SeededSpider, settings, requests=start, on_page=stop)
    assert result.reason == "enough"
    assert date_in(stored) is None
    write(stored, "2026-01-31T00:00:00Z")
    await crawl(SeededSpider, settings, requests=start, on_page=stop)
    assert date_in(stored) == "2026-01-31T00:00:00Z"
    await seeded(news.site, **stored)
    assert (date_in(stored) or "") > "2026-01-31T00:00:00Z"


@pytest.mark.process
@pytest.mark.parametrize("ends", ["SIGINT page 1", "SIGKILL page 1"])
def test_after_a_stop_or_a_kill_the_crawl_began_with_its_first_run(
    sites: Sites, tmp_path: Path, ends: str
) -> None:
    """The first run doesn't set the date; the one that ends the job does, but not to its own beginning:
    it doesn't read again what the first one has read."""
    news = News(sites)
    news.has(**{f"page{number}": None for number in range(60)})
    stored = {**in_a_file(tmp_path), **LAST}
    settings = {"REP_SITEMAPS": True, "JOBDIR": tmp_path / "job", **stored}
    start = [news.site.url("/start")]
    assert (
        Crawl(tmp_path, start, settings, ends=ends, seeded="yes").join().reason
        != "finished"
    )
    ended = ago(0)
    assert values_in(tmp_path) == []
    second = Crawl(tmp_path, start, settings, seeded="yes", ahead=10).join()
    assert second.reason == "finished"
    [value] = values_in(tmp_path)
    assert value <= ended
    # Nothing is read again in this job, so nothing is newer.
    third = Crawl(tmp_path, start, settings, seeded="yes", ahead=20).join()
    assert third.reason == "finished"
    assert values_in(tmp_path) == [value]


def values_in(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "robots.sqlite")) as db:
        found = db.execute("SELECT owner FROM leases WHERE origin LIKE 'value %'")
        return [value for (value,) in found]


async def test_memory_keeps_no_date_and_one_line_says_so(sites: Sites) -> None:
    class SubclassOfMemory(MemoryStorage):
        pass

    news = News(sites)
    for storage, name in (
        (MemoryStorage, "MemoryStorage"),
        (SubclassOfMemory, "SubclassOfMemory"),
    ):
        for _ in range(2):
            result = await seeded(news.site, REP_CACHE_STORAGE=storage, **LAST)
            assert names(result) == ["old", "undated", "unreadable"]
            said = f"REP_SITEMAP_SINCE is 'last', but {name} doesn't keep when a crawl began"
            assert len(lines(result, said, level="WARNING")) == 1


async def test_without_the_setting_nothing_is_stored(
    sites: Sites, stored: dict[str, Any]
) -> None:
    news = News(sites)
    for setting in (None, "2026-01-31"):
        await seeded(news.site, **{**stored, "REP_SITEMAP_SINCE": setting})
        assert date_in(stored) is None


async def test_a_storage_of_the_users_may_keep_the_date(sites: Sites) -> None:
    kept: dict[str, str] = {}

    class KeepsDates(FolderlessStorage):
        def load_value(self, name: str) -> str | None:
            return kept.get(name)

        def save_value(self, name: str, value: str) -> None:
            kept[name] = value

    news = News(sites)
    await seeded(news.site, REP_CACHE_STORAGE=KeepsDates, **LAST)
    assert list(kept) == ["last-crawl:list"]
    assert names(await seeded(news.site, REP_CACHE_STORAGE=KeepsDates, **LAST)) == [
        "undated",
        "unreadable",
    ]


class FolderlessStorage(Storage):
    """Knows nothing."""

    def load(self, origin: str) -> None:
        return None

    def save(self, entry: Any) -> None: ...


async def test_a_storage_that_fails_keeps_no_page_away(sites: Sites) -> None:
    """Nor does one that returns nonsense. The crawl ends as it would."""

    class FailingValues(FolderlessStorage):
        answer: Any = OSError(28, "No space left on device")

        def load_value(self, name: str) -> str | None:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer  # type: ignore[no-any-return]

        def save_value(self, name: str, value: str) -> None:
            raise OSError(28, "No space left on device")

    news = News(sites)
    with every_row() as row:
        for answer in (
            FailingValues.answer,
            5,
            b"2026",
            [],
            "",
            "x" * 5000,
            "9999-01-01",
            "\0",
            "\udcff",
        ):
            with row(repr(answer)[:40]):
                storage = type("Storage", (FailingValues,), {"answer": answer})
                result = await seeded(news.site, REP_CACHE_STORAGE=storage, **LAST)
                assert names(result) == ["old", "undated", "unreadable"]
                assert len(lines(result, "(Storage) can't be", level="WARNING")) >= 1


async def test_dates_that_are_damaged_or_in_the_future_do_not_count(
    sites: Sites, stored: dict[str, Any]
) -> None:
    news = News(sites)
    for value in ("soon", ago(-9 * HOUR), "x" * 2000, "0001-01-01T00:00:00Z"):
        write(stored, value)
        result = await seeded(news.site, **stored)
        assert names(result) == ["old", "undated", "unreadable"], value
        assert (date_in(stored) or "") <= ago(0), value


async def test_an_index_is_read_if_it_was_changed(
    sites: Sites, stored: dict[str, Any]
) -> None:
    """As with a fixed date: an old sitemap of an index isn't read."""
    site = lists(sites.add(), "/index.xml")
    site.set("/index.xml", index([site.url("/map.xml")], ago(HOUR)))
    site.set("/map.xml", urlset([site.url("/page")]))
    assert names(await seeded(site, **stored)) == ["page"]
    assert names(await seeded(site, **stored)) == []
    assert site.count("/map.xml") == 1
    site.set("/index.xml", index([site.url("/map.xml")], ago(-2.0)))
    assert names(await seeded(site, **stored)) == ["page"]


async def test_two_spiders_have_two_dates(sites: Sites, stored: dict[str, Any]) -> None:
    class OtherSpider(SeededSpider):
        name = "other: \u4e2d/x"

    news = News(sites)
    await seeded(news.site, **stored)
    assert date_in(stored, OtherSpider.name) is None
    assert names(await seeded(news.site, spider=OtherSpider, **stored)) == [
        "old",
        "undated",
        "unreadable",
    ]
    assert date_in(stored, OtherSpider.name) is not None


async def test_sitemaps_that_could_not_be_kept_leave_the_date(
    sites: Sites,
    stored: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The crawl finishes, but seeding has ended early: pages are missing."""
    news = News(sites)
    obstacle = tmp_path / "job" / FILE_NAME
    obstacle.mkdir(parents=True)
    settings = {**stored, "JOBDIR": tmp_path / "job", "REP_HOLD_MAX_WAIT": 0.0}
    result = await crawl(
        SeededSpider,
        {"REP_SITEMAPS": True, **settings},
        requests=[news.site.url("/start")],
    )
    assert result.reason == "finished"
    assert pages(result) == []
    assert date_in(stored) is None


async def test_a_crawl_that_read_no_sitemap_leaves_the_date(
    sites: Sites, stored: dict[str, Any]
) -> None:
    """What was changed before it would never come: the site was down for a while, say."""
    news = News(sites)
    write(stored, "2026-01-31T00:00:00Z")
    with every_row() as row:
        for answer in (503, 404, "no sitemap"):
            with row(str(answer)):
                news.site.set("/map.xml", answer)
                assert names(await seeded(news.site, **stored)) == []
                assert date_in(stored) == "2026-01-31T00:00:00Z"
    news.has()
    await seeded(news.site, **stored)
    assert (date_in(stored) or "") > "2026-01-31T00:00:00Z"


NOON, ONE, TWO = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z", "2026-01-31T14:00:00Z"
# Stored as the crawl began, stored as it ended, when it began; what is stored then.
ENDS = [
    (None, None, ONE, ONE, "the first crawl"),
    (NOON, NOON, ONE, ONE, "a later one"),
    (TWO, TWO, ONE, TWO, "a job that began before another crawl"),
    (NOON, TWO, ONE, ONE, "one that ended after another that began later"),
    (NOON, ONE, TWO, ONE, "and after another that began earlier"),
    (None, ONE, TWO, ONE, "two first crawls"),
    (NOON, None, TWO, TWO, "the storage was emptied"),
    (NOON, "soon", TWO, TWO, "somebody has written something"),
]


async def test_of_crawls_at_the_same_time_the_earlier_beginning_counts() -> None:
    """Each may have read sitemaps for the other. A date never goes back for another reason."""
    with every_row() as row:
        for begun_with, ended_with, own, expected, why in ENDS:
            with row(why):
                ends = await ended(begun_with, own)
                assert ends(ended_with, reason="finished") == expected
                assert ends(ended_with, reason="shutdown") is None


async def ended(stored: str | None, began: str) -> Any:
    """What decides at the end of a crawl that found this date *stored*, and has seen all."""
    successors: list[Any] = []

    async def load_value(name: str) -> str | None:
        return stored

    storage: Any = SimpleNamespace(
        keeps_values=True,
        load_value=load_value,
        replace_at_close=lambda name, successor: successors.append(successor),
    )
    crawler = get_crawler(settings_dict=LAST)
    since = Since(
        CrawlContext(crawler, RepSettings.from_settings(crawler.settings), time.time),
        storage,
    )
    await since.load_date()
    since.note_all_seen(moment(began).timestamp())
    [successor] = successors
    return successor


@pytest.mark.process
@needs_scrapy_redis
@needs_server
def test_processes_that_share_a_queue_set_one_date(
    sites: Sites, redis_server: RedisServer, tmp_path: Path
) -> None:
    """That of the one that began first, whichever has read the sitemaps."""
    listed = Listed(sites, 0.15)
    runs: list[Crawl] = []
    # Whoever gets this page ends after the other one.
    over = lambda: any(run.reason for run in runs)
    listed.site.set("/slow", once(over, "slow"))
    stored = on_a_server(redis_server.url, tmp_path.name)
    settings = {**Listed.SETTINGS, **fleet_settings(redis_server), **stored, **LAST}
    began = ago(0)
    first = Crawl(tmp_path / "1", [listed.site.url("/start")], settings, seeded="yes")
    runs.append(first)
    first.wait_for("page")
    between = ago(0)
    slow = [listed.site.url("/slow")]
    runs.append(Crawl(tmp_path / "2", slow, settings, seeded="yes", ahead=10))
    assert [run.join().reason for run in runs] == ["finished"] * 2
    [key] = redis_server.ask("KEYS", f"{tmp_path.name}:value:last-crawl:*")
    date = redis_server.ask("GET", key).decode()
    assert began <= date <= between
    # One that comes later finds everything done, and reads nothing.
    third = Crawl(
        tmp_path / "3", [listed.site.url("/start")], settings, seeded="yes"
    ).join()
    assert third.reason == "finished"
    assert redis_server.ask("GET", key).decode() == date
