"""Pages and sitemaps, fetched if robots.txt allows it: ``scrapy robots --page URL``, what pages say
about themselves (REP.md section 10); ``--usage URL``, how they may be used, and who says so (section
11); ``--sitemaps URL``, what a robots.txt lists, as a tree (section 9), and how much it forbids."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.crawl import follow, request_for
from scrapy_rep.commands.output import CommandError, Status, WrongUsage
from scrapy_rep.commands.task import read_file
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.inspection.pace import too_slow
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.pages import page_rules
from scrapy_rep.preferences.lookup import UsageLookup, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, YES
from scrapy_rep.protocol import Origin, Rule
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.html import MAX_HTML_BYTES
from scrapy_rep.protocol.matching import NO_RULES, Rules, allows, comparable, path_of
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.seeding.selection import host_of, registrable_domain
from scrapy_rep.text import MAX_LISTED_IDN, Encoder, counted, iso, resolve_sitemap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from scrapy_rep.commands.crawl import CrawlTask, Lookup
    from scrapy_rep.commands.task import Chain
    from scrapy_rep.inspection.explanation import RobotsFile

    Fetched = Response | CommandError
    """A page, or why there is none."""


async def _fetched(
    task: CrawlTask, lookup: Lookup, asked: Sequence[tuple[str, Request, Origin]]
) -> AsyncIterator[tuple[Request, Chain, Fetched, dict[str, Any]]]:
    """Yield each request, for each agent; its final page, or why there is none; and that as JSON."""
    for url, request, _ in asked:
        pages: dict[str, Response] = {}
        for chain in task.agents(lookup.origins.agents):
            try:
                page: Fetched = await follow(
                    lookup, request, partial(_get, lookup, chain, pages)
                )
            except CommandError as error:
                page = error
                task.statuses.add(error.status)
            yield request, chain, page, _about(url, chain, page)
            task.output.flush()


async def _get(
    lookup: Lookup, chain: Chain, pages: dict[str, Response], request: Request
) -> Response:
    """*pages*: those fetched for another agent, by URL."""
    await lookup.check(request, chain)
    if request.url not in pages:
        pages[request.url] = await lookup.download(request)
    return pages[request.url]


def _about(url: str, chain: Chain, page: Fetched | None) -> dict[str, Any]:
    fetched = page if isinstance(page, Response) else None
    return {
        "url": url,
        "agent": ",".join(chain) or None,
        "agent_in_words": in_words(chain),
        "status": fetched and fetched.status,
        "final_url": fetched and fetched.url,
        "error": str(page) if isinstance(page, CommandError) else None,
    }


# -- page ------------------------------------------------------------------------------------

_NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "noml", "max_snippet", "max_image_preview", "max_video_preview",
)  # fmt: skip


def page(task: CrawlTask) -> None:
    async def job(lookup: Lookup) -> None:
        async for _, chain, page, about in _fetched(task, lookup, asked):
            _show(task, chain, page, about)

    if task.options.file is None:
        if asked := task.requests():
            task.crawl(job)
        return
    if task.arguments:
        raise WrongUsage("--page takes a URL or --file, not both")
    headers = Headers()
    for header in task.options.header:
        name, colon, value = header.partition(":")
        if not colon:
            raise WrongUsage(
                f"--header is {header!r}, but must look like 'X-Robots-Tag: noindex'"
            )
        headers.appendlist(
            name.strip(), value.strip().encode("utf-8", "surrogateescape")
        )
    name = task.options.file
    response = HtmlResponse(
        "file:", body=read_file(name, MAX_HTML_BYTES), headers=headers
    )
    for chain in task.agents():
        _show(task, chain, response, _about(name, chain, None))


def _show(task: CrawlTask, chain: Chain, page: Fetched, about: dict[str, Any]) -> None:
    rules = PageRules() if isinstance(page, CommandError) else page_rules(page, chain)
    said = [
        {"rule": r.name, "value": _plain(r.value), "source": r.source, "line": r.line}
        for r in rules.rules
    ]
    data = {
        **about,
        "rules": said,
        **{name: getattr(rules, name) for name in _NAMES},
        "unavailable_after": _plain(rules.unavailable_after),
        "expired": rules.expired(time.time()),
    }
    told = [f"{one.where}: {one}" for one in rules.rules]
    if not (told or about["error"]):
        told = ["none"]
    task.output.put_all(data, "url", rules=told)
    if rules.noindex or rules.nofollow or data["expired"]:
        task.statuses.add(Status.FOUND)


def _plain(value: Any) -> Any:
    """Return a date as text, other values as they are."""
    return iso(value.timestamp()) if hasattr(value, "timestamp") else value


# -- usage -----------------------------------------------------------------------------------

_SAID = {YES: "yes", NO: "no", None: "not said"}


def usage(task: CrawlTask) -> None:
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")

    async def job(lookup: Lookup) -> None:
        known = UsageLookup(lookup.context, lookup.origins)
        async for request, chain, page, about in _fetched(task, lookup, asked):
            if isinstance(page, CommandError):
                found = known.robots(
                    request, chain
                )  # all that is known without the page
            else:
                final, _ = request_for(page.url)
                await known.fetch(final, chain)
                found = usage_of(page, final, known, chain)
            if NO in found.verdicts.values():
                task.statuses.add(Status.FOUND)
            words = {purpose: [_SAID[said]] for purpose, said in found.verdicts.items()}
            words["statements"] = list(map(str, found.statements))
            task.output.put_all({**about, **found.as_dict()}, "url", **words)

    if asked := task.requests():
        task.crawl(job)


# -- sitemaps --------------------------------------------------------------------------------

# Sitemaps may be on any host, and list URLs of any. Only this many are contacted (SECURITY.md).
_MAX_ORIGINS = 100

# URL prefixes whose rules are remembered: an origin has many spellings.
_MAX_PREFIXES = 10_000

# How many of the rules that forbid something are named.
_RULES = 10

Place = tuple[str, int, str]
"""The URL of a robots.txt, a line of it, and the rule there."""


@dataclass
class Sitemap:
    """What ``--json`` prints of a sitemap (docs/command.md explains the fields)."""

    sitemap: str
    listed_in: str
    depth: int
    kind: str | None = None
    status: int | None = None
    final_url: str = ""
    sitemaps: int = 0
    urls: int = 0
    forbidden: int = 0
    foreign: int = 0
    unjudged: int = 0
    invalid: int = 0
    broken: int = 0
    rules: Counter[Place] = field(default_factory=Counter)
    """How many URLs each forbids."""
    fetched: bool = False
    problem: str | None = None
    """Why it could not be read, or not to its end."""
    line: tuple[str, ...] = ()
    """The URLs of the indexes that led to it, and its own."""


def sitemaps(task: CrawlTask) -> None:
    if len(task.named) > 1:
        raise WrongUsage("--sitemaps takes only one --agent")
    origins = dict.fromkeys(origin for _, _, origin in task.requests())

    async def job(lookup: Lookup) -> None:
        for origin in origins:
            with task.going_on(f"{origin.robots_url}: "):
                await _Site(task, lookup, origin).show()

    if origins:
        task.crawl(job)


class _Judge(NamedTuple):
    """What decides about the URLs of one origin."""

    robots: RobotsFile
    rules: Rules
    refusal: Rule | None = None
    """What forbids all of them: a line that asks for too long a crawl delay, or, as line 0, a setting."""

    def refused_by(self, url: str) -> Rule | None:
        """Return what forbids *url*; None if it is allowed."""
        if self.refusal is not None:
            return self.refusal
        key = self.rules.find(comparable(path_of(url)))
        return None if allows(key) else self.robots.parsed.decision(None, key).rule


class _Site:
    def __init__(self, task: CrawlTask, lookup: Lookup, origin: Origin) -> None:
        self._task = task
        self._lookup = lookup
        [self._chain] = task.agents(lookup.origins.agents)
        self._origin = origin
        self._origins: set[Origin] = set()
        self._judges: dict[str, _Judge | None] = {}
        self._listed: dict[
            str, set[str]
        ] = {}  # the sitemaps that the host of a prefix lists
        self._seen: set[str] = set()
        self._urls = self._read_files = 0
        self._by_rule: Counter[Place] = Counter()

    async def show(self) -> None:
        origin = self._origin
        robots = await self._file(origin)
        if robots.outcome is Outcome.UNREACHABLE:
            raise CommandError(f"unreachable: {robots.facts.error}", Status.UNREACHABLE)
        listed = robots.parsed.sitemaps if robots.outcome is Outcome.RULES else ()
        urls: dict[str, None] = {}
        for value in listed:
            url = value.strip()
            with suppress(ValueError):  # an invalid one is listed as it stands
                url = resolve_sitemap(
                    url, robots.facts.final_url or origin.robots_url
                ).url
            urls[url] = None
        line = self._task.output.line
        line(*_columns("URLs", "forbidden"), f"for {in_words(self._chain)}")
        line(*_columns("", ""), f"{origin.robots_url}: {counted(len(urls), 'sitemap')}")
        await self._each(list(urls), origin.robots_url, ())
        counts = _columns(self._urls, sum(self._by_rule.values()))
        line(
            *counts,
            f"total in {counted(self._read_files, 'sitemap')} that could be read",
        )
        for (robots_url, number, rule), count in self._by_rule.most_common(_RULES):
            where = f"line {number} of {robots_url}" if number else robots_url
            line(*_columns("", count), f"by {where}: {rule}")

    async def _each(
        self, urls: Sequence[str], listed_in: str, chain: tuple[str, ...]
    ) -> None:
        """Read sitemaps one after the other, each with those that it lists. *chain*: the indexes that led
        to them."""
        statuses = self._task.statuses
        for url in urls:
            line = (*chain, url)
            one = Sitemap(url, listed_in, len(line), final_url=url, line=line)
            children: list[str] = []
            try:
                children = await self._read(one, await self._fetch(one))
            except CommandError as error:
                one.problem = str(error)
                statuses.add(error.status)
            else:
                if one.forbidden:
                    statuses.add(Status.FOUND)
                if one.kind is None or one.unjudged:
                    statuses.add(Status.UNREACHABLE)
            self._print(one)
            await self._each(children, url, line)

    async def _fetch(self, one: Sitemap) -> bytes:
        """Return the body of a sitemap, or raise ``CommandError``."""
        settings = self._lookup.settings
        if one.sitemap in self._seen:
            raise CommandError("listed above", Status.GOOD)
        if len(self._seen) >= settings.sitemap_max_files:
            raise CommandError(
                "not read: this origin has too many sitemaps", Status.UNREACHABLE
            )
        self._seen.add(one.sitemap)

        async def get(request: Request) -> Response:
            await self._file(origin_of(request))
            await self._lookup.check(request, self._chain)
            one.final_url = request.url
            meta = {
                "download_maxsize": settings.sitemap_max_bytes,
                "download_warnsize": 0,
            }
            response = await self._lookup.download(request, **meta)
            one.status, one.fetched = response.status, True
            return response

        try:
            # As RedirectMiddleware does in a crawl.
            most = self._task.settings.getint("REDIRECT_MAX_TIMES")
            request = Request(resolve_sitemap(one.sitemap).url)
            response = await follow(self._lookup, request, get, most)
        except ValueError as error:
            raise CommandError(str(error), Status.UNREACHABLE) from None
        if not 200 <= response.status < 300:
            raise CommandError(f"HTTP {response.status}", Status.UNREACHABLE)
        return response.body

    async def _file(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*; ``CommandError`` if it must not be contacted."""
        if origin not in self._origins:
            problem = f"not read: more than {_MAX_ORIGINS} origins"
            if len(self._origins) < _MAX_ORIGINS:
                problem = await self._lookup.refuses(origin, self._origin)
            if problem:
                raise CommandError(problem, Status.UNREACHABLE)
            self._origins.add(origin)
        return await self._lookup.get(origin)

    async def _read(self, one: Sitemap, body: bytes) -> list[str]:
        """Count what a sitemap lists, and return the sitemaps among it that are to be read."""
        settings = self._lookup.settings
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            url=one.final_url,
        )
        encode, children = Encoder(MAX_LISTED_IDN), list[str]()
        for entries in reader.read([body]):
            for entry in entries:
                try:
                    if entry.get("broken"):
                        one.broken += 1
                    elif reader.kind is Kind.INDEX:
                        child = resolve_sitemap(
                            str(entry.get("loc")), encode=encode
                        ).url
                        children.append(child.partition("#")[0])
                    else:
                        url, prefix = encode.page(entry.get("loc"))
                        await self._count(one, encode(url), prefix)
                except ValueError:
                    one.invalid += 1
        one.kind, one.problem = reader.kind and reader.kind.value, reader.problem
        one.sitemaps = len(children)
        if children and one.depth >= settings.sitemap_max_depth:
            one.problem = (
                f"{counted(len(children), 'sitemap')} not read: nested too deep"
            )
            return []
        return children

    async def _count(self, one: Sitemap, url: str, prefix: str) -> None:
        """Count a URL, as a crawl requests it. *prefix*: its scheme, host and port."""
        if prefix not in self._judges:
            if len(self._judges) >= _MAX_PREFIXES:
                self._judges.clear()
                self._listed.clear()
            self._judges[prefix] = await self._judge(prefix)
        one.urls += 1
        if (judge := self._judges[prefix]) is None:
            one.unjudged += 1
            return
        rule = judge.refused_by(url)
        if rule is not None:
            one.forbidden += 1
            one.rules[judge.robots.facts.robots_url or "", rule.line, str(rule)] += 1
        elif not self._may_list(one, prefix, judge.robots):
            one.foreign += 1

    def _may_list(self, one: Sitemap, prefix: str, robots: RobotsFile) -> bool:
        """Whether a crawl takes URLs of this *prefix* from a sitemap (REP.md section 9, "Location
        scope"). *robots* is the robots.txt of their host."""
        mode, origin = self._lookup.settings.sitemap_cross_host, Origin.from_url(prefix)
        if mode == "any" or host_of(origin) == host_of(self._origin):
            return True
        domain = registrable_domain(origin.host) if mode == "site" else None
        if domain is not None and domain == registrable_domain(self._origin.host):
            return True
        if robots.outcome is not Outcome.RULES:
            return False
        if prefix not in self._listed:
            base = robots.facts.final_url or origin.robots_url
            listed = listed_sitemaps(base, robots.parsed.sitemaps)
            self._listed[prefix] = {
                found.url.partition("#")[0] for _, found in listed if found
            }
        return not self._listed[prefix].isdisjoint(one.line)

    async def _judge(self, prefix: str) -> _Judge | None:
        """Return what decides about URLs that begin like this; None if nothing can."""
        settings = self._lookup.settings
        obey_global = settings.obey_global_group
        with suppress(CommandError):
            robots = await self._file(Origin.from_url(prefix))
            if robots.outcome is Outcome.RULES:
                _, rules = robots.parsed.rules(self._chain, obey_global)
                refusal = too_slow(
                    robots.parsed, self._chain, obey_global, settings.max_delay
                )
                return _Judge(robots, rules, None if refusal is None else refusal.rule)
            if robots.forbids:
                return _Judge(
                    robots, NO_RULES, Rule(0, "", False, robots.facts.setting or "")
                )
            if robots.outcome is Outcome.MISSING or robots.unrestricted:
                return _Judge(robots, NO_RULES)
        return None

    def _print(self, one: Sitemap) -> None:
        self._urls += one.urls
        self._read_files += one.kind is not None
        self._by_rule.update(one.rules)
        rules = [
            {
                "robots_url": robots_url,
                "line": line or None,
                "rule": rule,
                "urls": count,
            }
            for (robots_url, line, rule), count in one.rules.most_common(_RULES)
        ]
        told, is_list = _remarks(one), one.kind not in (None, Kind.INDEX.value)
        counts = _columns(one.urls, one.forbidden) if is_list else _columns("", "")
        text = f"{'  ' * one.depth}{one.sitemap}{f'  ({told})' * bool(told)}"
        fields = {**vars(one), "rules": rules}
        del fields["line"]
        self._task.output.put(fields, *counts, text)
        self._task.output.flush()


def _columns(*counts: int | str) -> list[str]:
    return [f"{one:>10,}" if isinstance(one, int) else f"{one:>10}" for one in counts]


def _remarks(one: Sitemap) -> str:
    """Return what there is to say about a sitemap, besides its counts."""
    notes = [
        one.kind == Kind.INDEX.value and f"index of {counted(one.sitemaps, 'sitemap')}",
        one.final_url != one.sitemap and f"redirects to {one.final_url}",
        one.unjudged and f"{one.unjudged:,} not checked: robots.txt unavailable",
        one.foreign
        and f"{one.foreign:,} on hosts that do not list it, which a crawl leaves out",
        one.invalid and f"{counted(one.invalid, 'entry', 'entries')} without a URL",
        one.broken and f"{counted(one.broken, 'entry', 'entries')} with a damaged URL",
        one.problem,
    ]
    return "; ".join(note for note in notes if note)
