"""Sitemaps that are read without a crawl."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from scrapy_rep.protocol import sitemaps as unpack
from scrapy_rep.protocol.sitemaps import SitemapReader


def read(
    *pieces: bytes | str, step: int = unpack.STEP, **limits: Any
) -> tuple[SitemapReader, list[dict[str, Any]]]:
    """:param step: how many bytes are worked on at a time"""
    reader = SitemapReader(**limits)
    some = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    with patch.object(unpack, "STEP", step):
        return reader, [entry for entries in reader.read(some) for entry in entries]


BEFORE = "".join(f"<url><loc>http://a.test/{n}</loc></url>\n" for n in range(20))
GOOD = [f"http://a.test/{n}" for n in range(20)]
