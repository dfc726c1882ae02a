"""Words for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clean(text: str) -> str:
    """Return *text* without what is no character: half of a surrogate pair is ``\\ud800``.

    URLs that users have Scrapy take verbatim, and the messages of errors, may hold it.
    """
    return text.encode("utf-8", "backslashreplace").decode()
