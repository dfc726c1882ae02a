"""One thing that was found."""

from __future__ import annotations

from typing import NamedTuple

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
