"""``scrapy robots URL…``: which line allows or forbids it?"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.exceptions import UsageError

from scrapy_rep.commands import verdicts
from scrapy_rep.commands.ending import Status, gravest
from scrapy_rep.commands.inputs import STDIN, Chain, chains, read_file, requests, urls
from scrapy_rep.commands.lookup import Lookup, chain_of_project, usual_chain
from scrapy_rep.commands.lookup import run as run_crawl
from scrapy_rep.commands.terminal import Output
from scrapy_rep.engine.urls import path_in
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile
from scrapy_rep.origins.body import READ_BYTES
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.settings import RepSettings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Explain the URLs.

    :raises UsageError: for options that don't go together
    :raises CommandError: for a file that can't be read
    """
    agents = chains(options.agent)
    printer = _VerdictPrinter(options, RepSettings.from_settings(command.settings))
    if options.file is not None:
        agents = agents or [chain_of_project(command.settings)]
        _by_file(arguments, options.file, agents, printer)
    else:
        _by_sites(command, arguments, agents, printer)
    printer.end()
    return gravest(*printer.statuses)


def _by_file(
    arguments: Sequence[str], name: str, agents: list[Chain], printer: _VerdictPrinter
) -> None:
    """Explain by a file. URLs are compared as they are, as Google's matcher does; anything will do
    for one."""
    if name == STDIN and (not arguments or STDIN in arguments):
        raise UsageError("standard input can't be both robots.txt and URLs", print_help=False)
    robots = RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))
    url = None
    for url, _ in urls(arguments):
        path = path_of(url)
        printer.add(url, path, robots, agents, _steps_of_file(url, path) if printer.explain else ())
    if url is None:
        raise UsageError("no URL given", print_help=False)


def _steps_of_file(url: str, path: str) -> list[tuple[str, str]]:
    steps = [("compared as is", path)]
    try:
        crawled = comparable(path_in(Request(url)))
    except ValueError:
        return steps
    return steps if crawled == path else [*steps, ("a crawl compares", crawled)]


def _by_sites(
    command: RobotsCommand, arguments: Sequence[str], agents: list[Chain], printer: _VerdictPrinter
) -> None:
    """Explain by the robots.txt of each URL's origin, in the order of the URLs."""
    pending = deque(
        (url, origin, comparable(path_in(request)))
        for url, request, origin in requests(arguments, printer.statuses)
    )
    left = Counter(origin for _, origin, _ in pending)

    async def job(lookup: Lookup) -> None:
        chosen = agents or [usual_chain(lookup.agents)]
        files: dict[Origin, RobotsFile] = {}
        async for landed, robots in lookup.each(list(left)):
            files[landed] = robots
            while pending and pending[0][1] in files:
                url, origin, path = pending.popleft()
                steps = _steps_of_crawl(url, path) if printer.explain else ()
                printer.add(url, path, files[origin], chosen, steps)
                left[origin] -= 1
                if not left[origin]:
                    del files[origin]
            printer.output.flush()

    if pending:
        run_crawl(command, job)


def _steps_of_crawl(url: str, path: str) -> list[tuple[str, str]]:
    request = Request(url)
    steps = [("a crawl requests", request.url)] if request.url != url else []
    if path_in(request) != path:
        steps.append(("path", path_in(request)))
    return [*steps, ("compared", path)]


class _VerdictPrinter:
    """Prints verdicts, and collects the exit statuses."""

    def __init__(self, options: Namespace, settings: RepSettings) -> None:
        self.output = Output()
        self.explain: bool = options.explain
        self.statuses: set[Status] = set()
        self._json: bool = options.json
        self._settings = settings
        self._agents = 1
        self._kept: list[Explanation] = []

    def add(
        self,
        url: str,
        path: str,
        robots: RobotsFile,
        agents: Sequence[Chain],
        steps: Sequence[tuple[str, str]],
    ) -> None:
        """Explain *url* for each of the agents."""
        self._agents = len(agents)
        obey_global = self._settings.obey_global_group
        for chain in agents:
            one = robots.explain(url, path, chain, obey_global=obey_global, steps=steps)
            if one.unreachable:
                self.statuses.add(Status.UNREACHABLE)
            elif not one.allowed:
                self.statuses.add(Status.FOUND)
            if self._json:
                self.output.json(verdicts.as_json(one, explain=self.explain))
            else:
                self._kept.append(one)  # columns are as wide as their widest cell

    def end(self) -> None:
        """Print what has to wait until all is known."""
        kept, most_delay = self._kept, self._settings.crawl_delay
        if kept and self._agents > 1 and not self.explain:
            verdicts.matrix(self.output, kept, self._agents)
        elif len(kept) > 1 and not self.explain:
            verdicts.table(self.output, kept)
        else:
            for number, one in enumerate(kept):
                if number:
                    self.output.line()
                verdicts.block(self.output, one, explain=self.explain, most_delay=most_delay)
        self.output.flush()
