"""Words for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
