"""What is to be said of sitemap lines (REP.md section 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.inspection.outline import GLOBAL
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import allows, comparable, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline

# This many of the agents that may not fetch a sitemap are named.
_NAMED = 3


def sitemap_findings(
    kept: bytes, outline: Outline, robots_url: str | None = None
) -> Iterator[Finding]:
    """Yield them.

    :param robots_url: where the file is from; None if nobody knows. Then a sitemap is taken to be
        on the same host.
    """
    robots = RobotsTxt.parse(kept)
    agents = _agents(outline)
    own = Origin.from_url(robots_url) if robots_url else None
    for line, value in outline.sitemaps:
        if not value:
            yield Finding(line, "bad-sitemap", "no URL is given: ignored")
            continue
        try:
            url, origin, relative = resolve_sitemap(
                value, robots_url or "http://host.invalid/robots.txt"
            )
        except ValueError as error:
            yield Finding(line, "bad-sitemap", f"{error}: ignored")
            continue
        if relative:
            yield Finding(
                line,
                "relative-sitemap",
                "the standard asks for a full URL; this one is taken to be relative to robots.txt",
            )
        if own is None or origin == own:
            yield from _disallowed(line, url, robots, agents, sure=own is not None or relative)


def _agents(outline: Outline) -> list[str]:
    """All crawlers first, then those named."""
    named = {
        agent.value[: len(agent.token)]: agent.token for g in outline.groups for agent in g.agents
    }
    tokens = dict.fromkeys(token for token in named.values() if token and token != GLOBAL)
    return [GLOBAL, *tokens]


def _disallowed(
    line: int, url: str, robots: RobotsTxt, agents: list[str], *, sure: bool
) -> Iterator[Finding]:
    path = comparable(path_of(url))
    by = []
    for agent in agents:
        token, rules = robots.rules(agent)
        found = rules._find(path)
        if not allows(found) and token == agent:
            rule = robots._decision(token, found).rule
            assert rule is not None
            by.append(f"{agent} (line {rule.line})")
    if by:
        more = f" and {len(by) - _NAMED} more" if len(by) > _NAMED else ""
        condition = "" if sure else "if it is on this host, "
        yield Finding(
            line,
            "sitemap-disallowed",
            f"{condition}this file forbids the sitemap to {', '.join(by[:_NAMED])}{more}",
        )
