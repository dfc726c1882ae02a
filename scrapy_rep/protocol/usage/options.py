"""What the settings ``REP_USAGE`` and ``REP_USAGE_TOKENS`` may be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scrapy_rep.protocol.tokens import is_name
from scrapy_rep.protocol.usage.statements import PURPOSES, TRAINING

RECORD, DROP_ITEMS, DROP_REQUESTS = ACTIONS = ("record", "drop-items", "drop-requests")
"""What is done about pages that say no; each does what those before it do."""

ACTIONS_HINT = (
    f"a dict such as {{'train-ai': 'record'}}, from {', '.join(PURPOSES)} to {', '.join(ACTIONS)}"
)
TOKENS_HINT = (
    "a list of product tokens, such as ['Google-Extended', 'CCBot'], or a dict from these to purposes"
    f" ({', '.join(PURPOSES)})"
)


def actions(value: Any) -> dict[str, str] | None:
    """Return what is to be done about each purpose; None for nothing.

    :raises ValueError: for anything else
    """
    chosen = loaded(value)
    if not chosen:
        return None
    if not isinstance(chosen, Mapping):
        raise ValueError
    if any(purpose not in PURPOSES or did not in ACTIONS for purpose, did in chosen.items()):
        raise ValueError
    return dict(chosen)


def tokens(value: Any) -> dict[str, tuple[str, ...]] | None:
    """Return for which purposes each token is asked about; None for no tokens.

    :raises ValueError: for anything else
    """
    named = loaded(value)
    if not named:
        return None
    if isinstance(named, str):
        named = [part.strip() for part in named.split(",")]
    if not isinstance(named, Iterable):
        raise ValueError
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


def loaded(value: Any) -> Any:
    """Return *value*. On a command line a dict or a list is JSON, as elsewhere in Scrapy."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return json.loads(value)
    return value
