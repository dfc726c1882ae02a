"""``scrapy robots --compare OLD NEW [URL…]``: what changes from one robots.txt to another, in verdicts
on URLs or, without any, in the lines that mean something to somebody. No Scrapy."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.commands.output import ExitStatus
from scrapy_rep.commands.task import origin_of_url
from scrapy_rep.commands.verdicts import agents_of, asked_of, name_of
from scrapy_rep.inspection.findings import first_few
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
    from collections.abc import Iterable

    from scrapy_rep.commands.task import Chain, Question, Task
    from scrapy_rep.inspection.explanation import Explanation, RobotsFile


def compare(task: Task) -> None:
    """Carry out ``--compare``: print which verdicts on URLs change or, without any URL, which lines of
    each agent and of the whole file."""
    files: dict[str | None, RobotsFile] = {}

    def keep(robots: RobotsFile) -> None:
        body = cut(robots.body)  # the part that counts
        files[robots.facts.file] = replace(robots, body=body)

    old_name, new_name = task.options.compare
    task.read_each([old_name, new_name], keep)
    if task.statuses:  # at least one of the files can't be read
        return
    old = files[_file_of(old_name)]
    new = files[_file_of(new_name)]
    agents = asked_of(task, [old, new], task.named)
    if not agents:
        agents = agents_of([old, new], ())
    verdicts = _Verdicts(task, agents, old, new)
    for question in task.questions(of_file=True, needs_one=bool(task.arguments)):
        verdicts.compare(question)
    # A status: there were URLs, but none is valid.
    if verdicts.url_count or task.statuses:
        verdicts.summarise()
        changed = verdicts.changed
        total = counted(changed, "verdict")
    else:
        changed = _print_changed_lines(task, agents, old, new)
        total = counted(changed, "line")
    task.output.line(f"# {total} changed")
    if changed:
        task.statuses.add(ExitStatus.FOUND)


def _file_of(name: str) -> str:
    """Return what ``facts.file`` is for one of the arguments of ``--compare``: the URL of the robots.txt
    for any URL of its site, and the name of a file as it is."""
    return origin_of_url(name).robots_url if "://" in name else name


class _Verdicts:
    """Compares the verdicts of two files, for some agents."""

    def __init__(
        self,
        task: Task,
        agents: Iterable[Chain],
        old: RobotsFile,
        new: RobotsFile,
    ) -> None:
        self._task = task
        self._old = old
        self._new = new
        self._counts: dict[Chain, Counter[str]] = {}
        """Of each agent: on how many URLs the verdict changes, by a text such as "allowed -> disallowed"."""
        for agent in agents:
            self._counts[agent] = Counter()
        self.url_count = 0
        """How many URLs were compared."""

    @property
    def changed(self) -> int:
        """How many verdicts change, over all agents."""
        return sum(counts.total() for counts in self._counts.values())

    def compare(self, question: Question) -> None:
        """Print the agents for whom the verdict on a URL changes."""
        self.url_count += 1
        for chain, counts in self._counts.items():
            before = self._explain(self._old, question, chain)
            after = self._explain(self._new, question, chain)
            if before.verdict == after.verdict:
                continue
            change = f"{before.verdict} -> {after.verdict}"
            counts[change] += 1
            old = before.as_dict()
            new = after.as_dict()
            url = question.url
            data = {"url": url, "agent": old["agent"], "old": old, "new": new}
            name = name_of(self._task, chain)
            why = f"{before.why} -> {after.why}"
            self._task.output.put(data, change, name, url, why)

    def _explain(
        self,
        robots: RobotsFile,
        question: Question,
        chain: Chain,
    ) -> Explanation:
        """Return the verdict of one of the files."""
        return robots.explain(
            question.url,
            question.path,
            chain,
            obey_global=self._task.obey_global,
            max_delay=self._task.max_delay,
        )

    def summarise(self) -> None:
        """Print how many verdicts change for each agent. Those with equal numbers share a line."""
        names_by_numbers: dict[str, list[str]] = {}
        for chain, counts in self._counts.items():
            if not counts:
                continue
            numbers = []
            for change, count in counts.items():
                numbers.append(f"{counted(count, 'URL')} {change}")
            names = names_by_numbers.setdefault(", ".join(numbers), [])
            names.append(name_of(self._task, chain))
        for text, names in names_by_numbers.items():
            if len(names) > 1:
                text += " each"
            self._task.output.line(f"# {first_few(names)}: {text}")


# -- lines -----------------------------------------------------------------------------------

# Kinds of lines below a list of agents (`user-agent` lines). A list is complete, so that the next
# `user-agent` line begins another one, once a rule stands below it. For lines of the other kinds, it is
# also complete once a line of their own kind does (REP.md sections 7, 11 and 12).
_RULE_LINE = "rule"
_PACE_LINE = "pace"
_USE_LINE = "use"
_KINDS_OF_LINES = (_RULE_LINE, _PACE_LINE, _USE_LINE)

# Fields of lines of the last kind.
_FIELDS_ABOUT_USE = ("content-usage", "content-signal")

# Field and value of a line with a field that the parser (field_of in protocol/syntax.py) doesn't know.
_OTHER = re.compile(r"[ \t\v\f]*([a-zA-Z][a-zA-Z0-9_-]{0,39})[ \t\v\f]*:([^#]*)")


class _Line(NamedTuple):
    number: int
    text: str


_Lines = dict[object, _Line]
"""Lines by what they mean, such as ``("disallow", "/x")``: lines that mean the same have the same key."""


@dataclass(eq=False)
class _Block:
    """Lines of one kind below a list of agents, which are about all of these agents."""

    is_list_complete: bool = False
    """Whether the next ``user-agent`` line begins another list, and so another block."""
    lines: _Lines = field(default_factory=dict)


class _Meanings:
    """What the lines of a file mean, and to whom. What stands twice counts once."""

    def __init__(self, body: bytes) -> None:
        self.of_file: _Lines = {}
        """Lines that belong to no group: sitemaps, and fields that the protocol doesn't know."""
        self._has_group = False
        """Whether a ``user-agent`` line was read."""
        self._named: dict[str, _Line] = {}
        """The first ``user-agent`` line that names each token."""
        self._blocks: dict[str, dict[_Block, None]] = {}
        """Of each token: the blocks of its lists of agents, each once."""
        self._current_blocks: dict[str, _Block] = {}
        """Of each kind of lines: the block of the last list of agents. The next line belongs to it."""
        for kind in _KINDS_OF_LINES:
            self._current_blocks[kind] = _Block(is_list_complete=True)
        for number, row in enumerate(normalise(body).split("\n"), 1):
            self._read(number, row)

    def of(self, token: str) -> _Lines:
        """Return the lines that are about the agent *token*, its first ``user-agent`` line included."""
        token = token.lower()
        if token not in self._named:
            return {}
        lines: _Lines = {"user-agent": self._named[token]}
        for block in self._blocks[token]:
            for meaning, line in block.lines.items():
                lines.setdefault(meaning, line)
        return lines

    def _read(self, number: int, row: str) -> None:
        """Add a line of the file to what it belongs to."""
        without_comment = row.partition("#")[0].strip(SPACE)
        line = _Line(number, readable(without_comment))
        known_field = field_of(row)
        if known_field is None:
            match = _OTHER.match(row)
            if match is not None:
                other_name = match[1].lower()
                other_value = match[2].strip(SPACE)
                self._add_other(other_name, other_value, line)
            return
        name, value = known_field
        if name == "user-agent":
            agent_line = _Line(number, f"User-agent: {readable(value)}")
            self._add_agent(agent_token(value), agent_line)
        elif name == "sitemap":
            self.of_file.setdefault((name, value), line)
        elif name in RULES:  # allow or disallow
            compared_value = escape(value)  # %aa and %AA mean the same
            self._add(_RULE_LINE, (name, compared_value), line)
            for block in self._current_blocks.values():
                block.is_list_complete = True
        else:  # crawl-delay, request-rate or visit-time
            self._add(_PACE_LINE, (name, value), line)

    def _add_other(self, name: str, value: str, line: _Line) -> None:
        """Add a line whose field the parser doesn't know."""
        if name in _FIELDS_ABOUT_USE and self._has_group:
            self._add(_USE_LINE, (name, value), line)
        else:
            self.of_file.setdefault((name, value), line)

    def _add_agent(self, token: str, line: _Line) -> None:
        """Add a ``user-agent`` line: *token* gets what is said from here on, of each kind."""
        self._has_group = True
        self._named.setdefault(token, line)
        blocks = self._blocks.setdefault(token, {})
        for kind in _KINDS_OF_LINES:
            if self._current_blocks[kind].is_list_complete:
                self._current_blocks[kind] = _Block()
            blocks[self._current_blocks[kind]] = None

    def _add(self, kind: str, meaning: object, line: _Line) -> None:
        """Add a line to what is said to the agents above it; above all groups, it means nothing."""
        if self._has_group:
            block = self._current_blocks[kind]
            block.lines.setdefault(meaning, line)
            block.is_list_complete = True


def _print_changed_lines(
    task: Task,
    agents: Iterable[Chain],
    old: RobotsFile,
    new: RobotsFile,
) -> int:
    """Print the lines that are in one of the files only: those of each agent's groups, and those of the
    whole file. Return how many."""
    before = _Meanings(old.body)
    after = _Meanings(new.body)
    old_file = old.facts.file or ""
    new_file = new.facts.file or ""

    def print_changes(group: str | None, old_lines: _Lines, new_lines: _Lines) -> int:
        """Print the lines of an agent that are in one of the files only; None: of the whole file."""
        removed = _only_in(old_lines, new_lines)
        added = _only_in(new_lines, old_lines)
        for line in removed:
            _print_change(task, "removed", old_file, line, group)
        for line in added:
            _print_change(task, "added", new_file, line, group)
        return len(removed) + len(added)

    tokens: dict[str, None] = {}  # each once, in order
    for agent in agents:
        tokens.update(dict.fromkeys(agent))
    changed = 0
    for token in tokens:
        changed += print_changes(token, before.of(token), after.of(token))
    changed += print_changes(None, before.of_file, after.of_file)
    return changed


def _print_change(
    task: Task,
    change: str,
    file: str,
    line: _Line,
    group: str | None,
) -> None:
    """Print a line that was *removed* or *added*.

    :param file: the one that has the line
    :param group: the agent whose groups the line belongs to; None for a line of the whole file
    """
    data = {
        "change": change,
        "source": file,
        "line": line.number,
        "text": line.text,
        "group": group,
    }
    sign = "-" if change == "removed" else "+"
    place = f"{file}:{line.number}"
    whose = "whole file" if group is None else f"group {group}"
    task.output.put(data, f"{sign} {place}: {line.text} ({whose})")


def _only_in(lines: _Lines, other_lines: _Lines) -> list[_Line]:
    """Return those of *lines* that mean something that none of *other_lines* means."""
    return [line for meaning, line in lines.items() if meaning not in other_lines]
