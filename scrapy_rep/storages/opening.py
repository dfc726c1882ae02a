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
    return _Opened(crawler, storage, settings, clock)


class _Opened(StorageAccess):
    """Purges the storage when the spider opens, and closes it with the spider."""

    def __init__(
        self,
        crawler: Crawler,
        storage: Storage,
        settings: RepSettings,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(crawler, storage, settings.download_timeout)
        self._clock = clock
        self._expiry = settings.cache_expiry
        # Methods, which signals refer to weakly: a closure would have to be held by the table of
        # handlers, which belongs to the process, and would keep the crawl in memory.
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self.close, signals.spider_closed)

    def _spider_opened(self) -> None:
        self.purge(self._clock() - self._expiry)
