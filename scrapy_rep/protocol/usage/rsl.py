"""Licenses (REP.md section 11): RSL 1.0, Really Simple Licensing, December 2025. Their URLs are
reported, never fetched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LICENSES = 100
"""Of one page."""

MEDIA_TYPE = "application/rsl+xml"

# Bytes of Link headers that are looked at.
_MAX_BYTES = 16 * 1024

_LINK = re.compile(r"<([^<>]*)>([^<>]*)")
_LICENSE = re.compile(r";\s*rel\s*=\s*(?:\"(?:[^\"]*[ \t])?license[\" \t]|license\s*(?:[;,]|\Z))")


def link_licenses(values: Sequence[bytes]) -> list[str]:
    """Return the URLs of ``Link: <URL>; rel="license"; type="application/rsl+xml"`` headers."""
    text = b",".join(values)[:_MAX_BYTES].decode("latin-1")
    return [
        url.strip()
        for url, parameters in _LINK.findall(text)
        if MEDIA_TYPE in parameters.lower() and _LICENSE.search(parameters.lower())
    ][:MAX_LICENSES]
