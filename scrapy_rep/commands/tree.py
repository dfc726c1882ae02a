"""A site's sitemaps in print: a tree beside two columns of numbers; and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.terminal import DIM, RED, YELLOW, Output, width
from scrapy_rep.engine.words import clean, counted
from scrapy_rep.protocol.sitemaps import Kind

if TYPE_CHECKING:
    from scrapy_rep.commands.counts import Counts
    from scrapy_rep.commands.inputs import Chain
    from scrapy_rep.commands.sitemaps import Sitemap

# How many of the rules that forbid something are named.
_RULES = 10

# Columns before the tree: two numbers and two gaps.
_INDENT = 24


class Tree:
    """Prints a line for each sitemap as soon as it was read."""

    def __init__(self, output: Output, chain: Chain) -> None:
        self._output = output
        self._who = ",".join(chain) or "all crawlers"
        self._count = 0
        self._signs = output.signs("├── ", "└── ", "│   ")

    def begin(self, robots_url: str, count: int) -> None:
        """Print the root of the tree, which lists *count* sitemaps."""
        self._row("URLs", "forbidden", f"sitemap (for {self._who})", DIM)
        self._row("", "", f"{robots_url}: {counted(count, 'sitemap')}")

    def add(self, one: Sitemap, last: tuple[bool, ...]) -> None:
        """Print a sitemap.

        :param last: for each level of the tree, whether it ends there
        """
        self._count += not one.repeated
        fork, corner, line = self._signs
        branch = "".join("    " if end else line for end in last[:-1])
        branch += corner if last[-1] else fork
        tally = one.tally
        urls = forbidden = ""
        notes = []
        if one.kind is Kind.INDEX:
            notes.append(f"index of {counted(len(one.children), 'sitemap')}")
        elif one.kind is not None:
            urls, forbidden = f"{tally.urls:,}", _number(tally.forbidden)
        if one.final_url is not None:
            notes.append(f"redirects to {one.final_url}")
        if tally.unjudged:
            notes.append(f"{tally.unjudged:,} not checked: robots.txt unavailable")
        if tally.invalid:
            notes.append(f"{counted(tally.invalid, 'entry', 'entries')} without a URL")
        if tally.broken:
            notes.append(f"{counted(tally.broken, 'entry', 'entries')} with a damaged URL")
        if one.problem:
            notes.append(one.problem)
        shade = RED if one.forbidden else YELLOW if one.problem else DIM
        colour = RED if tally.forbidden else ""
        self._row(urls, forbidden, branch + one.url, colour, "; ".join(notes), shade)

    def end(self, total: Counts, files: int) -> None:
        """Print the totals, unless no file was read."""
        if not files:
            return
        read = f"{files:,} of " if files < self._count else ""
        where = f"total in {read}{counted(self._count, 'sitemap')}"
        self._row(f"{total.urls:,}", _number(total.forbidden), where)
        rules = total.by_rule.most_common(_RULES)
        for (robots_url, line, rule), count in rules:
            self._row("", f"{count:,}", f"by line {line} of {robots_url}: {rule}", RED)
        more = len(total.by_rule) - len(rules)
        if more:
            self._row("", "", f"and by {counted(more, 'more rule')}")

    def _row(
        self, urls: str, count: str, text: str, colour: str = "", note: str = "", shade: str = ""
    ) -> None:
        output = self._output
        row = f"{urls:>10}  {output.paint(f'{count:>10}', colour)}  "
        text, note = clean(text), clean(f"({note})") if note else ""
        if note and output.fits(_INDENT + width(f"{text}  {note}")):
            output.line(f"{row}{text}  {output.paint(note, shade)}")
        else:
            output.hang(row, _INDENT, text)
            if note:
                output.hang(" " * (_INDENT + 4), _INDENT + 4, note, shade)
        output.flush()


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"


def as_json(one: Sitemap) -> dict[str, Any]:
    """Return what ``--json`` prints of a sitemap (docs/command.md explains the fields)."""
    tally = one.tally
    return {
        "sitemap": one.url,
        "listed_in": one.listed_in,
        "depth": one.depth,
        "kind": one.kind.value if one.kind else None,
        "status": one.status,
        "final_url": one.final_url or one.url,
        "sitemaps": len(one.children),
        "urls": tally.urls,
        "forbidden": tally.forbidden,
        "unjudged": tally.unjudged,
        "invalid": tally.invalid,
        "broken": tally.broken,
        "rules": [
            {**rule._asdict(), "urls": count} for rule, count in tally.by_rule.most_common(_RULES)
        ],
        "fetched": one.status is not None,
        "problem": one.problem,
    }
