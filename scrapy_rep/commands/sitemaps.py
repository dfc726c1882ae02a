"""``scrapy robots --sitemaps URL``: the sitemaps that an origin's robots.txt lists, as a tree
(REP.md section 9), and how many of their URLs robots.txt forbids."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.utils.defer import maybe_deferred_to_future

from scrapy_rep.commands.lookup import Lookup, ahead, follow
from scrapy_rep.commands.output import DIM, RED, YELLOW, CommandError, Progress, Status
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.origins.agents import origin_of, path_in
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import NO_RULES, Rules, allows, comparable
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from scrapy_rep.text import PageURLs, counted, resolve_sitemap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.http import Response

    from scrapy_rep.commands.output import Cell
    from scrapy_rep.commands.task import Task
    from scrapy_rep.inspection.explanation import RobotsFile

# Sitemaps may be on any host, and list URLs of any. Only this many are contacted (SECURITY.md).
_MAX_ORIGINS = 100

# URL prefixes whose rules are remembered: an origin has many spellings.
_MAX_PREFIXES = 10_000

# What is counted of a sitemap: URLs; those of them that robots.txt forbids, and those of hosts
# whose robots.txt is unreachable, or that aren't contacted. Not among the URLs: entries without an
# absolute http(s) URL, and those whose URL is damaged.
_COUNTED = ("urls", "forbidden", "unjudged", "invalid", "broken")

# How many of the rules that forbid something are named.
_RULES = 10

# How many sitemaps are fetched ahead of the one that is read.
_AHEAD = 4


class Forbidding(NamedTuple):
    robots_url: str
    line: int
    rule: str


@dataclass(slots=True)
class Sitemap:
    url: str
    listed_in: str
    """The URL of the robots.txt or of the index that lists it."""
    depth: int
    """1: listed by robots.txt itself."""
    status: int | None = None
    final_url: str | None = None
    """After redirects."""
    kind: Kind | None = None
    children: list[str] = field(default_factory=list)
    """The sitemaps that an index lists."""
    tally: Counter[str] = field(default_factory=Counter)
    by_rule: Counter[Forbidding] = field(default_factory=Counter)
    problem: str | None = None
    """Why it could not be read, or not to its end."""
    unread: Status | None = None
    """If it was not read: ``FOUND`` if robots.txt forbids it, ``GOOD`` if it is in the tree already."""


def sitemaps(task: Task) -> None:
    if len(task.named) > 1:
        raise UsageError("--sitemaps takes only one --agent")
    if not task.arguments:
        raise UsageError("--sitemaps needs a URL, such as https://example.com")
    origins = dict.fromkeys(origin for _, _, origin in task.requests())

    async def job(lookup: Lookup) -> None:
        for origin in origins:
            with task.going_on(f"{origin.robots_url}: "):
                await _Site(task, lookup, origin).show()

    if origins:
        task.crawl(job)


class _Site:
    def __init__(self, task: Task, lookup: Lookup, origin: Origin) -> None:
        self._task = task
        self._lookup = lookup
        [self._chain] = task.agents(lookup)
        self._origin = origin
        self._origins: set[Origin] = set()
        self._judges: dict[str, tuple[RobotsFile, Rules] | None] = {}
        self._progress = Progress()
        self._seen: set[str] = set()
        self._total: Counter[str] = Counter()
        self._by_rule: Counter[Forbidding] = Counter()
        self._read_files = self._files = 0

    async def show(self) -> None:
        origin = self._origin
        robots = await self._file(origin)
        if robots.outcome is Outcome.UNREACHABLE:
            raise CommandError(f"unreachable: {robots.facts.error}", Status.UNREACHABLE)
        listed = robots.parsed.sitemaps if robots.outcome is Outcome.RULES else ()
        urls: dict[str, None] = {}
        for value in listed:
            url = value.strip()
            with suppress(ValueError):  # what is none is listed as it is
                url = resolve_sitemap(url, robots.facts.final_url or origin.robots_url).url
            urls[url] = None
        self._row("URLs", "forbidden", f"sitemap (for {in_words(self._chain)})", colour=DIM)
        self._row("", "", f"{origin.robots_url}: {counted(len(urls), 'sitemap')}")
        self._task.output.flush()
        try:
            await self._each(list(urls), origin.robots_url, ())
        finally:
            self._progress.clear()
        if self._read_files:
            few = f"{self._read_files:,} of " if self._read_files < self._files else ""
            where = f"total in {few}{counted(self._files, 'sitemap')}"
            self._row(f"{self._total['urls']:,}", _number(self._total["forbidden"]), where)
            rules = self._by_rule.most_common(_RULES)
            for (robots_url, line, rule), count in rules:
                self._row("", f"{count:,}", f"by line {line} of {robots_url}: {rule}", colour=RED)
            if more := len(self._by_rule) - len(rules):
                self._row("", "", f"and by {counted(more, 'more rule')}")
        self._task.output.flush()

    def _row(self, urls: str, count: str, text: str, *note: Cell, colour: str = "") -> None:
        self._task.output.row(f"{urls:>10}", (f"{count:>10}", colour), text, *note)

    async def _each(self, urls: Sequence[str], listed_in: str, last: tuple[bool, ...]) -> None:
        """Read sitemaps one after the other, each with those that it lists. *last*: whether the
        tree ends, for each of its levels."""
        statuses = self._task.statuses
        some = (Sitemap(url, listed_in, len(last) + 1) for url in urls)
        left = len(urls)
        async with aclosing(ahead(some, self._fetch, _AHEAD)) as coming:
            async for one, fetching in coming:
                left -= 1
                self._tell(one, "waiting for")
                try:
                    await self._read(one, await maybe_deferred_to_future(fetching))
                except CommandError as error:
                    one.problem, one.unread = str(error), error.status
                    statuses.add(error.status)
                else:
                    self._read_files += one.kind is not None
                    self._total.update(one.tally)
                    self._by_rule.update(one.by_rule)
                    if one.tally["forbidden"]:
                        statuses.add(Status.FOUND)
                    if one.kind is None or one.tally["unjudged"]:
                        statuses.add(Status.UNREACHABLE)
                here = (*last, not left)
                self._progress.clear()
                self._print(one, here)
                self._task.output.flush()
                if one.children:
                    await self._each(one.children, one.url, here)

    def _tell(self, one: Sitemap, doing: str) -> None:
        urls = self._total["urls"] + one.tally["urls"]
        far = f"{counted(self._read_files, 'sitemap')}, {counted(urls, 'URL')}"
        self._progress.tell(f"{far}; {doing} {one.url}")

    async def _fetch(self, one: Sitemap) -> bytes:
        """Return the body of a sitemap, or raise ``CommandError``."""
        settings = self._lookup.settings
        if one.url in self._seen:
            raise CommandError("listed above", Status.GOOD)
        if len(self._seen) >= settings.sitemap_max_files:
            raise CommandError("not read: more than REP_SITEMAP_MAX_FILES", Status.UNREACHABLE)
        self._seen.add(one.url)

        async def get(request: Request) -> Response:
            await self._file(origin_of(request))
            await self._lookup.check(request, self._chain)
            if request.url != one.url:
                one.final_url = request.url
            limit = settings.sitemap_max_bytes
            meta = {"download_maxsize": limit, "download_warnsize": 0}
            response = await self._lookup.download(request, **meta)
            one.status = response.status
            return response

        try:
            response = await follow(self._lookup, Request(resolve_sitemap(one.url).url), get)
        except ValueError as error:
            raise CommandError(str(error), Status.UNREACHABLE) from None
        if not 200 <= response.status < 300:
            raise CommandError(f"HTTP {response.status}", Status.UNREACHABLE)
        return response.body

    async def _file(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*; ``CommandError`` if nothing may lead us there."""
        if origin not in self._origins:
            problem = f"not read: more than {_MAX_ORIGINS} origins"
            if len(self._origins) < _MAX_ORIGINS:
                problem = await self._lookup.refuses(origin, self._origin)
            if problem:
                raise CommandError(problem, Status.UNREACHABLE)
            self._origins.add(origin)
        return await self._lookup.get(origin)

    async def _read(self, one: Sitemap, body: bytes) -> None:
        settings = self._lookup.settings
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes, max_entries=settings.sitemap_max_urls
        )
        urls = PageURLs()
        for entries in reader.read([body]):
            for entry in entries:
                try:
                    if entry.get("broken"):
                        one.tally["broken"] += 1
                    elif reader.kind is Kind.INDEX:
                        child = resolve_sitemap(str(entry.get("loc")), encode=urls.encode).url
                        one.children.append(child.partition("#")[0])
                    else:
                        await self._count(one, urls.resolve(entry.get("loc"))[0])
                except ValueError:
                    one.tally["invalid"] += 1
            self._tell(one, "reading")
        one.kind, one.problem = reader.kind, reader.problem
        if reader.count and not (one.tally["urls"] or one.children):
            nothing = f"{counted(reader.count, 'entry', 'entries')}, none usable"
            one.problem = f"{one.problem}; {nothing}" if one.problem else nothing
        if one.children and one.depth >= settings.sitemap_max_depth:
            sitemaps = counted(len(one.children), "sitemap")
            one.problem = f"{sitemaps} not read: nested deeper than REP_SITEMAP_MAX_DEPTH"
            one.children = []

    async def _count(self, one: Sitemap, url: str) -> None:
        """Count a URL, as a crawl does, or raise ``ValueError``."""
        request = Request(url)
        prefix, path = str(origin_of(request)), path_in(request)
        if prefix not in self._judges:
            judge = await self._judge(prefix)
            if len(self._judges) < _MAX_PREFIXES:
                self._judges[prefix] = judge
        else:
            judge = self._judges[prefix]
        one.tally["urls"] += 1
        if judge is None:
            one.tally["unjudged"] += 1
            return
        robots, rules = judge
        found = rules.find(comparable(path))
        if not allows(found):
            rule = robots.parsed.decision(None, found).rule
            assert rule is not None
            one.tally["forbidden"] += 1
            by = robots.facts.robots_url or ""
            one.by_rule[Forbidding(by, rule.line, str(rule))] += 1

    async def _judge(self, prefix: str) -> tuple[RobotsFile, Rules] | None:
        """Return what decides about URLs that begin like this; None if nothing can."""
        with suppress(CommandError):
            robots = await self._file(Origin.from_url(prefix))
            if robots.outcome is Outcome.RULES:
                obey_global = self._lookup.settings.obey_global_group
                return robots, robots.parsed.rules(self._chain, obey_global)[1]
            if robots.outcome is Outcome.MISSING or robots.unrestricted:
                return robots, NO_RULES
        return None

    def _print(self, one: Sitemap, last: tuple[bool, ...]) -> None:
        """*last*: whether the tree ends, for each of its levels."""
        tally = one.tally
        rules = one.by_rule.most_common(_RULES)
        self._task.output.json(
            {
                "sitemap": one.url,
                "listed_in": one.listed_in,
                "depth": one.depth,
                "kind": one.kind.value if one.kind else None,
                "status": one.status,
                "final_url": one.final_url or one.url,
                "sitemaps": len(one.children),
                **{name: tally[name] for name in _COUNTED},
                "rules": [{**rule._asdict(), "urls": count} for rule, count in rules],
                "fetched": one.status is not None,
                "problem": one.problem,
            }
        )
        self._files += one.unread is not Status.GOOD
        branch = "".join("    " if end else "│   " for end in last[:-1])
        branch += "└── " if last[-1] else "├── "
        is_list = one.kind is not None and one.kind is not Kind.INDEX
        shade = RED if one.unread is Status.FOUND else YELLOW if one.problem else DIM
        self._row(
            f"{tally['urls']:,}" if is_list else "",
            _number(tally["forbidden"]) if is_list else "",
            branch + one.url,
            *([(f"({told})", shade)] if (told := _remarks(one)) else []),
            colour=RED if tally["forbidden"] else "",
        )


def _remarks(one: Sitemap) -> str:
    """Return what there is to say about a sitemap, besides its counts."""
    tally = one.tally
    entries = {name: counted(tally[name], "entry", "entries") for name in ("invalid", "broken")}
    notes = [
        one.kind is Kind.INDEX and f"index of {counted(len(one.children), 'sitemap')}",
        one.final_url and f"redirects to {one.final_url}",
        tally["unjudged"] and f"{tally['unjudged']:,} not checked: robots.txt unavailable",
        tally["invalid"] and f"{entries['invalid']} without a URL",
        tally["broken"] and f"{entries['broken']} with a damaged URL",
        one.problem,
    ]
    return "; ".join(note for note in notes if note)


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"
