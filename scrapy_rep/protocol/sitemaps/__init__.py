"""Reads sitemaps (REP.md section 9). Knows nothing of Scrapy and does no I/O.

    reader = SitemapReader()
    for entries in reader.read([body]):      # bytes, gzip or not
        for entry in entries:
            entry["loc"], entry.get("lastmod"), entry.get("alternate")
    reader.kind, reader.count, reader.problem

`reader` unpacks, and chooses between text and XML; `xml` turns what `markup` finds into entries.
:mod:`scrapy_rep.seeding` turns entries into requests.
"""

from scrapy_rep.protocol.sitemaps.reader import SitemapReader
from scrapy_rep.protocol.sitemaps.xml import Kind

__all__ = ["Kind", "SitemapReader"]
