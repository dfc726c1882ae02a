"""How many of the URLs that sitemaps list does robots.txt forbid?"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scrapy import Request

from scrapy_rep.commands.ending import CommandError, Status
from scrapy_rep.origins.requests import as_it_stands, origin_of, path_in
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import NO_RULES, Rules, allows, comparable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.commands.inputs import Chain
    from scrapy_rep.commands.lookup import Lookup
    from scrapy_rep.engine.encoding import PageURLs
    from scrapy_rep.inspection.explanation import RobotsFile
    from scrapy_rep.protocol.sitemaps.xml import Entry

# Sitemaps may be on any host, and list URLs of any. Only this many are contacted (SECURITY.md).
_MAX_ORIGINS = 100


class Forbidding(NamedTuple):
    """A rule that forbids something."""

    robots_url: str
    line: int
    rule: str


@dataclass(slots=True)
class Counts:
    """What a sitemap lists, or several do."""

    urls: int = 0
    forbidden: int = 0
    unjudged: int = 0
    """URLs of hosts whose robots.txt is unreachable, or that are not contacted."""
    invalid: int = 0
    """Entries without an absolute http(s) URL; not among :attr:`urls`."""
    broken: int = 0
    """Entries whose URL is damaged; not among :attr:`urls`."""
    by_rule: Counter[Forbidding] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the counts of *other*."""
        self.urls += other.urls
        self.forbidden += other.forbidden
        self.unjudged += other.unjudged
        self.invalid += other.invalid
        self.broken += other.broken
        self.by_rule += other.by_rule


class Judges:
    """The robots.txt of each host that a site's sitemaps name."""

    def __init__(self, lookup: Lookup, chain: Chain, site: Origin) -> None:
        """:param chain: the crawler's tokens"""
        self._lookup = lookup
        self._chain = chain
        self._site = site
        self._origins: set[Origin] = set()
        self._judges: dict[str, tuple[RobotsFile, Rules] | None] = {}

    async def file(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*; ``CommandError`` if the site may not send us there."""
        if origin not in self._origins:
            problem = ""
            if len(self._origins) >= _MAX_ORIGINS:
                problem = f"not read: more than {_MAX_ORIGINS} hosts"
            elif why := await self._lookup.refuses(origin, self._site):
                problem = why
            if problem:
                raise CommandError(problem, Status.UNREACHABLE)
            self._origins.add(origin)
        return await self._lookup.get(origin)

    async def check(self, request: Request) -> None:
        """Raise ``CommandError`` unless *request* may be made."""
        await self.file(origin_of(request))
        await self._lookup.check(request, self._chain)

    async def count(self, tally: Counts, entries: Iterable[Entry], urls: PageURLs) -> None:
        """Count *entries*, what a sitemap lists, as a crawl does.

        :param urls: of this sitemap
        """
        for entry in entries:
            if entry.get("broken"):
                tally.broken += 1
                continue
            try:
                spelling, path = _parts(urls.resolve(entry.get("loc"))[0])
                judge = await self._judge(spelling)
            except ValueError:
                tally.invalid += 1
                continue
            tally.urls += 1
            if judge is None:
                tally.unjudged += 1
                continue
            robots, rules = judge
            found = rules.find(comparable(path))
            if not allows(found):
                rule = robots.parsed.decision(None, found).rule
                assert rule is not None
                tally.forbidden += 1
                url = robots.facts.robots_url or ""
                tally.by_rule[Forbidding(url, rule.line, str(rule))] += 1

    async def _judge(self, spelling: str) -> tuple[RobotsFile, Rules] | None:
        """Return what decides about URLs that begin like this; None if nothing can, ``ValueError``
        if they are no web pages."""
        if spelling in self._judges:
            return self._judges[spelling]
        origin = Origin.from_url(spelling)
        if origin.scheme not in ("http", "https"):
            raise ValueError(spelling)
        judge = None
        with suppress(CommandError):
            robots = await self.file(origin)
            if robots.outcome is Outcome.RULES:
                obey_global = self._lookup.settings.obey_global_group
                judge = robots, robots.parsed.rules(self._chain, obey_global)[1]
            elif robots.outcome is Outcome.MISSING or robots.unrestricted:
                judge = robots, NO_RULES
        if len(self._judges) < 10_000:  # an origin has many spellings
            self._judges[spelling] = judge
        return judge


def _parts(url: str) -> tuple[str, str]:
    """Return the beginning of a URL (scheme, host, port) and its path, or raise ``ValueError``."""
    plain = as_it_stands(url)
    if plain is None:
        request = Request(url)
        plain = str(origin_of(request)), path_in(request)
    return plain
