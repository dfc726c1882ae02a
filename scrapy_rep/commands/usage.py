"""``scrapy robots --usage URL``: how a page may be used, and who says so (REP.md section 11)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.commands.ending import CommandError, Status, gravest
from scrapy_rep.commands.inputs import Chain, chains, request_for, requests
from scrapy_rep.commands.lookup import Lookup, usual_chain
from scrapy_rep.commands.lookup import run as run_crawl
from scrapy_rep.commands.page import fetch
from scrapy_rep.commands.terminal import BOLD, DIM, GREEN, RED, Output
from scrapy_rep.engine.words import clean
from scrapy_rep.pages.usage import usage_of
from scrapy_rep.pages.usage_lookup import UsageLookup
from scrapy_rep.protocol.usage.aipref import EXTRA
from scrapy_rep.protocol.usage.statements import NO, PURPOSES, YES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.protocol.usage import Usage

_WORDS = {YES: "yes", NO: "no", None: "not said"}
_COLOURS = {YES: GREEN, NO: RED, None: ""}


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Tell how pages may be used.

    :raises CommandError: if the extra ``usage`` is not installed
    """
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")
    agents = chains(options.agent)
    printer = _UsagePrinter(Output(), as_json=options.json)
    asked = requests(arguments, printer.statuses)

    async def job(lookup: Lookup) -> None:
        known = UsageLookup(*lookup.sources)
        for url, request, _ in asked:
            pages: dict[str, Response] = {}
            for chain in agents or [usual_chain(lookup.agents)]:
                answer = await _ask(lookup, known, request, chain, pages)
                printer.add(url, chain, answer)
            printer.output.flush()

    if asked:
        run_crawl(command, job)
    return gravest(*printer.statuses)


class _Answer(NamedTuple):
    """How a page may be used."""

    usage: Usage
    page: Response | None
    error: CommandError | None
    """Why there is no page. Then only robots.txt answers."""


async def _ask(
    lookup: Lookup,
    known: UsageLookup,
    request: Request,
    chain: Chain,
    pages: dict[str, Response],
) -> _Answer:
    try:
        page = await fetch(lookup, request, chain, pages)
    except CommandError as error:
        return _Answer(known.robots(request, chain), None, error)
    request, _ = request_for(page.url)
    await known.fetch(request, chain)
    return _Answer(usage_of(page, request, known, chain), page, None)


class _UsagePrinter:
    """What is printed, and what the process ends with."""

    def __init__(self, output: Output, *, as_json: bool) -> None:
        self.output = output
        self.statuses: set[Status] = set()
        self._json = as_json
        self._printed = False

    def add(self, url: str, chain: Chain, answer: _Answer) -> None:
        """Print *answer*, which is about *url*."""
        usage, page, error = answer
        if NO in usage.verdicts.values():
            self.statuses.add(Status.FOUND)
        if error is not None:
            self.statuses.add(error.status)
        if self._json:
            self.output.json(
                {
                    "url": url,
                    "agent": ",".join(chain) or None,
                    "status": page.status if page is not None else None,
                    "final_url": page.url if page is not None else None,
                    "error": None if error is None else str(error),
                    **usage.as_dict(),
                }
            )
        else:
            self._block(url, chain, answer)

    def _block(self, url: str, chain: Chain, answer: _Answer) -> None:
        usage, page, error = answer
        if self._printed:
            self.output.line()
        self._printed = True
        self.output.line(self.output.paint(clean(url), BOLD))
        rows = [("agent", ",".join(chain) or "unknown")]
        if page is not None:
            rows.append(("answer", f"HTTP status {page.status}"))
            rows += [("redirects to", page.url)] if page.url != url else []
        rows += [("not fetched", str(error))] if error is not None else []
        colours = [(DIM, "")] * len(rows)
        for purpose in PURPOSES:
            verdict = usage[purpose]
            rows.append((purpose, _WORDS[verdict] + _because(usage, purpose)))
            colours.append((DIM, _COLOURS[verdict]))
        decisive = [usage.decisive(purpose) for purpose in PURPOSES]
        rows += [("also", str(one)) for one in usage.statements if one not in decisive]
        rows += [("license", one) for one in usage.licenses]
        rows += [("TDM policy", usage.tdm_policy)] if usage.tdm_policy else []
        rows += [("robots.txt", f"SHA-256 {usage.robots_sha256}")] if usage.robots_sha256 else []
        colours += [(DIM, "")] * (len(rows) - len(colours))
        self.output.table(rows, colours, indent="  ")


def _because(usage: Usage, purpose: str) -> str:
    statement: Any = usage.decisive(purpose)
    return "" if statement is None else f": {statement}"
