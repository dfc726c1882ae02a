"""``scrapy robots --report FILE…``: the report of crawls, from their records (``REP_DECISIONS``)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, Status, complain, give_up
from scrapy_rep.engine.text import clean, text_of
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.client import make_storage
from scrapy_rep.storages.memory import MemoryStorage

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.reporting.report.data import ReportData


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Print the page."""
    from scrapy_rep.reporting.report import LIBRARIES, render
    from scrapy_rep.reporting.report.data import ReportData

    if not arguments:
        raise UsageError("--report needs a file that REP_DECISIONS has written", print_help=False)
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise CommandError(f'--report needs {name}: pip install "scrapy-rep[report]"')
    if sys.stdout.isatty():
        raise UsageError("--report prints HTML: add > report.html", print_help=False)
    try:
        data = ReportData.read(arguments)
    except OSError as error:
        raise CommandError(f"{clean(str(error.filename))}: {error.strerror}") from None
    _fill(command, data)
    for note in data.notes:
        complain(note)
    try:
        sys.stdout.buffer.write(render(data))
        sys.stdout.buffer.flush()
    except OSError as error:
        give_up(sys.stdout)
        raise CommandError(f"standard output: {error.strerror}") from None
    return Status.GOOD


def _fill(command: RobotsCommand, data: ReportData) -> None:
    """Add the robots.txt files, as far as the project's storage has them."""
    settings = RepSettings.from_settings(command.settings)
    storage = make_storage(Crawler(Spider, command.settings), settings)
    if type(storage) is MemoryStorage:  # a subclass may keep its entries
        return
    try:
        data.fill(lambda _, sha256: storage.body(sha256) if sha256 else None)
    except Exception as error:  # noqa: BLE001 (whatever a storage raises)
        complain(f"the cache can't be used: {text_of(error)}")
    finally:
        storage.close()
