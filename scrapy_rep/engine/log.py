"""The package's loggers: what they log can neither forge lines nor control the terminal, and floods
are limited. Every module gets its logger here, as a test checks."""

from __future__ import annotations

import logging
import traceback
from array import array
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector
from twisted.internet.defer import CancelledError

from scrapy_rep.text import clean, without_passwords

_REMEMBERED = 100_000

# Places of a table of hashes at first. When it is nearly full, it gets eight times as many: moving the
# hashes of a larger table, or moving them more often, would hold the event loop.
_PLACES = 256
_GROWTH = 8
# Stands for the hash 0: a 0 marks a free place.
_ZERO = 1 << 62


class BoundedSet:
    """Remembers the last 100,000 to 200,000 items; a forgotten item counts as new again. It keeps
    hashes, in at most 2 MiB. In a set, each item would take 70 bytes, and a URL several times that."""

    def __init__(self) -> None:
        self._new, self._old = _Hashes(), _Hashes()

    def add(self, item: Hashable) -> bool:
        """Remember *item*. Return whether it is new."""
        number = hash(item) or _ZERO
        if number in self._new:
            return False
        is_new = number not in self._old
        if self._new.count >= _REMEMBERED:
            self._old, self._new = self._new, _Hashes()
        self._new.add(number)
        return is_new

    def __contains__(self, item: Hashable) -> bool:
        number = hash(item) or _ZERO
        return number in self._new or number in self._old


class _Hashes:
    """A hash table with open addressing, of numbers of 64 bits other than 0."""

    __slots__ = ("_last", "_places", "count")

    def __init__(self) -> None:
        self.count = 0
        self._make_room(_PLACES)

    def __iter__(self) -> Iterator[int]:
        return filter(None, self._places)

    def __contains__(self, number: int) -> bool:
        places, last = self._places, self._last
        at = number & last
        while (there := places[at]) != number:
            if there == 0:
                return False
            at = (at + 1) & last
        return True

    def add(self, number: int) -> None:
        """Add *number*, which is not there yet."""
        places, last = self._places, self._last
        at = number & last
        while places[at]:
            at = (at + 1) & last
        places[at] = number
        self.count += 1
        if self.count > last - last // _GROWTH:
            numbers = list(self)
            self.count = 0
            self._make_room(_GROWTH * len(places))
            for moved in numbers:
                self.add(moved)

    def _make_room(self, size: int) -> None:
        """Begin with *size* free places: a power of 2."""
        self._places = array("q", [0]) * size
        self._last = size - 1


# Lines of a kind at INFO level, see Limiter.
_FIRST = 10


def get_logger(name: str) -> logging.Logger:
    """Return the logger for the module *name*: one per folder, so that names that users filter by
    outlast modules. Each line of a message needs a ``%s``: newlines come from outside."""
    logger = logging.getLogger(".".join(name.split(".")[:-1][:2]) or name)
    if _clean not in logger.filters:
        logger.addFilter(_clean)
    return logger


@contextmanager
def silenced(name: str) -> Iterator[None]:
    """Drop meanwhile what is logged under *name*: lines of others that were logged before."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def _clean(record: logging.LogRecord) -> bool:
    if not record.args:  # first: as refusals are, which may be millions
        record.msg = clean(str(record.msg))
    elif isinstance(record.args, Mapping):
        record.args = {key: _text(value) for key, value in record.args.items()}
    else:
        record.args = tuple(map(_text, record.args))
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


def is_heard(logger: logging.Logger, level: int) -> bool:
    """Whether a handler takes records of *level*. Loggers alone can't tell: Scrapy's setting
    ``LOG_LEVEL`` is its handlers'."""
    if not logger.isEnabledFor(level):
        return False
    asked: logging.Logger | None = logger
    while asked is not None:
        for handler in asked.handlers:
            if handler.level <= level:
                return True
        asked = asked.parent if asked.propagate else None
    return False


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
        self,
        message: str,
        values: Mapping[str, Any],
        spider: Spider | None,
        about: Hashable = None,
    ) -> None:
        """Log one more. Of an origin's same *about*, others don't count, and are at DEBUG level."""
        extra = {"spider": spider}
        if about is not None:
            if not self._seen.add(about):
                # There may be millions, and a record takes as long as all else about a refusal. Cleaning
                # one text takes less time than cleaning each value, and keeps no request in memory.
                if is_heard(self._logger, logging.DEBUG):
                    self._logger.debug(without_passwords(message % values), extra=extra)
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
        self._parts: dict[str, _Contained] = {}

    def __call__(self, part: str) -> _Contained:
        """Return a context manager for code of *part*."""
        contained = self._parts.get(part)
        if contained is None:
            contained = self._parts[part] = _Contained(self._crawler, part)
        return contained


class _Contained:
    # A class: a generator as a context manager costs each refused request some microseconds more.

    def __init__(self, crawler: Crawler, part: str) -> None:
        self._crawler = crawler
        self._part = part
        self._is_logged = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, CancelledError):
            return False
        if not self._is_logged:
            self._is_logged = True
            logger.error(
                "Bug in scrapy-rep: the %(part)s failed. The crawl goes on; further failures of "
                "the %(part)s are not logged.",
                {"part": self._part},
                exc_info=error,
                extra={"spider": self._crawler.spider},
            )
        return True
