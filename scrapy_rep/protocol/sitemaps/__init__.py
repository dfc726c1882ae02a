"""Sitemaps (REP.md section 9): what is in them, and how that becomes requests.

:class:`SitemapReader` and what it needs (`reader`, `unpack`, `xmlfeed`, `textfeed`) know
nothing of Scrapy and do no I/O:

    reader = SitemapReader()
    for entries in reader.read([body]):      # body: bytes, gzip or not; in pieces if you like
        for entry in entries:
            entry["loc"], entry.get("lastmod"), entry.get("alternate")
    reader.kind, reader.count, reader.problem

The other modules are the parts of :class:`scrapy_rep.seeding.seeding.SitemapSeeding`.
"""

from scrapy_rep.protocol.sitemaps.kinds import Kind
from scrapy_rep.protocol.sitemaps.reader import SitemapReader

__all__ = ["Kind", "SitemapReader"]
