"""``scrapy robots --lint URL|FILE``: likely mistakes in a robots.txt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, Status, complain, gravest
from scrapy_rep.commands.inputs import STDIN, read_file, request_for
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.terminal import DIM, YELLOW, Output
from scrapy_rep.engine.words import clean, text_of
from scrapy_rep.inspection.explanation import missing, noted
from scrapy_rep.inspection.lint import Finding, lint
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS
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


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Lint files, and the robots.txt of URLs as they are now, past the cache."""
    if not arguments:
        raise UsageError("--lint needs a URL, a file, or - for standard input", print_help=False)
    output = Output()
    statuses: set[Status] = set()
    origins: list[Origin] = []

    def show(source: str, findings: Sequence[Finding]) -> None:
        statuses.add(Status.FOUND if findings else Status.GOOD)
        for one in findings:
            if options.json:
                output.json({"source": source, **one._asdict()})
                continue
            place = f"{clean(source)}:{one.line}:" if one.line else f"{clean(source)}:"
            output.line(f"{place} {clean(one.message)} {output.paint(f'[{one.code}]', YELLOW)}")
            text = one.text.strip()
            if text:
                more = "…" if len(text) > _SHOWN else ""
                output.line("    " + output.paint(clean(text[:_SHOWN]) + more, DIM))
        if not findings and not options.json:
            output.line(f"{clean(source)}: nothing found")
        output.flush()

    async def job(lookup: Lookup) -> None:
        for origin in dict.fromkeys(origins):
            try:
                findings = await _lint_site(lookup, origin)
            except CommandError as error:
                complain(f"{origin.robots_url}: {error}")
                statuses.add(error.status)
            else:
                show(origin.robots_url, findings)

    for argument in arguments:
        try:
            if "://" in argument:
                origins.append(request_for(argument)[1])
                continue
            body = read_file(argument, _MAX_READ)
            findings = lint(body, complete=len(body) < _MAX_READ, also=[usage_findings])
        except CommandError as error:
            complain(error)
            statuses.add(error.status)
        else:
            show("standard input" if argument == STDIN else argument, findings)
    if origins:
        run_crawl(command, job)
    return gravest(*statuses)


async def _lint_site(lookup: Lookup, origin: Origin) -> list[Finding]:
    try:
        answer = await lookup.fetcher.fetch(origin)
    except CONFIGURATION_ERRORS as error:
        raise CommandError(text_of(error), Status.UNREACHABLE) from None
    if answer.outcome is Outcome.UNREACHABLE:
        why = noted(answer.reason, answer.note)
        raise CommandError(f"unreachable: {why}", Status.UNREACHABLE)
    if answer.outcome is Outcome.MISSING:
        why = missing(answer.status, answer.hops, answer.note)
        message = f"no robots.txt ({why}): no restrictions"
        return [Finding(None, "no-file", message)]
    complete = len(answer.body) <= MAX_BYTES
    return lint(answer.body, robots_url=origin.robots_url, complete=complete, also=[usage_findings])
