"""The package's loggers: what they log can neither forge lines nor control the terminal, and floods
are limited. Every module gets its logger here, as a test checks."""

from __future__ import annotations

import logging
import traceback
from array import array
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector
from twisted.internet.defer import CancelledError

from scrapy_rep.text import clean, without_passwords

_REMEMBERED = 100_000


class BoundedSet:
    """Remembers the last 100,000 to 200,000 items; a forgotten item counts as new again. It keeps
    sorted hashes of 8 bytes each. In a set, each would take 70, and a URL several times that."""

    def __init__(self) -> None:
        self._new, self._old = array("q"), array("q")

    def add(self, one: Hashable) -> bool:
        """Remember *one*. Return whether it is new."""
        is_new = one not in self
        if not _has(self._new, one):
            if len(self._new) >= _REMEMBERED:
                self._old, self._new = self._new, array("q")
            insort(self._new, hash(one))
        return is_new

    def __contains__(self, one: Hashable) -> bool:
        return _has(self._new, one) or _has(self._old, one)


def _has(hashes: array[int], one: Hashable) -> bool:
    at = bisect_left(hashes, hash(one))
    return at < len(hashes) and hashes[at] == hash(one)


# Lines of a kind at INFO level, see Limiter.
_FIRST = 10


def get_logger(name: str) -> logging.Logger:
    """Return the logger for the module *name*: one per folder, so that names that users filter by
    outlast modules. Each line of a message needs a ``%s``: newlines come from outside."""
    logger = logging.getLogger(".".join(name.split(".")[:-1][:2]) or name)
    if _clean not in logger.filters:
        logger.addFilter(_clean)
    return logger


def _clean(record: logging.LogRecord) -> bool:
    if isinstance(record.args, Mapping):
        record.args = {key: _text(value) for key, value in record.args.items()}
    elif record.args:
        record.args = tuple(map(_text, record.args))
    else:
        record.msg = clean(str(record.msg))
    if record.exc_info and record.exc_text is None:
        # Indented, so that its lines can't pass for log lines. Formatters use it if set.
        text = "".join(traceback.format_exception(*record.exc_info)).removesuffix("\n")
        first, *others = text.split("\n")
        shown = [clean(first), *("  " + clean(line) for line in others)]
        record.exc_text = without_passwords("\n".join(shown))
    return True


def _text(value: Any) -> Any:
    """Clean exceptions, requests and origins too: they contain text from outside, and URLs of the
    user's."""
    if value is None or isinstance(value, (int, float)):
        return value
    try:
        return clean(without_passwords(str(value)))
    except Exception:  # noqa: BLE001 (of a user's class, say)
        return f"<{type(value).__name__}>"


class Limiter:
    """Logs what happens to each of many origins: the first ten at INFO level, the others at DEBUG
    level, and their number at INFO level now and then."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        """*what* is counted: "origins with requests held"."""
        self._logger = logger
        self._what = what
        self._tell_at = _FIRST
        self._count = 0
        self._seen = BoundedSet()

    def log(
        self, message: str, values: Mapping[str, Any], spider: Spider | None, about: Hashable = None
    ) -> None:
        """Log one more. Of an origin's same *about*, others don't count, and are at DEBUG level."""
        extra = {"spider": spider}
        if about is not None:
            if not self._seen.add(about):
                self._logger.debug(message, values, extra=extra)
                return
            message += "; more for this origin at DEBUG level"
        self._count += 1
        level = logging.INFO if self._count <= _FIRST else logging.DEBUG
        self._logger.log(level, message, values, extra=extra)
        if self._count == self._tell_at:
            self._tell_at *= 10
            message = "%(count)s %(what)s so far; others are logged at DEBUG level"
            counts = {"count": f"{self._count:,}", "what": self._what}
            self._logger.info(message, counts, extra=extra)


class Gauge:
    """A stat that is 1 while something that the crawl needs can't be used, so that monitoring sees it
    at once; 0 when it works again. While nothing has failed, there is no such stat. It may be set from
    a thread: for a stats collector, that is one assignment."""

    def __init__(self, stats: StatsCollector | None, name: str) -> None:
        self._stats = stats
        self._name = name
        self._is_down = False

    def set(self, is_down: bool) -> None:
        if is_down != self._is_down:
            self._is_down = is_down
            if self._stats is not None:
                self._stats.set_value(self._name, int(is_down))


logger = get_logger(__name__)


class Isolation:
    """Contains bugs of parts that only report what happens, and logs the first of each."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._logged: set[str] = set()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        try:
            yield
        except CancelledError:
            raise
        except Exception:
            if part not in self._logged:
                self._logged.add(part)
                logger.exception(
                    "Bug in scrapy-rep: the %(part)s failed. The crawl goes on; further failures of "
                    "the %(part)s are not logged.",
                    {"part": part},
                    extra={"spider": self._crawler.spider},
                )
