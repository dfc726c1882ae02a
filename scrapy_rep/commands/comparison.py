"""``scrapy robots --compare OLD NEW [URL…]``: what changes from one robots.txt to
another. With URLs, these are verdicts; without any, the lines that mean something to a
crawler. This module imports no Scrapy."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.commands.output import ExitStatus
from scrapy_rep.commands.task import origin_of_url
from scrapy_rep.commands.verdicts import agents_asked, agents_of, name_of
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
    """Carry out ``--compare``: print which verdicts on URLs change. Without any URL:
    which lines change, for each agent and in the whole file."""
    files: dict[str | None, RobotsFile] = {}

    def keep_file(robots: RobotsFile) -> None:
        kept = cut(robots.body)  # the part of the file that counts
        files[robots.facts.file] = replace(robots, body=kept)

    old_name, new_name = task.options.compare
    task.read_files([old_name, new_name], keep_file)
    if task.statuses:  # read_files() has complained of a file that can't be read
        return
    old = files[_file_of(old_name)]
    new = files[_file_of(new_name)]
    agents = agents_asked(task, [old, new], task.named_agents)
    if not agents:  # no option names any agent
        agents = agents_of([old, new], ())
    verdicts = _Verdicts(task, agents, old, new)
    # Without arguments, there may be no URL at all, and lines are compared.
    for question in task.questions(of_file=True, needs_one=bool(task.arguments)):
        verdicts.compare(question)
    # If no URL was compared, a status tells that there were URLs, but no valid ones.
    if verdicts.url_count or task.statuses:
        verdicts.summarise()
        change_count = verdicts.change_count
        total = counted(change_count, "verdict")
    else:
        change_count = _print_changed_lines(task, agents, old, new)
        total = counted(change_count, "line")
    task.output.line(f"# {total} changed")
    if change_count:
        task.statuses.add(ExitStatus.FOUND)


def _file_of(name: str) -> str:
    """Return the ``facts.file`` of the file that an argument of ``--compare`` names:
    the argument itself; for a URL, the URL of its site's robots.txt."""
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
        self._url_counts: dict[Chain, Counter[str]] = {}
        """How many URLs have each change of verdict, by agent. A change is a text such
        as "allowed -> disallowed"."""
        for chain in agents:
            self._url_counts[chain] = Counter()
        self.url_count = 0
        """How many URLs were compared."""

    @property
    def change_count(self) -> int:
        """How many verdicts change, over all agents."""
        return sum(url_counts.total() for url_counts in self._url_counts.values())

    def compare(self, question: Question) -> None:
        """Print the agents for whom the verdict on a URL changes."""
        self.url_count += 1
        for chain, url_counts in self._url_counts.items():
            before = self._explain(self._old, question, chain)
            after = self._explain(self._new, question, chain)
            if before.verdict == after.verdict:
                continue
            change = f"{before.verdict} -> {after.verdict}"
            url_counts[change] += 1
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
        """Return the verdict of *robots*, one of the two files."""
        return robots.explain(
            question.url,
            question.path,
            chain,
            obey_global=self._task.obey_global,
            max_delay=self._task.max_delay,
        )

    def summarise(self) -> None:
        """Print how many verdicts change for each agent. Agents with equal numbers
        share a line."""
        names_by_numbers: dict[str, list[str]] = {}
        for chain, url_counts in self._url_counts.items():
            if not url_counts:
                continue
            numbers = []
            for change, url_count in url_counts.items():
                numbers.append(f"{counted(url_count, 'URL')} {change}")
            names = names_by_numbers.setdefault(", ".join(numbers), [])
            names.append(name_of(self._task, chain))
        for text, names in names_by_numbers.items():
            if len(names) > 1:
                text += " each"
            self._task.output.line(f"# {first_few(names)}: {text}")


# -- lines -----------------------------------------------------------------------------------

# Lines below a list of agents (`user-agent` lines) are of three kinds. A rule completes
# the list: the next `user-agent` line begins another list. A line of another kind
# completes the list for lines of its own kind only (REP.md sections 7, 11 and 12).
_RULE_LINE = "rule"
_PACE_LINE = "pace"
_USE_LINE = "use"
_KINDS_OF_LINES = (_RULE_LINE, _PACE_LINE, _USE_LINE)

# The fields of lines of the kind _USE_LINE.
_FIELDS_ABOUT_USE = ("content-usage", "content-signal")

# Matches a line with a field that the parser (field_of in protocol/syntax.py) doesn't
# know. Groups: the field; its value.
_OTHER_FIELD = re.compile(r"[ \t\v\f]*([a-zA-Z][a-zA-Z0-9_-]{0,39})[ \t\v\f]*:([^#]*)")


class _Line(NamedTuple):
    """A line of a robots.txt, without its comment."""

    number: int
    text: str


_Lines = dict[object, _Line]
"""Lines by what they mean, such as ``("disallow", "/x")``. Lines that mean the same
have the same key."""


@dataclass(eq=False)
class _Block:
    """The lines of one kind below a list of agents; they are about all these agents."""

    has_all_agents: bool = False
    """Whether all agents of the list above it were read, so that the next
    ``user-agent`` line begins another block."""
    lines: _Lines = field(default_factory=dict)


class _Meanings:
    """What the lines of a file mean, and to whom. Of lines that mean the same to the
    same agents, only the first is kept."""

    def __init__(self, body: bytes) -> None:
        self.file_lines: _Lines = {}
        """Lines that belong to no group: sitemaps, and fields of no standard."""
        self._has_group = False
        """Whether a ``user-agent`` line was read."""
        self._agent_lines: dict[str, _Line] = {}
        """The first ``user-agent`` line that names each token."""
        self._blocks: dict[str, dict[_Block, None]] = {}
        """The blocks below the lists of agents that name each token; each block
        once."""
        self._current_blocks: dict[str, _Block] = {}
        """The block to which the next line of each kind belongs."""
        for kind in _KINDS_OF_LINES:
            # A first block, about no agents. Since it has all of them, the first
            # `user-agent` line begins another block.
            self._current_blocks[kind] = _Block(has_all_agents=True)
        for number, row in enumerate(normalise(body).split("\n"), 1):
            self._read(number, row)

    def lines_about(self, token: str) -> _Lines:
        """Return the lines that are about the agent *token*, with the first
        ``user-agent`` line that names it."""
        token = token.lower()
        if token not in self._agent_lines:
            return {}
        lines: _Lines = {"user-agent": self._agent_lines[token]}
        for block in self._blocks[token]:
            for meaning, line in block.lines.items():
                lines.setdefault(meaning, line)
        return lines

    def _read(self, number: int, row: str) -> None:
        """Add a line of the file to the block that it belongs to, or to the lines of
        the whole file."""
        without_comment = row.partition("#")[0].strip(SPACE)
        line = _Line(number, readable(without_comment))
        known_field = field_of(row)
        if known_field is None:
            match = _OTHER_FIELD.match(row)
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
            self.file_lines.setdefault((name, value), line)
        elif name in RULES:  # allow or disallow
            compared_value = escape(value)  # %aa and %AA mean the same
            self._add(_RULE_LINE, (name, compared_value), line)
            # A rule completes the list of agents for lines of all kinds.
            for block in self._current_blocks.values():
                block.has_all_agents = True
        else:  # crawl-delay, request-rate or visit-time
            self._add(_PACE_LINE, (name, value), line)

    def _add_other(self, name: str, value: str, line: _Line) -> None:
        """Add a line whose field the parser doesn't know."""
        if name in _FIELDS_ABOUT_USE and self._has_group:
            self._add(_USE_LINE, (name, value), line)
        else:
            self.file_lines.setdefault((name, value), line)

    def _add_agent(self, token: str, line: _Line) -> None:
        """Add a ``user-agent`` line. Lines of all kinds below it are about *token*."""
        self._has_group = True
        self._agent_lines.setdefault(token, line)
        blocks = self._blocks.setdefault(token, {})
        for kind in _KINDS_OF_LINES:
            if self._current_blocks[kind].has_all_agents:
                self._current_blocks[kind] = _Block()
            blocks[self._current_blocks[kind]] = None

    def _add(self, kind: str, meaning: object, line: _Line) -> None:
        """Add a line to the block of the agents above it. A line above all groups means
        nothing, and is left out."""
        if self._has_group:
            block = self._current_blocks[kind]
            block.lines.setdefault(meaning, line)
            block.has_all_agents = True


def _print_changed_lines(
    task: Task,
    agents: Iterable[Chain],
    old: RobotsFile,
    new: RobotsFile,
) -> int:
    """Print the lines that only one of the files has: those of each agent's groups,
    then those of the whole file. Return how many lines were printed."""
    before = _Meanings(old.body)
    after = _Meanings(new.body)
    # What the files are called in the output.
    old_file = old.facts.file or ""
    new_file = new.facts.file or ""

    def print_changes(group: str | None, old_lines: _Lines, new_lines: _Lines) -> int:
        """Print the lines that only one of the files has, and return how many.

        :param group: the agent that they are about; None for lines of the whole file
        """
        removed = _only_in(old_lines, new_lines)
        added = _only_in(new_lines, old_lines)
        for line in removed:
            _print_change(task, "removed", old_file, line, group)
        for line in added:
            _print_change(task, "added", new_file, line, group)
        return len(removed) + len(added)

    tokens: dict[str, None] = {}  # those of all agents, each once, in order
    for chain in agents:
        tokens.update(dict.fromkeys(chain))
    change_count = 0
    for token in tokens:
        change_count += print_changes(
            token, before.lines_about(token), after.lines_about(token)
        )
    change_count += print_changes(None, before.file_lines, after.file_lines)
    return change_count


def _print_change(
    task: Task,
    change: str,
    file: str,
    line: _Line,
    group: str | None,
) -> None:
    """Print a line that was *removed* or *added*.

    :param file: the one that has the line
    :param group: the agent whose groups the line belongs to; None for a line of the
        whole file
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
    """Return those of *lines* whose meaning none of *other_lines* has."""
    return [line for meaning, line in lines.items() if meaning not in other_lines]
