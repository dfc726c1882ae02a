"""What is to be said of a file as a whole (REP.md section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.inspection.outline import BOM
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline


def is_utf16(body: bytes) -> bool:
    """Return whether *body* begins as Windows' "Unicode" files do."""
    return body.startswith((b"\xff\xfe", b"\xfe\xff"))


def file_findings(
    body: bytes, kept: bytes, outline: Outline, *, complete: bool
) -> Iterator[Finding]:
    """:param kept: the part of *body* that counts"""
    if is_utf16(body):
        yield Finding(1, "utf-16", "the file is UTF-16, but is read as UTF-8: save it as UTF-8")
    elif body[:1] == BOM[:1]:
        mark = "byte order mark" if body.startswith(BOM) else "part of a byte order mark"
        why = f"{mark}: skipped here, but other crawlers may miss the first line"
        yield Finding(1, "bom", why)
    if is_html(body):
        yield Finding(None, "html", "this is HTML or XML, not a robots.txt")
    if not outline.groups and not outline.homeless:
        what = "is empty" if not body.strip() else "has no rules"
        yield Finding(None, "empty", f"the file {what}: no restrictions")
    if len(body) > MAX_BYTES:
        number = 1 + kept.count(b"\n") + kept.count(b"\r") - kept.count(b"\r\n")
        rest = f"{len(body) - len(kept):,}" if complete else "all"
        why = f"{rest} bytes from this line on are ignored: only the first {MAX_BYTES:,} count"
        yield Finding(number, "beyond-limit", why)
