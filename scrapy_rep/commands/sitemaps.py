"""``scrapy robots --sitemaps URL``: what a site's robots.txt lists, as a tree (REP.md section
9)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.exceptions import UsageError
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.python import to_unicode
from twisted.internet.defer import CancelledError

from scrapy_rep.commands.counts import Counts, Judges
from scrapy_rep.commands.inputs import InputError, chains, request_for, settings_of
from scrapy_rep.commands.lookup import Lookup, usual_chain
from scrapy_rep.commands.lookup import run as run_crawl
from scrapy_rep.commands.status import Status, gravest
from scrapy_rep.commands.terminal import Output, Progress, complain
from scrapy_rep.commands.tree import JsonTree, TextTree
from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.engine.urls import origin_of, path_in
from scrapy_rep.engine.words import counted, text_of
from scrapy_rep.origins.flights import CrawlEnding
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, Outcome
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred

    from scrapy_rep.commands.robots import RobotsCommand

# This many sitemaps are fetched ahead of the one that is read.
_AHEAD = 4


@dataclass(slots=True)
class Sitemap:
    """A sitemap, and what was found in it."""

    url: str
    listed_in: str
    """The URL of the robots.txt or of the index that lists it."""
    depth: int
    """1: listed by robots.txt itself."""
    status: int | None = None
    final_url: str | None = None
    """After redirects, if there were any."""
    kind: Kind | None = None
    children: list[str] = field(default_factory=list)
    """The sitemaps that an index lists."""
    tally: Counts = field(default_factory=Counts)
    problem: str | None = None
    """Why it could not be read, or not to its end."""
    repeated: bool = False
    """It is in the tree already."""
    forbidden: bool = False
    """robots.txt forbids to fetch it; :attr:`problem` names the line."""


def run(command: RobotsCommand, arguments: Sequence[str], options: Namespace) -> Status:
    """List the sitemaps of sites.

    :raises UsageError: for options that can't be
    """
    agents = chains(options.agent)
    if len(agents) > 1:
        raise UsageError("--sitemaps counts for one --agent at a time", print_help=False)
    if not arguments:
        raise UsageError("--sitemaps wants the URL of a site", print_help=False)
    settings_of(command.settings)
    statuses: set[Status] = set()
    origins: list[Origin] = []
    for argument in arguments:
        try:
            origins.append(request_for(argument)[1])
        except InputError as error:
            complain(str(error))
            statuses.add(Status.USAGE)

    async def job(lookup: Lookup) -> None:
        chain = agents[0] if agents else usual_chain(lookup.agents)
        output = Output()
        for origin in dict.fromkeys(origins):
            tree = JsonTree(output) if options.json else TextTree(output, chain)
            judges = Judges(lookup, chain, origin)
            statuses.add(await _Site(lookup, judges, tree).show(origin))
            output.flush()

    if origins:
        run_crawl(command, job)
    return gravest(*statuses)


class _Site:
    """The sitemaps of one site."""

    def __init__(self, lookup: Lookup, judges: Judges, tree: TextTree | JsonTree) -> None:
        self._lookup = lookup
        self._judges = judges
        self._tree = tree
        self._progress = Progress()
        self._seen: set[str] = set()
        self._total = Counts()
        self._files = 0
        self._status = Status.GOOD

    async def show(self, origin: Origin) -> Status:
        """Print the tree of *origin*."""
        robots = await self._judges.file(origin)
        if robots.outcome is Outcome.UNREACHABLE:
            complain(f"{origin.robots_url}: unreachable: {robots.facts.error}")
            return Status.UNREACHABLE
        listed = robots.parsed.sitemaps if robots.outcome is Outcome.RULES else ()
        base = robots.facts.final_url or origin.robots_url
        urls = list(dict.fromkeys(_absolute(base, value) for value in listed))
        self._tree.begin(origin.robots_url, len(urls))
        try:
            await self._each(urls, origin.robots_url, (), 1)
        finally:
            self._progress.clear()
        self._tree.end(self._total, self._files)
        return self._status

    async def _each(
        self, urls: Sequence[str], listed_in: str, last: tuple[bool, ...], depth: int
    ) -> None:
        """Read sitemaps one after the other, and what they list.

        :param last: for each level of the tree, whether it ends there
        """
        coming = iter(urls)
        ahead: deque[tuple[Sitemap, Deferred[bytes | None]]] = deque()
        try:
            for number in range(len(urls)):
                while len(ahead) < _AHEAD and (url := next(coming, None)) is not None:
                    one = Sitemap(url, listed_in, depth)
                    ahead.append((one, deferred_from_coro(self._fetch(one))))
                one, fetching = ahead.popleft()
                self._tell(one, "waiting for")
                await self._settle(one, fetching)
                here = (*last, number == len(urls) - 1)
                self._progress.clear()
                self._tree.add(one, here)
                if one.children:
                    await self._each(one.children, one.url, here, depth + 1)
        finally:
            for _, fetching in ahead:
                fetching.addErrback(lambda _: None)
                fetching.cancel()

    def _tell(self, one: Sitemap, doing: str) -> None:
        urls = self._total.urls + one.tally.urls
        far = f"{counted(self._files, 'sitemap')}, {counted(urls, 'URL')}"
        self._progress.tell(f"{far}; {doing} {one.url}")

    async def _settle(self, one: Sitemap, fetching: Deferred[bytes | None]) -> None:
        """Have it fetched, read and counted, and let go of its body."""
        body = await maybe_deferred_to_future(fetching)
        if body is not None:
            await self._read(one, body)
        self._total.add(one.tally)
        if one.forbidden or one.tally.forbidden:
            self._status = gravest(self._status, Status.FOUND)
        if one.kind is not None:
            self._files += 1
        missing = one.kind is None and not one.forbidden and not one.repeated
        if missing or one.tally.unjudged:
            self._status = gravest(self._status, Status.UNREACHABLE)

    async def _read(self, one: Sitemap, body: bytes) -> None:
        """Count what is in it."""
        settings = self._lookup.settings
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes, max_entries=settings.sitemap_max_urls
        )
        locations: list[object] = []
        for entries in reader.read([body]):
            locations += [entry.get("loc") for entry in entries]
            if reader.kind is not None and reader.kind is not Kind.INDEX:
                await self._judges.count(one.tally, locations)
                locations = []
                self._tell(one, "reading")
        one.kind = reader.kind
        if one.kind is Kind.INDEX:
            self._take_children(one, locations)
        else:
            await self._judges.count(one.tally, locations)
        one.problem = one.problem or reader.problem
        if one.children and one.depth >= settings.sitemap_max_depth:
            one.problem = f"nested deeper than REP_SITEMAP_MAX_DEPTH: {len(one.children)} not read"
            one.children = []

    def _take_children(self, one: Sitemap, locations: Sequence[object]) -> None:
        for value in locations:
            try:
                one.children.append(resolve_sitemap(str(value)).url)
            except ValueError:
                one.tally.invalid += 1

    async def _fetch(self, one: Sitemap) -> bytes | None:
        """Return the body of a sitemap; None if there is a problem.
        Never raises, but when the crawl is ending."""
        if one.url in self._seen:
            one.repeated = True
            one.problem = "listed above"
            return None
        if len(self._seen) >= self._lookup.settings.sitemap_max_files:
            one.problem = "beyond REP_SITEMAP_MAX_FILES: not read"
            return None
        self._seen.add(one.url)
        url = one.url
        visited = {url}
        try:
            for _ in range(MAX_HOPS + 1):
                request = self._request(url)
                if not await self._allowed(one, request):
                    return None
                response = await self._lookup.download(request)
                one.status = response.status
                if response.status not in REDIRECTS:
                    break
                url = _absolute(url, to_unicode(response.headers.get("Location") or b"", "latin-1"))
                if url in visited:
                    break
                visited.add(url)
                one.final_url = url
            if 200 <= response.status < 300:
                return response.body
            one.problem = f"HTTP status {response.status}"
        except (CancelledError, CrawlEnding):
            raise
        except ValueError as error:
            one.problem = str(error)
        except Exception as error:  # noqa: BLE001
            # Whatever a download handler or a middleware raises.
            one.problem = text_of(error)
        return None

    def _request(self, url: str) -> Request:
        limit = self._lookup.settings.sitemap_max_bytes
        return Request(
            url,
            callback=NO_CALLBACK,
            # Where a redirect leads, another robots.txt applies.
            meta={"dont_redirect": True, "download_maxsize": limit, "download_warnsize": 0},
        )

    async def _allowed(self, one: Sitemap, request: Request) -> bool:
        """Whether the robots.txt of the sitemap's own host lets it be fetched."""
        origin = origin_of(request)
        one.problem = await self._judges.refusal(origin) or None
        if one.problem:
            return False
        robots = await self._judges.file(origin)
        why = robots.explain(
            request.url,
            comparable(path_in(request)),
            self._judges.chain,
            obey_global=self._judges.obey_global,
        )
        if not why.allowed:
            one.forbidden = not why.unreachable
            one.problem = f"forbidden by {why.reason}" if one.forbidden else why.reason
        return why.allowed


def _absolute(base: str, value: str) -> str:
    """Return a URL as it stands in a file or a header; *value* itself where that is none."""
    try:
        return resolve_sitemap(value.strip(), base).url
    except ValueError:
        return value
