"""Pages, fetched if robots.txt allows it: ``scrapy robots --page URL``, what they say about themselves
(REP.md section 10); ``--usage URL``, how they may be used, and who says so (section 11)."""

from __future__ import annotations

import time
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.lookup import follow
from scrapy_rep.commands.output import BOLD, GREEN, RED, CommandError, Status
from scrapy_rep.commands.task import read_file, request_for
from scrapy_rep.engine.text import clean, iso
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.pages import page_rules
from scrapy_rep.preferences.lookup import UsageLookup, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, PURPOSES, YES
from scrapy_rep.protocol.html import MAX_BYTES
from scrapy_rep.protocol.page import PageRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from scrapy import Request

    from scrapy_rep.commands.lookup import Chain, Lookup
    from scrapy_rep.commands.task import Task
    from scrapy_rep.preferences import Usage
    from scrapy_rep.protocol import Origin

    Page = Response | CommandError
    """A page, or why there is none."""

# Stands for the URL of a page that is read from a file.
_FILE = "file:"


async def _fetched(
    task: Task, lookup: Lookup, asked: Iterable[tuple[str, Request, Origin]]
) -> AsyncIterator[tuple[str, Chain, Request, Page]]:
    """Yield each URL for each agent (robots.txt may keep one of them out), with its request and the
    page that redirects lead to."""
    for url, request, _ in asked:
        pages: dict[str, Response] = {}
        for chain in task.agents(lookup):
            try:
                page: Page = await follow(lookup, request, partial(_get, lookup, chain, pages))
            except CommandError as error:
                page = error
                task.statuses.add(error.status)
            yield url, chain, request, page
            task.output.flush()


async def _get(
    lookup: Lookup, chain: Chain, pages: dict[str, Response], request: Request
) -> Response:
    """:param pages: those fetched for another agent, by URL"""
    await lookup.check(request, chain)
    if request.url not in pages:
        pages[request.url] = await lookup.download(request)
    return pages[request.url]


def _as_json(url: str, chain: Chain, page: Page) -> dict[str, Any]:
    """Return how a page was fetched, for ``--json``."""
    fetched = None if isinstance(page, CommandError) or page.url == _FILE else page
    return {
        "url": url,
        "agent": ",".join(chain) or None,
        "status": fetched and fetched.status,
        "final_url": fetched and fetched.url,
        "error": str(page) if isinstance(page, CommandError) else None,
    }


def _as_rows(url: str, chain: Chain, page: Page) -> list[tuple[str, ...]]:
    """Return the same as labels and texts."""
    rows: list[tuple[str, ...]] = [("agent", in_words(chain))]
    if isinstance(page, CommandError):
        rows.append(("not fetched", str(page)))
    elif page.url != _FILE:
        rows.append(("answer", f"HTTP {page.status}"))
        if page.url != url:
            rows.append(("redirects to", page.url))
    return rows


# -- page ------------------------------------------------------------------------------------

_NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "noml", "max_snippet", "max_image_preview", "max_video_preview",
)  # fmt: skip


def page(task: Task) -> None:
    """Print the rules of pages."""

    async def job(lookup: Lookup) -> None:
        async for url, chain, _, page in _fetched(task, lookup, asked):
            _show(task, url, chain, page)

    if task.options.file is not None:
        if task.arguments:
            raise UsageError("--page takes a URL or --file, not both")
        headers = _headers(task.options.header)
        body = read_file(task.options.file, MAX_BYTES)
        for chain in task.agents():
            _show(task, task.options.file, chain, HtmlResponse(_FILE, body=body, headers=headers))
    elif asked := task.requests():
        task.crawl(job)


def _headers(given: Sequence[str]) -> Headers:
    headers = Headers()
    for header in given:
        name, colon, value = header.partition(":")
        if not colon:
            raise UsageError(
                f"--header is {clean(header)!r}, but must look like 'X-Robots-Tag: noindex'"
            )
        headers.appendlist(name.strip(), value.strip().encode("utf-8", "surrogateescape"))
    return headers


def _show(task: Task, url: str, chain: Chain, page: Page) -> None:
    """Print what *page* says to a crawler."""
    rules = PageRules() if isinstance(page, CommandError) else page_rules(page, chain)
    meaning = {
        **{name: getattr(rules, name) for name in _NAMES},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }
    if task.options.json:
        said = [
            {"rule": r.name, "value": _plain(r.value), "source": r.source, "line": r.line}
            for r in rules.rules
        ]
        data = {**_as_json(url, chain, page), "rules": said, **meaning}
        task.output.json({**data, "agent_in_words": in_words(chain)})
    else:
        rows = _as_rows(url, chain, page)
        if not isinstance(page, CommandError):
            rows += [(one.where, str(one)) for one in rules.rules]
            words = [key if value is True else f"{key}: {value}" for key, value in meaning.items()
                     if value is not None and value is not False]  # fmt: skip
            rows.append(("overall", ", ".join(words) or "no restrictions"))
        task.output.block(task.output.paint(url, BOLD), rows)
    if rules.noindex or rules.nofollow or meaning["expired"]:
        task.statuses.add(Status.FOUND)


def _plain(value: Any) -> Any:
    """A date as text, the rest as it is."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value


# -- usage -----------------------------------------------------------------------------------

_WORDS = {YES: "yes", NO: "no", None: "not said"}
_COLOURS = {YES: GREEN, NO: RED, None: ""}


def usage(task: Task) -> None:
    """Print how pages may be used."""
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")
    asked = task.requests()

    async def job(lookup: Lookup) -> None:
        known = UsageLookup(*lookup.sources)
        async for url, chain, request, page in _fetched(task, lookup, asked):
            if isinstance(page, CommandError):
                found = known.robots(request, chain)  # all that is known without the page
            else:
                final, _ = request_for(page.url)
                await known.fetch(final, chain)
                found = usage_of(page, final, known, chain)
            if NO in found.verdicts.values():
                task.statuses.add(Status.FOUND)
            if task.options.json:
                words = {"agent_in_words": in_words(chain)}
                task.output.json({**_as_json(url, chain, page), **words, **found.as_dict()})
            else:
                rows = [*_as_rows(url, chain, page), *_usage_rows(found)]
                task.output.block(task.output.paint(url, BOLD), rows)

    if asked:
        task.crawl(job)


def _usage_rows(usage: Usage) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    decisive = [usage.decisive(purpose) for purpose in PURPOSES]
    for purpose, statement in zip(PURPOSES, decisive, strict=True):
        verdict = usage[purpose]
        said = _WORDS[verdict] if statement is None else f"{_WORDS[verdict]}: {statement}"
        rows.append((purpose, said, _COLOURS[verdict]))
    rows += [("also", str(one)) for one in usage.statements if one not in decisive]
    rows += [("license", one) for one in usage.licenses]
    if usage.tdm_policy:
        rows.append(("TDM policy", usage.tdm_policy))
    if usage.robots_sha256:
        rows.append(("robots.txt", f"SHA-256 {usage.robots_sha256}"))
    return rows
