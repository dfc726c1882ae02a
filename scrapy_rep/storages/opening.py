"""Creates the storage that ``REP_CACHE_STORAGE`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.storages.access import StorageAccess
from scrapy_rep.storages.base import Storage
from scrapy_rep.storages.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_rep.settings import RepSettings


def make_storage(crawler: Crawler, settings: RepSettings) -> Storage:
    """Return the storage that ``REP_CACHE_STORAGE`` names.

    :raises SettingsError: if it can't be made
    """
    name = settings.cache_storage
    wrong = f"REP_CACHE_STORAGE is {name!r}"
    try:
        made = load_object(name)
    except (ImportError, NameError, ValueError) as error:
        hint = ""
        if isinstance(error, ImportError) and (error.name or "").startswith("redis"):
            hint = ' Try "pip install scrapy-rep[redis]".'
        raise SettingsError(f"{wrong}, which can't be imported: {error}.{hint}") from None
    if not (isinstance(made, type) and issubclass(made, Storage)):
        raise SettingsError(f"{wrong}, which is not a subclass of scrapy_rep.storages.Storage.")
    try:
        return build_from_crawler(made, crawler)
    except SettingsError:
        raise
    except Exception as error:
        # A user's class may raise anything.
        raise SettingsError(f"{wrong}: {text_of(error)}.") from error


def open_storage(
    crawler: Crawler, settings: RepSettings, clock: Callable[[], float]
) -> StorageAccess | None:
    """Return the storage for a crawl; None for plain memory, which needs no access.

    :param clock: seconds since the epoch
    :raises SettingsError: if it can't be made
    """
    storage = make_storage(crawler, settings)
    if type(storage) is MemoryStorage:  # not a user's subclass
        return None
    access = StorageAccess(crawler, storage, settings.download_timeout)

    def spider_opened() -> None:
        access.purge(clock() - settings.cache_expiry)

    # A weak reference, Scrapy's default, would die at once.
    crawler.signals.connect(spider_opened, signals.spider_opened, weak=False)
    crawler.signals.connect(access.close, signals.spider_closed)
    return access
