"""A site's sitemaps, for people (a tree beside two columns of numbers) and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.commands.columns import width
from scrapy_rep.commands.terminal import DIM, RED, YELLOW, Output
from scrapy_rep.engine.words import clean, counted
from scrapy_rep.protocol.sitemaps import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.counts import Counts
    from scrapy_rep.commands.sitemaps import Sitemap

# This many of the rules that forbid something are named.
_RULES = 10

_WIDTHS = (10, 10)


class TextTree:
    """Prints a line for each sitemap, as soon as it was read."""

    def __init__(self, output: Output, chain: Sequence[str]) -> None:
        """:param chain: what the crawler goes by"""
        self._output = output
        self._who = ",".join(chain) or "all crawlers"
        self._count = 0
        self._signs = output.signs("├── ", "└── ", "│   ")

    def begin(self, robots_url: str, count: int) -> None:
        """Print the root of the tree.

        :param count: how many sitemaps it lists
        """
        self._row(DIM, "URLs", "forbidden", f"sitemap (for {self._who})")
        self._row("", "", "", f"{robots_url}: {counted(count, 'sitemap')}")

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
        if one.kind is not None and one.kind is not Kind.INDEX:
            urls, forbidden = f"{tally.urls:,}", f"{tally.forbidden:,}" if tally.forbidden else "-"
        notes = []
        if one.kind is Kind.INDEX:
            notes.append(f"index of {counted(len(one.children), 'sitemap')}")
        if one.final_url is not None:
            notes.append(f"redirects to {one.final_url}")
        if tally.unjudged:
            notes.append(f"{tally.unjudged:,} of hosts whose robots.txt can't be had")
        if tally.invalid:
            notes.append(f"{counted(tally.invalid, 'entry', 'entries')} without a URL")
        if one.problem:
            notes.append(one.problem)
        self._row(
            RED if tally.forbidden else "",
            urls,
            forbidden,
            branch + one.url,
            "; ".join(notes),
            RED if one.forbidden else YELLOW if one.problem else DIM,
        )

    def end(self, total: Counts, files: int) -> None:
        """Print what it comes to."""
        if not files:
            return
        forbidden = f"{total.forbidden:,}" if total.forbidden else "-"
        read = f"{files:,} of " if files < self._count else ""
        where = f"in all, in {read}{counted(self._count, 'sitemap')}"
        self._row("", f"{total.urls:,}", forbidden, where)
        rules = total.by_rule.most_common(_RULES)
        for (robots_url, line, rule), count in rules:
            self._row(RED, "", f"{count:,}", f"by line {line} of {robots_url}: {rule}")
        more = len(total.by_rule) - len(rules)
        if more:
            self._row("", "", "", f"and by {counted(more, 'more rule')}")

    def _row(
        self, colour: str, urls: str, forbidden: str, text: str, note: str = "", shade: str = DIM
    ) -> None:
        output = self._output
        numbers = f"{urls:>{_WIDTHS[0]}}  "
        figure = output.paint(f"{forbidden:>{_WIDTHS[1]}}", colour)
        row, taken = numbers + figure + "  ", sum(_WIDTHS) + 4
        text, note = clean(text), clean(f"({note})") if note else ""
        if note and output.fits(taken + width(f"{text}  {note}")):
            output.line(f"{row}{text}  {output.paint(note, shade)}")
        else:
            output.hang(row, taken, text)
            if note:
                output.hang(" " * (taken + 4), taken + 4, note, shade)
        output.flush()


class JsonTree:
    """Prints an object for each sitemap."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def begin(self, robots_url: str, count: int) -> None:
        """There is nothing to print."""

    def add(self, one: Sitemap, last: tuple[bool, ...]) -> None:
        """Print a sitemap (README.md documents the fields)."""
        tally = one.tally
        self._output.json(
            {
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
                "rules": [
                    {**rule._asdict(), "urls": count}
                    for rule, count in tally.by_rule.most_common(_RULES)
                ],
                "fetched": one.status is not None,
                "problem": one.problem,
            }
        )
        self._output.flush()

    def end(self, total: Counts, files: int) -> None:
        """There is nothing to print."""
