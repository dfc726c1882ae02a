"""robots.txt files and what they say: ``scrapy robots URL…``, which line allows or forbids a URL
(reasons come from inspection/explanation.py); ``--lint URL|FILE…``, likely mistakes, in files as they
are now. No Scrapy."""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_rep.commands.findings import print_findings
from scrapy_rep.commands.output import Status, WrongUsage, complain
from scrapy_rep.commands.task import READ_BYTES, STDIN, read_file
from scrapy_rep.inspection.crawlers import AS_OF, KNOWN, OF_CHAIN, Crawler, about_known
from scrapy_rep.inspection.explanation import STDIN as STDIN_IN_WORDS
from scrapy_rep.inspection.explanation import (
    Explanation,
    Facts,
    RobotsFile,
    facts_line,
    in_words,
)
from scrapy_rep.inspection.findings import NOTE, SEVERITIES, finding, some
from scrapy_rep.inspection.lint import lint as findings_in
from scrapy_rep.inspection.lint import rows
from scrapy_rep.preferences.lint import usage_findings
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import GLOBAL, cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.commands.crawl import Lookup
    from scrapy_rep.commands.task import Chain, Question, Task
    from scrapy_rep.protocol import Origin

# A file may name a hundred thousand agents, and is read once for each.
_MAX_AGENTS = 1000

_WIDEST = len("unreachable")

# In a table of known crawlers.
_WIDEST_OPERATOR = max(len(crawler.operator) for crawler in KNOWN)
_WIDEST_PURPOSE = max(len(crawler.purpose) for crawler in KNOWN)

_ABOUT_KNOWN = (
    f"crawlers known on {AS_OF}; --csv and --json name the page that documents each"
)

_NO_AGENT = "no --agent given, so this is about any crawler that no group names (*)"

_CSV_FIELDS = (
    "url",
    "agent",
    "verdict",
    "line",
    "rule",
    "group",
    "robots_url",
    "status",
)


def agents_of(robots: Iterable[RobotsFile], asked: Iterable[Chain]) -> list[Chain]:
    """Return the agents *asked* about, those that files name, and ``*``, each once. If files name
    too many, only the first count."""
    named = {token.lower(): token for file in robots for token in file.outline.tokens()}
    if len(named) > _MAX_AGENTS:
        complain(
            f"only the first {_MAX_AGENTS:,} of {len(named):,} agents are asked about"
        )
    chosen = [token for token in named.values() if token != GLOBAL][:_MAX_AGENTS]
    return list(dict.fromkeys([*asked, *((token,) for token in [*chosen, GLOBAL])]))


def asked_of(
    task: Task, files: Iterable[RobotsFile], named: list[Chain]
) -> list[Chain]:
    """Return the agents that *task* asks about: those *named* and, with these options, known ones and
    those that *files* name."""
    options = task.options
    chains = list(named)
    if options.agents_known:
        chains = [*task.named, *(crawler.chain for crawler in KNOWN)]
    if options.agents_of_file:
        chains = agents_of(files, chains if options.agents_known else task.named)
    return list(dict.fromkeys(chains))


def decide(task: Task) -> None:
    options, output = task.options, task.output
    if options.csv:
        output.csv(_csv_fields(task))
    if options.file is None:
        totals = _by_sites(task)
    else:
        totals = _by_file(task)
    if not totals:
        return
    names_agents = task.named or options.agents_of_file or options.spider
    if options.agents_known:
        output.line(f"# {_ABOUT_KNOWN}")
    elif options.file is not None and not names_agents:
        output.line(f"# {_NO_AGENT}")
    counts = [f"{count:,} {verdict}" for verdict, count in sorted(totals.items())]
    output.line(f"# {', '.join(counts)}")


def _by_file(task: Task) -> Counter[str]:
    name = task.options.file
    robots = RobotsFile(
        Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name)
    )
    return _print(task, robots, task.agents(), task.questions(of_file=True))


def _by_sites(task: Task) -> Counter[str]:
    """Print verdicts in the order of the URLs, each as soon as all before it are known."""
    totals: Counter[str] = Counter()
    runs: deque[tuple[Origin, list[Question]]] = deque()
    for origin, run in groupby(task.questions(), attrgetter("origin")):
        runs.append((origin, list(run)))
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

    if runs:
        task.crawl(job)
    return totals


def _print(
    task: Task, robots: RobotsFile, agents: list[Chain], asked: Iterable[Question]
) -> Counter[str]:
    """Print what *robots* says about URLs to each agent. Return how often it says what."""
    options, totals = task.options, Counter[str]()
    agents = asked_of(task, [robots], agents)
    columns = max(len(name_of(task, chain)) for chain in agents)
    decided: dict[int, list[str]] = {}
    obey_global = task.obey_global
    for url, _, path, steps in asked:
        for chain in agents:
            explanation = robots.explain(
                url,
                path,
                chain,
                obey_global=obey_global,
                max_delay=task.max_delay,
                steps=steps,
            )
            totals[explanation.verdict] += 1
            if not explanation.allowed or explanation.unreachable:
                task.statuses.add(
                    Status.UNREACHABLE if explanation.unreachable else Status.FOUND
                )
            _print_verdict(task, explanation, columns)
            rule = explanation.decision.rule
            if options.show and rule is not None:
                decided.setdefault(rule.line, [explanation.verdict]).append(url)
    if options.show and robots.outcome is Outcome.RULES:
        _show(task, robots, decided)
    return totals


def _print_verdict(task: Task, explanation: Explanation, columns: int) -> None:
    """Print a verdict, the agent in *columns*."""
    options, output = task.options, task.output
    agent = name_of(task, explanation.chain)
    if options.json or options.csv:
        data = explanation.as_dict()
        if options.agents_known:
            data |= about_known(OF_CHAIN.get(explanation.chain))
    if options.json:
        output.put({**data, **explanation.how()} if options.explain else data)
    elif options.csv:
        data |= {"agent": agent, "robots_url": data["robots_url"] or data["file"]}
        output.csv(data[name] for name in _csv_fields(task))
    elif options.explain:
        output.line(explanation.verdict, explanation.answer)
        for sentence in explanation.sentences():
            output.line(f"  {sentence}")
        output.line("")
    else:
        cells = [explanation.verdict.ljust(_WIDEST), agent.ljust(columns)]
        why = explanation.why
        if options.agents_known:
            known = OF_CHAIN.get(explanation.chain)
            cells += _about(known)
            if known is not None and known.note:
                why += f" ({known.note})"
        output.line(*cells, explanation.url, why)


def name_of(task: Task, chain: Chain) -> str:
    """Return what a crawler is called: a known one by its own token alone."""
    known = OF_CHAIN.get(chain) if task.options.agents_known else None
    return in_words(chain) if known is None else known.name


def _about(known: Crawler | None) -> list[str]:
    """Return cells about a crawler."""
    operator, purpose = ("", "") if known is None else (known.operator, known.purpose)
    return [operator.ljust(_WIDEST_OPERATOR), purpose.ljust(_WIDEST_PURPOSE)]


def _csv_fields(task: Task) -> list[str]:
    return [*_CSV_FIELDS, *(about_known(None) if task.options.agents_known else ())]


def _show(task: Task, robots: RobotsFile, decided: dict[int, list[str]]) -> None:
    """Print a file, with the lines marked that decided: *decided* has the verdict and the URLs."""
    for number, row in enumerate(rows(cut(robots.body).rstrip(b"\r\n")), 1):
        text = row.decode("utf-8", "backslashreplace").expandtabs()
        verdict, *urls = decided.get(number, [""])
        if urls:
            text += f"  <- {verdict}: {some(list(dict.fromkeys(urls)))}"
        task.output.line(f"{'>' if urls else ' '}{number:5}", text)


# -- lint ------------------------------------------------------------------------------------


def lint(task: Task) -> None:
    if not task.arguments:
        raise WrongUsage("--lint needs a URL, a file, or - for standard input")
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

    task.read_each(task.arguments, show)
