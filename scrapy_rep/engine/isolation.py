"""Parts that only report what happens must not change it: a bug in one affects neither the others
nor the crawl."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler

logger = get_logger(__name__)


class Isolation:
    """Contains exceptions, and logs the first of each part."""

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
