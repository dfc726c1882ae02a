"""``scrapy robots --compare OLD NEW [URL…]``: which verdicts change from one robots.txt to another?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import UsageError

from scrapy_rep.commands.decide import file_named, path_as_given
from scrapy_rep.commands.ending import Status, gravest
from scrapy_rep.commands.inputs import STDIN, chains, request_for, urls
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import DIM, GREEN, RED, Output
from scrapy_rep.commands.verdicts import COLOURS, WIDEST, agents_of, as_json
from scrapy_rep.engine.text import clean, counted
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.settings import RepSettings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from scrapy_rep.commands.inputs import Chain
    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.inspection.explanation import Explanation, RobotsFile


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Compare verdicts on URLs, or without any, the rules of each agent."""
    names = options.compare
    if names.count(STDIN) + list(arguments).count(STDIN) > 1:
        raise UsageError("standard input can be read only once", print_help=False)
    found: dict[str, RobotsFile] = {name: file_named(name) for name in names if "://" not in name}
    sites = {name: request_for(name)[1] for name in names if name not in found}

    async def job(lookup: Lookup) -> None:
        for name, origin in sites.items():
            robots = await lookup.now(origin)
            # It is named like a file: places are where its lines are.
            found[name] = replace(robots, facts=replace(robots.facts, file=origin.robots_url))

    if sites:
        run_crawl(command, job)
    old, new = (found[name] for name in names)
    agents = chains(options.agent)
    if options.agents_of_file or not agents:
        agents = list(dict.fromkeys([*agents, *agents_of([old, new])]))
    comparison = _Comparison(old, new, agents, Output(), as_json=options.json)
    if not arguments:
        return comparison.of_rules()
    statuses: set[Status] = set()
    obey_global = RepSettings.from_settings(command.settings).obey_global_group
    given = [url for url, _ in urls(arguments, statuses)]
    return gravest(*statuses, comparison.of_verdicts(given, obey_global))


class _Change(NamedTuple):
    """A line that is in one of the files only."""

    sign: str
    place: str
    text: str
    group: str
    line: int


class _Comparison:
    """Prints what changes from one file to another."""

    def __init__(
        self,
        old: RobotsFile,
        new: RobotsFile,
        agents: list[Chain],
        output: Output,
        *,
        as_json: bool,
    ) -> None:
        self._old, self._new = old, new
        self._agents = agents
        self._output = output
        self._json = as_json

    def of_verdicts(self, given: Sequence[str], obey_global: bool) -> Status:
        """Print the URLs whose verdict changes."""
        changed = 0
        for url in given:
            path = path_as_given(url)
            for chain in self._agents:
                old, new = (
                    robots.explain(url, path, chain, obey_global=obey_global)
                    for robots in (self._old, self._new)
                )
                if old.verdict != new.verdict:
                    changed += 1
                    self._print(old, new)
        asked = counted(len(given) * len(self._agents), "verdict")
        return self._end(changed, f"{changed:,} of {asked} change")

    def _print(self, old: Explanation, new: Explanation) -> None:
        if self._json:
            both = {"old": as_json(old), "new": as_json(new)}
            self._output.json({"url": old.url, "agent": old.agent, **both})
            return
        paint = self._output.paint
        self._output.line(
            f"{old.verdict} -> {paint(new.verdict.ljust(WIDEST), COLOURS[new.verdict])}  "
            f"{in_words(old.chain)}  {clean(old.url)}  {paint(f'{old.why} -> {new.why}', DIM)}"
        )

    def of_rules(self) -> Status:
        """Print the lines of each agent's groups that are in one of the files only."""
        changed = 0
        for token in dict.fromkeys(token for chain in self._agents for token in chain):
            for change in self._changes(token):
                changed += 1
                self._print_change(change)
        return self._end(changed, f"{counted(changed, 'line')} changed")

    def _changes(self, token: str) -> Iterator[_Change]:
        old, new = (dict(_lines(robots, token)) for robots in (self._old, self._new))
        for sign, lines, others in (("-", old, new), ("+", new, old)):
            yield from (_Change(sign, *line) for key, line in lines.items() if key not in others)

    def _print_change(self, one: _Change) -> None:
        if self._json:
            change = "removed" if one.sign == "-" else "added"
            data = {"source": one.place, "line": one.line, "text": one.text, "group": one.group}
            self._output.json({"change": change, **data})
        else:
            row = f"{one.sign} {one.place}:{one.line}: {one.text} (group {one.group})"
            self._output.line(self._output.paint(row, RED if one.sign == "-" else GREEN))

    def _end(self, changed: int, total: str) -> Status:
        if not self._json:
            self._output.note(total)
        self._output.flush()
        return Status.FOUND if changed else Status.GOOD


def _lines(robots: RobotsFile, token: str) -> Iterator[tuple[object, tuple[str, str, str, int]]]:
    """Yield what the lines of an agent's groups mean, and each line: file, text, group, number."""
    place = robots.facts.file or ""
    for group in robots.outline.groups:
        for agent in group.agents:
            if agent.token == token.lower():
                yield token, (place, f"User-agent: {agent.value}", token, agent.line)
    for line in robots.outline.rules_for(token.lower()):
        key = line.rule.allow, line.pattern
        yield key, (place, str(line.rule), token, line.rule.line)
