"""``scrapy robots --lint URL|FILE``: likely mistakes in a robots.txt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, Status, complain, gravest
from scrapy_rep.commands.inputs import STDIN, read_file, request_for
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import DIM, RED, YELLOW, Output
from scrapy_rep.engine.text import clean
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import RobotsFile
from scrapy_rep.inspection.lint import Finding, lint
from scrapy_rep.inspection.lint.finding import ERROR, NOTE, SEVERITIES, WARNING
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

# Bytes of a file: far more than count, to tell how many don't.
_MAX_READ = 16 * MAX_BYTES
# Characters of a line that are shown below a finding.
_SHOWN = 100

_COLOURS = {ERROR: RED, WARNING: YELLOW, NOTE: DIM}


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Lint files, and the robots.txt of URLs as they are now, past the cache."""
    if not arguments:
        raise UsageError("--lint needs a URL, a file, or - for standard input", print_help=False)
    printer = _Printer(options)
    origins: list[Origin] = []

    async def job(lookup: Lookup) -> None:
        for origin in dict.fromkeys(origins):
            try:
                printer.show(origin.robots_url, _lint_site(await lookup.now(origin)))
            except CommandError as error:
                printer.complain(f"{origin.robots_url}: {error}", error.status)

    for argument in arguments:
        try:
            if "://" in argument:
                origins.append(request_for(argument)[1])
                continue
            body = read_file(argument, _MAX_READ)
        except CommandError as error:
            printer.complain(str(error), error.status)
        else:
            name = STDIN_IN_WORDS if argument == STDIN else argument
            printer.show(name, lint(body, complete=len(body) < _MAX_READ, also=[usage_findings]))
    if origins:
        run_crawl(command, job)
    return gravest(*printer.statuses)


def _lint_site(robots: RobotsFile) -> list[Finding]:
    if robots.outcome is Outcome.MISSING:
        return [Finding(None, "no-file", f"no robots.txt ({robots.answer}): no restrictions")]
    complete = len(robots.body) <= MAX_BYTES
    url = robots.facts.robots_url
    return lint(robots.body, robots_url=url, complete=complete, also=[usage_findings])


class _Printer:
    """Prints findings, and collects the exit statuses."""

    def __init__(self, options: Namespace) -> None:
        self.statuses: set[Status] = set()
        self._output = Output()
        self._json: bool = options.json
        self._counted = SEVERITIES[: SEVERITIES.index(options.fail_on or NOTE) + 1]

    def complain(self, message: str, status: Status) -> None:
        """Tell of a file that can't be linted."""
        complain(message)
        self.statuses.add(status)

    def show(self, source: str, findings: Sequence[Finding]) -> None:
        """Print what was found in one file."""
        counts = any(one.severity in self._counted for one in findings)
        self.statuses.add(Status.FOUND if counts else Status.GOOD)
        for one in findings:
            if self._json:
                data = {"source": source, **one._asdict(), "severity": one.severity}
                self._output.json(data)
            else:
                self._print(source, one)
        if not findings and not self._json:
            self._output.line(f"{clean(source)}: nothing found")
        self._output.flush()

    def _print(self, source: str, one: Finding) -> None:
        place = f"{clean(source)}:{one.line}:" if one.line else f"{clean(source)}:"
        severity = self._output.paint(one.severity, _COLOURS[one.severity])
        self._output.line(f"{place} {severity}: {clean(one.message)} [{one.code}]")
        text = one.text.strip()
        if text:
            more = "…" if len(text) > _SHOWN else ""
            self._output.line("    " + self._output.paint(text[:_SHOWN] + more, DIM))
