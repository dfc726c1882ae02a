"""Logs once when a file becomes unusable, and once when it works again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Spider

logger = get_logger(__name__)


class Trouble:
    """Whether a file can be used."""

    def __init__(self, path: Path | str | None, meanwhile: str, spider: Spider | None) -> None:
        """:param meanwhile: what happens until it works"""
        self._path = path
        self._meanwhile = meanwhile
        self._spider = spider
        self.on = False
        """Whether it can't, as the log says."""

    def begins(self, error: Exception, meanwhile: str | None = None) -> None:
        """The file can't be used.

        :param meanwhile: as in the constructor, for this time
        """
        if not self.on:
            self.on = True
            logger.warning(
                "Can't use %(path)s (%(error)s): %(meanwhile)s",
                {"path": self._path, "error": error, "meanwhile": meanwhile or self._meanwhile},
                extra={"spider": self._spider},
            )

    def ends(self) -> None:
        """The file can be used."""
        if self.on:
            self.on = False
            logger.info(
                "%(path)s can be used again",
                {"path": self._path},
                extra={"spider": self._spider},
            )
