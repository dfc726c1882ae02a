"""``scrapy robots --page URL``: what a page says about itself (REP.md section 10)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.ending import CommandError, Status, gravest
from scrapy_rep.commands.inputs import Chain, chains, read_file, requests
from scrapy_rep.commands.lookup import Lookup, chain_of_project, follow, run_crawl, usual_chain
from scrapy_rep.commands.output import BOLD, Output
from scrapy_rep.engine.text import clean, iso
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.pages.rules import page_rules
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.page.html import MAX_BYTES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Iterable, Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

_NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "noml", "max_snippet", "max_image_preview", "max_video_preview",
)  # fmt: skip


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Print the rules of pages."""
    agents = chains(options.agent)
    printer = _PagePrinter(as_json=options.json)

    async def job(lookup: Lookup) -> None:
        async for url, chain, _, page in fetched(lookup, asked, agents):
            printer.add(url, chain, page)
            printer.output.flush()

    if options.file is not None:
        if arguments:
            raise UsageError("--page takes a URL or --file, not both", print_help=False)
        headers = _headers(options.header)
        page = HtmlResponse("file:", body=read_file(options.file, MAX_BYTES), headers=headers)
        for chain in agents or [chain_of_project(command.settings)]:
            printer.add(options.file, chain, page)
        printer.output.flush()
    elif asked := requests(arguments, printer.statuses):
        run_crawl(command, job)
    return gravest(*printer.statuses)


def _headers(given: Sequence[str]) -> Headers:
    headers = Headers()
    for header in given:
        name, colon, value = header.partition(":")
        if not colon:
            raise UsageError(
                f"--header is {clean(header)!r}, but must look like 'X-Robots-Tag: noindex'",
                print_help=False,
            )
        headers.appendlist(name.strip(), value.strip().encode("utf-8", "surrogateescape"))
    return headers


async def fetched(
    lookup: Lookup, asked: Iterable[tuple[str, Request, Origin]], agents: Sequence[Chain]
) -> AsyncIterator[tuple[str, Chain, Request, Response | CommandError]]:
    """Yield each URL for each agent (robots.txt may keep one of them out), with its request and the
    page, or why there is none."""
    for url, request, _ in asked:
        pages: dict[str, Response] = {}
        for chain in agents or [usual_chain(lookup.agents)]:
            try:
                page = await _fetch(lookup, request, chain, pages)
            except CommandError as error:
                yield url, chain, request, error
            else:
                yield url, chain, request, page


async def _fetch(
    lookup: Lookup, request: Request, chain: Chain, pages: dict[str, Response]
) -> Response:
    """Return the page that redirects lead to, or raise ``CommandError``.

    :param pages: those fetched for another agent, by URL
    """

    async def get(request: Request) -> Response:
        await lookup.check(request, chain)
        if request.url not in pages:
            pages[request.url] = await lookup.download(request)
        return pages[request.url]

    return await follow(lookup, request, get)


class _PagePrinter:
    """Prints what pages say, and collects the exit statuses."""

    def __init__(self, *, as_json: bool) -> None:
        self.output = Output()
        self.statuses: set[Status] = set()
        self._json = as_json

    def add(self, name: str, chain: Chain, page: Response | CommandError) -> None:
        """Print what *page* says to a crawler, or why there is none."""
        rules, rows = PageRules(), []
        fetched: Response | None = None
        if isinstance(page, CommandError):
            self.statuses.add(page.status)
            rows.append(("not fetched", str(page)))
        else:
            rules = page_rules(page, chain)
            if page.url != "file:":
                fetched = page
                rows.append(("answer", f"HTTP {page.status}"))
                if page.url != name:
                    rows.append(("redirects to", page.url))
        meaning = _meaning(rules)
        if rules.noindex or rules.nofollow or meaning["expired"]:
            self.statuses.add(Status.FOUND)
        if self._json:
            data = {
                "url": name,
                "agent": ",".join(chain) or None,
                "status": fetched and fetched.status,
                "final_url": fetched and fetched.url,
                "error": str(page) if isinstance(page, CommandError) else None,
                "rules": [
                    {"rule": r.name, "value": _plain(r.value), "source": r.source, "line": r.line}
                    for r in rules.rules
                ],
            }
            self.output.json({**data, **meaning, "agent_in_words": in_words(chain)})
            return
        if not isinstance(page, CommandError):
            rows += [(one.where, str(one)) for one in rules.rules]
            words = [key if value is True else f"{key}: {value}" for key, value in meaning.items()
                     if value is not None and value is not False]  # fmt: skip
            rows.append(("overall", ", ".join(words) or "no restrictions"))
        rows.insert(0, ("agent", in_words(chain)))
        self.output.block(self.output.paint(name, BOLD), rows)


def _meaning(rules: PageRules) -> dict[str, Any]:
    return {
        **{name: getattr(rules, name) for name in _NAMES},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }


def _plain(value: Any) -> Any:
    """A date as text, the rest as it is."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value
