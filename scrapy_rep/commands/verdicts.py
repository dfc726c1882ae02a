"""robots.txt files and what they say: ``scrapy robots URL…``, which line allows or forbids a URL
(reasons come from inspection/explanation.py); ``--lint URL|FILE…``, likely mistakes; ``--compare OLD
NEW [URL…]``, what changes from one to the other. The last two read files as they are now."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_rep.commands.findings import print_findings
from scrapy_rep.commands.output import Status, complain
from scrapy_rep.commands.task import STDIN, read_file, request_for
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile, in_words
from scrapy_rep.inspection.findings import NOTE, SEVERITIES, finding, some
from scrapy_rep.inspection.lint import lint as findings_in
from scrapy_rep.inspection.lint import rows
from scrapy_rep.origins.agents import path_in
from scrapy_rep.origins.answer import READ_BYTES
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import GLOBAL, cut
from scrapy_rep.text import counted, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy_rep.commands.task import Chain, Lookup, Task
    from scrapy_rep.protocol import Origin

Question = tuple[str, str, list[tuple[str, str]]]
"""A URL, what is compared of it, and the steps before that: names and results."""

# A file may name a hundred thousand agents, and is read once for each.
_MAX_AGENTS = 1000

_WIDEST = len("unreachable")

_CSV_FIELDS = ("url", "agent", "verdict", "line", "rule", "group", "robots_url", "status")


def agents_of(robots: Iterable[RobotsFile], asked: Iterable[Chain]) -> list[Chain]:
    """Return the agents *asked* about, those that files name, and ``*``, each once. If files name
    too many, only the first count."""
    named = {token.lower(): token for one in robots for token in one.outline.tokens()}
    if len(named) > _MAX_AGENTS:
        complain(f"only the first {_MAX_AGENTS:,} of {len(named):,} agents are asked about")
    chosen = [token for token in named.values() if token != GLOBAL][:_MAX_AGENTS]
    return list(dict.fromkeys([*asked, *((token,) for token in [*chosen, GLOBAL])]))


def path_as_given(url: str) -> str:
    """Return what is compared of a URL that may be any text: as it stands, as Google's matcher
    does. A path alone that isn't ASCII is encoded, as a browser or a crawl would do."""
    path = path_of(url)
    return comparable(path) if url[:1] == "/" and not url.isascii() else path


def decide(task: Task) -> None:
    if task.options.csv:
        task.output.csv(_CSV_FIELDS)
    totals = (_by_sites if task.options.file is None else _by_file)(task)
    if told := [f"{count:,} {verdict}" for verdict, count in sorted(totals.items())]:
        task.output.line(f"# {', '.join(told)}")


def _by_file(task: Task) -> Counter[str]:
    name = task.options.file
    robots = RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))
    asked = ((url, path_as_given(url), [("path", path_of(url))]) for url in task.urls())
    return _print(task, robots, task.agents(), asked)


def _by_sites(task: Task) -> Counter[str]:
    """Print verdicts in the order of the URLs, each as soon as all before it are known."""
    totals: Counter[str] = Counter()
    asked: list[tuple[Origin, Question]] = []
    for url, request, origin in task.requests():
        path = path_in(request)
        steps = [("requested", request.url), ("path", path)]
        asked.append((origin, (url, comparable(path), steps)))
    runs = deque((origin, [one for _, one in run]) for origin, run in groupby(asked, itemgetter(0)))
    left = Counter(origin for origin, _ in runs)

    async def job(lookup: Lookup) -> None:
        agents = task.agents(lookup.origins.agents)
        files: dict[Origin, RobotsFile] = {}
        async for new, robots in lookup.each(list(left)):
            files[new] = robots
            if not task.options.explain:
                task.output.line(f"# {facts_line(robots)}")
            while runs and (origin := runs[0][0]) in files:
                totals.update(_print(task, files[origin], agents, runs.popleft()[1]))
                left[origin] -= 1
                if not left[origin]:
                    del files[origin]
            task.output.flush()

    if asked:
        task.crawl(job)
    return totals


def _print(
    task: Task, robots: RobotsFile, agents: list[Chain], asked: Iterable[Question]
) -> Counter[str]:
    """Print what *robots* says about URLs to each agent. Return how often it says what."""
    options, totals = task.options, Counter[str]()
    if options.agents_of_file:
        agents = agents_of([robots], task.named)
    columns = max(len(in_words(chain)) for chain in agents)
    decided: dict[int, list[str]] = {}
    obey_global = task.rep.obey_global_group
    for url, path, steps in asked:
        steps = [*steps, ("compared", path)]
        for chain in agents:
            one = robots.explain(url, path, chain, obey_global=obey_global, steps=steps)
            totals[one.verdict] += 1
            if not one.allowed or one.unreachable:
                task.statuses.add(Status.UNREACHABLE if one.unreachable else Status.FOUND)
            _print_one(task, one, columns)
            if options.show and one.decision.rule is not None:
                decided.setdefault(one.decision.rule.line, [one.verdict]).append(url)
    if options.show and robots.outcome is Outcome.RULES:
        _show(task, robots, decided)
    return totals


def _print_one(task: Task, one: Explanation, columns: int) -> None:
    """Print a verdict, the agent in *columns*."""
    options, output, agent = task.options, task.output, in_words(one.chain)
    if options.explain:
        how = one.how()
        steps = [f"{step}: {result}" for step, result in one.steps]
        matched = [
            f"line {rule['line']}: {rule['rule']} ({rule['why']})" for rule in how["matched"]
        ]
        output.put_all({**one.as_dict(), **how}, "verdict", "url", steps=steps, matched=matched)
    elif options.json:
        output.put(one.as_dict())
    elif options.csv:
        data = one.as_dict()
        data |= {"agent": agent, "robots_url": data["robots_url"] or data["file"]}
        output.csv(data[name] for name in _CSV_FIELDS)
    else:
        output.line(one.verdict.ljust(_WIDEST), agent.ljust(columns), one.url, one.why)


def _show(task: Task, robots: RobotsFile, decided: dict[int, list[str]]) -> None:
    """Print a file, with the lines marked that decided: *decided* has the verdict and the URLs."""
    for number, row in enumerate(rows(cut(robots.body).rstrip(b"\r\n")), 1):
        text = row.decode("utf-8", "backslashreplace").expandtabs()
        verdict, *urls = decided.get(number, [""])
        if urls:
            text += f"  <- {verdict}: {some(list(dict.fromkeys(urls)))}"
        task.output.line(f"{'>' if urls else ' '}{number:5}", text)


def facts_line(robots: RobotsFile) -> str:
    """Return where a robots.txt comes from."""
    facts = robots.facts
    told = [str(facts.robots_url)]
    if facts.hops:
        told.append(f"{counted(facts.hops, 'redirect')} to {facts.final_url}")
    if facts.error or robots.outcome is Outcome.UNREACHABLE:
        tried = "tried before" if facts.from_cache else "just tried"
        told.append(f"{tried}: {facts.error or robots.answer}")
    if facts.stale:
        told.append(f"unreachable, so the copy of {iso(facts.fetched_at)} is still in use")
    elif robots.outcome is not Outcome.UNREACHABLE:
        fetched = f"fetched {iso(facts.fetched_at) if facts.from_cache else 'now'}"
        cached = " (from the cache)" if facts.from_cache else ""
        fresh = f"{robots.answer}, fresh until {iso(facts.fresh_until)}"
        told.append("not fetched" if facts.status is None else f"{fetched}{cached}, {fresh}")
    if facts.setting:
        told.append(facts.setting)
    return f"{told[0]}: {', '.join(told[1:])}"


def _read(task: Task, names: Sequence[str], use: Callable[[RobotsFile], None]) -> None:
    """Call *use* with each file, or each URL's robots.txt; complain about unreadable ones."""
    origins: dict[Origin, None] = {}
    if list(names).count(STDIN) > 1:
        raise UsageError("standard input can be read only once")

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
        findings = [finding(None, "no-file", answer=robots.answer)]
        if robots.outcome is not Outcome.MISSING:
            findings = findings_in(robots.body, robots_url=url, also=[usage_findings])
        if any(item.severity in failing for item in findings):
            task.statuses.add(Status.FOUND)
        print_findings(output, source, findings)
        output.flush()

    _read(task, task.arguments, show)


# -- compare ---------------------------------------------------------------------------------


def compare(task: Task) -> None:
    """Compare verdicts on URLs, or without any, the rules of each agent."""
    names = task.options.compare
    found: dict[str | None, RobotsFile] = {}

    def keep(robots: RobotsFile) -> None:
        found[robots.facts.file] = replace(robots, body=cut(robots.body))

    _read(task, names, keep)
    if task.statuses:
        return  # one can't be read
    old, new = (found[request_for(one)[1].robots_url if "://" in one else one] for one in names)
    agents = task.named
    if task.options.agents_of_file or not agents:
        agents = agents_of([old, new], agents)
    if task.arguments:
        changed = sum(_verdicts(task, url, agents, old, new) for url in task.urls())
        total = f"{counted(changed, 'verdict')} changed"
    else:
        tokens = dict.fromkeys(token for chain in agents for token in chain)
        changed = _lines_changed(task, tokens, old, new)
        total = f"{counted(changed, 'line')} changed"
    task.output.line(f"# {total}")
    if changed:
        task.statuses.add(Status.FOUND)


def _verdicts(
    task: Task, url: str, agents: Iterable[Chain], old: RobotsFile, new: RobotsFile
) -> int:
    """Print the agents for whom the verdict on *url* changes. Return how many these are."""
    path, changed, obey_global = path_as_given(url), 0, task.rep.obey_global_group
    for chain in agents:
        one, other = (
            file.explain(url, path, chain, obey_global=obey_global) for file in (old, new)
        )
        if one.verdict != other.verdict:
            changed += 1
            before, after = one.as_dict(), other.as_dict()
            data = {"url": url, "agent": before["agent"], "old": before, "new": after}
            verdicts, why = f"{one.verdict} -> {other.verdict}", f"{one.why} -> {other.why}"
            task.output.put(data, verdicts, in_words(chain), url, why)
    return changed


def _lines_changed(task: Task, tokens: Iterable[str], old: RobotsFile, new: RobotsFile) -> int:
    """Print the lines of each agent's groups that are in one of the files only. Return how many."""
    changed = 0
    for token in tokens:
        before, after = _lines(old, token), _lines(new, token)
        for change, sign, robots, lines, others in (
            ("removed", "-", old, before, after),
            ("added", "+", new, after, before),
        ):
            for number, text in (line for key, line in lines.items() if key not in others):
                changed += 1
                place = robots.facts.file or ""
                data = {"source": place, "line": number, "text": text, "group": token}
                told = f"{sign} {place}:{number}: {text} (group {token})"
                task.output.put({"change": change, **data}, told)
    return changed


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
