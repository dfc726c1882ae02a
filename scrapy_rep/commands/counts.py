"""How many of the URLs that a sitemap lists does robots.txt forbid?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from scrapy import Request

from scrapy_rep.engine.encoding import encoded
from scrapy_rep.engine.urls import as_it_stands, origin_of, path_in
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import Rules, allows, comparable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.commands.lookup import Lookup
    from scrapy_rep.inspection.explanation import RobotsFile

# Sitemaps may be on any host, and list URLs of any. This many are asked for anything (SECURITY.md).
_MAX_ORIGINS = 100

# As many spellings of origins are remembered.
_MAX_SPELLINGS = 10_000


class Forbidding(NamedTuple):
    """A rule that forbids something."""

    robots_url: str
    line: int
    rule: str


class _Judge(NamedTuple):
    """What decides about the URLs of an origin."""

    robots: RobotsFile
    rules: Rules | None
    """None: no restrictions."""


class Counts:
    """What is counted of a sitemap, or of many."""

    __slots__ = ("by_rule", "forbidden", "invalid", "unjudged", "urls")

    def __init__(self) -> None:
        self.urls = 0
        self.forbidden = 0
        self.unjudged = 0
        """URLs of hosts whose robots.txt is unreachable, or beyond the limit of hosts."""
        self.invalid = 0
        """What is listed and no absolute http(s) URL; not among :attr:`urls`."""
        self.by_rule: Counter[Forbidding] = Counter()

    def add(self, other: Counts) -> None:
        """Count what *other* counts."""
        self.urls += other.urls
        self.forbidden += other.forbidden
        self.unjudged += other.unjudged
        self.invalid += other.invalid
        self.by_rule += other.by_rule


class Judges:
    """The robots.txt of all hosts that the sitemaps of a site have to do with, each asked for
    once."""

    def __init__(self, lookup: Lookup, chain: tuple[str, ...], site: Origin) -> None:
        """:param chain: the tokens that the crawler goes by"""
        self.chain = chain
        self._site = site
        self.obey_global = lookup.settings.obey_global_group
        self._lookup = lookup
        self._origins: set[Origin] = set()
        self._judges: dict[str, _Judge | None] = {}

    async def refusal(self, origin: Origin) -> str:
        """Return why *origin*, which the site has named, is asked for nothing; empty if it is."""
        if origin in self._origins:
            return ""
        if len(self._origins) >= _MAX_ORIGINS:
            return f"not read: {_MAX_ORIGINS} hosts were asked before"
        if await self._lookup.fetcher.targets.refuses(origin, self._site):
            return "not read: its host has a private address (see REP_PRIVATE_HOSTS)"
        return ""

    async def file(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*."""
        self._origins.add(origin)
        return await self._lookup.get(origin)

    async def count(self, tally: Counts, urls: Iterable[object]) -> None:
        """Count *urls*, what a sitemap lists."""
        for value in urls:
            if not isinstance(value, str):
                tally.invalid += 1
                continue
            plain = as_it_stands(value)
            if plain is not None:
                spelling, path = plain
            else:
                try:
                    request = Request(encoded(value))
                    spelling, path = str(origin_of(request)), path_in(request)
                except ValueError:
                    tally.invalid += 1
                    continue
            try:
                judge = self._judges[spelling]
            except KeyError:
                try:
                    judge = await self._judge(spelling)
                except ValueError:
                    tally.invalid += 1
                    continue
            tally.urls += 1
            if judge is None:
                tally.unjudged += 1
            elif judge.rules is not None:
                found = judge.rules._find(comparable(path))
                if not allows(found):
                    tally.forbidden += 1
                    tally.by_rule[_rule(judge.robots, found)] += 1

    async def _judge(self, spelling: str) -> _Judge | None:
        """What decides about URLs that begin so; None if there is nothing to decide by.

        :raises ValueError: if that is no origin of web pages
        """
        origin = Origin.from_url(spelling)
        if origin.scheme not in ("http", "https"):
            raise ValueError(spelling)
        judge = None
        if not await self.refusal(origin):
            robots = await self.file(origin)
            if robots.outcome is Outcome.RULES:
                judge = _Judge(robots, robots.parsed.rules(self.chain, self.obey_global)[1])
            elif robots.outcome is Outcome.MISSING or robots.unrestricted:
                judge = _Judge(robots, None)
        if len(self._judges) < _MAX_SPELLINGS:
            self._judges[spelling] = judge
        return judge


def _rule(robots: RobotsFile, found: int) -> Forbidding:
    rule = robots.parsed._decision(None, found).rule
    assert rule is not None
    return Forbidding(robots.facts.robots_url or "", rule.line, str(rule))
