"""Whole files, given or of origins, as they are now: ``scrapy robots --lint URL|FILE…``, likely
mistakes in them; ``--compare OLD NEW [URL…]``, the verdicts that change from one to the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_rep.commands.output import DIM, GREEN, RED, YELLOW, Status
from scrapy_rep.commands.task import STDIN, read_file, request_for
from scrapy_rep.commands.verdicts import COLOURS, WIDEST, agents_of, as_json, path_as_given
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import Facts, RobotsFile, in_words
from scrapy_rep.inspection.lint import ERROR, NOTE, SEVERITIES, WARNING, Finding
from scrapy_rep.inspection.lint import lint as findings_in
from scrapy_rep.origins.answer import READ_BYTES
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.text import clean, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_rep.commands.lookup import Chain, Lookup
    from scrapy_rep.commands.output import Cell
    from scrapy_rep.commands.task import Task
    from scrapy_rep.protocol import Origin

    Change = tuple[dict[str, Any], Cell]
    """As JSON, and for people."""

# Characters of a line that are shown below a finding.
_SHOWN = 100

_COLOURS = {ERROR: RED, WARNING: YELLOW, NOTE: DIM}


def _read(task: Task, names: Sequence[str], use: Callable[[RobotsFile], None]) -> None:
    """Call *use* with each file, or each URL's robots.txt; complain about unreadable ones."""
    origins: dict[Origin, None] = {}

    async def job(lookup: Lookup) -> None:
        for origin in origins:
            with task.going_on(f"{origin.robots_url}: "):
                use(await lookup.now(origin))

    for name in names:
        with task.going_on():
            if "://" in name:
                origins[request_for(name)[1]] = None
            else:
                use(RobotsFile(Outcome.RULES, read_file(name, READ_BYTES), Facts(file=name)))
    if origins:
        task.crawl(job)


# -- lint ------------------------------------------------------------------------------------


def lint(task: Task) -> None:
    if not task.arguments:
        raise UsageError("--lint needs a URL, a file, or - for standard input")
    failing = SEVERITIES[: SEVERITIES.index(task.options.fail_on or NOTE) + 1]
    output = task.output

    def show(robots: RobotsFile) -> None:
        name, url = str(robots.facts.file), robots.facts.robots_url
        source = STDIN_IN_WORDS if name == STDIN else name
        if robots.outcome is Outcome.MISSING:
            found = [Finding(None, "no-file", f"no robots.txt ({robots.answer}): no restrictions")]
        else:
            found = findings_in(robots.body, robots_url=url, also=[usage_findings])
        for one in found:
            if one.severity in failing:
                task.statuses.add(Status.FOUND)
            output.json({"source": source, **one._asdict(), "severity": one.severity})
            place = f"{source}:{one.line}:" if one.line else f"{source}:"
            severity = output.paint(one.severity, _COLOURS[one.severity])
            output.line(f"{clean(place)} {severity}: {clean(one.message)} [{one.code}]")
            if text := one.text.strip():
                more = "…" if len(text) > _SHOWN else ""
                output.row((f"    {text[:_SHOWN]}{more}", DIM))
        if not found:
            output.row(f"{source}: nothing found")
        output.flush()

    _read(task, task.arguments, show)


# -- compare ---------------------------------------------------------------------------------


def compare(task: Task) -> None:
    """Compare verdicts on URLs, or without any, the rules of each agent."""
    names, output = task.options.compare, task.output
    if [*names, *task.arguments].count(STDIN) > 1:
        raise UsageError("standard input can be read only once")
    found: dict[str | None, RobotsFile] = {}

    def keep(robots: RobotsFile) -> None:
        found[robots.facts.file] = replace(robots, body=cut(robots.body))

    _read(task, names, keep)
    if task.statuses:
        return  # one can't be read
    old, new = (found[request_for(one)[1].robots_url if "://" in one else one] for one in names)
    agents = task.named
    if task.options.agents_of_file or not agents:
        agents = list(dict.fromkeys([*agents, *agents_of([old, new])]))
    if task.arguments:
        asked = [(url, chain) for url, _ in task.urls() for chain in agents]
        changes = _verdicts(old, new, asked, task.rep.obey_global_group)
        total = f"of {counted(len(asked), 'verdict')} change"
    else:
        changes = _rules(old, new, dict.fromkeys(token for chain in agents for token in chain))
        total = ""
    changed = 0
    for changed, (data, row) in enumerate(changes, 1):
        output.json(data)
        output.row(row)
    output.note(f"{changed:,} {total}" if total else f"{counted(changed, 'line')} changed")
    if changed:
        task.statuses.add(Status.FOUND)


def _verdicts(
    old: RobotsFile, new: RobotsFile, asked: Iterable[tuple[str, Chain]], obey_global: bool
) -> Iterator[Change]:
    """Yield the URLs and agents whose verdict changes."""
    for url, chain in asked:
        path = path_as_given(url)
        one, other = (
            robots.explain(url, path, chain, obey_global=obey_global) for robots in (old, new)
        )
        if one.verdict != other.verdict:
            row = (
                f"{one.verdict} -> {other.verdict.ljust(WIDEST)}  {in_words(chain)}  {url}  "
                f"{one.why} -> {other.why}"
            )
            data = {"url": url, "agent": one.agent, "old": as_json(one), "new": as_json(other)}
            yield data, (row, COLOURS[other.verdict])


def _rules(old: RobotsFile, new: RobotsFile, tokens: Iterable[str]) -> Iterator[Change]:
    """Yield the lines of each agent's groups that are in one of the files only."""
    for token in tokens:
        before, after = _lines(old, token), _lines(new, token)
        for change, sign, colour, robots, lines, others in (
            ("removed", "-", RED, old, before, after),
            ("added", "+", GREEN, new, after, before),
        ):
            place = robots.facts.file or ""
            for key, (number, text) in lines.items():
                if key not in others:
                    data = {"source": place, "line": number, "text": text, "group": token}
                    row = f"{sign} {place}:{number}: {text} (group {token})"
                    yield {"change": change, **data}, (row, colour)


def _lines(robots: RobotsFile, token: str) -> dict[object, tuple[int, str]]:
    """Return what each line of an agent's groups means, its number and its text."""
    lines: dict[object, tuple[int, str]] = {}
    for group in robots.outline.groups:
        for agent in group.agents:
            if agent.token == token.lower():
                lines[token] = (agent.line, f"User-agent: {agent.value}")
    for line in robots.outline.rules_for(token.lower()):
        lines[line.rule.allow, line.pattern] = (line.rule.line, str(line.rule))
    return lines
