"""``scrapy robots URL…``: which line allows or forbids it? Verdicts are a line each; for ``--explain``,
blocks (:func:`block`), whose reasons come from inspection/explanation.py; CSV and JSON; for ``--show``,
the file with its deciding lines."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.exceptions import UsageError

from scrapy_rep.commands.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Output,
    Status,
    complain,
)
from scrapy_rep.commands.task import STDIN, read_file
from scrapy_rep.engine.text import clean, counted, iso
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile, in_words
from scrapy_rep.inspection.lint import rows
from scrapy_rep.origins.answer import READ_BYTES
from scrapy_rep.origins.requests import path_in
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import GLOBAL, cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.commands.lookup import Chain, Lookup
    from scrapy_rep.commands.task import Task
    from scrapy_rep.protocol import Origin, Rule

Steps = list[tuple[str, str]]
"""What was done to a URL, and the results."""

# Origins whose files are kept until the end, to be shown.
_MAX_SHOWN = 100

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


def decide(task: Task) -> None:
    """Explain the URLs."""
    (_by_sites if task.options.file is None else _by_file)(task)


def path_as_given(url: str) -> str:
    """Return what is compared of a URL that any text will do for: as it stands, as Google's matcher
    does. A path alone that isn't ASCII is encoded, as a browser or a crawl would do."""
    path = path_of(url)
    return comparable(path) if url[:1] == "/" and not url.isascii() else path


def _by_file(task: Task) -> None:
    name = task.options.file
    if name == STDIN and (not task.arguments or STDIN in task.arguments):
        raise UsageError("standard input can't be both robots.txt and URLs")
    robots = RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))
    printer = _Printer(task, None)
    for url, _ in task.urls():
        path = path_as_given(url)
        steps = _steps_of_file(url, path) if task.options.explain else []
        printer.add(url, path, robots, steps)
    printer.end()


def _steps_of_file(url: str, path: str) -> Steps:
    as_is = path_of(url)
    steps = [("compared as is", path)] if path == as_is else [("path", as_is), ("compared", path)]
    try:
        crawled = comparable(path_in(Request(url)))
    except ValueError:
        return steps
    return steps if crawled == path else [*steps, ("a crawl compares", crawled)]


def _steps_of_crawl(url: str, path: str) -> Steps:
    request = Request(url)
    steps = [("a crawl requests", request.url)] if request.url != url else []
    if path_in(request) != path:
        steps.append(("path", path_in(request)))
    return [*steps, ("compared", path)]


class _Asked(NamedTuple):
    url: str
    path: str
    origin: Origin


def _by_sites(task: Task) -> None:
    """Explain by the robots.txt of each URL's origin."""
    waiting = deque(
        _Asked(url, comparable(path_in(request)), origin)
        for url, request, origin in task.requests()
    )
    left = Counter(one.origin for one in waiting)
    if task.options.show and len(left) > _MAX_SHOWN:
        raise UsageError(f"--show is for at most {_MAX_SHOWN} origins")

    async def job(lookup: Lookup) -> None:
        printer = _Printer(task, lookup)
        files: dict[Origin, RobotsFile] = {}
        async for new, robots in lookup.each(list(left)):
            files[new] = robots
            while waiting and (origin := waiting[0].origin) in files:
                url, path, _ = waiting.popleft()
                steps = _steps_of_crawl(url, path) if task.options.explain else []
                printer.add(url, path, files[origin], steps)
                left[origin] -= 1
                if not left[origin]:
                    del files[origin]
            task.output.flush()
        printer.end()

    if waiting:
        task.crawl(job)


@dataclass(slots=True)
class _Shown:
    """A robots.txt, and what its lines decided."""

    facts: str
    is_file: bool
    body: bytes = b""
    decided: dict[Rule, dict[str, None]] = field(default_factory=dict)
    """The URLs that each rule decided about, in order."""


class _Printer:
    """Prints verdicts as they come, and collects the exit statuses."""

    def __init__(self, task: Task, lookup: Lookup | None) -> None:
        """:param lookup: if there is a crawl"""
        self._task = task
        self._options = options = task.options
        self._output = task.output
        self._agents = task.named if options.agents_of_file else task.agents(lookup)
        self._totals: dict[Chain, Counter[str]] = {}
        self._files: dict[str, _Shown] = {}
        self._chains: dict[str | None, list[Chain]] = {}
        if options.csv:
            self._output.csv(CSV_FIELDS)

    def _chains_for(self, robots: RobotsFile) -> list[Chain]:
        """Return the agents that are asked about in that file."""
        if not self._options.agents_of_file:
            return self._agents
        url = robots.facts.robots_url
        if url not in self._chains:
            self._chains[url] = list(dict.fromkeys([*self._agents, *agents_of([robots])]))
        return self._chains[url]

    def add(self, url: str, path: str, robots: RobotsFile, steps: Steps) -> None:
        """Print what *robots* says about *url* to each agent."""
        chains, obey_global = self._chains_for(robots), self._task.rep.obey_global_group
        columns = 0
        if len(chains) > 1 or len(chains[0]) > 1:
            columns = max(len(in_words(chain)) for chain in chains)
        for chain in chains:
            one = robots.explain(url, path, chain, obey_global=obey_global, steps=steps)
            if not one.allowed or one.unreachable:
                status = Status.UNREACHABLE if one.unreachable else Status.FOUND
                self._task.statuses.add(status)
            self._print(one, columns)

    def _print(self, one: Explanation, columns: int) -> None:
        options, output = self._options, self._output
        if options.json:
            output.json(as_json(one, explain=options.explain))
        elif options.csv:
            output.csv(as_csv(one))
        elif options.explain:
            block(output, one, self._task.rep.crawl_delay)
        else:
            self._line(one, columns)
            self._count(one)

    def _count(self, one: Explanation) -> None:
        self._totals.setdefault(one.chain, Counter())[one.verdict] += 1
        facts = one.robots.facts
        if (shown := self._files.get(facts.robots_url or "")) is None:
            shown = _Shown(facts_line(one.robots), facts.file is not None)
            self._files[facts.robots_url or ""] = shown
        if self._options.show:
            shown.body = one.robots.body
            if one.decision.rule is not None:
                shown.decided.setdefault(one.decision.rule, {})[one.url] = None

    def _line(self, one: Explanation, columns: int) -> None:
        """:param columns: for the agent; 0: all verdicts are for one"""
        paint = self._output.paint
        cells = [paint(one.verdict.ljust(WIDEST), COLOURS[one.verdict])]
        cells += [in_words(one.chain).ljust(columns)] if columns else []
        self._output.line("  ".join([*cells, clean(one.url), paint(one.why, DIM)]))

    def end(self) -> None:
        """Print what has to wait until all is known."""
        for shown in self._files.values():
            if self._options.show or not shown.is_file:
                self._output.note(shown.facts)
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
        self._output.note(f"{agents}: {', '.join(verdicts)}")

    def _show(self, shown: _Shown) -> None:
        """Print a file, with the lines marked that decided."""
        decided = {rule.line: (rule.allow, list(urls)) for rule, urls in shown.decided.items()}
        for number, row in enumerate(rows(cut(shown.body).rstrip(b"\r\n")), 1):
            text = clean(row.decode("utf-8", "backslashreplace").expandtabs())
            if number not in decided:
                self._output.line(f" {number:5}  {text}".rstrip())
                continue
            allow, urls = decided[number]
            more = f" and {len(urls) - _NAMED:,} more" if len(urls) > _NAMED else ""
            mark = f"<- {'allowed' if allow else 'disallowed'}: {', '.join(urls[:_NAMED])}{more}"
            colour = GREEN if allow else RED
            line = self._output.paint(f">{number:5}  {text}", BOLD)
            self._output.line(f"{line}  {self._output.paint(mark, colour)}")


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
        return [("robots.txt", STDIN_IN_WORDS if facts.file == STDIN else facts.file)]
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
