"""``scrapy robots --compare OLD NEW [URL…]``: what changes from one robots.txt to another, in verdicts
on URLs or, without any, in the lines that mean something to somebody. No Scrapy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.commands.output import Status
from scrapy_rep.commands.task import origin_of_url
from scrapy_rep.commands.verdicts import agents_of, asked_of, name_of
from scrapy_rep.inspection.findings import some
from scrapy_rep.protocol.syntax import (
    RULES,
    SPACE,
    agent_token,
    cut,
    escape,
    field_of,
    normalise,
    readable,
)
from scrapy_rep.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.commands.task import Chain, Question, Task
    from scrapy_rep.inspection.explanation import RobotsFile


def compare(task: Task) -> None:
    """Compare verdicts on URLs or, without any, the lines of each agent and of the whole file."""
    names = task.options.compare
    files: dict[str | None, RobotsFile] = {}

    def keep(robots: RobotsFile) -> None:
        files[robots.facts.file] = replace(robots, body=cut(robots.body))

    task.read_each(names, keep)
    if task.statuses:
        return  # one can't be read
    old, new = (
        files[origin_of_url(name).robots_url if "://" in name else name]
        for name in names
    )
    agents = asked_of(task, [old, new], task.named)
    if not agents:
        agents = agents_of([old, new], ())
    verdicts = _Verdicts(task, agents, old, new)
    for question in task.questions(of_file=True, needs_one=bool(task.arguments)):
        verdicts.compare(question)
    if verdicts.asked or task.statuses:  # or no URL is valid
        verdicts.summarise()
        changed = verdicts.changed
        total = counted(changed, "verdict")
    else:
        changed = _lines_changed(task, agents, old, new)
        total = counted(changed, "line")
    task.output.line(f"# {total} changed")
    if changed:
        task.statuses.add(Status.FOUND)


class _Verdicts:
    """Compares the verdicts of two files, for some agents."""

    def __init__(
        self, task: Task, agents: Iterable[Chain], old: RobotsFile, new: RobotsFile
    ) -> None:
        self._task = task
        self._old = old
        self._new = new
        self._changes: dict[Chain, dict[str, int]] = {agent: {} for agent in agents}
        """Of each agent: how many URLs change from what to what."""
        self.asked = 0
        """How many URLs there were."""

    @property
    def changed(self) -> int:
        return sum(sum(counts.values()) for counts in self._changes.values())

    def compare(self, question: Question) -> None:
        """Print the agents for whom the verdict on a URL changes."""
        self.asked += 1
        url, _, path, _ = question
        obey_global, max_delay = self._task.obey_global, self._task.max_delay
        for chain, counts in self._changes.items():
            before, after = (
                robots.explain(
                    url, path, chain, obey_global=obey_global, max_delay=max_delay
                )
                for robots in (self._old, self._new)
            )
            if before.verdict == after.verdict:
                continue
            verdicts = f"{before.verdict} -> {after.verdict}"
            counts[verdicts] = counts.get(verdicts, 0) + 1
            old, new = before.as_dict(), after.as_dict()
            data = {"url": url, "agent": old["agent"], "old": old, "new": new}
            why = f"{before.why} -> {after.why}"
            self._task.output.put(data, verdicts, name_of(self._task, chain), url, why)

    def summarise(self) -> None:
        """Print how many URLs change for each agent. Those with equal numbers share a line."""
        names_by_numbers: dict[str, list[str]] = {}
        for chain, counts in self._changes.items():
            numbers = [
                f"{counted(count, 'URL')} {verdicts}"
                for verdicts, count in counts.items()
            ]
            if numbers:
                names = names_by_numbers.setdefault(", ".join(numbers), [])
                names.append(name_of(self._task, chain))
        for text, names in names_by_numbers.items():
            each = " each" if len(names) > 1 else ""
            self._task.output.line(f"# {some(names)}: {text}{each}")


# -- lines -----------------------------------------------------------------------------------

# What a line is about. Each kind ends lists of agents for itself: `user-agent` lines after it begin a new
# list. Rules end those of all kinds (REP.md sections 7, 11 and 12).
_RULES, _PACE, _USE = _KINDS = "rules", "pace", "use"

_ABOUT_USE = ("content-usage", "content-signal")

# Field and value of a line that the parser doesn't know.
_OTHER = re.compile(r"[ \t\v\f]*([a-zA-Z][a-zA-Z0-9_-]{0,39})[ \t\v\f]*:([^#]*)")


class _Line(NamedTuple):
    number: int
    text: str


_Lines = dict[object, _Line]
"""Lines by what they mean."""


@dataclass(eq=False)
class _Block:
    """What is said to a list of agents."""

    is_closed: bool = False
    """Whether the next ``user-agent`` line begins another list."""
    lines: _Lines = field(default_factory=dict)


class _Meanings:
    """What the lines of a file mean, and to whom. What stands twice counts once."""

    def __init__(self, body: bytes) -> None:
        self.of_file: _Lines = {}
        """What belongs to no group: sitemaps, and fields that the protocol doesn't know."""
        self._has_group = False
        self._named: dict[str, _Line] = {}
        """The first line that names each token."""
        self._blocks: dict[str, dict[_Block, None]] = {}
        """Of each token, each once."""
        self._current = {kind: _Block(is_closed=True) for kind in _KINDS}
        for number, row in enumerate(normalise(body).split("\n"), 1):
            self._read(number, row)

    def of(self, token: str) -> _Lines:
        """Return what is said to *token*."""
        token = token.lower()
        if token not in self._named:
            return {}
        lines: _Lines = {"user-agent": self._named[token]}
        for block in self._blocks[token]:
            for meaning, line in block.lines.items():
                lines.setdefault(meaning, line)
        return lines

    def _read(self, number: int, row: str) -> None:
        line = _Line(number, readable(row.partition("#")[0].strip(SPACE)))
        known = field_of(row)
        if known is None:
            other = _OTHER.match(row)
            if other is not None:
                self._read_other(other[1].lower(), other[2].strip(SPACE), line)
            return
        name, value = known
        if name == "user-agent":
            self._add_agent(
                agent_token(value), _Line(number, f"User-agent: {readable(value)}")
            )
        elif name == "sitemap":
            self.of_file.setdefault((name, value), line)
        elif name in RULES:
            self._add(_RULES, (name, escape(value)), line)
            for block in self._current.values():
                block.is_closed = True
        else:
            self._add(_PACE, (name, value), line)

    def _read_other(self, name: str, value: str, line: _Line) -> None:
        if name in _ABOUT_USE and self._has_group:
            self._add(_USE, (name, value), line)
        else:
            self.of_file.setdefault((name, value), line)

    def _add_agent(self, token: str, line: _Line) -> None:
        self._has_group = True
        self._named.setdefault(token, line)
        blocks = self._blocks.setdefault(token, {})
        for kind in _KINDS:
            if self._current[kind].is_closed:
                self._current[kind] = _Block()
            blocks[self._current[kind]] = None

    def _add(self, kind: str, meaning: object, line: _Line) -> None:
        """Add a line to what is said to the agents above it; above all groups, it means nothing."""
        if self._has_group:
            self._current[kind].lines.setdefault(meaning, line)
            self._current[kind].is_closed = True


def _lines_changed(
    task: Task, agents: Iterable[Chain], old: RobotsFile, new: RobotsFile
) -> int:
    """Print the lines that are in one of the files only: those of each agent's groups, and those of the
    whole file. Return how many."""
    before, after = _Meanings(old.body), _Meanings(new.body)
    tokens = dict.fromkeys(token for chain in agents for token in chain)
    changed = 0
    for token in tokens:
        changed += _print_changes(
            task, token, (old, before.of(token)), (new, after.of(token))
        )
    return changed + _print_changes(
        task, None, (old, before.of_file), (new, after.of_file)
    )


def _print_changes(
    task: Task,
    token: str | None,
    old: tuple[RobotsFile, _Lines],
    new: tuple[RobotsFile, _Lines],
) -> int:
    """Print which lines are in one of the files only. Return how many.

    :param token: whose lines these are; None for those of the whole file
    """
    changed = 0
    whose = "whole file" if token is None else f"group {token}"
    for change, sign, (robots, lines), (_, others) in (
        ("removed", "-", old, new),
        ("added", "+", new, old),
    ):
        place = robots.facts.file or ""
        for number, text in _only_in(lines, others):
            changed += 1
            data = {"source": place, "line": number, "text": text, "group": token}
            line = f"{sign} {place}:{number}: {text} ({whose})"
            task.output.put({"change": change, **data}, line)
    return changed


def _only_in(lines: _Lines, others: _Lines) -> Iterator[_Line]:
    return (line for meaning, line in lines.items() if meaning not in others)
