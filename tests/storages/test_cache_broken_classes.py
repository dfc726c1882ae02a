"""A storage that can't be used, or not all the time: one warning says so, the crawl goes on,
decisions stay right. Here: wrong settings, and classes of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.storages import Entry, MemoryStorage, Storage
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.process import Crawl
from tests.helpers.servers import Sites
from tests.helpers.storing import NOW, make_impatient, rules, some, visit, warning

pytestmark = [pytest.mark.loop, pytest.mark.slow]

OTHERS = b"User-agent: *\nDisallow: /x\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    make_impatient(monkeypatch)


@pytest.mark.parametrize(
    "settings",
    [
        {"REP_CACHE_REDIS_URL": "http://localhost"},
        {"REP_CACHE_REDIS_URL": "redis://localhost:port"},
        {"REP_CACHE_REDIS_URL": None},
        {"REP_CACHE_STORAGE": "scrapy_rep.storages.NoSuchStorage"},
        {"REP_CACHE_STORAGE": "tests.helpers.storing.KINDS"},
        {"REP_CACHE_STORAGE": "nowhere.Storage"},
    ],
    ids=str,
)
async def test_wrong_storage_settings_end_the_crawl_before_a_fetch(
    sites: Sites, settings: dict[str, Any]
) -> None:
    """One sentence at the start, and nothing is fetched."""
    pytest.importorskip("redis", reason="needs redis, from PyPI")
    [site] = some(sites, 1)
    result = await crawl(
        site.url("/x"), {"REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage", **settings}
    )
    assert result.reason == "rep_settings_error"
    [error] = lines(result, level="ERROR")
    assert "REP_CACHE_" in error
    assert "Traceback" not in result.log
    assert site.requests == []


WITHOUT_REDIS = """
import sys
sys.modules["redis"] = None
from tests.helpers.process.pages_spider import PagesSpider
__all__ = ["PagesSpider"]

class Spider(PagesSpider):
    name = "without"
"""


@pytest.mark.process
def test_without_the_package(sites: Sites, tmp_path: Path) -> None:
    [site] = some(sites, 1)
    spider = tmp_path / "without_redis.py"
    spider.write_text(WITHOUT_REDIS)
    run = Crawl(
        tmp_path / "runs",
        [site.url("/x")],
        {
            "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
            "REP_CACHE_REDIS_URL": "redis://127.0.0.1:1",
        },
        spider=spider,
    )
    try:
        run.join()
    finally:
        run.close()
    assert run.reason == "rep_settings_error", run.log
    assert "pip install scrapy-rep[redis]" in run.log
    assert "Traceback" not in run.log
    assert site.requests == []


class Users(Storage):
    """Works, but for what the test makes of it."""

    def __init__(self) -> None:
        self.kept = MemoryStorage(1000, 1 << 30)

    def load(self, origin: str) -> Entry | None:
        return self.kept.load(origin)

    def save(self, entry: Entry) -> None:
        self.kept.save(entry)


@pytest.mark.parametrize("method", ["load", "save", "lease", "release", "purge", "close"])
async def test_a_class_that_raises(
    sites: Sites, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("a bug of the user's")

    monkeypatch.setattr(Users, method, fail)
    result = await visit(some(sites, 6), {"REP_CACHE_STORAGE": Users})
    said = warning(result)
    assert "(Users)" in said
    assert "ZeroDivisionError: a bug of the user's" in said
    assert result.stat("rep/cache/unsaved") == (6 if method == "save" else 0)
    if method != "purge":  # that is called once, and what is called next works
        assert lines(result, "works again") == []


@pytest.mark.parametrize(
    "nonsense",
    ["text", 7, {"a": "dict"}, (), object()],
    ids=["str", "int", "dict", "tuple", "object"],
)
async def test_a_class_that_returns_nonsense(
    sites: Sites, nonsense: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Users, "load", lambda self, origin: nonsense)
    # Forgotten to return anything: that is no refusal.
    monkeypatch.setattr(Users, "lease", lambda self, origin, owner, seconds: None)
    assert "(Users)" in warning(await visit(some(sites), {"REP_CACHE_STORAGE": Users}))


async def test_a_class_that_has_the_wrong_entries(sites: Sites) -> None:
    """Of another origin: they are not applied to this one."""

    class Wrong(Users):
        def load(self, origin: str) -> Entry:
            return rules("http://elsewhere.example:80", OTHERS, at=NOW * 2)

    assert "Ignoring the entry of" in warning(
        await visit(some(sites), {"REP_CACHE_STORAGE": Wrong})
    )
