"""``scrapy robots --page URL``: what a page says about itself (REP.md section 10)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.ending import CommandError, Status
from scrapy_rep.commands.inputs import Chain, chains, read_file, requests
from scrapy_rep.commands.lookup import Lookup, chain_of_project, follow, run_crawl, usual_chain
from scrapy_rep.commands.output import BOLD, Output
from scrapy_rep.engine.text import clean, iso
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.pages import page_rules
from scrapy_rep.protocol.html import MAX_BYTES
from scrapy_rep.protocol.page import PageRules

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Iterable, Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol import Origin

_NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "noml", "max_snippet", "max_image_preview", "max_video_preview",
)  # fmt: skip


# Stands for the URL of a page that is read from a file.
_FILE = "file:"


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Print the rules of pages."""
    agents = chains(options.agent)

    async def job(lookup: Lookup) -> None:
        async for url, chain, _, page in fetched(lookup, asked, agents):
            _show(output, url, chain, page, json=options.json)

    if options.file is not None:
        if arguments:
            raise UsageError("--page takes a URL or --file, not both", print_help=False)
        headers = _headers(options.header)
        page = HtmlResponse(_FILE, body=read_file(options.file, MAX_BYTES), headers=headers)
        for chain in agents or [chain_of_project(command.settings)]:
            _show(output, options.file, chain, page, json=options.json)
    elif asked := requests(arguments, output):
        run_crawl(command, job)


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
    page that redirects lead to, or why there is none."""
    for url, request, _ in asked:
        pages: dict[str, Response] = {}
        for chain in agents or [usual_chain(lookup.agents)]:
            get = partial(_get, lookup, chain, pages)
            try:
                yield url, chain, request, await follow(lookup, request, get)
            except CommandError as error:
                yield url, chain, request, error


async def _get(
    lookup: Lookup, chain: Chain, pages: dict[str, Response], request: Request
) -> Response:
    """:param pages: those fetched for another agent, by URL"""
    await lookup.check(request, chain)
    if request.url not in pages:
        pages[request.url] = await lookup.download(request)
    return pages[request.url]


def as_json(url: str, chain: Chain, page: Response | CommandError) -> dict[str, Any]:
    """Return how a page was fetched, for ``--json``."""
    fetched = None if isinstance(page, CommandError) or page.url == _FILE else page
    return {
        "url": url,
        "agent": ",".join(chain) or None,
        "status": fetched and fetched.status,
        "final_url": fetched and fetched.url,
        "error": str(page) if isinstance(page, CommandError) else None,
    }


def as_rows(url: str, chain: Chain, page: Response | CommandError) -> list[tuple[str, str]]:
    """Return the same as labels and texts."""
    rows = [("agent", in_words(chain))]
    if isinstance(page, CommandError):
        rows.append(("not fetched", str(page)))
    elif page.url != _FILE:
        rows.append(("answer", f"HTTP {page.status}"))
        if page.url != url:
            rows.append(("redirects to", page.url))
    return rows


def _show(
    output: Output, url: str, chain: Chain, page: Response | CommandError, *, json: bool
) -> None:
    """Print what *page* says to a crawler, or why there is none."""
    rules = PageRules() if isinstance(page, CommandError) else page_rules(page, chain)
    meaning = _meaning(rules)
    if json:
        said = [
            {"rule": r.name, "value": _plain(r.value), "source": r.source, "line": r.line}
            for r in rules.rules
        ]
        data = {**as_json(url, chain, page), "rules": said, **meaning}
        output.json({**data, "agent_in_words": in_words(chain)})
    else:
        rows = as_rows(url, chain, page)
        if not isinstance(page, CommandError):
            rows += [(one.where, str(one)) for one in rules.rules]
            words = [key if value is True else f"{key}: {value}" for key, value in meaning.items()
                     if value is not None and value is not False]  # fmt: skip
            rows.append(("overall", ", ".join(words) or "no restrictions"))
        output.block(output.paint(url, BOLD), rows)
    output.flush()
    if isinstance(page, CommandError):
        output.statuses.add(page.status)
    elif rules.noindex or rules.nofollow or meaning["expired"]:
        output.statuses.add(Status.FOUND)


def _meaning(rules: PageRules) -> dict[str, Any]:
    return {
        **{name: getattr(rules, name) for name in _NAMES},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }


def _plain(value: Any) -> Any:
    """A date as text, the rest as it is."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value
