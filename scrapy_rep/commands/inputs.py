"""What commands are given: URLs, files, agents. Wrong input is answered with one sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.spiderloader import get_spider_loader

from scrapy_rep.commands.status import Status
from scrapy_rep.commands.terminal import complain
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import clean
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.agents import SPIDER_ATTRIBUTE
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.tokens import product_token
from scrapy_rep.settings import AGENT_HINT, RepSettings, chain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy.settings import BaseSettings, Settings

STDIN = "-"

# What people write for a URL: www.example.com/x, localhost:8000, //example.com.
_HOST = re.compile(
    r"(//)?([a-z0-9-]+\.[a-z0-9.-]*[a-z0-9]|localhost)(:[0-9]+)?(/|$)", re.IGNORECASE
)


class InputError(ValueError):
    """Input that can't be used. The message is for the user, without the program's name."""


def settings_of(settings: BaseSettings | None) -> RepSettings:
    """Read the project's ``REP_*`` settings.

    :raises InputError: if one of them is wrong
    """
    assert settings is not None
    try:
        return RepSettings.from_settings(settings)
    except SettingsError as error:
        raise InputError(str(error)) from None


def use_spider(settings: Settings, name: str) -> None:
    """Let *settings* be those of a spider of the project, the agent that its class names included.

    :raises UsageError: if there is no such spider
    """
    try:
        spider = get_spider_loader(settings).load(name)
    except KeyError:
        raise UsageError(f"no such spider: {_quoted(name)}", print_help=False) from None
    spider.update_settings(settings)
    # Its attributes go before settings, wherever those were set.
    for attribute, setting in ((SPIDER_ATTRIBUTE, "REP_USER_AGENT"), ("user_agent", "USER_AGENT")):
        value = getattr(spider, attribute, None)
        if value is not None:
            settings.set(setting, value, "cmdline")


def chains(values: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the chain that each ``--agent`` names.

    :raises UsageError: for what no group can name
    """
    found: list[tuple[str, ...]] = []
    for value in values:
        if value == "*":
            found.append(("*",))  # any crawler that no group names
            continue
        try:
            found.append(chain(value))
        except ValueError:
            token = product_token(value)
            hint = f"; perhaps {token}" if token else ""
            text = AGENT_HINT.replace("a list of them", "several, joined by commas")
            raise UsageError(
                f"--agent is {_quoted(value)}, but must be {text}{hint}", print_help=False
            ) from None
    return list(dict.fromkeys(found))


def read_file(name: str, limit: int = -1) -> bytes:
    """Return the content of a file, or of standard input for ``-``.

    :param limit: how many bytes to read at most
    :raises InputError: if it can't be read
    """
    if name == STDIN:
        return sys.stdin.buffer.read(limit)
    try:
        with Path(name).open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise InputError(f"{_quoted(name)}: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{_quoted(name)}: {error}") from None


def urls(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield URLs and where each comes from ('' for the command line): the arguments; standard
    input, one a line, for ``-`` and where there are no arguments and it is no terminal.

    :raises UsageError: if there are no URLs to come
    """
    if not arguments:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no URL given", print_help=False)
        arguments = [STDIN]
    for argument in arguments:
        if argument == STDIN:
            yield from _lines_of_stdin()
        else:
            yield argument, ""


def _lines_of_stdin() -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        # What is not UTF-8 becomes surrogates, as in arguments: see `request_for`.
        url = line.strip().decode("utf-8", "surrogateescape")
        if url:
            yield url, f"standard input, line {number}: "


def request_for(url: str) -> tuple[Request, Origin]:
    """Return a request for *url*, and its origin.

    :raises InputError: if it has none that a robots.txt could belong to
    """
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InputError(f"not UTF-8: {_quoted(url)}") from None
    try:
        # Scrapy's own words for what has no scheme say less.
        Origin.from_url(url)
        request = Request(url)
        return request, origin_of(request)
    except ValueError as error:
        message = str(error)
    if "://" not in url:
        message = f"no absolute URL: {_quoted(url)}"
        if _HOST.match(url):
            message += f"; perhaps https://{url.lstrip('/')}"
    raise InputError(_shortened(message))


def requests(arguments: Sequence[str], statuses: set[Status]) -> list[tuple[str, Request, Origin]]:
    """Return the URLs that are given, each with its request and origin. What is no URL is told and
    counted among *statuses*.

    :raises UsageError: if nothing is given
    """
    found = []
    for url, where in urls(arguments):
        try:
            found.append((url, *request_for(url)))
        except InputError as error:
            complain(f"{where}{error}")
            statuses.add(Status.USAGE)
    if not found and not statuses:
        raise UsageError("no URL given", print_help=False)
    return found


def _quoted(text: str) -> str:
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return f"'{clean(_shortened(readable))}'"


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
