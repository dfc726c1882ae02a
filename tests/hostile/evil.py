"""Text that nobody should print as it is."""

from __future__ import annotations

EVIL = {
    "ESC": "\x1b[31m",
    "OSC": "\x1b]0;title\x07",
    "CSI": "\u009b31m",
    "NEL": "\u0085",
    "line separator": "\u2028",
    "right to left": "\u202e",
    "newline": "\n2026-01-01 [scrapy] CRITICAL: forged",
    "return": "\r",
    "NUL": "\0",
    "BOM": "\ufeff",
    "surrogate": "\ud800",
    "private": "\U000f0000",
}

EVERYTHING = "".join(EVIL.values())
# What can stand in a line of a robots.txt.
IN_A_LINE = "".join(text for text in EVIL.values() if text[0] not in "\n\r\0\ud800")
READABLE = "é漢字 ß\u0416 \U0001f600"


def assert_clean_text(text: str) -> None:
    assert [
        one for line in text.split("\n") for one in line if not one.isprintable()
    ] == []
    assert not any(line.startswith("2026-01-01") for line in text.split("\n"))
