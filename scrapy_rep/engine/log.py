"""The package's loggers (:func:`get_logger`): what they log can neither forge lines nor
control the terminal, and floods are limited (:class:`Limiter`). A test checks that
every module gets its logger here.

Also here: a stat for people who watch a crawl (:class:`Gauge`), and what keeps bugs in
our reports from stopping it (:class:`Isolation`).
"""

from __future__ import annotations

import logging
import sys
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

# A BoundedSet remembers at least this many items, whose hashes take 1 MiB.
_REMEMBERED = 100_000

# A table of hashes has this many places at first: 2 KiB.
_FIRST_PLACES = 256
# When a table is nearly full, it gets this many times as many places. With a smaller
# factor, hashes of larger tables would have to be moved, which blocks the event loop.
_GROWTH = 8
# Stands for the hash 0, since a 0 marks a free place.
_ZERO = 1 << 62


class BoundedSet:
    """Remembers the last 100,000 to 200,000 items; a forgotten item counts as new
    again. It keeps hashes, in at most 2 MiB. In a set, each item would take 70 bytes,
    and a URL several times that."""

    def __init__(self) -> None:
        self._new = _Hashes()
        """Hashes of the items that were added last: at most 100,000."""
        self._old = _Hashes()
        """Hashes of the 100,000 items before those. They are forgotten once there are
        100,000 new ones."""

    def add(self, item: Hashable) -> bool:
        """Remember *item*. Return whether it is new."""
        number = hash(item) or _ZERO
        old = self._old
        # Most crawls have fewer items, so none is old.
        is_old = old.count > 0 and number in old
        if self._new.count >= _REMEMBERED and number not in self._new:
            self._old = self._new
            self._new = _Hashes()
        was_added = self._new.add(number)
        return was_added and not is_old

    def __contains__(self, item: Hashable) -> bool:
        number = hash(item) or _ZERO
        return number in self._new or number in self._old


class _Hashes:
    """A hash table with open addressing, of numbers of 64 bits other than 0: a number
    stands at the place that its last bits say or, if that is taken, at the next free
    one."""

    __slots__ = ("_mask", "_places", "count")

    def __init__(self) -> None:
        self.count = 0
        """How many numbers are in the table."""
        self._make_places(_FIRST_PLACES)

    def __iter__(self) -> Iterator[int]:
        return filter(None, self._places)

    def __contains__(self, number: int) -> bool:
        # Local names, here and in add(): both run for each request that is refused.
        places = self._places
        mask = self._mask
        index = number & mask
        while places[index] != number:
            if places[index] == 0:
                return False
            index = (index + 1) & mask
        return True

    def add(self, number: int) -> bool:
        """Add *number*. Return whether it is new."""
        places = self._places
        mask = self._mask
        index = number & mask
        while places[index]:
            if places[index] == number:
                return False
            index = (index + 1) & mask
        places[index] = number
        self.count += 1
        # An eighth of the places stays free: with fewer free ones, a search would take
        # long.
        size = len(places)
        most = size - size // 8
        if self.count > most:
            self._grow()
        return True

    def _grow(self) -> None:
        """Move all numbers to a larger table."""
        numbers = list(self)
        self.count = 0
        self._make_places(_GROWTH * len(self._places))
        for number in numbers:
            self.add(number)

    def _make_places(self, size: int) -> None:
        """Begin with *size* free places: a power of 2."""
        self._places = array("q", [0]) * size
        self._mask = size - 1


# A Limiter logs the first events of its sort, this many, at INFO level.
_FIRST_LINES = 10


def get_logger(name: str) -> logging.Logger:
    """Return the logger for the module *name*. There is one for each folder, since
    users filter by a logger's name, and modules may come and go. A message of several
    lines needs a ``%s`` for each line, since newlines in values come from outside."""
    folder = ".".join(name.split(".")[:-1][:2])
    logger = logging.getLogger(folder or name)
    if _clean not in logger.filters:
        logger.addFilter(_clean)
    return logger


@contextmanager
def silenced(name: str) -> Iterator[None]:
    """In this context, drop what is logged under *name*."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def _clean(record: logging.LogRecord) -> bool:
    """Clean the text of *record*, and hide passwords. Return True: it is logged. (A
    logger's filter.)"""
    # Refusals, which may be millions, have no arguments, so this comes first.
    if not record.args:
        record.msg = clean(str(record.msg))
    elif isinstance(record.args, Mapping):
        record.args = {key: _text(value) for key, value in record.args.items()}
    else:
        record.args = tuple(map(_text, record.args))
    if record.exc_info and record.exc_text is None:
        # Formatters use exc_text if it is set.
        formatted = "".join(traceback.format_exception(*record.exc_info))
        record.exc_text = _clean_traceback(formatted)
    return True


def _clean_traceback(formatted: str) -> str:
    """Return a *formatted* traceback, with lines indented that could pass for log
    lines."""
    first_line, *later_lines = formatted.removesuffix("\n").split("\n")
    lines = [clean(first_line)]
    for line in later_lines:
        lines.append("  " + clean(line))
    return without_passwords("\n".join(lines))


def _text(value: Any) -> Any:
    """Return *value* as text that is clean, without passwords; numbers and None as they
    are. Exceptions, requests and origins, too, contain text from outside, and URLs of
    the user's."""
    if value is None or isinstance(value, (int, float)):
        return value
    try:
        return clean(without_passwords(str(value)))
    except Exception:  # noqa: BLE001 (of a user's class, say)
        return f"<{type(value).__name__}>"


def is_heard(logger: logging.Logger, level: int) -> bool:
    """Whether a handler takes records of *level*. The level of *logger* alone doesn't
    tell: Scrapy's setting ``LOG_LEVEL`` is a level of its handlers."""
    if not logger.isEnabledFor(level):
        return False
    ancestor: logging.Logger | None = logger
    while ancestor is not None:
        for handler in ancestor.handlers:
            if handler.level <= level:
                return True
        if not ancestor.propagate:
            return False
        ancestor = ancestor.parent
    return False


def _log_debug(logger: logging.Logger, text: str, extra: Mapping[str, Any]) -> None:
    """Log *text* for the caller of this function as ``logger.debug()`` would, at a
    level that is heard. ``debug()`` takes longer, since it searches for its caller. A
    project's own class of loggers may do something else."""
    if type(logger) is not logging.Logger:
        logger.debug(text, extra=extra, stacklevel=2)
        return
    caller = sys._getframe(1)
    code = caller.f_code
    record = logger.makeRecord(
        logger.name,
        logging.DEBUG,
        code.co_filename,
        caller.f_lineno,
        text,
        (),
        None,
        code.co_name,
        extra,
    )
    logger.handle(record)


class Limiter:
    """Logs events of one sort, such as that requests to an origin are held: the first
    ten at INFO level, the others at DEBUG level. Their number is logged at INFO level
    now and then."""

    def __init__(self, logger: logging.Logger, counted_as: str) -> None:
        """*counted_as*: what is counted, as in "origins with requests held"."""
        self._logger = logger
        self._counted_as = counted_as
        self._count = 0
        self._next_report = _FIRST_LINES
        """The count that is logged next."""
        self._subjects = BoundedSet()
        """What the events were about."""

    def log(
        self,
        message: str,
        values: Mapping[str, Any],
        spider: Spider | None,
        about: Hashable = None,
    ) -> None:
        """Log an event. If one with the same *about* (an origin, say) was logged
        before, log it at DEBUG level, and don't count it."""
        extra = {"spider": spider}
        if about is not None:
            if not self._subjects.add(about):
                # There may be millions of such events, and a log record takes as long
                # as all else about a refusal. Cleaning one text takes less time than
                # cleaning each value, and keeps no request in memory.
                if is_heard(self._logger, logging.DEBUG):
                    _log_debug(self._logger, without_passwords(message % values), extra)
                return
            message += "; more for this origin at DEBUG level"
        self._count += 1
        level = logging.INFO if self._count <= _FIRST_LINES else logging.DEBUG
        self._logger.log(level, message, values, extra=extra)
        if self._count == self._next_report:
            self._next_report *= 10
            self._logger.info(
                "%(count)s %(what)s so far; others are logged at DEBUG level",
                {"count": f"{self._count:,}", "what": self._counted_as},
                extra=extra,
            )


class Gauge:
    """A stat that is 1 while something that the crawl needs, such as a storage, can't
    be used, so that monitoring sees it at once; 0 when it works again. As long as
    nothing has failed, there is no such stat. It may be set from a thread, since for a
    stats collector that is one assignment."""

    def __init__(self, stats: StatsCollector | None, name: str) -> None:
        self._stats = stats
        self._name = name
        self._is_down = False

    def set(self, is_down: bool) -> None:
        """Set the stat, if that has changed."""
        if is_down == self._is_down:
            return
        self._is_down = is_down
        if self._stats is not None:
            self._stats.set_value(self._name, int(is_down))


logger = get_logger(__name__)


class Isolation:
    """Keeps exceptions of certain parts, such as those that only report what happens,
    from stopping the crawl. Logs the first one of each part."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._logged: set[str] = set()
        """The parts that have failed before."""

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """In this context, contain the exceptions of *part*, which is named in the
        log."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever a bug raises)
            self.contain(part, error)

    def contain(self, part: str, error: Exception) -> None:
        """Log *error*, which *part* has raised, if it is the first one. Call this in an
        ``except``. Code that runs for each request calls it directly, since entering a
        context takes too long.

        :raises CancelledError: if that is what *error* is
        """
        if isinstance(error, CancelledError):
            raise error
        if part in self._logged:
            return
        self._logged.add(part)
        logger.error(
            "Bug in scrapy-rep: the %(part)s failed. The crawl goes on; further failures of "
            "the %(part)s are not logged.",
            {"part": part},
            exc_info=error,
            extra={"spider": self._crawler.spider},
        )
