"""What robots.txt files say. ``scrapy robots URL…`` prints which line allows or forbids
a URL (the reasons come from inspection/explanation.py). ``--lint URL|FILE…`` prints
likely mistakes in files, as they are now rather than in the cache. This module imports
no Scrapy."""

from __future__ import annotations

from collections import Counter, deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.commands.findings import print_findings
from scrapy_rep.commands.output import ExitStatus, WrongUsage, complain
from scrapy_rep.commands.task import READ_BYTES, STDIN, read_file
from scrapy_rep.inspection.crawlers import AS_OF, KNOWN, KNOWN_BY_CHAIN, about_known
from scrapy_rep.inspection.explanation import (
    STDIN_IN_WORDS,
    Explanation,
    Facts,
    RobotsFile,
    facts_line,
    in_words,
)
from scrapy_rep.inspection.findings import (
    NOTE,
    SEVERITIES,
    Finding,
    finding,
    first_few,
)
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

# Of the agents that a file names, only the first thousand are asked about, since there
# may be a hundred thousand, and the file is read once for each agent.
_MAX_AGENTS = 1000

# Columns of the first cell of each line: "unreachable" is the longest verdict.
_VERDICT_WIDTH = len("unreachable")

# Columns of the two cells that --agents-known adds: the crawler's operator, and its
# purpose.
_OPERATOR_WIDTH = max(len(crawler.operator) for crawler in KNOWN)
_PURPOSE_WIDTH = max(len(crawler.purpose) for crawler in KNOWN)

_ABOUT_KNOWN = (
    f"crawlers known on {AS_OF}; --csv and --json name the page that documents each"
)

_NO_AGENT = "no --agent given, so this is about any crawler that no group names (*)"

# The columns of --csv. --agents-known adds further ones.
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


def agents_of(files: Iterable[RobotsFile], asked: Iterable[Chain]) -> list[Chain]:
    """Return the agents *asked* about, those that *files* name, and ``*``, each once.
    If *files* name more than a thousand agents, the others are left out."""
    names: dict[str, str] = {}  # as the files spell them, by their lower case
    for file in files:
        for token in file.outline.tokens():
            names[token.lower()] = token
    if len(names) > _MAX_AGENTS:
        complain(
            f"only the first {_MAX_AGENTS:,} of {len(names):,} agents are asked about"
        )
    tokens = [name for name in names.values() if name != GLOBAL]
    chains: list[Chain] = list(asked)
    for token in tokens[:_MAX_AGENTS]:
        chains.append((token,))
    chains.append((GLOBAL,))
    return list(dict.fromkeys(chains))


def agents_asked(
    task: Task,
    files: Iterable[RobotsFile],
    default: list[Chain],
) -> list[Chain]:
    """Return the agents that *task* asks about: the known ones for ``--agents-known``,
    those that *files* name for ``--agents-of-file``, and *default* without these
    options."""
    options = task.options
    chains = default
    if options.agents_known:
        chains = list(task.named_agents)
        for crawler in KNOWN:
            chains.append(crawler.chain)
    if options.agents_of_file:
        # Agents that options name are asked about, too; those of *default* aren't.
        asked_for = chains if options.agents_known else task.named_agents
        chains = agents_of(files, asked_for)
    return list(dict.fromkeys(chains))


def decide(task: Task) -> None:
    """Print the verdict on each URL: the action if no option asks for another."""
    options = task.options
    output = task.output
    if options.csv:
        output.csv(_csv_fields(task))
    if options.file is None:
        totals = _decide_by_sites(task)
    else:
        totals = _decide_by_file(task)
    if not totals:  # all URLs were invalid
        return
    # Two lines for people end the output: whom the verdicts are about, and how often
    # each verdict was given.
    is_agent_given = bool(task.named_agents or options.agents_of_file or options.spider)
    if options.agents_known:
        output.line(f"# {_ABOUT_KNOWN}")
    elif options.file is not None and not is_agent_given:
        output.line(f"# {_NO_AGENT}")
    parts = []
    for verdict in sorted(totals):
        parts.append(f"{totals[verdict]:,} {verdict}")
    line = ", ".join(parts)
    output.line(f"# {line}")


def _decide_by_file(task: Task) -> Counter[str]:
    """Print the verdicts of the file that ``--file`` names. Return how often it gives
    each verdict."""
    name = task.options.file
    body = cut(read_file(name, READ_BYTES))
    robots = RobotsFile(Outcome.RULES, body, Facts(file=name))
    questions = task.questions(of_file=True)
    return _print_verdicts(task, robots, task.agents(), questions)


class _Run(NamedTuple):
    """Questions that follow one another, all about the same origin."""

    origin: Origin
    questions: list[Question]


def _decide_by_sites(task: Task) -> Counter[str]:
    """Print the verdict of each URL's own robots.txt. Verdicts come in the order of the
    URLs, each as soon as it and all before it are known. Return how often each verdict
    was given."""
    totals: Counter[str] = Counter()
    runs: deque[_Run] = deque()
    for origin, questions in groupby(task.questions(), attrgetter("origin")):
        runs.append(_Run(origin, list(questions)))
    if not runs:
        return totals
    # How many runs of each origin have not been printed yet.
    runs_left = Counter(run.origin for run in runs)

    async def job(lookup: Lookup) -> None:
        agents = task.agents(lookup.origins.agents)
        files: dict[Origin, RobotsFile] = {}
        async for fetched_origin, robots in lookup.robots_of_each(list(runs_left)):
            files[fetched_origin] = robots
            if not task.options.explain:
                task.output.line(f"# {facts_line(robots)}")
            # Files come in the order of the first runs of their origins. After such a
            # run, there may be further runs of origins whose files came before.
            while runs and runs[0].origin in files:
                origin, questions = runs.popleft()
                totals_of_run = _print_verdicts(task, files[origin], agents, questions)
                totals.update(totals_of_run)
                runs_left[origin] -= 1
                if runs_left[origin] == 0:
                    del files[origin]
            task.output.flush()

    task.crawl(job)
    return totals


def _print_verdicts(
    task: Task,
    robots: RobotsFile,
    agents: list[Chain],
    questions: Iterable[Question],
) -> Counter[str]:
    """Print what *robots* says about URLs to each agent; with ``--show``, print the
    file itself below. Return how often the file gives each verdict."""
    totals: Counter[str] = Counter()
    # The lines of the file that have decided, by their numbers.
    decisive_lines: dict[int, _DecisiveLine] = {}
    agents = agents_asked(task, [robots], agents)
    names = [name_of(task, chain) for chain in agents]
    agent_width = max(map(len, names))
    # These properties are read outside of the loop, which may run a million times.
    obey_global = task.obey_global
    max_delay = task.max_delay
    for question in questions:
        for chain in agents:
            explanation = robots.explain(
                question.url,
                question.path,
                chain,
                obey_global=obey_global,
                max_delay=max_delay,
                steps=question.steps,
            )
            totals[explanation.verdict] += 1
            if explanation.unreachable:
                task.statuses.add(ExitStatus.UNREACHABLE)
            elif not explanation.allowed:
                task.statuses.add(ExitStatus.FOUND)
            _print_verdict(task, explanation, agent_width)
            # Note the line that has decided, for --show.
            rule = explanation.decision.rule
            if task.options.show and rule is not None:
                decisive_line = decisive_lines.get(rule.line)
                if decisive_line is None:
                    decisive_line = _DecisiveLine(explanation.verdict, [])
                    decisive_lines[rule.line] = decisive_line
                decisive_line.urls.append(question.url)
    if task.options.show and robots.outcome is Outcome.RULES:
        _print_file(task, robots, decisive_lines)
    return totals


class _DecisiveLine(NamedTuple):
    """What a line of a robots.txt has decided."""

    verdict: str
    urls: list[str]


def _print_verdict(task: Task, explanation: Explanation, agent_width: int) -> None:
    """Print a verdict in the form that the options ask for.

    :param agent_width: columns that the longest name of an agent takes
    """
    options = task.options
    if options.json:
        data = _as_data(task, explanation)
        if options.explain:
            data.update(explanation.how())
        task.output.put(data)
    elif options.csv:
        data = _as_data(task, explanation)
        data["agent"] = name_of(task, explanation.chain)
        # For a local file, its name stands in the column of the URL.
        data["robots_url"] = data["robots_url"] or data["file"]
        cells = [data[name] for name in _csv_fields(task)]
        task.output.csv(cells)
    elif options.explain:
        task.output.line(explanation.verdict, explanation.answer)
        for sentence in explanation.sentences():
            task.output.line(f"  {sentence}")
        task.output.line("")
    else:
        _print_row(task, explanation, agent_width)


def _as_data(task: Task, explanation: Explanation) -> dict[str, object]:
    """Return a verdict as JSON and CSV have it, with ``--agents-known`` also what is
    known of the crawler."""
    data = explanation.as_dict()
    if task.options.agents_known:
        data.update(about_known(KNOWN_BY_CHAIN.get(explanation.chain)))
    return data


def _print_row(task: Task, explanation: Explanation, agent_width: int) -> None:
    """Print a verdict as a line of the table for people."""
    agent = name_of(task, explanation.chain)
    cells = [explanation.verdict.ljust(_VERDICT_WIDTH), agent.ljust(agent_width)]
    why = explanation.why
    if task.options.agents_known:
        operator = ""
        purpose = ""
        crawler = KNOWN_BY_CHAIN.get(explanation.chain)
        if crawler is not None:
            operator = crawler.operator
            purpose = crawler.purpose
            if crawler.note:
                why += f" ({crawler.note})"
        cells.append(operator.ljust(_OPERATOR_WIDTH))
        cells.append(purpose.ljust(_PURPOSE_WIDTH))
    task.output.line(*cells, explanation.url, why)


def name_of(task: Task, chain: Chain) -> str:
    """Return what the crawler with these tokens is called. With ``--agents-known``, a
    known crawler is called by its own token alone, without its fallbacks."""
    if task.options.agents_known:
        crawler = KNOWN_BY_CHAIN.get(chain)
        if crawler is not None:
            return crawler.name
    return in_words(chain)


def _csv_fields(task: Task) -> list[str]:
    """Return the names of the columns of ``--csv``."""
    fields = list(_CSV_FIELDS)
    if task.options.agents_known:
        fields += about_known(None)
    return fields


def _print_file(
    task: Task,
    robots: RobotsFile,
    decisive_lines: dict[int, _DecisiveLine],
) -> None:
    """Print a file for ``--show``, each line with its number. The lines that decided
    are marked, and followed by the verdict and the URLs that they decided about."""
    for number, row in enumerate(rows(cut(robots.body).rstrip(b"\r\n")), 1):
        text = row.decode("utf-8", "backslashreplace").expandtabs()
        mark = " "
        decisive_line = decisive_lines.get(number)
        if decisive_line is not None:
            mark = ">"
            urls = dict.fromkeys(decisive_line.urls)  # each once
            shown_urls = first_few(list(urls))
            text += f"  <- {decisive_line.verdict}: {shown_urls}"
        task.output.line(f"{mark}{number:5}", text)


# -- lint ------------------------------------------------------------------------------------


def lint(task: Task) -> None:
    """Carry out ``--lint``: print the likely mistakes in each file, or in each URL's
    robots.txt."""
    if not task.arguments:
        raise WrongUsage("--lint needs a URL, a file, or - for standard input")
    # SEVERITIES begins with the gravest. The last severity for which the exit status is
    # 1 is that of --fail-on; without this option, it is NOTE, the least.
    last_failing = SEVERITIES.index(task.options.fail_on or NOTE)
    failing_severities = SEVERITIES[: last_failing + 1]

    def lint_file(robots: RobotsFile) -> None:
        name = str(robots.facts.file)
        findings = _findings_about(robots)
        if any(item.severity in failing_severities for item in findings):
            task.statuses.add(ExitStatus.FOUND)
        print_findings(task.output, STDIN_IN_WORDS if name == STDIN else name, findings)
        task.output.flush()

    task.read_files(task.arguments, lint_file)


def _findings_about(robots: RobotsFile) -> list[Finding]:
    """Return the likely mistakes in *robots*; if there is no file, a note that says
    so."""
    if robots.outcome is Outcome.MISSING:
        return [finding(None, "no-file", answer=robots.answer)]
    url = robots.facts.robots_url
    return findings_in(robots.body, robots_url=url, also=[usage_findings])
