"""What the package said in its log, and text that nobody should print as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tests.helpers.crawling import CrawlResult

Source = CrawlResult | Iterable[logging.LogRecord]


def _ours(source: Source) -> Iterable[logging.LogRecord]:
    records = source.records if isinstance(source, CrawlResult) else source
    return (record for record in records if record.name.startswith("scrapy_rep"))


def lines(source: Source, *words: str, level: str | None = "INFO") -> list[str]:
    """Our lines of that level (of any, if None) with all of these words; the summary at the end
    of a crawl is left out, and the line at its beginning unless words are asked for."""
    return [
        record.getMessage()
        for record in _ours(source)
        if level in (None, record.levelname)
        and record.module != "summary"
        and (words or record.funcName != "log_beginning")
        and all(word in record.getMessage() for word in words)
    ]


def warnings(source: Source, *, without: str | None = None) -> list[str]:
    """Our warnings and errors but those with the words *without*, which the crawl has earned."""
    return [
        record.getMessage()
        for record in _ours(source)
        if record.levelno >= logging.WARNING
        and (without is None or without not in record.getMessage())
    ]


def summary(result: CrawlResult) -> list[str]:
    """The summary's lines, as they were before they were wrapped."""
    found = [one.getMessage() for one in result.records if one.module == "summary"]
    assert len(found) <= 1
    whole: list[str] = []
    for line in found[0].splitlines() if found else []:
        if line.startswith("    ") and " × " not in line:
            whole[-1] += line[3:]
        else:
            whole.append(line)
    return whole


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
READABLE = "é漢字 ß\u0416 \U0001f600"

# What can stand in a line of a robots.txt.
IN_A_LINE = "".join(text for name, text in EVIL.items()
                    if name not in ("newline", "return", "NUL", "surrogate"))  # fmt: skip


def assert_clean_text(text: str) -> None:
    assert [one for line in text.split("\n") for one in line if not one.isprintable()] == []
    assert not any(line.startswith("2026-01-01") for line in text.split("\n"))
