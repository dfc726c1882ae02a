"""What is to be said of sitemap lines (REP.md section 9)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import allows, comparable, line_of, path_of
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline

# How many agents are asked about each sitemap, and how many are named that may not fetch it.
_ASKED, _NAMED = 50, 3


def sitemap_findings(
    kept: bytes, outline: Outline, robots_url: str | None = None
) -> Iterator[Finding]:
    """:param robots_url: where the file is from; None: unknown. Then all sitemaps may be on its host"""
    robots = RobotsTxt.parse(kept)
    named = [agent.token for group in outline.groups for agent in group.agents if agent.token]
    tokens = dict.fromkeys([GLOBAL, *named])
    rules = {agent: robots.rules(agent)[1] for agent in islice(tokens, _ASKED)}
    own = Origin.from_url(robots_url) if robots_url else None
    base = robots_url or "http://host.invalid/robots.txt"
    for line, value in outline.sitemaps:
        if not value:
            yield Finding(line, "bad-sitemap", "ignored: no URL")
            continue
        try:
            url, origin, relative = resolve_sitemap(value, base)
        except ValueError as error:
            yield Finding(line, "bad-sitemap", f"ignored: {error}")
            continue
        if relative:
            why = "not a full URL, which the standard asks for; read as relative to robots.txt"
            yield Finding(line, "relative-sitemap", why)
        if own is not None and origin != own:
            continue
        path = comparable(path_of(url))
        found = [(agent, own_rules.find(path)) for agent, own_rules in rules.items()]
        by = [f"{agent} (line {line_of(key)})" for agent, key in found if not allows(key)]
        if by:
            condition = "" if own is not None or relative else "if it is on this host, "
            more = f" and {len(by) - _NAMED} more" if len(by) > _NAMED else ""
            why = f"{condition}this file forbids it to {', '.join(by[:_NAMED])}{more}"
            yield Finding(line, "sitemap-disallowed", why)
