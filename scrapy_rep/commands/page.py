"""``scrapy robots --page URL``: what a page says about itself (REP.md section 10)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.http import Headers, HtmlResponse, Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.python import to_unicode
from twisted.internet.defer import CancelledError

from scrapy_rep.commands.inputs import (
    InputError,
    chains,
    read_file,
    request_for,
    requests,
    settings_of,
)
from scrapy_rep.commands.lookup import Lookup, chain_of_project, usual_chain
from scrapy_rep.commands.lookup import run as run_crawl
from scrapy_rep.commands.status import Status, gravest
from scrapy_rep.commands.terminal import BOLD, DIM, Output
from scrapy_rep.engine.encoding import encoded
from scrapy_rep.engine.urls import path_in
from scrapy_rep.engine.words import clean, iso
from scrapy_rep.origins.flights import CrawlEnding
from scrapy_rep.pages.rules import page_rules
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.page.html import MAX_BYTES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand

Chain = tuple[str, ...]

_FLAGS = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai",
)  # fmt: skip
_VALUES = ("max_snippet", "max_image_preview", "max_video_preview")


class NoPage(Exception):
    """It can't or must not be fetched. The message says why."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Print the rules of pages.

    :raises UsageError: for options that can't be
    :raises InputError: for a file that can't be read, or a wrong setting
    """
    agents = chains(options.agent)
    printer = _PagePrinter(Output(), as_json=options.json)
    if options.file is not None:
        if arguments:
            raise UsageError("--page takes a URL or --file, not both", print_help=False)
        headers = _headers(options.header)
        page = HtmlResponse("file:", body=read_file(options.file, MAX_BYTES), headers=headers)
        assert command.settings is not None
        usual = chain_of_project(command.settings, settings_of(command.settings))
        for chain in agents or [usual]:
            printer.add(options.file, chain, page)
    else:
        _by_sites(command, arguments, agents, printer)
    printer.output.flush()
    return gravest(*printer.statuses)


def _headers(given: Sequence[str]) -> Headers:
    headers = Headers()
    for header in given:
        name, colon, value = header.partition(":")
        if not colon:
            raise UsageError(
                f"--header is {clean(header)!r}, but must be one as in 'X-Robots-Tag: noindex'",
                print_help=False,
            )
        headers.appendlist(name.strip(), value.strip().encode("utf-8", "surrogateescape"))
    return headers


def _by_sites(
    command: RobotsCommand, arguments: Sequence[str], agents: list[Chain], printer: _PagePrinter
) -> None:
    asked = requests(arguments, printer.statuses)
    if not asked:
        return

    async def job(lookup: Lookup) -> None:
        for url, _, _ in asked:
            # Each agent for itself: robots.txt may keep one of them out.
            pages: dict[str, Response] = {}
            for chain in agents or [usual_chain(lookup.agents)]:
                try:
                    page = await fetch(lookup, url, chain, pages)
                except NoPage as error:
                    printer.add_none(url, chain, error)
                else:
                    printer.add(url, chain, page)
            printer.output.flush()

    run_crawl(command, job)


async def fetch(lookup: Lookup, url: str, chain: Chain, pages: dict[str, Response]) -> Response:
    """Return the page, redirects followed.

    :param pages: those that were fetched for another agent
    :raises NoPage: if it can't or must not be fetched
    """
    for _ in range(MAX_HOPS + 1):
        try:
            request, origin = request_for(url)
        except InputError as error:
            raise NoPage(f"redirects to what is no URL: {error}", Status.UNREACHABLE) from None
        robots = await lookup.get(origin)
        path = comparable(path_in(request))
        why = robots.explain(url, path, chain, obey_global=lookup.settings.obey_global_group)
        if not why.allowed:
            if why.unreachable:
                raise NoPage(why.reason, Status.UNREACHABLE)
            raise NoPage(f"not fetched: {why.reason} of {origin.robots_url}", Status.FOUND)
        page = pages.get(url) or await _download(lookup, request)
        pages[url] = page
        location = page.headers.get("Location")
        if page.status not in REDIRECTS or not location:
            return page
        try:
            url = urljoin(url, encoded(to_unicode(location, "latin-1").strip()))
        except ValueError as error:
            raise NoPage(str(error), Status.UNREACHABLE) from None
    raise NoPage(f"more than {MAX_HOPS} redirects", Status.UNREACHABLE)


async def _download(lookup: Lookup, request: Request) -> Response:
    request = request.replace(callback=NO_CALLBACK, meta={"dont_redirect": True})
    try:
        return await lookup.download(request)
    except (CancelledError, CrawlEnding):
        raise
    except Exception as error:  # noqa: BLE001 (whatever a handler or a middleware raises)
        raise NoPage(f"{type(error).__name__}: {error}", Status.UNREACHABLE) from None


class _PagePrinter:
    """What is printed, and what the process ends with."""

    def __init__(self, output: Output, *, as_json: bool) -> None:
        self.output = output
        self.statuses: set[Status] = set()
        self._json = as_json
        self._printed = False

    def add(self, name: str, chain: Chain, page: Response) -> None:
        """Print what *page* says to a crawler."""
        rules = page_rules(page, chain)
        meaning = _meaning(rules)
        if rules.noindex or rules.nofollow or meaning["expired"]:
            self.statuses.add(Status.FOUND)
        fetched = None if page.url == "file:" else page
        if self._json:
            self._object(name, chain, rules, page=fetched)
            return
        rows = []
        if fetched is not None:
            rows.append(("answer", f"HTTP status {page.status}"))
            if page.url != name:
                rows.append(("redirects to", page.url))
        rows += [(one.where, str(one)) for one in rules.rules]
        rows.append(("in all", _in_words(meaning)))
        self._block(name, chain, rows)

    def add_none(self, name: str, chain: Chain, error: NoPage) -> None:
        """Say why there is no page."""
        self.statuses.add(error.status)
        if self._json:
            self._object(name, chain, PageRules(), error=str(error))
        else:
            self._block(name, chain, [("no page", str(error))])

    def _object(
        self,
        name: str,
        chain: Chain,
        rules: PageRules,
        *,
        page: Response | None = None,
        error: str | None = None,
    ) -> None:
        """Print JSON (README.md documents the fields).

        :param page: None for a file, and where there is no page
        """
        said = [
            {"rule": one.name, "value": _plain(one.value), "source": one.source, "line": one.line}
            for one in rules.rules
        ]
        self.output.json(
            {
                "url": name,
                "agent": ",".join(chain) or None,
                "status": page.status if page is not None else None,
                "final_url": page.url if page is not None else None,
                "error": error,
                "rules": said,
                **_meaning(rules),
            }
        )

    def _block(self, name: str, chain: Chain, rows: list[tuple[str, str]]) -> None:
        if self._printed:
            self.output.line()
        self._printed = True
        self.output.line(self.output.paint(clean(name), BOLD))
        rows.insert(0, ("agent", ",".join(chain) or "none that can be told"))
        self.output.table(rows, [(DIM, "")] * len(rows), indent="  ")


def _meaning(rules: PageRules) -> dict[str, Any]:
    return {
        **{name: getattr(rules, name) for name in (*_FLAGS, *_VALUES)},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }


def _in_words(meaning: dict[str, Any]) -> str:
    words = [name if value is True else f"{name}: {value}" for name, value in meaning.items()
             if value is not None and value is not False]  # fmt: skip
    return ", ".join(words) or "no restrictions"


def _plain(value: Any) -> Any:
    """A date as text, the rest as it is."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value
