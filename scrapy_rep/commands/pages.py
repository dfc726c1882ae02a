"""Pages, fetched if robots.txt allows it: ``scrapy robots --page URL``, what they say about
themselves (REP.md section 10); ``--usage URL``, how they may be used, and who says so (section
11)."""

from __future__ import annotations

import time
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.lookup import follow
from scrapy_rep.commands.output import BOLD, GREEN, RED, CommandError, Status
from scrapy_rep.commands.task import read_file, request_for
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.pages import page_rules
from scrapy_rep.preferences.lookup import UsageLookup, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, PURPOSES, YES
from scrapy_rep.protocol.html import MAX_BYTES
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.text import clean, iso

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy_rep.commands.lookup import Chain, Lookup
    from scrapy_rep.commands.task import Task
    from scrapy_rep.preferences.statements import Usage
    from scrapy_rep.protocol import Origin

    Page = Response | CommandError
    """A page, or why there is none."""
    Pages = dict[str, Response]
    """By URL."""
    Rows = list[tuple[str, ...]]

# Stands for the URL of a page that is read from a file.
_FILE = "file:"


async def _fetched(
    task: Task, lookup: Lookup, asked: Iterable[tuple[str, Request, Origin]]
) -> AsyncIterator[tuple[str, Chain, Request, Page]]:
    """Yield each URL for each agent, its request, and the final page, or why there is none."""
    for url, request, _ in asked:
        pages: Pages = {}
        for chain in task.agents(lookup):
            try:
                page: Page = await follow(lookup, request, partial(_get, lookup, chain, pages))
            except CommandError as error:
                page = error
                task.statuses.add(error.status)
            yield url, chain, request, page
            task.output.flush()


async def _get(lookup: Lookup, chain: Chain, pages: Pages, request: Request) -> Response:
    """*pages*: those fetched for another agent."""
    await lookup.check(request, chain)
    if request.url not in pages:
        pages[request.url] = await lookup.download(request)
    return pages[request.url]


def _print(task: Task, asked: tuple[str, Chain, Page], data: dict[str, Any], rows: Rows) -> None:
    """Print how a page was fetched, and what was found: *data* as JSON, or *rows*."""
    url, chain, page = asked
    error = str(page) if isinstance(page, CommandError) else None
    fetched = None if isinstance(page, CommandError) or page.url == _FILE else page
    about = {
        "url": url,
        "agent": ",".join(chain) or None,
        "status": fetched and fetched.status,
        "final_url": fetched and fetched.url,
        "error": error,
    }
    task.output.json({**about, **data})
    how: Rows = [("agent", in_words(chain))]
    if error is not None:
        how.append(("not fetched", error))
    if fetched is not None:
        how.append(("answer", f"HTTP {fetched.status}"))
        how += [("redirects to", fetched.url)] if fetched.url != url else []
    task.output.block([(url, BOLD)], how + rows)


# -- page ------------------------------------------------------------------------------------

_NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "noml", "max_snippet", "max_image_preview", "max_video_preview",
)  # fmt: skip


def page(task: Task) -> None:
    async def job(lookup: Lookup) -> None:
        async for url, chain, _, page in _fetched(task, lookup, asked):
            _show(task, url, chain, page)

    if task.options.file is not None:
        if task.arguments:
            raise UsageError("--page takes a URL or --file, not both")
        headers = Headers()
        for header in task.options.header:
            name, colon, value = header.partition(":")
            if not colon:
                raise UsageError(
                    f"--header is {clean(header)!r}, but must look like 'X-Robots-Tag: noindex'"
                )
            headers.appendlist(name.strip(), value.strip().encode("utf-8", "surrogateescape"))
        body = read_file(task.options.file, MAX_BYTES)
        for chain in task.agents():
            _show(task, task.options.file, chain, HtmlResponse(_FILE, body=body, headers=headers))
    elif asked := task.requests():
        task.crawl(job)


def _show(task: Task, url: str, chain: Chain, page: Page) -> None:
    rules = PageRules() if isinstance(page, CommandError) else page_rules(page, chain)
    meaning = {
        **{name: getattr(rules, name) for name in _NAMES},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }
    said = [
        {"rule": r.name, "value": _plain(r.value), "source": r.source, "line": r.line}
        for r in rules.rules
    ]
    rows: Rows = [(one.where, str(one)) for one in rules.rules]
    if not isinstance(page, CommandError):
        words = [key if value is True else f"{key}: {value}" for key, value in meaning.items()
                 if value is not None and value is not False]  # fmt: skip
        rows.append(("overall", ", ".join(words) or "no restrictions"))
    data = {"rules": said, **meaning, "agent_in_words": in_words(chain)}
    _print(task, (url, chain, page), data, rows)
    if rules.noindex or rules.nofollow or meaning["expired"]:
        task.statuses.add(Status.FOUND)


def _plain(value: Any) -> Any:
    """Return a date as text, other values as they are."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value


# -- usage -----------------------------------------------------------------------------------

_SAID = {YES: ("yes", GREEN), NO: ("no", RED), None: ("not said", "")}


def usage(task: Task) -> None:
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
            data = {"agent_in_words": in_words(chain), **found.as_dict()}
            _print(task, (url, chain, page), data, _usage_rows(found))

    if asked:
        task.crawl(job)


def _usage_rows(found: Usage) -> Rows:
    rows: Rows = []
    decisive = [found.decisive(purpose) for purpose in PURPOSES]
    for purpose, statement in zip(PURPOSES, decisive, strict=True):
        said, colour = _SAID[found[purpose]]
        because = "" if statement is None else f": {statement}"
        rows.append((purpose, f"{said}{because}", colour))
    rows += [("also", str(one)) for one in found.statements if one not in decisive]
    rows += [("license", one) for one in found.licenses]
    if found.tdm_policy:
        rows.append(("TDM policy", found.tdm_policy))
    if found.robots_sha256:
        rows.append(("robots.txt", f"SHA-256 {found.robots_sha256}"))
    return rows
