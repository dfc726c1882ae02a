"""``scrapy robots --compare OLD NEW [URL…]``: which verdicts change from one robots.txt to another?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_rep.commands.decide import file_named, path_as_given
from scrapy_rep.commands.ending import Status
from scrapy_rep.commands.inputs import STDIN, chains, request_for, urls
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import GREEN, RED, Output
from scrapy_rep.commands.verdicts import COLOURS, WIDEST, agents_of, as_json
from scrapy_rep.engine.text import counted
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.settings import RepSettings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_rep.commands.inputs import Chain
    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.inspection.explanation import RobotsFile

    Change = tuple[dict[str, Any], str, str]
    """As JSON, as a line, and the colour of that."""


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Compare verdicts on URLs, or without any, the rules of each agent."""
    names = options.compare
    if names.count(STDIN) + list(arguments).count(STDIN) > 1:
        raise UsageError("standard input can be read only once", print_help=False)
    old, new = _read(command, names)
    agents = chains(options.agent)
    if options.agents_of_file or not agents:
        agents = list(dict.fromkeys([*agents, *agents_of([old, new])]))
    changed = 0
    if arguments:
        asked = [(url, chain) for url, _ in urls(arguments, output) for chain in agents]
        obey_global = RepSettings.from_settings(command.settings).obey_global_group
        changes = _verdicts(old, new, asked, obey_global)
        of = f" of {counted(len(asked), 'verdict')} change"
    else:
        changes = _rules(old, new, dict.fromkeys(token for chain in agents for token in chain))
        of = ""
    for data, line, colour in changes:
        changed += 1
        if options.json:
            output.json(data)
        else:
            output.line(output.paint(line, colour))
    if not options.json:
        output.note(f"{changed:,}{of}" if arguments else f"{counted(changed, 'line')} changed")
    if changed:
        output.statuses.add(Status.FOUND)


def _read(command: RobotsCommand, names: Sequence[str]) -> list[RobotsFile]:
    """Return the robots.txt of files and of origins."""
    found: dict[str, RobotsFile] = {name: file_named(name) for name in names if "://" not in name}
    sites = {name: request_for(name)[1] for name in names if name not in found}

    async def job(lookup: Lookup) -> None:
        for name, origin in sites.items():
            robots = await lookup.now(origin)
            # It is named like a file: places are where its lines are.
            found[name] = replace(robots, facts=replace(robots.facts, file=origin.robots_url))

    if sites:
        run_crawl(command, job)
    return [found[name] for name in names]


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
            line = (
                f"{one.verdict} -> {other.verdict.ljust(WIDEST)}  {in_words(chain)}  {url}  "
                f"{one.why} -> {other.why}"
            )
            data = {"url": url, "agent": one.agent, "old": as_json(one), "new": as_json(other)}
            yield data, line, COLOURS[other.verdict]


def _rules(old: RobotsFile, new: RobotsFile, tokens: Iterable[str]) -> Iterator[Change]:
    """Yield the lines of each agent's groups that are in one of the files only."""
    for token in tokens:
        before, after = (dict(_lines(robots, token)) for robots in (old, new))
        for change, robots, lines, others in (
            ("removed", old, before, after),
            ("added", new, after, before),
        ):
            place = robots.facts.file or ""
            sign, colour = ("-", RED) if change == "removed" else ("+", GREEN)
            for number, text in (line for key, line in lines.items() if key not in others):
                data = {"source": place, "line": number, "text": text, "group": token}
                row = f"{sign} {place}:{number}: {text} (group {token})"
                yield {"change": change, **data}, row, colour


def _lines(robots: RobotsFile, token: str) -> Iterator[tuple[object, tuple[int, str]]]:
    """Yield what each line of an agent's groups means, its number and its text."""
    for group in robots.outline.groups:
        for agent in group.agents:
            if agent.token == token.lower():
                yield token, (agent.line, f"User-agent: {agent.value}")
    for line in robots.outline.rules_for(token.lower()):
        yield (line.rule.allow, line.pattern), (line.rule.line, str(line.rule))
