"""The command's input: URLs, files, agents, the project's cache. Each error is one sentence."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader

from scrapy_rep.commands.ending import CommandError, Status, complain
from scrapy_rep.engine.text import clean, text_of
from scrapy_rep.origins.requests import SPIDER_ATTRIBUTE, origin_of, warning_of_digits
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.syntax import product_token
from scrapy_rep.settings import RepSettings, chain
from scrapy_rep.storages.base import MemoryStorage
from scrapy_rep.storages.client import make_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy.settings import Settings

    from scrapy_rep.commands.output import Output
    from scrapy_rep.storages.base import Storage

Chain = tuple[str, ...]
"""The product tokens of a crawler, most specific first."""

STDIN = "-"

# Characters of a URL.
_MAX_LINE = 65_536
# Bytes of a line that are read at once, and skipped before it counts as endless.
_MAX_READ, _MAX_SKIPPED = 4 * _MAX_LINE + 16, 64 * 1024 * 1024

# What people write for a URL: www.example.com/x, localhost:8000, //example.com.
_HOST = re.compile(
    r"(//)?([a-z0-9-]+\.[a-z0-9.-]*[a-z0-9]|localhost)(:[0-9]+)?(/|$)", re.IGNORECASE
)


def use_spider(settings: Settings, name: str) -> None:
    """Apply the settings of a spider and the agent that its class names, or raise ``UsageError``."""
    try:
        spider = get_spider_loader(settings).load(name)
    except KeyError:
        raise UsageError(f"no such spider: {_quoted(name)}", print_help=False) from None
    spider.update_settings(settings)
    # Attributes win over settings.
    for attribute, setting in ((SPIDER_ATTRIBUTE, "REP_USER_AGENT"), ("user_agent", "USER_AGENT")):
        value = getattr(spider, attribute, None)
        if value is not None:
            settings.set(setting, value, "cmdline")


@contextmanager
def project_storage(settings: Settings) -> Iterator[Storage | None]:
    """Open the project's cache; None if nothing is left of it after a crawl. Whatever it raises (no
    server, no permission, a file of a newer version) becomes ``CommandError``."""
    storage = make_storage(Crawler(Spider, settings), RepSettings.from_settings(settings))
    try:
        # A subclass may keep its entries.
        yield None if type(storage) is MemoryStorage else storage
    except (CommandError, UsageError):
        raise
    except NotImplementedError:
        raise CommandError(f"{type(storage).__name__} does not support this") from None
    except Exception as error:  # noqa: BLE001
        message = f"the cache can't be used: {text_of(error)}"
        raise CommandError(message, Status.UNREACHABLE) from None
    finally:
        storage.close()


def chains(values: Sequence[str]) -> list[Chain]:
    """Return the chain that each ``--agent`` names, or raise ``UsageError``."""
    found: list[Chain] = []
    for value in values:
        try:
            # "*" is any crawler that no group names.
            found.append(("*",) if value == "*" else chain(value))
        except ValueError:
            token = product_token(value)
            hint = f"; did you mean {token}?" if token else ""
            raise UsageError(
                f"--agent is {_quoted(value)}, but must be a product token such as FooBot "
                f"(letters, - and _), or several joined by commas{hint}",
                print_help=False,
            ) from None
    if warning := warning_of_digits([token for one in found for token in one]):
        complain(warning)
    return list(dict.fromkeys(found))


def read_file(name: str, limit: int) -> bytes:
    """Return at most *limit* bytes of a file (``-``: standard input), or raise ``CommandError``."""
    if name == STDIN:
        return sys.stdin.buffer.read(limit)
    try:
        with Path(name).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CommandError(f"{_quoted(name)}: {getattr(error, 'strerror', '') or error}") from None


def urls(arguments: Sequence[str], output: Output) -> Iterator[tuple[str, str]]:
    """Yield each URL and where it stands (``""``: on the command line), or raise ``UsageError``.
    Reads standard input, one URL a line, for ``-``, and for no arguments unless it is a terminal.
    Complains about what is too long, and adds that to the statuses."""
    if not arguments and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("no URL given", print_help=False)
    for argument in arguments or [STDIN]:
        for url, where in _lines() if argument == STDIN else [(argument, "")]:
            if len(url) > _MAX_LINE:
                complain(f"{where}longer than {_MAX_LINE:,} characters: {_quoted(url)}")
                output.statuses.add(Status.USAGE)
            else:
                yield url, where


def _lines() -> Iterator[tuple[str, str]]:
    """Yield the lines of standard input that aren't empty, each cut after a little too much, and where
    they stand."""
    if sys.stdin is None:
        return
    number = 0
    while raw := sys.stdin.buffer.readline(_MAX_READ):
        number += 1
        if len(raw) == _MAX_READ and not raw.endswith(b"\n"):
            _skip_line(number)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        # What is not UTF-8 becomes surrogates, as in arguments: see `request_for`.
        if url := raw.strip().decode("utf-8", "surrogateescape"):
            yield url, f"standard input, line {number}: "


def _skip_line(number: int) -> None:
    """Read on to the end of a line, or raise ``UsageError`` if it has none."""
    for _ in range(_MAX_SKIPPED // _MAX_READ):
        rest = sys.stdin.buffer.readline(_MAX_READ)
        if not rest or rest.endswith(b"\n"):
            return
    raise UsageError(f"standard input, line {number}: no end in sight", print_help=False)


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
        message = f"not an absolute URL: {_quoted(url)}"
        if _HOST.match(url):
            message += f" (try https://{url.lstrip('/')})"
    raise CommandError(_shortened(message))


def requests(arguments: Sequence[str], output: Output) -> list[tuple[str, Request, Origin]]:
    """Return each URL as given, its request and its origin, or raise ``UsageError``. Complains about
    what is not a URL, and adds that to the statuses."""
    found = []
    for url, where in urls(arguments, output):
        try:
            found.append((url, *request_for(url)))
        except CommandError as error:
            complain(f"{where}{error}")
            output.statuses.add(error.status)
    if not found and not output.statuses:
        raise UsageError("no URL given", print_help=False)
    return found


def _quoted(text: str) -> str:
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return f"'{clean(_shortened(readable))}'"


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
