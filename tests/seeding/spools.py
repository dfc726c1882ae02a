"""Spools by themselves, in temporary files that are open at once."""

from __future__ import annotations

from scrapy_rep.seeding.spool import Spool, _recover

_made: list[Spool] = []


def new_spool() -> Spool:
    spool = Spool(None, 1.0, None)
    _made.append(spool)
    recovered = spool._journal.open(_recover)
    assert recovered is not None and recovered.sites == []
    return spool


def close_spools() -> None:
    """As a crawl does at its end."""
    while _made:
        _made.pop().close()
