"""Registrable domains, by the Public Suffix List that comes with tldextract."""

from __future__ import annotations

from functools import cache

from tldextract import TLDExtract


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of *host* (``www.shop.example.co.uk``: ``example.co.uk``); None if
    it has none, as IP addresses and public suffixes. The first call takes a tenth of a second."""
    found = _extractor()(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else None


@cache
def _extractor() -> TLDExtract:
    # No URLs: never the network. No folder: never another program's copy of the list. With private
    # domains: two users of github.io are two sites.
    return TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)
