"""``scrapy robots --usage URL``: how a page may be used, and who says so (REP.md section 11)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.ending import CommandError, Status, gravest
from scrapy_rep.commands.inputs import Chain, chains, request_for, requests
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import BOLD, GREEN, RED, Output
from scrapy_rep.commands.page import fetched
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.preferences.lookup import UsageLookup, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, PURPOSES, YES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy.http import Response

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.preferences import Usage

_WORDS = {YES: "yes", NO: "no", None: "not said"}
_COLOURS = {YES: GREEN, NO: RED, None: ""}


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """Print how pages may be used."""
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")
    agents = chains(options.agent)
    output = Output()
    statuses: set[Status] = set()
    asked = requests(arguments, statuses)

    async def job(lookup: Lookup) -> None:
        known = UsageLookup(*lookup.sources)
        async for url, chain, request, page in fetched(lookup, asked, agents):
            if isinstance(page, CommandError):
                usage = known.robots(request, chain)  # all that is known without the page
                statuses.add(page.status)
            else:
                final, _ = request_for(page.url)
                await known.fetch(final, chain)
                usage = usage_of(page, final, known, chain)
            if NO in usage.verdicts.values():
                statuses.add(Status.FOUND)
            if options.json:
                output.json(_as_json(url, chain, usage, page))
            else:
                _print(output, url, chain, usage, page)
            output.flush()

    if asked:
        run_crawl(command, job)
    return gravest(*statuses)


def _as_json(url: str, chain: Chain, usage: Usage, page: Response | CommandError) -> dict[str, Any]:
    fetched = None if isinstance(page, CommandError) else page
    return {
        "url": url,
        "agent": ",".join(chain) or None,
        "status": fetched and fetched.status,
        "final_url": fetched and fetched.url,
        "error": None if fetched else str(page),
        "agent_in_words": in_words(chain),
        **usage.as_dict(),
    }


def _print(
    output: Output, url: str, chain: Chain, usage: Usage, page: Response | CommandError
) -> None:
    rows = [("agent", in_words(chain))]
    if isinstance(page, CommandError):
        rows.append(("not fetched", str(page)))
    else:
        rows.append(("answer", f"HTTP {page.status}"))
        if page.url != url:
            rows.append(("redirects to", page.url))
    colours = [""] * len(rows)
    decisive = [usage.decisive(purpose) for purpose in PURPOSES]
    for purpose, statement in zip(PURPOSES, decisive, strict=True):
        word = _WORDS[usage[purpose]]
        rows.append((purpose, word if statement is None else f"{word}: {statement}"))
        colours.append(_COLOURS[usage[purpose]])
    rows += [("also", str(one)) for one in usage.statements if one not in decisive]
    rows += [("license", one) for one in usage.licenses]
    if usage.tdm_policy:
        rows.append(("TDM policy", usage.tdm_policy))
    if usage.robots_sha256:
        rows.append(("robots.txt", f"SHA-256 {usage.robots_sha256}"))
    colours += [""] * (len(rows) - len(colours))
    output.block(output.paint(url, BOLD), rows, colours)
