"""What is to be said of a file as a whole (REP.md section 6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline

_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_HTML = re.compile(rb"\s*<(?:!doctype\s+html|html|head|body|\?xml)\b", re.IGNORECASE)


def is_html(body: bytes) -> bool:
    """Return whether *body* is a page, such as an error page sent with status 200."""
    return _HTML.match(body.removeprefix(_BOM)) is not None


def is_utf16(body: bytes) -> bool:
    """Return whether *body* begins as Windows' "Unicode" files do."""
    return body.startswith(_UTF_16)


def file_findings(
    body: bytes, kept: bytes, outline: Outline, *, complete: bool
) -> Iterator[Finding]:
    """Yield them.

    :param kept: the part of *body* that counts
    """
    if is_utf16(body):
        yield Finding(1, "utf-16", "the file is UTF-16, but is read as UTF-8: save it as UTF-8")
    elif body.startswith(_BOM):
        yield Finding(
            1,
            "bom",
            "the file begins with a byte order mark; it is skipped here, but other "
            "crawlers may miss the first line",
        )
    elif body[:1] == _BOM[:1]:
        yield Finding(
            1, "bom", "the file begins with a piece of a byte order mark, which is skipped here"
        )
    if is_html(body):
        yield Finding(None, "html", "this is HTML or XML, not a robots.txt")
    if not (outline.groups or outline.homeless or outline.sitemaps):
        what = "is empty" if not body.strip() else "holds no rule and no sitemap"
        yield Finding(None, "empty", f"the file {what}: no restrictions")
    elif not outline.groups and not outline.homeless:
        yield Finding(None, "empty", "the file holds no rule: no restrictions")
    if len(body) > MAX_BYTES:
        rest = f"{len(body) - len(kept):,} bytes from here on lie beyond {MAX_BYTES:,} bytes"
        yield Finding(
            _line_breaks(kept) + 1,
            "beyond-limit",
            f"{rest}, or on the line that this limit cuts in two, and are ignored"
            if complete
            else f"the file is longer than {MAX_BYTES:,} bytes: from here on it is ignored (it was "
            "fetched no further)",
        )


def _line_breaks(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
