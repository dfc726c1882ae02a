"""``scrapy robots --usage URL``: how a page may be used, and who says so (REP.md section 11)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from scrapy_rep.commands.ending import CommandError, Status
from scrapy_rep.commands.inputs import chains, request_for, requests
from scrapy_rep.commands.lookup import Lookup, run_crawl
from scrapy_rep.commands.output import BOLD, GREEN, RED, Output
from scrapy_rep.commands.page import as_json, as_rows, fetched
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.preferences.lookup import UsageLookup, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, PURPOSES, YES

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.preferences import Usage

_WORDS = {YES: "yes", NO: "no", None: "not said"}
_COLOURS = {YES: GREEN, NO: RED, None: ""}


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """Print how pages may be used."""
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")
    agents = chains(options.agent)
    asked = requests(arguments, output)

    async def job(lookup: Lookup) -> None:
        known = UsageLookup(*lookup.sources)
        async for url, chain, request, page in fetched(lookup, asked, agents):
            if isinstance(page, CommandError):
                usage = known.robots(request, chain)  # all that is known without the page
                output.statuses.add(page.status)
            else:
                final, _ = request_for(page.url)
                await known.fetch(final, chain)
                usage = usage_of(page, final, known, chain)
            if NO in usage.verdicts.values():
                output.statuses.add(Status.FOUND)
            if options.json:
                words = {"agent_in_words": in_words(chain)}
                output.json({**as_json(url, chain, page), **words, **usage.as_dict()})
            else:
                _print(output, url, as_rows(url, chain, page), usage)
            output.flush()

    if asked:
        run_crawl(command, job)


def _print(output: Output, url: str, rows: list[tuple[str, str]], usage: Usage) -> None:
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
