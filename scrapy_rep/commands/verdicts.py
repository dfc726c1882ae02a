"""``scrapy robots URL…``: which line allows or forbids it? Verdicts are a line each; for
``--explain``, blocks (:func:`block`), whose reasons come from inspection/explanation.py; CSV and
JSON; for ``--show``, the file with its deciding lines."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import UsageError

from scrapy_rep.commands.output import BOLD, DIM, GREEN, RED, YELLOW, Output, Status, complain
from scrapy_rep.commands.task import STDIN, read_file
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile, in_words
from scrapy_rep.inspection.lint import rows, some
from scrapy_rep.origins.agents import path_in
from scrapy_rep.origins.answer import READ_BYTES
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import GLOBAL, cut
from scrapy_rep.text import clean, counted, iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.commands.lookup import Chain, Lookup
    from scrapy_rep.commands.task import Task
    from scrapy_rep.protocol import Origin

Steps = list[tuple[str, str]]
"""What was done to a URL, and the results."""

# Origins whose files are kept until the end, to be shown.
_MAX_SHOWN = 100

# A file may name a hundred thousand agents, each of which takes a reading of it.
_MAX_AGENTS = 1000

# With more agents, one line has all the totals.
_MAX_TOTALS = 10

COLOURS = {"allowed": GREEN, "disallowed": RED, "unreachable": YELLOW}
WIDEST = max(map(len, COLOURS))

CSV_FIELDS = ("url", "agent", "verdict", "line", "rule", "group", "robots_url", "status")


def agents_of(robots: Iterable[RobotsFile]) -> list[Chain]:
    """Return the agents that files name, each once, and ``*``; of too many, the first."""
    named = {token.lower(): token for one in robots for token in one.outline.tokens()}
    if len(named) > _MAX_AGENTS:
        complain(f"only the first {_MAX_AGENTS:,} of {len(named):,} agents are asked about")
    chosen = [token for token in named.values() if token != GLOBAL][:_MAX_AGENTS]
    return [(token,) for token in [*chosen, GLOBAL]]


def path_as_given(url: str) -> str:
    """Return what is compared of a URL that may be any text: as it stands, as Google's matcher
    does. A path alone that isn't ASCII is encoded, as a browser or a crawl would do."""
    path = path_of(url)
    return comparable(path) if url[:1] == "/" and not url.isascii() else path


def decide(task: Task) -> None:
    (_by_sites if task.options.file is None else _by_file)(task)


def _by_file(task: Task) -> None:
    name = task.options.file
    if name == STDIN and (not task.arguments or STDIN in task.arguments):
        raise UsageError("standard input can't be both robots.txt and URLs")
    robots = RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))
    printer = _Printer(task, None)
    for url, _ in task.urls():
        path, as_is = path_as_given(url), path_of(url)
        steps = [("compared as is", path)]
        if path != as_is:
            steps = [("path", as_is), ("compared", path)]
        with suppress(ValueError):  # it is no URL
            crawled = comparable(path_in(Request(url))) if task.options.explain else path
            if crawled != path:
                steps.append(("a crawl compares", crawled))
        printer.add(url, path, robots, steps)
    printer.end()


def _by_sites(task: Task) -> None:
    waiting = deque(
        (origin, url, request.url, path_in(request)) for url, request, origin in task.requests()
    )
    left = Counter(origin for origin, *_ in waiting)
    if task.options.show and len(left) > _MAX_SHOWN:
        raise UsageError(f"--show is for at most {_MAX_SHOWN} origins")

    async def job(lookup: Lookup) -> None:
        printer = _Printer(task, lookup)
        files: dict[Origin, RobotsFile] = {}
        async for new, robots in lookup.each(list(left)):
            files[new] = robots
            while waiting and waiting[0][0] in files:
                origin, url, requested, as_is = waiting.popleft()
                path = comparable(as_is)
                steps = [("a crawl requests", requested)] if requested != url else []
                steps += [("path", as_is)] if as_is != path else []
                printer.add(url, path, files[origin], [*steps, ("compared", path)])
                left[origin] -= 1
                if not left[origin]:
                    del files[origin]
            task.output.flush()
        printer.end()

    if waiting:
        task.crawl(job)


@dataclass(slots=True)
class _Shown:
    facts: str
    """Empty: nothing is said of it."""
    body: bytes
    decided: dict[int, tuple[bool, dict[str, None]]] = field(default_factory=dict)
    """For each line that decided: whether it allows, and the URLs in order."""


class _Printer:
    """Prints verdicts as they come, and collects the exit statuses."""

    def __init__(self, task: Task, lookup: Lookup | None) -> None:
        self._task = task
        self._options = options = task.options
        self._output = task.output
        self._agents = task.named if options.agents_of_file else task.agents(lookup)
        self._totals: dict[Chain, Counter[str]] = {}
        self._files: dict[str | None, _Shown] = {}
        self._chains: dict[str | None, list[Chain]] = {}
        if options.csv:
            self._output.csv(CSV_FIELDS)

    def add(self, url: str, path: str, robots: RobotsFile, steps: Steps) -> None:
        """Print what *robots* says about *url* to each agent."""
        options, output, rep = self._options, self._output, self._task.rep
        chains, key = self._agents, robots.facts.robots_url
        if options.agents_of_file:
            if key not in self._chains:
                self._chains[key] = list(dict.fromkeys([*chains, *agents_of([robots])]))
            chains = self._chains[key]
        columns = 0  # all verdicts are for one
        if len(chains) > 1 or len(chains[0]) > 1:
            columns = max(len(in_words(chain)) for chain in chains)
        for chain in chains:
            one = robots.explain(url, path, chain, obey_global=rep.obey_global_group, steps=steps)
            if not one.allowed or one.unreachable:
                status = Status.UNREACHABLE if one.unreachable else Status.FOUND
                self._task.statuses.add(status)
            if options.json:
                output.json(as_json(one, explain=options.explain))
            elif options.csv:
                output.csv(as_csv(one))
            elif options.explain:
                block(output, one, rep.crawl_delay)
            else:
                self._line(one, columns)

    def _line(self, one: Explanation, columns: int) -> None:
        """Print a verdict, the agent in *columns*, and remember what is printed at the end."""
        verdict = (one.verdict.ljust(WIDEST), COLOURS[one.verdict])
        who = [in_words(one.chain).ljust(columns)] if columns else []
        self._output.row(verdict, *who, one.url, (one.why, DIM))
        self._totals.setdefault(one.chain, Counter())[one.verdict] += 1
        show, facts, rule = self._options.show, one.robots.facts, one.decision.rule
        if (shown := self._files.get(facts.robots_url)) is None:
            told = facts_line(one.robots) if show or facts.file is None else ""
            shown = _Shown(told, one.robots.body if show else b"")
            self._files[facts.robots_url] = shown
        if show and rule is not None:
            shown.decided.setdefault(rule.line, (rule.allow, {}))[1][one.url] = None

    def end(self) -> None:
        """Print what has to wait until all is known."""
        for shown in self._files.values():
            if shown.facts:
                self._output.note(shown.facts)
            if self._options.show:
                self._show(shown)
        totals = {in_words(chain): counts for chain, counts in self._totals.items()}
        if len(totals) > _MAX_TOTALS:
            totals = {f"{len(totals):,} agents": sum(totals.values(), Counter())}
        for agents, counts in totals.items():
            verdicts = [f"{counts[one]:,} {one}" for one in COLOURS if counts[one]]
            self._output.note(f"{agents}: {', '.join(verdicts)}")

    def _show(self, shown: _Shown) -> None:
        """Print a file, with the lines marked that decided."""
        for number, row in enumerate(rows(cut(shown.body).rstrip(b"\r\n")), 1):
            text = clean(row.decode("utf-8", "backslashreplace").expandtabs())
            if number not in shown.decided:
                self._output.row(f" {number:5}", text)
                continue
            allow, decided = shown.decided[number]
            mark = f"<- {'allowed' if allow else 'disallowed'}: {some(list(decided))}"
            self._output.row((f">{number:5}  {text}", BOLD), (mark, GREEN if allow else RED))


def block(output: Output, one: Explanation, most_delay: float) -> None:
    """Print all about one URL and one agent. *most_delay* is the setting ``REP_CRAWL_DELAY``."""
    agent = in_words(one.chain) if one.chain else "unknown: the * group applies"
    rows = [("agent", agent), ("because", one.reason)]
    if one.decision.agent is not None:
        rows.append(("group", _group(one)))
    _, slowest, visit = one.pace
    if slowest is not None:
        delay = f"{slowest.seconds:g} s (line {slowest.line})"
        if not most_delay:
            delay += ", ignored: REP_CRAWL_DELAY is off"
        elif slowest.seconds > most_delay:
            delay += f", more than REP_CRAWL_DELAY allows: {most_delay:g} s"
        rows.append((slowest.field, delay))
    if visit is not None:
        rows.append(("visit-time", f"{visit.value} (line {visit.line}), not obeyed"))
    rows += [*facts_rows(one.robots), *one.steps]
    considered = one.considered
    for group, applied in considered:
        label = "group applied" if applied else "group passed over"
        names = ", ".join(agent.value for agent in group.agents)
        count = counted(len(group.rules), "rule")
        rows.append((label, f"line {group.agents[0].line}: {names} ({count})"))
    if others := len(one.robots.outline.groups) - len(considered):
        rows.append(("other groups", f"{others}, for other agents"))
    rows += [
        ("rule", f"line {m.rule.line}: {m.rule} ({counted(m.length, 'octet')}; {m.why})")
        for m in one.matched
    ]
    output.block([(one.verdict, BOLD, COLOURS[one.verdict]), one.url], rows)


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
    return {**data, **_explanation_as_json(one)} if explain else data


def _explanation_as_json(one: Explanation) -> dict[str, Any]:
    groups = [
        {
            "agents": [agent.value for agent in group.agents],
            "lines": [agent.line for agent in group.agents],
            "rules": len(group.rules),
            "applied": applied,
        }
        for group, applied in one.considered
    ]
    matched = [
        {"line": m.rule.line, "rule": str(m.rule), "length": m.length, "why": m.why}
        for m in one.matched
    ]
    steps = [{"step": step, "result": result} for step, result in one.steps]
    return {"chain": list(one.chain), "steps": steps, "groups": groups, "matched": matched}
