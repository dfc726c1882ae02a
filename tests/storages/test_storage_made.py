"""How a storage is made from REP_CACHE_STORAGE; the user's own, as docs/cache.md shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import MemoryStorage, Storage
from scrapy_rep.storages.client import StorageClient, open_storage
from tests.helpers.storing import NOW, A, rules, users_class

HOUR = 3600.0


class Users(Storage):
    """Needs nothing."""


class Wants(Storage):
    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def from_crawler(cls, crawler: Any) -> Wants:
        return cls(crawler.settings["WANTED"])


class NoStorage:
    pass


def opened(storage: Any, **settings: Any) -> StorageClient | None:
    crawler = get_crawler(settings_dict={"REP_CACHE_STORAGE": storage, **settings})
    return open_storage(crawler, RepSettings.from_settings(crawler.settings), lambda: NOW)


def test_memory_needs_no_access() -> None:
    """What is in memory is known without it. What is made from that may write a file in the end."""

    class Written(MemoryStorage):
        pass

    assert opened(MemoryStorage) is opened("scrapy_rep.storages.MemoryStorage") is None
    assert opened(Written) is not None


def test_made_as_scrapy_makes_components() -> None:
    for storage in (Users, f"{__name__}.Users"):
        made = opened(storage)
        assert made is not None
        assert type(made._calls.storage).__name__ == "Users"
    made = opened(Wants, WANTED="this")
    assert made is not None
    assert made._calls.storage.value == "this"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("nowhere.Storage", "can't be imported: No module named 'nowhere'"),
        ("scrapy_rep.storages.Nothing", "can't be imported"),
        ("SqliteStorage", "can't be imported"),
        (f"{__name__}.NoStorage", "is not a subclass of scrapy_rep.storages.Storage"),
        (NoStorage, "is not a subclass of scrapy_rep.storages.Storage"),
        (f"{__name__}.opened", "is not a subclass of scrapy_rep.storages.Storage"),
    ],
)
def test_what_is_no_storage(storage: Any, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        opened(storage)
    assert str(caught.value).startswith("REP_CACHE_STORAGE is ")
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_the_class_of_the_readme_needs_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = users_class()
    assert {name for name in vars(made) if name in vars(Storage)} >= {"load", "save"}
    storage = made()
    assert storage.lease(A, "me", HOUR)
    storage.save(rules())
    storage.release(A, "me")
    storage.purge(NOW)
    storage.close()
    assert made().load(A) == rules()
    for method in (lambda: storage.drop(A), lambda: next(iter(storage.entries()))):
        with pytest.raises(NotImplementedError):
            method()
