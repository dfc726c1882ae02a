"""``scrapy robots --lint URL|FILE``: likely mistakes in a robots.txt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, Status, complain
from scrapy_rep.commands.inputs import STDIN, read_file, request_for
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import DIM, RED, YELLOW, Output
from scrapy_rep.engine.text import clean
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import RobotsFile
from scrapy_rep.inspection.lint import ERROR, NOTE, SEVERITIES, WARNING, Finding, lint
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


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Lint files, and the robots.txt of URLs as they are now, past the cache."""
    if not arguments:
        raise UsageError("--lint needs a URL, a file, or - for standard input", print_help=False)
    origins: dict[Origin, None] = {}

    async def job(lookup: Lookup) -> None:
        for origin in origins:
            try:
                robots = await lookup.now(origin)
            except CommandError as error:
                complain(f"{origin.robots_url}: {error}")
                output.statuses.add(error.status)
            else:
                _show(output, options, origin.robots_url, _lint_site(robots))

    for argument in arguments:
        try:
            if "://" in argument:
                origins[request_for(argument)[1]] = None
                continue
            body = read_file(argument, _MAX_READ)
        except CommandError as error:
            complain(error)
            output.statuses.add(error.status)
        else:
            name = STDIN_IN_WORDS if argument == STDIN else argument
            findings = lint(body, complete=len(body) < _MAX_READ, also=[usage_findings])
            _show(output, options, name, findings)
    if origins:
        run_crawl(command, job)


def _lint_site(robots: RobotsFile) -> list[Finding]:
    if robots.outcome is Outcome.MISSING:
        return [Finding(None, "no-file", f"no robots.txt ({robots.answer}): no restrictions")]
    complete = len(robots.body) <= MAX_BYTES
    url = robots.facts.robots_url
    return lint(robots.body, robots_url=url, complete=complete, also=[usage_findings])


def _show(output: Output, options: Namespace, source: str, findings: Sequence[Finding]) -> None:
    """Print what was found in one file."""
    failing = SEVERITIES[: SEVERITIES.index(options.fail_on or NOTE) + 1]
    if any(one.severity in failing for one in findings):
        output.statuses.add(Status.FOUND)
    for one in findings:
        if options.json:
            output.json({"source": source, **one._asdict(), "severity": one.severity})
        else:
            _print(output, source, one)
    if not findings and not options.json:
        output.line(f"{clean(source)}: nothing found")
    output.flush()


def _print(output: Output, source: str, one: Finding) -> None:
    place = f"{source}:{one.line}:" if one.line else f"{source}:"
    severity = output.paint(one.severity, _COLOURS[one.severity])
    output.line(f"{clean(place)} {severity}: {clean(one.message)} [{one.code}]")
    if text := one.text.strip():
        more = "…" if len(text) > _SHOWN else ""
        output.line("    " + output.paint(text[:_SHOWN] + more, DIM))
