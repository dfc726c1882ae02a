"""What the actions of ``scrapy robots`` share: questions, where answers go, the exit status."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader
from twisted.internet.defer import Deferred

from scrapy_rep.commands.lookup import RobotsSpider
from scrapy_rep.commands.output import CommandError, Ending, Output, Status, complain
from scrapy_rep.origins.agents import SPIDER_ATTRIBUTE, Agents, origin_of, warning_of_digits
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.syntax import product_token
from scrapy_rep.settings import RepSettings, chain
from scrapy_rep.storages.base import MemoryStorage
from scrapy_rep.storages.client import make_storage
from scrapy_rep.text import clean, text_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_rep.commands.lookup import Chain, Job, Lookup
    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.storages.base import Storage

STDIN = "-"

# Characters of a URL.
_MAX_LINE = 65_536
# Bytes of a line that are read at once; and skipped before it counts as endless.
_MAX_READ, _MAX_SKIPPED = 4 * _MAX_LINE + 16, 64 * 1024 * 1024

# What people write for a URL: www.example.com/x, localhost:8000, //example.com.
_HOST = re.compile(
    r"(//)?([a-z0-9-]+\.[a-z0-9.-]*[a-z0-9]|localhost)(:[0-9]+)?(/|$)", re.IGNORECASE
)


class Task:
    def __init__(
        self, command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
    ) -> None:
        """Raises ``SettingsError`` for a wrong setting, ``UsageError`` for a wrong ``--agent``."""
        self._command = command
        self.settings = command.settings
        self.rep = RepSettings.from_settings(command.settings)
        self.arguments = arguments
        self.options = options
        self.output = output
        self.named = _chains(options.agent)
        """The crawlers that ``--agent`` names."""
        self.statuses: set[Status] = set()
        """What was found: the gravest is the exit status."""

    def agents(self, lookup: Lookup | None = None) -> list[Chain]:
        """Return the crawlers that are named; if none is, the one that the project's crawls go by."""
        if self.named:
            return self.named
        agents = lookup.agents if lookup else Agents(Crawler(Spider, self.settings), self.rep)
        return [agents.default]

    @contextmanager
    def going_on(self, where: str = "") -> Iterator[None]:
        """Complain about a ``CommandError`` within, and go on."""
        try:
            yield
        except CommandError as error:
            complain(f"{where}{error}")
            self.statuses.add(error.status)

    def crawl(self, job: Job) -> None:
        """Run *job* in a crawl of its own. Raises what *job* raises, and ``CommandError`` if the
        crawl can't start or is stopped before *job* has ended."""
        process = self._command.crawler_process
        assert process is not None
        crawler = process.create_crawler(RobotsSpider)
        try:
            # A Deferred or an asyncio Task, depending on the reactor.
            running: Any = process.crawl(crawler, job=job)
            failures: list[Failure] = []
            if isinstance(running, Deferred):
                running.addErrback(failures.append)
            process.start()
            for failure in failures:
                failure.raiseException()
            if not isinstance(running, Deferred) and not running.cancelled():
                running.result()
        except Exception as error:
            raise CommandError(text_of(error), Status.UNREACHABLE) from error
        spider = crawler.spider
        problem = spider.error if isinstance(spider, RobotsSpider) else RobotsSpider.error
        if problem is not None:
            raise problem

    def urls(self) -> Iterator[tuple[str, str]]:
        """Yield each URL and where it stands (``""``: on the command line), or raise
        ``UsageError``. Reads standard input, one URL a line, for ``-``, and for no arguments unless
        it is a terminal."""
        found = False
        stdin = [] if sys.stdin is None or sys.stdin.isatty() else [STDIN]
        for argument in self.arguments or stdin:
            for url, where in _lines() if argument == STDIN else [(argument, "")]:
                found = True
                if len(url) <= _MAX_LINE:
                    yield url, where
                else:
                    complain(f"{where}longer than {_MAX_LINE:,} characters: {_quoted(url)}")
                    self.statuses.add(Status.USAGE)
        if not found:
            raise UsageError("no URL given")

    def requests(self) -> list[tuple[str, Request, Origin]]:
        """Return each URL as given, its request and origin. Complains about what is no URL."""
        found = []
        for url, where in self.urls():
            with self.going_on(where):
                found.append((url, *request_for(url)))
        return found

    @contextmanager
    def storage(self) -> Iterator[Storage | None]:
        """Open the project's cache; None if nothing is left of it after a crawl. Whatever it raises
        (no server, no permission, a file of a newer version) becomes ``CommandError``."""
        storage = make_storage(Crawler(Spider, self.settings), self.rep)
        try:
            # A subclass may keep its entries.
            yield None if type(storage) is MemoryStorage else storage
        except (Ending, UsageError):
            raise
        except NotImplementedError:
            raise CommandError(f"{type(storage).__name__} does not support this") from None
        except Exception as error:  # noqa: BLE001
            message = f"the cache can't be used: {text_of(error)}"
            raise CommandError(message, Status.UNREACHABLE) from None
        finally:
            storage.close()


def _chains(values: Sequence[str]) -> list[Chain]:
    """Return the chain that each ``--agent`` names, or raise ``UsageError``."""
    found: list[Chain] = []
    for value in values:
        try:
            # "*" is any crawler that no group names.
            found.append(("*",) if value == "*" else chain(value))
        except ValueError:
            token = product_token(value)
            raise UsageError(
                f"--agent is {_quoted(value)}, but must be a product token such as FooBot "
                "(letters, - and _), or several joined by commas"
                + (f"; did you mean {token}?" if token else "")
            ) from None
    if warning := warning_of_digits([token for one in found for token in one]):
        complain(warning)
    return list(dict.fromkeys(found))


def use_spider(settings: Settings, name: str) -> None:
    """Apply the settings of a spider and the agent that its class names, or raise ``UsageError``."""
    try:
        spider = get_spider_loader(settings).load(name)
    except KeyError:
        raise UsageError(f"no such spider: {_quoted(name)}") from None
    spider.update_settings(settings)
    # Attributes win over settings.
    for attribute, setting in ((SPIDER_ATTRIBUTE, "REP_USER_AGENT"), ("user_agent", "USER_AGENT")):
        if (value := getattr(spider, attribute, None)) is not None:
            settings.set(setting, value, "cmdline")


def read_file(name: str, limit: int) -> bytes:
    """Return at most *limit* bytes of a file (``-``: standard input), or raise ``CommandError``."""
    if name == STDIN:
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return sys.stdin.buffer.read(limit)
    try:
        with Path(name).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CommandError(f"{_quoted(name)}: {getattr(error, 'strerror', '') or error}") from None


def _lines() -> Iterator[tuple[str, str]]:
    """Yield the lines of standard input that aren't empty, each cut after a little too much, and
    where they stand. Raises ``UsageError`` for a line without an end."""
    number = 0
    while sys.stdin is not None and (raw := sys.stdin.buffer.readline(_MAX_READ)):
        number += 1
        rest, skipped = raw, 0
        while len(rest) == _MAX_READ and not rest.endswith(b"\n"):
            if skipped > _MAX_SKIPPED:
                raise UsageError(f"standard input, line {number}: no end in sight")
            rest = sys.stdin.buffer.readline(_MAX_READ)
            skipped += len(rest)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        # What is not UTF-8 becomes surrogates, as in arguments: see `request_for`.
        if url := raw.strip().decode("utf-8", "surrogateescape"):
            yield url, f"standard input, line {number}: "


def request_for(url: str) -> tuple[Request, Origin]:
    """Return a request for *url* and its origin, or raise ``CommandError``."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise CommandError(f"not UTF-8: {_quoted(url)}") from None
    try:
        Origin.from_url(url)  # its errors say more than Scrapy's
        request = Request(url)
        return request, origin_of(request)
    except ValueError as error:
        message = str(error)
    if "://" not in url:
        hint = f" (try https://{url.lstrip('/')})" if _HOST.match(url) else ""
        message = f"not an absolute URL: {_quoted(url)}{hint}"
    raise CommandError(_shortened(message))


def _quoted(text: str) -> str:
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return f"'{clean(_shortened(readable))}'"


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
