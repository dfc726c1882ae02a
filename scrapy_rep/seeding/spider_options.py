"""The attributes of Scrapy's SitemapSpider, on any spider: ``sitemap_rules``, ``sitemap_follow``,
``sitemap_alternate_links`` and ``sitemap_filter``; and ``sitemap_media`` and ``sitemap_request``. (``rep_sitemaps`` is read in `discovery.py`.)"""

from __future__ import annotations

import re
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy import Request

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from typing_extensions import Self

    from scrapy_rep.protocol.sitemaps.xml import Entry

logger = get_logger(__name__)

T = TypeVar("T")


class Entries:
    """What ``sitemap_filter`` gets: an iterator that knows the kind of the sitemap, as Scrapy's
    ``Sitemap`` does."""

    def __init__(self, entries: list[Entry], kind: str) -> None:
        self._entries = iter(entries)
        self.type = kind
        """``"urlset"``, ``"sitemapindex"``, ``"text"``, ``"rss"`` or ``"atom"``."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __length_hint__(self) -> int:
        return length_hint(self._entries)


class SpiderOptions:
    """What the spider says about sitemaps, checked."""

    def __init__(self, spider: Spider | None) -> None:
        """:raises SettingsError: if an attribute is wrong"""
        self._spider = spider
        self._rules: list[tuple[re.Pattern[str], Any]] | None = self._checked(
            "sitemap_rules",
            lambda rules: [(re.compile(regex), self._callback(name)) for regex, name in rules],
            "pairs of a regular expression and a callback (the name of a method, or a callable)",
        )
        self._follow: list[re.Pattern[str]] | None = self._checked(
            "sitemap_follow", _patterns, "regular expressions"
        )
        self._filter, self._request = map(self._method, ("sitemap_filter", "sitemap_request"))
        self._logged = False
        self.alternate_links = bool(getattr(spider, "sitemap_alternate_links", False))
        """Whether alternate URLs of a page are requested too."""
        self.media = bool(getattr(spider, "sitemap_media", False))
        """Whether entries have the URLs of images and videos."""

    def _checked(self, name: str, convert: Callable[[Any], T], what: str) -> T | None:
        value = getattr(self._spider, name, None)
        try:
            return None if value is None else convert(value)
        except (TypeError, ValueError, AttributeError, re.error) as error:
            raise SettingsError(
                f"The spider's attribute {name} must be a list of {what}: {error}."
            ) from None

    def _method(self, name: str) -> Any:
        method = getattr(self._spider, name, None)
        if method is not None and not callable(method):
            raise SettingsError(f"The spider's attribute {name} must be a method.")
        return method

    def prepared(self, request: Request) -> Request:
        """Return the request for a sitemap as ``sitemap_request`` makes it."""
        if self._request is None:
            return request
        ours = dict(request.meta)
        try:
            made = self._request(request) or request
            if not isinstance(made, Request):
                raise TypeError(f"it returned {made!r}, which is no request")
            made.meta.update(ours)
        except Exception:
            if not self._logged:
                self._logged = True
                logger.exception(
                    "sitemap_request() raised an exception: the sitemap is requested as it was. "
                    "Further exceptions are not logged.",
                    extra={"spider": self._spider},
                )
            return request
        return made

    def _callback(self, value: Any) -> Any:
        callback = getattr(self._spider, value) if isinstance(value, str) else value
        if not callable(callback):
            raise TypeError(f"{value!r} can't be called")
        return callback

    def callback_for(self, url: str) -> tuple[bool, Any]:
        """Return whether a page is wanted, and its callback; None: the spider's default."""
        if self._rules is None:
            return True, None
        for regex, callback in self._rules:
            if regex.search(url):
                return True, callback
        return False, None

    def follows(self, url: str) -> bool:
        """Whether a sitemap from an index is wanted."""
        return self._follow is None or any(regex.search(url) for regex in self._follow)

    def filtered(self, entries: list[Entry], kind: str, *, log: bool) -> tuple[list[Entry], int]:
        """Return what ``sitemap_filter`` leaves of *entries*, and how often it raised.

        :param kind: of the sitemap
        :param log: whether to log the first exception
        """
        if self._filter is None:
            return entries, 0
        kept: list[Entry] = []
        failed = 0
        rest = Entries(entries, kind)
        while left := length_hint(rest):
            try:
                for entry in self._filter(rest) or ():
                    if not isinstance(entry, dict):
                        raise TypeError(f"it returned {entry!r}, which is no entry")
                    kept.append(entry)  # one by one: those before an exception count
                break
            except Exception:
                if log:
                    log = False
                    logger.exception(
                        "sitemap_filter() raised an exception: its entry is skipped. Further "
                        "exceptions for this sitemap are not logged.",
                        extra={"spider": self._spider},
                    )
                if length_hint(rest) == left:  # the filter has taken none
                    return kept, failed + left
                failed += 1
        return kept, failed


def _patterns(follow: Any) -> list[re.Pattern[str]]:
    if isinstance(follow, str):
        raise TypeError("it is a single string")
    return [re.compile(regex) for regex in follow]
