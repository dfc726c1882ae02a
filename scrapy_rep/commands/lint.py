"""``scrapy robots --lint URL|FILE``: what the owner of a robots.txt would want to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.inputs import STDIN, InputError, read_file, request_for, settings_of
from scrapy_rep.commands.lookup import Lookup
from scrapy_rep.commands.lookup import run as run_crawl
from scrapy_rep.commands.status import Status, gravest
from scrapy_rep.commands.terminal import DIM, YELLOW, Output, complain
from scrapy_rep.engine.words import clean
from scrapy_rep.inspection.explanation import missing
from scrapy_rep.inspection.lint import Finding, lint
from scrapy_rep.origins.failures import CONFIGURATION_ERRORS
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

# Characters of a line that are shown beside a finding.
_SHOWN = 100


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Lint files and the robots.txt of URLs; each as it is now, past the cache.

    :raises UsageError: if nothing is to be linted
    """
    if not arguments:
        raise UsageError("--lint wants a URL, a file or - for standard input", print_help=False)
    settings_of(command.settings)
    printer = _FindingPrinter(Output(), as_json=options.json)
    statuses: set[Status] = set()
    origins: list[Origin] = []
    for argument in arguments:
        try:
            if "://" in argument:
                origins.append(request_for(argument)[1])
            else:
                name = "standard input" if argument == STDIN else argument
                statuses.add(printer.add(name, lint(read_file(argument))))
        except InputError as error:
            complain(str(error))
            statuses.add(Status.USAGE)

    async def job(lookup: Lookup) -> None:
        for origin in dict.fromkeys(origins):
            statuses.add(await _lint_site(lookup, origin, printer))

    if origins:
        run_crawl(command, job)
    return gravest(*statuses)


async def _lint_site(lookup: Lookup, origin: Origin, printer: _FindingPrinter) -> Status:
    try:
        answer = await lookup.fetcher.fetch(origin)
    except CONFIGURATION_ERRORS as error:
        complain(f"{origin.robots_url}: {type(error).__name__}: {error}")
        return Status.UNREACHABLE
    if answer.outcome is Outcome.UNREACHABLE:
        complain(f"{origin.robots_url}: unreachable: {answer.reason}")
        return Status.UNREACHABLE
    if answer.outcome is Outcome.MISSING:
        why = missing(answer.status, answer.hops)
        message = f"there is no robots.txt ({why}): no restrictions"
        return printer.add(origin.robots_url, [Finding(None, "no-file", message)])
    complete = len(answer.body) <= MAX_BYTES
    return printer.add(
        origin.robots_url,
        lint(answer.body, robots_url=origin.robots_url, complete=complete),
    )


class _FindingPrinter:
    """What is printed."""

    def __init__(self, output: Output, *, as_json: bool) -> None:
        self._output = output
        self._json = as_json

    def add(self, source: str, findings: Iterable[Finding]) -> Status:
        """Print what was found in a file."""
        output = self._output
        status = Status.GOOD
        for one in findings:
            status = Status.FOUND
            if self._json:
                output.json({"source": source, **one._asdict()})
                continue
            place = f"{clean(source)}:{one.line}:" if one.line else f"{clean(source)}:"
            code = output.paint(f"[{one.code}]", YELLOW)
            output.line(f"{place} {clean(one.message)} {code}")
            text = one.text.strip()
            if text:
                more = "…" if len(text) > _SHOWN else ""
                output.line("    " + output.paint(clean(text[:_SHOWN]) + more, DIM))
        if status is Status.GOOD and not self._json:
            output.line(f"{clean(source)}: nothing found")
        output.flush()
        return status
