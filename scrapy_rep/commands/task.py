"""What the actions of ``scrapy robots`` share: questions, files, the exit status. No Scrapy: what is
fetched, :class:`~scrapy_rep.commands.crawl.CrawlTask` fetches."""

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
    Output,
    Status,
    WrongUsage,
    complain,
    gravest,
)
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import comparable, path_of
from scrapy_rep.protocol.syntax import GLOBAL, MAX_BYTES, chain, product_token
from scrapy_rep.text import warning_of_digits

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from scrapy_rep.origins.agents import Agents

STDIN = "-"

READ_BYTES = MAX_BYTES + 1
"""Of a file. The last one tells whether the line before it is whole."""

# Bytes: longer lines of standard input are skipped.
_MAX_LINE = 65_536
# Bytes: a line this long is taken to have no end.
_ENDLESS = 16 * 1024 * 1024

# What a path alone is put after, to read it as the URL that a crawl would request.
_ANY_SITE = "http://host.invalid"

_NOT_UTF8 = "not UTF-8: {!r}"

# What looks like the beginning of a site's address, and what looks like it but is a file's name.
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}(?::\d+)?(?=/|\Z)")
_FILE_NAME = re.compile(
    r"\.(?:bak|csv|gz|html?|json|log|md|new|old|orig|php|tmp|txt|xml|zip)\Z"
)

Chain = tuple[str, ...]
"""The product tokens of a crawler, most specific first."""

Job = Callable[[Any], Awaitable[None]]
"""Gets a :class:`~scrapy_rep.commands.crawl.Lookup`."""


class Question(NamedTuple):
    """A URL, and what it comes to when a crawl requests it."""

    url: str
    """As given."""
    origin: Origin | None
    """None for a path alone."""
    path: str
    """What is compared."""
    steps: list[tuple[str, str]]
    """How :attr:`path` came about: what was done, and the result."""


class Task:
    def __init__(self, arguments: Sequence[str], options: Namespace) -> None:
        """Raises ``WrongUsage`` for a wrong ``--agent``."""
        self.arguments = arguments
        self.options = options
        self.output = Output(json=options.json, csv=options.csv)
        self.named = list(dict.fromkeys(map(_chain, options.agent)))
        """The crawlers that ``--agent`` names."""
        tokens = [token for crawler in self.named for token in crawler]
        if warning := warning_of_digits(tokens):
            complain(warning)
        self.statuses: set[Status] = set()
        """What was found: the gravest is the exit status."""

    @property
    def obey_global(self) -> bool:
        """Whether a crawler without a group of its own obeys the ``*`` group."""
        return True

    @property
    def max_delay(self) -> float | None:
        """Seconds: a site that asks for a longer crawl delay is not crawled."""
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
        """Return the crawlers that are named; any crawler that no group names if none is.

        :param agents: the crawl's, if there is one
        """
        return self.named or [(GLOBAL,)]

    def crawl(self, job: Job) -> None:
        """Run *job* in a crawl of its own."""
        raise WrongUsage(
            "a site is asked by Scrapy: scrapy robots, with the same options"
        )

    @contextmanager
    def going_on(self, where: str = "") -> Iterator[None]:
        """Complain about a ``CommandError`` within, and go on."""
        try:
            yield
        except CommandError as error:
            complain(f"{where}{error}")
            self.statuses.add(error.status)

    def urls(self) -> Iterator[str]:
        """Yield each URL. Reads standard input, one URL a line, for ``-``, and for no arguments
        unless it is a terminal, or a file that an option names."""
        arguments = self.arguments
        is_taken = STDIN in (self.options.file, *(self.options.compare or ()))
        if is_taken and STDIN in arguments:
            raise WrongUsage("standard input can be read only once")
        if (
            not arguments
            and not is_taken
            and sys.stdin is not None
            and not sys.stdin.isatty()
        ):
            arguments = [STDIN]
        for argument in arguments:
            if argument == STDIN:
                yield from self._lines()
            else:
                yield argument

    def questions(
        self, *, of_file: bool = False, needs_one: bool = True
    ) -> Iterator[Question]:
        """Yield what each URL comes to. Complains about invalid ones.

        :param of_file: a file is asked, so a path alone will do
        :param needs_one: raise ``WrongUsage`` if there is no URL
        """
        is_empty = True
        for url in self.urls():
            is_empty = False
            with self.going_on():
                yield _question_of_file(url) if of_file else question_about(url)
        if not (is_empty and needs_one):
            return
        if not (of_file and self.options.agents_known):
            raise WrongUsage("no URL given")
        yield _question_of_file("/")

    def _lines(self) -> Iterator[str]:
        """Yield the lines of standard input that aren't empty. Complains about long ones."""
        while sys.stdin is not None and (line := sys.stdin.buffer.readline(_ENDLESS)):
            if len(line) == _ENDLESS:
                raise WrongUsage("standard input: a line has no end")
            if len(line) > _MAX_LINE:
                start = line[:80].decode("utf-8", "replace")
                complain(f"longer than {_MAX_LINE:,} bytes, so not read: {start}…")
                self.statuses.add(Status.USAGE)
            # What is not UTF-8 becomes surrogates, as in arguments.
            elif line := line.removeprefix(b"\xef\xbb\xbf").strip():
                yield line.decode("utf-8", "surrogateescape")

    def read_each(
        self, names: Sequence[str], use: Callable[[RobotsFile], None]
    ) -> None:
        """Call *use* with each file, or each URL's robots.txt; complain about unreadable ones."""
        origins: dict[Origin, None] = {}
        if list(names).count(STDIN) > 1:
            raise WrongUsage("standard input can be read only once")

        async def job(lookup: Any) -> None:
            for origin in origins:
                with self.going_on(f"{origin.robots_url}: "):
                    use(await lookup.now(origin))

        for name in names:
            with self.going_on():
                if "://" in name:
                    origins[origin_of_url(name)] = None
                else:
                    use(
                        RobotsFile(
                            Outcome.RULES, read_file(name, READ_BYTES), Facts(file=name)
                        )
                    )
        if origins:
            self.crawl(job)


def _chain(value: str) -> Chain:
    """Return the chain that an ``--agent`` names, or raise ``WrongUsage``."""
    try:
        # "*" is any crawler that no group names.
        return (GLOBAL,) if value == GLOBAL else chain(value)
    except ValueError:
        token = product_token(value)
        raise WrongUsage(
            f"--agent is {value!r}, but must be a product token such as FooBot (letters, - and _), "
            f"or several joined by commas{f'; did you mean {token}?' if token else ''}"
        ) from None


def question_about(url: str) -> Question:
    """Return what *url* comes to in a crawl, or raise ``CommandError``."""
    try:
        Origin.from_url(url)  # its errors say more than those of what follows
        requested = safe_url_string(url)
        origin, path = Origin.from_url(requested), path_of(requested)
    except UnicodeEncodeError:
        raise CommandError(_NOT_UTF8.format(url)) from None
    except ValueError as error:
        hint = ""
        if url.startswith("/"):
            hint = " (a path alone takes --file)"
        elif address := _address_in(url):
            hint = f"; did you mean {address}?"
        elif "://" not in url:
            hint = " (try https://…)"
        raise CommandError(f"{error}{hint}") from None
    compared = comparable(path)
    steps = [("requested", requested), ("path", path), ("compared", compared)]
    return Question(url, origin, compared, steps)


def _question_of_file(url: str) -> Question:
    """Return the same for a URL or a path that a file is asked about."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise CommandError(_NOT_UTF8.format(url)) from None
    if url.startswith("/"):
        _, _, compared, [_, *steps] = question_about(_ANY_SITE + url)
        return Question(url, None, compared, steps)
    if ":" not in url.partition("/")[0]:
        meant = _address_in(url) or f"/{url}"
        raise CommandError(f"neither a URL nor a path: {url!r}; did you mean {meant}?")
    return question_about(url)


def origin_of_url(url: str) -> Origin:
    """Return the origin of a URL that names a site, or raise ``CommandError``."""
    origin = question_about(url).origin
    assert origin is not None  # only a path alone has none
    return origin


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
        address = _address_in(name)
        is_site = address and isinstance(error, FileNotFoundError)
        site = address.split("/")[2] if is_site else ""
        hint = f"; did you mean https://{site}/robots.txt?" if site else ""
        why = getattr(error, "strerror", "") or error
        raise CommandError(f"{name!r}: {why}{hint}") from None


def _address_in(text: str) -> str:
    """Return the URL that somebody means who leaves its scheme out; "" if *text* is no such thing."""
    host = _HOST.match(text)
    is_file = host is None or (host.end() == len(text) and _FILE_NAME.search(text))
    return "" if is_file else f"https://{text}"
