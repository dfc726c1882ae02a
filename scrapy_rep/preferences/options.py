"""The settings about use: which values are right, and whether a crawl asks for any of this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured

from scrapy_rep.preferences.statements import PURPOSES, TRAINING
from scrapy_rep.protocol.syntax import is_name
from scrapy_rep.settings import USAGE_FIELDS, RepSettings, loaded, setting_name, settings_beside

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

RECORD, DROP_ITEMS, DROP_REQUESTS = ACTIONS = ("record", "drop-items", "drop-requests")
"""What is done about pages that disallow a use; each does what those before it do."""

_ACTIONS_HINT = (
    f"a dict such as {{'train-ai': 'record'}}, with keys among {', '.join(PURPOSES)} and values among"
    f" {', '.join(ACTIONS)}"
)
_TOKENS_HINT = (
    "a list of product tokens, such as ['Google-Extended', 'CCBot'], or a dict from these to purposes"
    f" ({', '.join(PURPOSES)})"
)


def actions(value: Any) -> dict[str, str] | None:
    """Return what to do about each purpose (``REP_USAGE``); None for nothing.

    :raises ValueError: what *value* must be
    """
    try:
        chosen = dict(loaded(value) or {})
        if chosen.keys() <= {*PURPOSES} and {*chosen.values()} <= {*ACTIONS}:
            return chosen or None
    except (ValueError, TypeError):  # broken JSON; no dict
        pass
    raise ValueError(_ACTIONS_HINT)


def tokens(value: Any) -> dict[str, tuple[str, ...]] | None:
    """Return the purposes that each token stands for (``REP_USAGE_TOKENS``); None for no tokens.

    :raises ValueError: what *value* must be
    """
    try:
        return _tokens(loaded(value) or {}) or None
    except (ValueError, TypeError):
        raise ValueError(_TOKENS_HINT) from None


def _tokens(named: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(named, str):
        named = [part.strip() for part in named.split(",")]
    pairs = named if isinstance(named, Mapping) else dict.fromkeys(named, TRAINING)
    found = {}
    for token, purposes in pairs.items():
        chosen = (purposes,) if isinstance(purposes, str) else tuple(purposes)
        if not isinstance(token, str) or not is_name(token) or not chosen:
            raise ValueError
        if any(purpose not in PURPOSES for purpose in chosen):
            raise ValueError
        found[token] = chosen
    return found


def settings_for(crawler: Crawler) -> RepSettings:
    """Return the settings if they ask for usage preferences.

    :raises NotConfigured: if they don't
    """
    settings = settings_beside(crawler)
    if chosen(settings) is None:
        raise NotConfigured
    return settings


def chosen(settings: RepSettings) -> str | None:
    """Return the name of the first setting that asks for usage preferences; None if none does."""
    return next((setting_name(name) for name in USAGE_FIELDS if getattr(settings, name)), None)
