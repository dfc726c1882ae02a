"""Whether a crawl asks how pages may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings, setting_name

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

_FIELDS = ("usage", "usage_tokens", "usage_field", "tdmrep")


def settings_for(crawler: Crawler) -> RepSettings:
    """Return the settings if they ask for usage preferences.

    :raises NotConfigured: if they don't
    """
    if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
        raise NotConfigured
    try:
        settings = RepSettings.from_settings(crawler.settings)
    except SettingsError:
        raise NotConfigured from None  # RepMiddleware tells, and ends the crawl
    if chosen(settings) is None:
        raise NotConfigured
    return settings


def chosen(settings: RepSettings) -> str | None:
    """Return the name of the first setting that asks for usage preferences; None if none does."""
    return next((setting_name(name) for name in _FIELDS if getattr(settings, name)), None)


def may_be_chosen(settings: BaseSettings) -> bool:
    """Whether one of these settings is set, rightly or wrongly."""
    return any(settings.get(setting_name(name)) for name in _FIELDS)
