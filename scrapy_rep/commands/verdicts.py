"""Verdicts in print: a line each; for ``--explain``, blocks (:func:`block`), whose reasons come from
inspection/explanation.py; the file with its deciding lines; CSV and JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.ending import Status, complain
from scrapy_rep.commands.output import BOLD, DIM, GREEN, RED, YELLOW, Output
from scrapy_rep.engine.text import clean, counted, iso
from scrapy_rep.inspection.explanation import STDIN, Explanation, RobotsFile, in_words
from scrapy_rep.inspection.lint import rows
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import GLOBAL, cut

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence

    from scrapy_rep.commands.inputs import Chain
    from scrapy_rep.protocol import Rule
    from scrapy_rep.settings import RepSettings

    Steps = Callable[[str, str], Sequence[tuple[str, str]]]

# A file may name a hundred thousand agents, each of which takes a reading of it.
_MAX_AGENTS = 1000

# With more agents, one line has all the totals.
_MAX_TOTALS = 10

# How many URLs are named beside the line that decides about them.
_NAMED = 3

COLOURS = {"allowed": GREEN, "disallowed": RED, "unreachable": YELLOW}
WIDEST = max(map(len, COLOURS))

CSV_FIELDS = ("url", "agent", "verdict", "line", "rule", "group", "robots_url", "status")


def agents_of(robots: Iterable[RobotsFile]) -> list[Chain]:
    """Return the agents that files name, each once, and ``*``: those that the first ones name."""
    named = {token.lower(): token for one in robots for token in one.outline.tokens()}
    if len(named) > _MAX_AGENTS:
        complain(f"only the first {_MAX_AGENTS:,} of {len(named):,} agents are asked about")
    chosen = [token for token in named.values() if token != GLOBAL][:_MAX_AGENTS]
    return [(token,) for token in [*chosen, GLOBAL]]


@dataclass(slots=True)
class _Shown:
    """A robots.txt, and what its lines decided."""

    facts: str
    is_file: bool
    body: bytes = b""
    decided: dict[Rule, dict[str, None]] = field(default_factory=dict)
    """The URLs that each rule decided about, in order."""


class Printer:
    """Prints verdicts as they come, and collects the exit statuses."""

    def __init__(
        self, options: Namespace, settings: RepSettings, agents: list[Chain], output: Output
    ) -> None:
        """:param agents: what ``--agent`` says; empty: see :meth:`begin`"""
        self.agents = agents
        self.output = output
        self._options = options
        self._settings = settings
        self._lines = not (options.json or options.csv or options.explain)
        self._totals: dict[Chain, Counter[str]] = {}
        self._files: dict[str, _Shown] = {}
        self._chains: dict[str | None, list[Chain]] = {}

    def begin(self, usual: Chain) -> None:
        """Print what comes before all verdicts.

        :param usual: the project's agent, for when no other is asked about
        """
        if not (self.agents or self._options.agents_of_file):
            self.agents = [usual]
        if self._options.csv:
            self.output.csv(CSV_FIELDS)

    def chains_for(self, robots: RobotsFile) -> list[Chain]:
        """Return the agents that are asked about in that file."""
        if not self._options.agents_of_file:
            return self.agents
        url = robots.facts.robots_url
        if url not in self._chains:
            self._chains[url] = list(dict.fromkeys([*self.agents, *agents_of([robots])]))
        return self._chains[url]

    def add(
        self, url: str, path: str, robots: RobotsFile, chains: Sequence[Chain], steps_of: Steps
    ) -> None:
        """Print what *robots* says about *url* to each agent."""
        steps = steps_of(url, path) if self._options.explain else ()
        obey_global = self._settings.obey_global_group
        columns = 0
        if len(chains) > 1 or len(chains[0]) > 1:
            columns = max(len(in_words(chain)) for chain in chains)
        for chain in chains:
            one = robots.explain(url, path, chain, obey_global=obey_global, steps=steps)
            if one.unreachable:
                self.output.statuses.add(Status.UNREACHABLE)
            elif not one.allowed:
                self.output.statuses.add(Status.FOUND)
            self._print(one, columns)

    def _print(self, one: Explanation, columns: int) -> None:
        options, output = self._options, self.output
        if options.json:
            output.json(as_json(one, explain=options.explain))
        elif options.csv:
            output.csv(as_csv(one))
        elif options.explain:
            block(output, one, self._settings.crawl_delay)
        else:
            self._line(one, columns)
        if not self._lines:
            return
        self._totals.setdefault(one.chain, Counter())[one.verdict] += 1
        facts = one.robots.facts
        if (shown := self._files.get(facts.robots_url or "")) is None:
            shown = _Shown(facts_line(one.robots), facts.file is not None)
            self._files[facts.robots_url or ""] = shown
        if options.show:
            shown.body = one.robots.body
            if one.decision.rule is not None:
                shown.decided.setdefault(one.decision.rule, {})[one.url] = None

    def _line(self, one: Explanation, columns: int) -> None:
        """:param columns: for the agent; 0: all verdicts are for one"""
        paint = self.output.paint
        cells = [paint(one.verdict.ljust(WIDEST), COLOURS[one.verdict])]
        cells += [in_words(one.chain).ljust(columns)] if columns else []
        self.output.line("  ".join([*cells, clean(one.url), paint(one.why, DIM)]))

    def end(self) -> None:
        """Print what has to wait until all is known."""
        for shown in self._files.values():
            if self._options.show or not shown.is_file:
                self.output.note(shown.facts)
            if self._options.show:
                self._show(shown)
        if len(self._totals) > _MAX_TOTALS:
            everything = sum(self._totals.values(), Counter())
            self._total(f"{len(self._totals):,} agents", everything)
        else:
            for chain, counts in self._totals.items():
                self._total(in_words(chain), counts)

    def _total(self, agents: str, counts: Counter[str]) -> None:
        verdicts = [f"{counts[one]:,} {one}" for one in COLOURS if counts[one]]
        self.output.note(f"{agents}: {', '.join(verdicts)}")

    def _show(self, shown: _Shown) -> None:
        """Print a file, with the lines marked that decided."""
        decided = {rule.line: (rule.allow, list(urls)) for rule, urls in shown.decided.items()}
        for number, row in enumerate(rows(cut(shown.body).rstrip(b"\r\n")), 1):
            text = clean(row.decode("utf-8", "backslashreplace").expandtabs())
            if number not in decided:
                self.output.line(f" {number:5}  {text}".rstrip())
                continue
            allow, urls = decided[number]
            more = f" and {len(urls) - _NAMED:,} more" if len(urls) > _NAMED else ""
            mark = f"<- {'allowed' if allow else 'disallowed'}: {', '.join(urls[:_NAMED])}{more}"
            colour = GREEN if allow else RED
            line = self.output.paint(f">{number:5}  {text}", BOLD)
            self.output.line(f"{line}  {self.output.paint(mark, colour)}")


def block(output: Output, one: Explanation, most_delay: float) -> None:
    """Print all about one URL and one agent. *most_delay* is the setting ``REP_CRAWL_DELAY``."""
    agent = in_words(one.chain) if one.chain else "unknown: the * group applies"
    rows = [("agent", agent), ("because", one.reason)]
    if one.decision.agent is not None:
        rows.append(("group", _group(one)))
    pace = one.pace
    if (slowest := pace.slowest) is not None:
        rows.append((slowest.field, _delay(slowest.seconds, slowest.line, most_delay)))
    if (visit := pace.visit_time) is not None:
        rows.append(("visit-time", f"{visit.value} (line {visit.line}), not obeyed"))
    rows += [*facts_rows(one.robots), *one.steps]
    for group, applied in one.considered:
        label = "group applied" if applied else "group passed over"
        names = ", ".join(agent.value for agent in group.agents)
        rules = counted(len(group.rules), "rule")
        rows.append((label, f"line {group.agents[0].line}: {names} ({rules})"))
    others = len(one.robots.outline.groups) - len(one.considered)
    if others:
        rows.append(("other groups", f"{others}, for other agents"))
    rows += [
        ("rule", f"line {m.rule.line}: {m.rule} ({counted(m.length, 'octet')}; {m.why})")
        for m in one.matched
    ]
    title = f"{output.paint(one.verdict, BOLD, COLOURS[one.verdict])}  {clean(one.url)}"
    output.block(title, rows)


def _delay(seconds: float, line: int, most: float) -> str:
    text = f"{seconds:g} s (line {line})"
    if not most:
        return f"{text}, ignored: REP_CRAWL_DELAY is off"
    return text if seconds <= most else f"{text}, more than REP_CRAWL_DELAY allows: {most:g} s"


def _group(one: Explanation) -> str:
    token = one.decision.agent or ""
    lines = [
        str(next(agent.line for agent in group.agents if agent.token == token.lower()))
        for group in one.robots.outline.groups
        if group.names(token.lower())
    ]
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(lines)}, as one"
    if token == GLOBAL and one.chain and one.chain != (GLOBAL,):
        return f"* ({where}); no group names {' or '.join(one.chain)}"
    return f"{token} ({where})"


def facts_rows(robots: RobotsFile) -> list[tuple[str, str]]:
    """Return where a robots.txt comes from: labels and texts."""
    facts = robots.facts
    if facts.file is not None:
        return [("robots.txt", STDIN if facts.file == "-" else facts.file)]
    address = facts.robots_url or ""
    if facts.hops:
        address += f", {counted(facts.hops, 'redirect')} to {facts.final_url}"
    by = [("setting", facts.setting)] if facts.setting else []
    tried = "tried before" if facts.from_cache else "just tried"
    if facts.status is None and robots.outcome is not Outcome.UNREACHABLE:
        return [("robots.txt", f"{address}, not fetched"), *by]
    if robots.outcome is Outcome.UNREACHABLE:
        return [("robots.txt", address), (tried, facts.error or robots.answer), *by]
    fetched = str(iso(facts.fetched_at)) if facts.from_cache or facts.stale else "now"
    if facts.stale:
        fetched += f", still in use: robots.txt is unreachable ({tried}: {facts.error})"
    else:
        cached = " (from the cache)" if facts.from_cache else ""
        fetched += f"{cached}, {robots.answer}, fresh until {iso(facts.fresh_until)}"
    return [("robots.txt", address), ("fetched", fetched), *by]


def facts_line(robots: RobotsFile) -> str:
    """Return the same in one line."""
    (_, line), *rows = facts_rows(robots)
    for label, text in rows:
        line += f": {label}{' ' if label == 'fetched' else ': '}{text}"
    return line


def as_csv(one: Explanation) -> list[object]:
    """Return what ``--csv`` prints of an explanation: ``CSV_FIELDS``."""
    rule, facts = one.decision.rule, one.robots.facts
    line, text = (rule.line, str(rule)) if rule else (None, None)
    cells = [one.url, in_words(one.chain), one.verdict, line, text, one.decision.agent]
    return [*cells, facts.robots_url or facts.file, facts.status]


def as_json(one: Explanation, *, explain: bool = False) -> dict[str, Any]:
    """Return what ``--json`` prints of an explanation (docs/command.md explains the fields)."""
    robots, facts, rule = one.robots, one.robots.facts, one.decision.rule
    _, slowest, visit = one.pace
    data: dict[str, Any] = {
        "url": one.url,
        "agent": one.agent,
        "allowed": one.allowed,
        "line": rule.line if rule else None,
        "rule": str(rule) if rule else None,
        "group": one.decision.agent,
        "reason": one.reason,
        "path": one.path,
        "outcome": robots.outcome.value,
        **asdict(facts),  # the fields have the names, and the order, of the facts
        "fetched_at": iso(facts.fetched_at),
        "fresh_until": iso(facts.fresh_until),
        "sha256": robots.sha256,
        "crawl_delay": slowest and slowest.seconds,
        "crawl_delay_line": slowest and slowest.line,
        "visit_time": visit and visit.value,
        "agent_in_words": in_words(one.chain),
        "verdict": one.verdict,
    }
    if explain:
        data["chain"] = list(one.chain)
        data["steps"] = [{"step": step, "result": result} for step, result in one.steps]
        data["groups"] = [
            {
                "agents": [agent.value for agent in group.agents],
                "lines": [agent.line for agent in group.agents],
                "rules": len(group.rules),
                "applied": applied,
            }
            for group, applied in one.considered
        ]
        data["matched"] = [
            {"line": m.rule.line, "rule": str(m.rule), "length": m.length, "why": m.why}
            for m in one.matched
        ]
    return data
