"""What the actions of ``scrapy robots`` share: questions, files, the exit status. This
module imports no Scrapy, and fetches nothing:
:class:`~scrapy_rep.commands.crawl.CrawlTask` does."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from w3lib.url import safe_url_string

from scrapy_rep.commands.output import (
    CommandError,
    Ending,
    ExitStatus,
    Output,
    WrongUsage,
    complain,
    gravest,
)
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import GLOBAL, chain, product_token
from scrapy_rep.protocol.syntax import MAX_BYTES as MAX_ROBOTS_BYTES
from scrapy_rep.text import warning_of_digits

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from scrapy_rep.origins.agents import Agents

STDIN = "-"
"""The argument, or the value of an option, that means standard input."""

READ_BYTES = MAX_ROBOTS_BYTES + 1
"""How many bytes of a robots.txt file are read: those that count, and one more, which
tells whether the last line that counts is whole."""

# Bytes: longer lines of standard input are skipped, since no URL is that long.
_MAX_INPUT_LINE = 65_536

# Bytes: standard input is given up at a line this long, since the line may have no end
# (/dev/zero).
_MAX_READ_LINE = 16 * 1024 * 1024

# Put before a path alone, this text makes a URL of it. Nothing is sent to this host.
_ANY_SITE = "http://host.invalid"

# The error about a URL or path that can't be encoded.
_NOT_UTF8 = "not UTF-8: {!r}"

# The beginning of a site's address without its scheme: names with dots, the last name
# of letters, as in "www.example.com:8080/".
_ADDRESS_START = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}(?::\d+)?(?=/|\Z)")

# Endings of file names, such as "robots.txt", which the pattern above takes for a
# site's address.
_FILE_NAME = re.compile(
    r"\.(?:bak|csv|gz|html?|json|log|md|new|old|orig|php|tmp|txt|xml|zip)\Z"
)

Chain = tuple[str, ...]
"""The product tokens of a crawler, most specific first."""

Job = Callable[[Any], Awaitable[None]]
"""Work that fetches. It gets a :class:`~scrapy_rep.commands.crawl.Lookup`, which can't
be named here, since its module imports Scrapy."""


class Question(NamedTuple):
    """A URL that the command is asked about, and the path in it that is compared with
    rules."""

    url: str
    """The URL as the user gave it; or a path alone, if a file answers."""
    origin: Origin | None
    """The URL's origin; None for a path alone."""
    path: str
    """The part of the URL that rules are compared with, percent-encoded as a crawl
    requests it."""
    steps: list[tuple[str, str]]
    """How :attr:`path` came about: what was done, and the result."""


class Task:
    """One call of the command: its arguments and options, its output, and its exit
    status."""

    def __init__(self, arguments: Sequence[str], options: Namespace) -> None:
        """Raises ``WrongUsage`` for a wrong ``--agent``."""
        self.arguments = arguments
        self.options = options
        self.output = Output(json=options.json, csv=options.csv)
        chains = map(_chain, options.agent)
        self.named_agents = list(dict.fromkeys(chains))  # each once, in order
        """The crawlers that ``--agent`` names."""
        for crawler in self.named_agents:
            warning = warning_of_digits(crawler)
            if warning:
                complain(warning)
                break  # one warning is enough
        self.statuses: set[ExitStatus] = set()
        """What the work on each URL or file came to. The gravest is the exit status."""

    @property
    def obey_global(self) -> bool:
        """Whether a crawler without a group of its own obeys the ``*`` group. In a
        project, settings decide (``CrawlTask``)."""
        return True

    @property
    def max_delay(self) -> float | None:
        """Seconds: a site that asks for a longer crawl delay is not crawled. None:
        there is no limit. In a project, settings decide (``CrawlTask``)."""
        return None

    def run(self, action: Callable[[Task], None]) -> int:
        """Carry out *action*. Return the exit status."""
        try:
            action(self)
            self.output.flush()
        except Ending as error:
            if str(error):
                complain(error)
            return error.status
        return gravest(*self.statuses)

    def agents(self, agents: Agents | None = None) -> list[Chain]:
        """Return the crawlers that ``--agent`` names; if it names none, any crawler
        that no group names.

        :param agents: how the crawl finds out its crawler's name; unused here, but see
            ``CrawlTask``
        """
        return self.named_agents or [(GLOBAL,)]

    def crawl(self, job: Job) -> None:
        """Run *job* in a crawl of its own. Only ``CrawlTask`` can run one. Without
        Scrapy, to ask for a job is ``WrongUsage``."""
        raise WrongUsage(
            "a site is asked by Scrapy: scrapy robots, with the same options"
        )

    @contextmanager
    def reporting_errors(self, where: str = "") -> Iterator[None]:
        """Complain about a ``CommandError`` that is raised in the ``with`` block, and
        go on after the block.

        :param where: what the complaint begins with, such as the URL of a file
        """
        try:
            yield
        except CommandError as error:
            complain(f"{where}{error}")
            self.statuses.add(error.status)

    def urls(self) -> Iterator[str]:
        """Yield each URL that is given. The argument ``-`` stands for the URLs in the
        lines of standard input. Standard input is also read without any arguments,
        unless it is a terminal, or an option names it as a file."""
        files = [self.options.file]
        if self.options.compare is not None:
            files += self.options.compare
        is_stdin_a_file = STDIN in files
        arguments = self.arguments
        if is_stdin_a_file and STDIN in arguments:
            raise WrongUsage("standard input can be read only once")
        if not arguments and not is_stdin_a_file and _is_input_piped():
            arguments = [STDIN]
        for argument in arguments:
            if argument == STDIN:
                yield from self._lines_of_stdin()
            else:
                yield argument

    def questions(
        self,
        *,
        of_file: bool = False,
        needs_one: bool = True,
    ) -> Iterator[Question]:
        """Yield a question about each URL that is given. Complains about invalid URLs.

        :param of_file: whether a file answers the questions, so that a path alone will
            do
        :param needs_one: whether it is ``WrongUsage`` to give no URL at all
        """
        has_urls = False
        for url in self.urls():
            has_urls = True
            with self.reporting_errors():
                yield _question_about_file(url) if of_file else question_about(url)
        if has_urls or not needs_one:
            return
        if not (of_file and self.options.agents_known):
            raise WrongUsage("no URL given")
        # Without a URL, --agents-known asks of a file whether each crawler may fetch
        # the home page.
        yield _question_about_file("/")

    def _lines_of_stdin(self) -> Iterator[str]:
        """Yield the lines of standard input that aren't empty. Complains about long
        lines."""
        if sys.stdin is None:  # standard input is closed
            return
        while line := sys.stdin.buffer.readline(_MAX_READ_LINE):
            if len(line) == _MAX_READ_LINE:
                raise WrongUsage("standard input: a line has no end")
            if len(line) > _MAX_INPUT_LINE:
                start = line[:80].decode("utf-8", "replace")
                complain(
                    f"longer than {_MAX_INPUT_LINE:,} bytes, so not read: {start}…"
                )
                self.statuses.add(ExitStatus.USAGE)
                continue
            # Some programs begin UTF-8 with a byte order mark.
            line = line.removeprefix(b"\xef\xbb\xbf").strip()
            if line:
                # Bytes that are not UTF-8 become surrogates, as Python does with
                # arguments.
                yield line.decode("utf-8", "surrogateescape")

    def read_files(
        self,
        names: Sequence[str],
        use: Callable[[RobotsFile], None],
    ) -> None:
        """Call *use* with each file, then with the robots.txt of each URL's origin.
        Complains about what can't be read.

        :param names: names of files, and URLs
        """
        if list(names).count(STDIN) > 1:
            raise WrongUsage("standard input can be read only once")
        origins: dict[Origin, None] = {}
        for name in names:
            with self.reporting_errors():
                if "://" in name:
                    origins[origin_of_url(name)] = None
                else:
                    body = read_file(name, READ_BYTES)
                    use(RobotsFile(Outcome.RULES, body, Facts(file=name)))

        async def job(lookup: Any) -> None:
            for origin in origins:
                with self.reporting_errors(f"{origin.robots_url}: "):
                    use(await lookup.fetch_now(origin))

        if origins:
            self.crawl(job)


def _is_input_piped() -> bool:
    """Return whether standard input is open, and no terminal."""
    return sys.stdin is not None and not sys.stdin.isatty()


def _chain(value: str) -> Chain:
    """Return the chain that an ``--agent`` names, or raise ``WrongUsage``."""
    if value == GLOBAL:  # it stands for any crawler that no group names
        return (GLOBAL,)
    try:
        return chain(value)
    except ValueError:
        token = product_token(value)
        hint = f"; did you mean {token}?" if token else ""
        raise WrongUsage(
            f"--agent is {value!r}, but must be a product token such as FooBot (letters, - and _), "
            f"or several joined by commas{hint}"
        ) from None


def question_about(url: str) -> Question:
    """Return the question that *url* asks of its site's robots.txt, or raise
    ``CommandError``."""
    try:
        # The errors of this call say more than those of safe_url_string().
        Origin.from_url(url)
        requested = safe_url_string(url)
        origin = Origin.from_url(requested)
        path = path_of(requested)
    except UnicodeEncodeError:
        raise CommandError(_NOT_UTF8.format(url)) from None
    except ValueError as error:
        raise CommandError(f"{error}{_hint_about(url)}") from None
    compared = comparable(path)
    steps = [("requested", requested), ("path", path), ("compared", compared)]
    return Question(url, origin, compared, steps)


def _hint_about(text: str) -> str:
    """Return what may have been meant by *text*, which is no URL; "" if it can't be
    told."""
    if text.startswith("/"):
        return " (a path alone takes --file)"
    address = _address_in(text)
    if address:
        return f"; did you mean {address}?"
    return "" if "://" in text else " (try https://…)"


def _question_about_file(url: str) -> Question:
    """Return the question that *url*, or a path alone, asks of a file, or raise
    ``CommandError``."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise CommandError(_NOT_UTF8.format(url)) from None
    if url.startswith("/"):
        question = question_about(_ANY_SITE + url)
        # The first step names the URL that is requested: here, a URL that was made up.
        return Question(url, None, question.path, question.steps[1:])
    if ":" not in url.partition("/")[0]:  # no scheme
        meant = _address_in(url) or f"/{url}"
        raise CommandError(f"neither a URL nor a path: {url!r}; did you mean {meant}?")
    return question_about(url)


def origin_of_url(url: str) -> Origin:
    """Return the origin of a URL that names a site, or raise ``CommandError``."""
    origin = question_about(url).origin
    assert origin is not None  # question_about() refuses a path alone
    return origin


def read_file(name: str, limit: int) -> bytes:
    """Return at most *limit* bytes of a file (``-``: standard input), or raise
    ``CommandError``."""
    if name == STDIN:
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return sys.stdin.buffer.read(limit)
    try:
        with Path(name).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:  # ValueError: for a name with a NUL
        hint = ""
        address = _address_in(name)
        if address and isinstance(error, FileNotFoundError):
            host = address.split("/")[2]  # after "https:" and ""
            hint = f"; did you mean https://{host}/robots.txt?"
        why = getattr(error, "strerror", "") or error  # a ValueError has no strerror
        raise CommandError(f"{name!r}: {why}{hint}") from None


def _address_in(text: str) -> str:
    """Return the URL that *text* becomes with the scheme that somebody has left out; ""
    if *text* doesn't look like a site's address."""
    host = _ADDRESS_START.match(text)
    if host is None:
        return ""
    is_host_alone = host.end() == len(text)
    if is_host_alone and _FILE_NAME.search(text):
        return ""
    return f"https://{text}"
