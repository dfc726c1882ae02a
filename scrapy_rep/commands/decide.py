"""``scrapy robots URL…``: which line allows or forbids it?"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.exceptions import UsageError

from scrapy_rep.commands import verdicts
from scrapy_rep.commands.ending import Status, gravest
from scrapy_rep.commands.inputs import STDIN, chains, read_file, requests, urls
from scrapy_rep.commands.lookup import Lookup, chain_of_project, run_crawl, usual_chain
from scrapy_rep.commands.terminal import Output
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile
from scrapy_rep.origins.body import READ_BYTES
from scrapy_rep.origins.requests import path_in
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.settings import RepSettings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

    Steps = Callable[[str, str], Sequence[tuple[str, str]]]


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Explain the URLs."""
    printer = _VerdictPrinter(options, RepSettings.from_settings(command.settings))
    if options.file is not None:
        printer.agents = printer.agents or [chain_of_project(command.settings)]
        _by_file(arguments, options.file, printer)
    else:
        _by_sites(command, arguments, printer)
    printer.end()
    return gravest(*printer.statuses)


def _by_file(arguments: Sequence[str], name: str, printer: _VerdictPrinter) -> None:
    """Explain by a file. URLs are compared as they are, as Google's matcher does; anything will do
    for one."""
    if name == STDIN and (not arguments or STDIN in arguments):
        raise UsageError("standard input can't be both robots.txt and URLs", print_help=False)
    robots = RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))
    url = None
    for url, _ in urls(arguments, printer.statuses):
        printer.add(url, path_of(url), robots, _steps_of_file)
    if url is None and not printer.statuses:
        raise UsageError("no URL given", print_help=False)


def _steps_of_file(url: str, path: str) -> list[tuple[str, str]]:
    steps = [("compared as is", path)]
    try:
        crawled = comparable(path_in(Request(url)))
    except ValueError:
        return steps
    return steps if crawled == path else [*steps, ("a crawl compares", crawled)]


def _by_sites(command: RobotsCommand, arguments: Sequence[str], printer: _VerdictPrinter) -> None:
    """Explain by the robots.txt of each URL's origin, in the order of the URLs."""
    pending = deque(
        (url, origin, comparable(path_in(request)))
        for url, request, origin in requests(arguments, printer.statuses)
    )
    left = Counter(origin for _, origin, _ in pending)

    async def job(lookup: Lookup) -> None:
        printer.agents = printer.agents or [usual_chain(lookup.agents)]
        files: dict[Origin, RobotsFile] = {}
        async for landed, robots in lookup.each(list(left)):
            files[landed] = robots
            while pending and pending[0][1] in files:
                url, origin, path = pending.popleft()
                printer.add(url, path, files[origin], _steps_of_crawl)
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
        self.agents = chains(options.agent)
        self.output = Output()
        self.statuses: set[Status] = set()
        self._explain: bool = options.explain
        self._json: bool = options.json
        self._settings = settings
        self._kept: list[Explanation] = []

    def add(self, url: str, path: str, robots: RobotsFile, steps_of: Steps) -> None:
        """Explain *url* for each of the agents."""
        steps = steps_of(url, path) if self._explain else ()
        obey_global = self._settings.obey_global_group
        for chain in self.agents:
            one = robots.explain(url, path, chain, obey_global=obey_global, steps=steps)
            if one.unreachable:
                self.statuses.add(Status.UNREACHABLE)
            elif not one.allowed:
                self.statuses.add(Status.FOUND)
            if self._json:
                self.output.json(verdicts.as_json(one, explain=self._explain))
            else:
                self._kept.append(one)  # columns are as wide as their widest cell

    def end(self) -> None:
        """Print what has to wait until all is known."""
        kept, most_delay = self._kept, self._settings.crawl_delay
        if kept and len(self.agents) > 1 and not self._explain:
            verdicts.matrix(self.output, kept, len(self.agents))
        elif len(kept) > 1 and not self._explain:
            verdicts.table(self.output, kept)
        else:
            for one in kept:
                verdicts.block(self.output, one, explain=self._explain, most_delay=most_delay)
        self.output.flush()
