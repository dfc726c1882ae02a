"""The package's loggers: what they log can neither forge lines nor control the terminal. Every module
gets its logger here, as a test checks."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError

from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from scrapy import Spider
    from scrapy.crawler import Crawler

    _Raised = (
        tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    )

# Lines of a kind at INFO level, see Sparse.
_FIRST = 10


def get_logger(name: str) -> logging.Logger:
    """Return the logger for the module *name*: one per folder, so that names users filter by outlast
    modules.

    A message of several lines needs a ``%s`` for each: newlines in arguments come from outside.
    """
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
        record.exc_text = _traceback(record.exc_info)  # formatters use it if set
    return True


def _text(value: Any) -> Any:
    """Exceptions, requests and origins contain outside text, too."""
    if value is None or isinstance(value, (int, float)):
        return value
    try:
        return clean(str(value))
    except Exception:  # noqa: BLE001 (of a user's class, say)
        return f"<{type(value).__name__}>"


def _traceback(raised: _Raised) -> str:
    """Return a traceback, indented so that its lines can't pass for log lines."""
    text = "".join(traceback.format_exception(*raised)).removesuffix("\n")
    first, *others = text.split("\n")
    return "\n".join([clean(first), *("  " + clean(line) for line in others)])


class Few:
    """Lets the first few through, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def one_more(self) -> bool:
        """Count one. Return whether it may be logged."""
        self._count += 1
        return self._count <= self._limit

    @property
    def left_out(self) -> int:
        """How many were not."""
        return max(0, self._count - self._limit)


class Sparse:
    """Logs what happens to each of many origins: the first few at INFO, the others at DEBUG, and their
    number at INFO now and then."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        """:param what: what is counted: "origins with requests held" """
        self._logger = logger
        self._what = what
        self._count = 0
        self._tell_at = 10 * _FIRST

    def log(self, message: str, values: Mapping[str, Any], spider: Spider | None) -> None:
        """Log one more."""
        self._count += 1
        extra = {"spider": spider}
        level = logging.INFO if self._count <= _FIRST else logging.DEBUG
        self._logger.log(level, message, values, extra=extra)
        if self._count == _FIRST + 1:
            self._tell("More lines like the last ten (%(what)s) are at DEBUG level", extra)
        elif self._count == self._tell_at:
            self._tell_at *= 10
            self._tell("%(count)s %(what)s so far", extra)

    def _tell(self, message: str, extra: dict[str, Any]) -> None:
        values = {"what": self._what, "count": f"{self._count:,}"}
        self._logger.info(message, values, extra=extra)


logger = get_logger(__name__)


class Isolation:
    """Contains bugs of parts that only report what happens, and logs the first of each part."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._logged: set[str] = set()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Run the body of the ``with`` statement as far as it goes."""
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
