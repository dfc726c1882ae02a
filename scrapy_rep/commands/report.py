"""``scrapy robots --report FILE…``: the report of crawls, from their records (``REP_DECISIONS``)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, complain
from scrapy_rep.commands.inputs import project_storage
from scrapy_rep.engine.text import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.output import Output
    from scrapy_rep.commands.robots import RobotsCommand


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Print the page."""
    from scrapy_rep.reporting.report import LIBRARIES, render
    from scrapy_rep.reporting.report.contents import ReportData

    if not arguments:
        raise UsageError("--report needs a file that REP_DECISIONS has written", print_help=False)
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise CommandError(f'--report needs {name}: pip install "scrapy-rep[report]"')
    if sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("--report prints HTML: add > report.html", print_help=False)
    try:
        data = ReportData.read(arguments)
    except OSError as error:
        raise CommandError(f"{clean(str(error.filename))}: {error.strerror}") from None
    try:
        with project_storage(command.settings) as storage:
            if storage is not None:
                data.fill(lambda _, sha256: storage.body(sha256) if sha256 else None)
    except CommandError as error:
        complain(error)
    for note in data.notes:
        complain(note)
    output.bytes(render(data))
