"""What is in a sitemap (REP.md section 9). Knows nothing of Scrapy and does no I/O.

    reader = SitemapReader()
    for entries in reader.read([body]):      # bytes, gzip or not
        for entry in entries:
            entry["loc"], entry.get("lastmod"), entry.get("alternate")
    reader.kind, reader.count, reader.problem

The modules, each using those before it: `kinds`, `lastmod`, `gunzip`, `ampersands`, `text`, `xml`,
`reader`. How entries become requests is :mod:`scrapy_rep.seeding`.
"""

from scrapy_rep.protocol.sitemaps.kinds import Kind
from scrapy_rep.protocol.sitemaps.reader import SitemapReader

__all__ = ["Kind", "SitemapReader"]
