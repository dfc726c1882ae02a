"""What a sitemap can be, and what an entry of one is."""

from __future__ import annotations

from enum import Enum
from typing import Any

Entry = dict[str, Any]
"""What a sitemap says of one URL: ``loc``, and where it says more ``lastmod``, ``changefreq``,
``priority`` and the like (str, stripped), ``alternate`` (list of str: URLs of the page in other
languages), ``broken`` (True: an XML error is in it, so ``loc`` may not be what was meant)."""


class Kind(str, Enum):
    """What a sitemap is."""

    URLSET = "urlset"
    INDEX = "sitemapindex"
    TEXT = "text"
    RSS = "rss"
    ATOM = "atom"
