"""``scrapy robots URL…``: which line allows or forbids it?"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from scrapy import Request
from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import complain
from scrapy_rep.commands.inputs import STDIN, chains, read_file, requests, urls
from scrapy_rep.commands.lookup import Lookup, chain_of_project, run_crawl, usual_chain
from scrapy_rep.commands.output import Progress
from scrapy_rep.commands.verdicts import Printer
from scrapy_rep.engine.text import counted
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.origins.body import READ_BYTES
from scrapy_rep.origins.requests import path_in
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.settings import RepSettings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Container, Iterator, Sequence

    from scrapy_rep.commands.output import Output
    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

# Origins whose files are kept until the end, to be shown.
_MAX_SHOWN = 100

# Seconds without a word before a line says what the command waits for, where no progress line can be shown.
_SILENT = 10


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Explain the URLs."""
    settings = RepSettings.from_settings(command.settings)
    printer = Printer(options, settings, chains(options.agent), output)
    if options.file is not None:
        printer.begin(chain_of_project(command.settings))
        _by_file(arguments, options.file, printer)
    else:
        _by_sites(command, arguments, options, printer)
    printer.end()


def file_named(name: str) -> RobotsFile:
    """Return the robots.txt in a file, or raise ``CommandError``."""
    return RobotsFile(Outcome.RULES, cut(read_file(name, READ_BYTES)), Facts(file=name))


def path_as_given(url: str) -> str:
    """Return what is compared of a URL that any text will do for: as it stands, as Google's matcher
    does. A path alone that isn't ASCII is encoded, as a browser or a crawl would do."""
    path = path_of(url)
    return comparable(path) if url[:1] == "/" and not url.isascii() else path


def _by_file(arguments: Sequence[str], name: str, printer: Printer) -> None:
    if name == STDIN and (not arguments or STDIN in arguments):
        raise UsageError("standard input can't be both robots.txt and URLs", print_help=False)
    robots = file_named(name)
    agents = printer.chains_for(robots)
    url = None
    for url, _ in urls(arguments, printer.output):
        printer.add(url, path_as_given(url), robots, agents, _steps_of_file)
    if url is None and not printer.output.statuses:
        raise UsageError("no URL given", print_help=False)


def _steps_of_file(url: str, path: str) -> list[tuple[str, str]]:
    as_is = path_of(url)
    steps = [("compared as is", path)] if path == as_is else [("path", as_is), ("compared", path)]
    try:
        crawled = comparable(path_in(Request(url)))
    except ValueError:
        return steps
    return steps if crawled == path else [*steps, ("a crawl compares", crawled)]


class _Asked(NamedTuple):
    url: str
    path: str
    origin: Origin


def _known(waiting: deque[_Asked], files: Container[Origin], *, in_order: bool) -> Iterator[_Asked]:
    """Remove and yield the URLs whose file has come.

    :param in_order: up to the first one whose file hasn't
    """
    for _ in range(len(waiting)):
        one = waiting.popleft()
        if one.origin in files:
            yield one
        elif in_order:
            waiting.appendleft(one)
            return
        else:
            waiting.append(one)


class _Patience:
    """Reports what the command waits for: on a terminal each second, elsewhere once."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._seconds = 0

    def tell(self, missing: list[str]) -> None:
        """Another second without a word has passed."""
        self._seconds += 1
        more = f" and {counted(len(missing) - 1, 'more file')}" if missing[1:] else ""
        told = f"waiting for {missing[0]}{more}" if missing else ""
        self.progress.tell(told)
        if self._seconds == _SILENT and not self.progress.on:
            complain(told)


def _by_sites(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, printer: Printer
) -> None:
    """Explain by the robots.txt of each URL's origin: in the order of the URLs, unless one of these
    files keeps the others waiting for seconds, and people read along."""
    waiting = deque(
        _Asked(url, comparable(path_in(request)), origin)
        for url, request, origin in requests(arguments, printer.output)
    )
    left = Counter(one.origin for one in waiting)
    if options.show and len(left) > _MAX_SHOWN:
        raise UsageError(f"--show is for at most {_MAX_SHOWN} origins", print_help=False)

    async def job(lookup: Lookup) -> None:
        printer.begin(usual_chain(lookup.agents))
        patience = _Patience()
        files: dict[Origin, RobotsFile] = {}
        first: _Asked | None = None
        async for landed in lookup.each(list(left)):
            patience.progress.clear()
            stuck = landed is None and first is waiting[0]
            if landed is None:
                first = waiting[0]
            else:
                files[landed[0]] = landed[1]
            in_order = options.json or options.csv or not stuck
            for url, path, origin in _known(waiting, files, in_order=in_order):
                robots = files[origin]
                printer.add(url, path, robots, printer.chains_for(robots), _steps_of_crawl)
                left[origin] -= 1
                if not left[origin]:
                    del left[origin], files[origin]
            printer.output.flush()
            if stuck:
                patience.tell([one.robots_url for one in left if one not in files])
        patience.progress.clear()

    if waiting:
        run_crawl(command, job)


def _steps_of_crawl(url: str, path: str) -> list[tuple[str, str]]:
    request = Request(url)
    steps = [("a crawl requests", request.url)] if request.url != url else []
    if path_in(request) != path:
        steps.append(("path", path_in(request)))
    return [*steps, ("compared", path)]
