"""A single finding; and the findings about the file as a whole (REP.md section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.inspection.explanation import BOM
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.explanation import Outline


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


ERROR, WARNING, NOTE = SEVERITIES = ("error", "warning", "note")

_ERRORS = {
    "rule-before-group", "never-matches", "blank-in-rule", "comment-in-rule", "agent-never",
    "line-cut", "nul", "utf-16", "html", "beyond-limit", "bad-delay", "bad-sitemap", "bad-usage",
    "bad-signal", "bad-license",
}  # fmt: skip
_NOTES = {
    "duplicate", "no-rules", "no-file", "not-checked", "other-field", "split-group", "case",
    "trailing-star",
}  # fmt: skip


class Finding(NamedTuple):
    """Something that the owner of a robots.txt would want to know."""

    line: int | None
    """From 1; None for the whole file."""
    code: str
    """The kind of finding, for filters: docs/command-lint.md lists them."""
    message: str
    text: str = ""
    """The line as it stands in the file; bytes that are not UTF-8 as ``\\xNN``."""

    @property
    def severity(self) -> str:
        """``error``: it doesn't do what it says. ``warning``: probably not what is meant, or not for
        all crawlers. ``note``: worth knowing."""
        if self.code in _ERRORS:
            return ERROR
        return NOTE if self.code in _NOTES else WARNING


def quoted(text: str) -> str:
    """Return *text* in quotes, cut to 60 characters."""
    return f'"{text if len(text) <= 60 else text[:60] + "…"}"'
