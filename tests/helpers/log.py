"""What the package said in its log, and text that nobody should print as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

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
        and record.funcName != "log_summary"
        and (words or record.funcName != "log_beginning")
        and all(word in record.getMessage() for word in words)
    ]


def warnings(source: Source, *, without: str | None = None) -> list[str]:
    return [
        record.getMessage()
        for record in _ours(source)
        if record.levelno >= logging.WARNING
        and (without is None or without not in record.getMessage())
    ]


def summary(result: CrawlResult) -> list[str]:
    """The summary's lines, as they were before they were wrapped."""
    found = [
        one.getMessage() for one in result.records if one.funcName == "log_summary"
    ]
    assert len(found) <= 1
    whole: list[str] = []
    for line in found[0].splitlines() if found else []:
        if line.startswith("    ") and " × " not in line:
            whole[-1] += line[3:]
        else:
            whole.append(line)
    return whole


def remember(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of what was told or seen already, the package remembers *most* from now on, not hundreds of thousands."""
    monkeypatch.setattr("scrapy_rep.engine.log._REMEMBERED", most)


@contextmanager
def at_line(name: str, words: str, then: Callable[[], object]) -> Iterator[list[str]]:
    """Call *then* when the logger *name* says *words*, and collect the lines that did."""
    seen: list[str] = []

    def look(record: logging.LogRecord) -> bool:
        if words in record.getMessage():
            seen.append(record.getMessage())
            then()
        return True

    logger = logging.getLogger(name)
    logger.addFilter(look)
    try:
        yield seen
    finally:
        logger.removeFilter(look)
