"""Pages and sitemaps, which are fetched if robots.txt allows it.
``scrapy robots --page URL`` prints what pages say about themselves (REP.md section 10).
``--usage URL`` prints how they may be used, and who says so (section 11).
``--sitemaps URL`` prints the tree of sitemaps that a robots.txt lists (section 9), and
how many of their URLs are forbidden."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.http import Headers, HtmlResponse, Response

from scrapy_rep.commands.crawl import follow, request_for
from scrapy_rep.commands.output import CommandError, ExitStatus, WrongUsage
from scrapy_rep.commands.task import read_file
from scrapy_rep.inspection.explanation import in_words
from scrapy_rep.inspection.pace import delay_refusal
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
    from collections.abc import AsyncIterator, Iterable, Sequence

    from scrapy_rep.commands.crawl import CrawlTask, Lookup, UrlRequest
    from scrapy_rep.commands.task import Chain
    from scrapy_rep.inspection.explanation import RobotsFile
    from scrapy_rep.preferences.statements import Usage
    from scrapy_rep.protocol.entries import SitemapEntry

    PageOrError = Response | CommandError
    """A page, or why there is none."""


class _FetchedPage(NamedTuple):
    """What fetching a URL came to, for one crawler."""

    request: Request
    """For the URL as given. Redirects may have led away from it."""
    chain: Chain
    """The crawler's product tokens, most specific first."""
    page: PageOrError
    """The last response, after redirects; or why there is none."""
    fields: dict[str, Any]
    """What ``--json`` prints about the page with ``--page`` as well as ``--usage``."""


async def _fetch_pages(
    task: CrawlTask,
    lookup: Lookup,
    url_requests: Sequence[UrlRequest],
) -> AsyncIterator[_FetchedPage]:
    """Yield the page at each URL, for each crawler that the task asks about."""
    for url, request, _ in url_requests:
        fetcher = _PageFetcher(lookup)
        for chain in task.agents(lookup.origins.agents):
            page = await fetcher.follow(request, chain)
            if isinstance(page, CommandError):
                task.statuses.add(page.status)
            yield _FetchedPage(request, chain, page, _page_fields(url, chain, page))
            task.output.flush()


class _PageFetcher:
    """Fetches pages, each once for all crawlers, if robots.txt allows the page to at
    least one crawler."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._responses: dict[str, Response] = {}
        """The responses so far, by the URLs of their requests."""

    async def follow(self, request: Request, chain: Chain) -> PageOrError:
        """Follow the redirects of *request*, and return the last page, or why there is
        none. Only what robots.txt allows to the crawler *chain* is requested."""

        async def get(request: Request) -> Response:
            await self._lookup.check_allowed(request, chain)
            if request.url not in self._responses:
                self._responses[request.url] = await self._lookup.download(request)
            return self._responses[request.url]

        try:
            return await follow(self._lookup, request, get)
        except CommandError as error:
            return error


def _page_fields(url: str, chain: Chain, page: PageOrError | None) -> dict[str, Any]:
    """Return what ``--json`` prints about a page with ``--page`` as well as
    ``--usage``.

    :param page: None for a file, which has no status and no URL
    """
    fields: dict[str, Any] = {
        "url": url,
        "agent": ",".join(chain) or None,
        "agent_in_words": in_words(chain),
        "status": None,
        "final_url": None,
        "error": None,
    }
    if isinstance(page, Response):
        fields["status"] = page.status
        fields["final_url"] = page.url
    elif page is not None:
        fields["error"] = str(page)
    return fields


# -- page ------------------------------------------------------------------------------------

# Attributes of PageRules (protocol/page.py) that --json prints under the same names.
_PAGE_RULES = (
    "noindex",
    "nofollow",
    "noarchive",
    "nosnippet",
    "noimageindex",
    "notranslate",
    "indexifembedded",
    "noai",
    "noimageai",
    "noml",
    "max_snippet",
    "max_image_preview",
    "max_video_preview",
)


def page(task: CrawlTask) -> None:
    """Carry out ``--page``: print the rules of pages, or of the file that ``--file``
    names."""
    if task.options.file is not None:
        _print_rules_of_file(task)
        return
    url_requests = task.requests()

    async def job(lookup: Lookup) -> None:
        async for fetched in _fetch_pages(task, lookup, url_requests):
            _print_page_rules(task, fetched.chain, fetched.page, fetched.fields)

    if url_requests:
        task.crawl(job)


def _print_rules_of_file(task: CrawlTask) -> None:
    """Print the rules of an HTML file, as if it had been served with the headers of
    ``--header``."""
    if task.arguments:
        raise WrongUsage("--page takes a URL or --file, not both")
    name = task.options.file
    headers = _headers_of(task.options.header)
    body = read_file(name, MAX_HTML_BYTES)
    response = HtmlResponse("file:", body=body, headers=headers)
    for chain in task.agents():
        _print_page_rules(task, chain, response, _page_fields(name, chain, None))


def _headers_of(lines: Iterable[str]) -> Headers:
    """Return HTTP headers from *lines* such as ``X-Robots-Tag: noindex``, or raise
    ``WrongUsage``."""
    headers = Headers()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise WrongUsage(
                f"--header is {line!r}, but must look like 'X-Robots-Tag: noindex'"
            )
        # Bytes of an argument that aren't UTF-8 reach us as surrogates. Here they
        # become bytes again.
        raw_value = value.strip().encode("utf-8", "surrogateescape")
        headers.appendlist(name.strip(), raw_value)
    return headers


def _print_page_rules(
    task: CrawlTask,
    chain: Chain,
    page: PageOrError,
    fields: dict[str, Any],
) -> None:
    """Print the rules of *page* for the crawler *chain*.

    :param fields: what ``--json`` prints besides the rules, see :func:`_page_fields`
    """
    rules = PageRules()  # none, if there is no page
    if not isinstance(page, CommandError):
        rules = page_rules(page, chain)
    rules_as_json = []
    rules_in_words = []
    for rule in rules.rules:
        rules_in_words.append(f"{rule.where}: {rule}")
        rules_as_json.append(
            {
                "rule": rule.name,
                "value": _date_as_text(rule.value),
                "source": rule.source,
                "line": rule.line,
            }
        )
    # After the rules as the page has them comes what they mean together.
    data = {**fields, "rules": rules_as_json}
    for name in _PAGE_RULES:
        data[name] = getattr(rules, name)
    data["unavailable_after"] = _date_as_text(rules.unavailable_after)
    data["expired"] = rules.expired(time.time())
    if not rules_in_words and fields["error"] is None:
        rules_in_words = ["none"]
    lines = {"rules": rules_in_words}
    task.output.put_all(data, first_line=("url",), lines=lines)
    if rules.noindex or rules.nofollow or data["expired"]:
        task.statuses.add(ExitStatus.FOUND)


def _date_as_text(value: Any) -> Any:
    """Return the value of a page rule for JSON: a date as text, other values as they
    are."""
    is_date = hasattr(value, "timestamp")
    return iso(value.timestamp()) if is_date else value


# -- usage -----------------------------------------------------------------------------------

# What the statements about a page (preferences/statements.py) say of a purpose such as
# AI training.
_VERDICTS_IN_WORDS = {YES: "yes", NO: "no", None: "not said"}


def usage(task: CrawlTask) -> None:
    """Carry out ``--usage``: print how pages may be used, and which statements say
    so."""
    if find_spec("http_sf") is None:
        raise CommandError(f"--usage needs http-sf: {EXTRA}")
    url_requests = task.requests()

    async def job(lookup: Lookup) -> None:
        usage_lookup = UsageLookup(lookup.context, lookup.origins)
        async for fetched in _fetch_pages(task, lookup, url_requests):
            usage = await _usage_of(fetched, usage_lookup)
            _print_usage(task, usage, fetched.fields)

    if url_requests:
        task.crawl(job)


async def _usage_of(fetched: _FetchedPage, usage_lookup: UsageLookup) -> Usage:
    """Return how a page may be used; if it couldn't be fetched, what robots.txt alone
    says."""
    if isinstance(fetched.page, CommandError):
        return usage_lookup.robots(fetched.request, fetched.chain)
    final_request = request_for(fetched.page.url)
    await usage_lookup.fetch_tdmrep(final_request, fetched.chain)
    return usage_of(fetched.page, final_request, usage_lookup, fetched.chain)


def _print_usage(task: CrawlTask, usage: Usage, fields: dict[str, Any]) -> None:
    """Print *usage*, after the *fields* that ``--json`` prints about every page (see
    :func:`_page_fields`)."""
    if NO in usage.verdicts.values():
        task.statuses.add(ExitStatus.FOUND)
    # What people are shown in place of the values of these fields.
    lines = {}
    for purpose, verdict in usage.verdicts.items():
        lines[purpose] = [_VERDICTS_IN_WORDS[verdict]]
    lines["statements"] = [str(statement) for statement in usage.statements]
    data = {**fields, **usage.as_dict()}
    task.output.put_all(data, first_line=("url",), lines=lines)


# -- sitemaps --------------------------------------------------------------------------------

# Sitemaps may be on any host, and list URLs of any host. Only this many origins are
# contacted (SECURITY.md).
_MAX_CONTACTED_ORIGINS = 100

# A prefix is the scheme, host and port of a URL as it spells them. So one origin may
# have several prefixes, in upper case or with a needless port. What decides about URLs
# (a _Judge) is remembered for this many prefixes; with more, all prefixes are
# forgotten, and the memory fills anew.
_MAX_PREFIXES = 10_000

# Only this many rules are named: the rules that forbid the most URLs.
_MAX_NAMED_RULES = 10

# Columns of each of the two counts in front of a line: enough for 99,999,999.
_COUNT_WIDTH = 10


class _RulePlace(NamedTuple):
    """A rule, and where it stands."""

    robots_url: str
    line: int
    """0 if not a line forbids, but a setting, which :attr:`rule` then describes."""
    rule: str


@dataclass
class Sitemap:
    """What ``--json`` prints of a sitemap (docs/command.md explains the fields)."""

    sitemap: str
    """Its URL."""
    listed_in: str
    """The URL of the robots.txt or the sitemap index that lists it."""
    depth: int
    """1 for a sitemap that robots.txt lists, 2 for a sitemap that an index of depth 1
    lists, and so on."""
    kind: str | None = None
    """A value of ``Kind`` (protocol/sitemaps.py); None if it could not be read."""
    status: int | None = None
    """The HTTP status of the last response."""
    final_url: str = ""
    """Where redirects led."""
    sitemaps: int = 0
    """How many sitemaps the sitemap lists, if it is an index."""
    urls: int = 0
    """How many URLs of pages the sitemap lists."""
    forbidden: int = 0
    """How many of the URLs are forbidden by the robots.txt of their own host."""
    foreign: int = 0
    """How many allowed URLs a crawl leaves out, since they are on hosts that don't list
    the sitemap."""
    unjudged: int = 0
    """How many of the URLs can't be judged, since their host's robots.txt can't be
    fetched, or must not be."""
    invalid: int = 0
    """How many entries have no URL."""
    broken: int = 0
    """How many entries have a damaged URL."""
    rules: Counter[_RulePlace] = field(default_factory=Counter)
    """How many URLs each rule forbids."""
    fetched: bool = False
    """Whether there was a response."""
    problem: str | None = None
    """Why the sitemap could not be read, or not to its end."""
    ancestry: tuple[str, ...] = ()
    """The URLs of the indexes that led to the sitemap, and its own. Not printed."""


def sitemaps(task: CrawlTask) -> None:
    """Carry out ``--sitemaps``: print the tree of sitemaps of each origin, with counts
    of URLs."""
    if len(task.named_agents) > 1:
        raise WrongUsage("--sitemaps takes only one --agent")
    origins: dict[Origin, None] = {}  # each once, in order
    for url_request in task.requests():
        origins[url_request.origin] = None

    async def job(lookup: Lookup) -> None:
        for origin in origins:
            with task.reporting_errors(f"{origin.robots_url}: "):
                await _SitemapTree(task, lookup, origin).show()

    if origins:
        task.crawl(job)


class _Judge(NamedTuple):
    """What decides about the URLs of one origin."""

    robots: RobotsFile
    rules: Rules
    refusal: Rule | None = None
    """What forbids all URLs: a line that asks for too long a crawl delay, or a setting
    (as line 0). None if the rules decide."""

    def refused_by(self, url: str) -> Rule | None:
        """Return what forbids *url*; None if it is allowed."""
        if self.refusal is not None:
            return self.refusal
        key = self.rules.find(comparable(path_of(url)))
        if allows(key):
            return None
        return self.robots.parsed.decision(None, key).rule


class _SitemapTree:
    """Reads the sitemaps that the robots.txt of one origin lists, and the sitemaps that
    these list; prints each sitemap, and in the end the totals."""

    def __init__(self, task: CrawlTask, lookup: Lookup, origin: Origin) -> None:
        self._task = task
        self._lookup = lookup
        # The one crawler that the counts are about. sitemaps() refuses several.
        [self._chain] = task.agents(lookup.origins.agents)
        self._origin = origin
        self._contacted: set[Origin] = set()
        """Origins whose robots.txt was asked for."""
        self._judges: dict[str, _Judge | None] = {}
        """What decides about the URLs with a prefix (see _MAX_PREFIXES), by prefix;
        None if nothing can decide about them."""
        self._listed_by_prefix: dict[str, set[str]] = {}
        """The URLs of the sitemaps that the robots.txt of a prefix's origin lists, by
        prefix."""
        self._begun_sitemaps: set[str] = set()
        """The URLs of the sitemaps whose fetch has begun or ended."""
        self._total_urls = 0
        self._total_read = 0
        """How many sitemaps could be read."""
        self._total_by_rule: Counter[_RulePlace] = Counter()
        """How many URLs each rule forbids."""

    async def show(self) -> None:
        """Print the whole tree; ``CommandError`` if robots.txt is unreachable."""
        robots_url = self._origin.robots_url
        robots = await self._robots_of(self._origin)
        if robots.outcome is Outcome.UNREACHABLE:
            raise CommandError(
                f"unreachable: {robots.facts.error}", ExitStatus.UNREACHABLE
            )
        urls = _sitemaps_in(robots, robots.facts.final_url or robots_url)
        print_line = self._task.output.line
        heading = _count_cells("URLs", "forbidden")
        print_line(*heading, f"for {in_words(self._chain)}")
        no_counts = _count_cells("", "")
        sitemap_count = counted(len(urls), "sitemap")
        print_line(*no_counts, f"{robots_url}: {sitemap_count}")
        await self._show_each(urls, robots_url, ())
        self._print_totals()

    async def _show_each(
        self,
        urls: Sequence[str],
        listed_in: str,
        indexes: tuple[str, ...],
    ) -> None:
        """Print the sitemaps at *urls* one after the other, each followed by those that
        it lists.

        :param listed_in: the URL of the robots.txt or the sitemap index that lists them
        :param indexes: the URLs of all sitemap indexes that led to them
        """
        for url in urls:
            ancestry = (*indexes, url)
            depth = len(ancestry)
            sitemap = Sitemap(url, listed_in, depth, final_url=url, ancestry=ancestry)
            children = await self._fetch_and_read(sitemap)
            self._add_to_totals(sitemap)
            self._print_sitemap(sitemap)
            await self._show_each(children, url, ancestry)

    async def _fetch_and_read(self, sitemap: Sitemap) -> list[str]:
        """Fill in the fields of *sitemap*. Return the URLs of the sitemaps that it
        lists."""
        statuses = self._task.statuses
        try:
            body = await self._fetch(sitemap)
            children = await self._read(sitemap, body)
        except CommandError as error:
            sitemap.problem = str(error)
            statuses.add(error.status)
            return []
        if sitemap.forbidden:
            statuses.add(ExitStatus.FOUND)
        if sitemap.kind is None or sitemap.unjudged:
            statuses.add(ExitStatus.UNREACHABLE)
        return children

    async def _fetch(self, sitemap: Sitemap) -> bytes:
        """Return the body of *sitemap*, after redirects; ``CommandError`` if it can't
        be fetched."""
        # That several indexes list a sitemap, or that an index lists itself, is no
        # error (GOOD), but the sitemap is not read again.
        if sitemap.sitemap in self._begun_sitemaps:
            raise CommandError("listed above", ExitStatus.GOOD)
        if len(self._begun_sitemaps) >= self._lookup.settings.sitemap_max_files:
            raise CommandError(
                "not read: this origin has too many sitemaps", ExitStatus.UNREACHABLE
            )
        self._begun_sitemaps.add(sitemap.sitemap)

        async def get(request: Request) -> Response:
            return await self._download(sitemap, request)

        # As many redirects as RedirectMiddleware follows in a crawl.
        max_redirects = self._task.settings.getint("REDIRECT_MAX_TIMES")
        try:
            request = Request(resolve_sitemap(sitemap.sitemap).url)
            response = await follow(self._lookup, request, get, max_redirects)
        except ValueError as error:
            raise CommandError(str(error), ExitStatus.UNREACHABLE) from None
        if not 200 <= response.status < 300:
            raise CommandError(f"HTTP {response.status}", ExitStatus.UNREACHABLE)
        return response.body

    async def _download(self, sitemap: Sitemap, request: Request) -> Response:
        """Return the response to *request*, for *sitemap* itself or for a redirect's
        target; ``CommandError`` if the robots.txt of its host forbids it."""
        # This call raises CommandError if there are too many origins.
        await self._robots_of(origin_of(request))
        await self._lookup.check_allowed(request, self._chain)
        sitemap.final_url = request.url
        response = await self._lookup.download(
            request,
            download_maxsize=self._lookup.settings.sitemap_max_bytes,
            download_warnsize=0,  # without warnings
        )
        sitemap.status = response.status
        sitemap.fetched = True
        return response

    async def _robots_of(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*; ``CommandError`` if it must not be
        contacted."""
        if origin not in self._contacted:
            if len(self._contacted) >= _MAX_CONTACTED_ORIGINS:
                problem = f"not read: more than {_MAX_CONTACTED_ORIGINS} origins"
            else:
                problem = await self._lookup.why_refused(origin, self._origin)
            if problem:
                raise CommandError(problem, ExitStatus.UNREACHABLE)
            self._contacted.add(origin)
        return await self._lookup.robots_of(origin)

    async def _read(self, sitemap: Sitemap, body: bytes) -> list[str]:
        """Count what *sitemap*, whose file is *body*, lists. Return the URLs of the
        sitemaps in it that are to be read."""
        settings = self._lookup.settings
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            url=sitemap.final_url,
        )
        # The encoder percent-encodes URLs as for requests. Hosts that aren't ASCII take
        # time, so after MAX_LISTED_IDN characters of them it raises ValueError for
        # further such hosts, as for what is no URL.
        encode = Encoder(MAX_LISTED_IDN)
        children: list[str] = []
        for entries in reader.read([body]):
            for entry in entries:
                try:
                    if entry.get("broken"):
                        sitemap.broken += 1
                    elif reader.kind is Kind.INDEX:
                        children.append(_child_in(entry, encode))
                    else:
                        url, prefix = encode.page_and_prefix(entry.get("loc"))
                        await self._count_url(sitemap, encode(url), prefix)
                except ValueError:  # the entry has no URL, or an invalid one
                    sitemap.invalid += 1
        if reader.kind is not None:
            sitemap.kind = reader.kind.value
        sitemap.problem = reader.problem
        sitemap.sitemaps = len(children)
        if children and sitemap.depth >= settings.sitemap_max_depth:
            not_read = counted(len(children), "sitemap")
            sitemap.problem = f"{not_read} not read: nested too deep"
            return []
        return children

    async def _count_url(self, sitemap: Sitemap, url: str, prefix: str) -> None:
        """Add a URL that *sitemap* lists to its counts.

        :param url: as a crawl requests it
        :param prefix: its scheme, host and port
        """
        if prefix not in self._judges:
            # Make room, if need be, and find out what decides.
            if len(self._judges) >= _MAX_PREFIXES:
                self._judges.clear()
                self._listed_by_prefix.clear()
            self._judges[prefix] = await self._judge_of(prefix)
        sitemap.urls += 1
        judge = self._judges[prefix]
        if judge is None:
            sitemap.unjudged += 1
            return
        rule = judge.refused_by(url)
        if rule is not None:
            robots_url = judge.robots.facts.robots_url or ""
            place = _RulePlace(robots_url, rule.line, str(rule))
            sitemap.forbidden += 1
            sitemap.rules[place] += 1
        elif not self._may_list(sitemap, prefix, judge.robots):
            sitemap.foreign += 1

    def _may_list(self, sitemap: Sitemap, prefix: str, robots: RobotsFile) -> bool:
        """Return whether a crawl takes URLs that begin with *prefix* from *sitemap*
        (REP.md section 9, "Location scope").

        :param robots: the robots.txt of the URLs' own host, which may list the sitemap
        """
        cross_host = self._lookup.settings.sitemap_cross_host  # REP_SITEMAP_CROSS_HOST
        origin = Origin.from_url(prefix)
        if cross_host == "any" or host_of(origin) == host_of(self._origin):
            return True
        if cross_host == "site":
            domain = registrable_domain(origin.host)
            own_domain = registrable_domain(self._origin.host)
            if domain is not None and domain == own_domain:
                return True
        # With "strict", and if the other values don't decide, the URLs' own host has to
        # list the sitemap, or an index that led to it.
        if robots.outcome is not Outcome.RULES:
            return False
        if prefix not in self._listed_by_prefix:
            self._listed_by_prefix[prefix] = _listed_in(robots, origin)
        return not self._listed_by_prefix[prefix].isdisjoint(sitemap.ancestry)

    async def _judge_of(self, prefix: str) -> _Judge | None:
        """Return what decides about URLs that begin with *prefix*; None if nothing can
        decide, since their robots.txt can't be fetched, or must not be."""
        settings = self._lookup.settings
        obey_global = settings.obey_global_group
        try:
            robots = await self._robots_of(Origin.from_url(prefix))
        except CommandError:
            return None
        if robots.outcome is Outcome.RULES:
            _, rules = robots.parsed.rules(self._chain, obey_global)
            refusal = delay_refusal(
                robots.parsed, self._chain, obey_global, settings.max_delay
            )
            return _Judge(robots, rules, None if refusal is None else refusal.rule)
        if robots.forbids:
            # The rule stands for the setting: line 0, no pattern, and the setting as
            # its text.
            setting = robots.facts.setting or ""
            refusal_by_setting = Rule(0, "", False, setting)
            return _Judge(robots, NO_RULES, refusal_by_setting)
        if robots.outcome is Outcome.MISSING or robots.unrestricted:
            return _Judge(robots, NO_RULES)
        return None

    def _add_to_totals(self, sitemap: Sitemap) -> None:
        """Add the counts of *sitemap* to those that are printed in the end."""
        self._total_urls += sitemap.urls
        if sitemap.kind is not None:
            self._total_read += 1
        self._total_by_rule.update(sitemap.rules)

    def _print_sitemap(self, sitemap: Sitemap) -> None:
        """Print a sitemap: indented by its depth in the tree, with its counts if it
        lists pages."""
        rules = []
        for place, url_count in sitemap.rules.most_common(_MAX_NAMED_RULES):
            rules.append(
                {
                    "robots_url": place.robots_url,
                    "line": place.line or None,
                    "rule": place.rule,
                    "urls": url_count,
                }
            )
        fields = {**vars(sitemap), "rules": rules}
        del fields["ancestry"]  # it is not printed
        # For people: the counts, the URL, and what else there is to say.
        counts = _count_cells("", "")
        if sitemap.kind is not None and sitemap.kind != Kind.INDEX.value:
            counts = _count_cells(sitemap.urls, sitemap.forbidden)
        indent = "".ljust(2 * sitemap.depth)
        remarks = _remarks(sitemap)
        text = f"{indent}{sitemap.sitemap}"
        if remarks:
            text += f"  ({remarks})"
        self._task.output.put(fields, *counts, text)
        self._task.output.flush()

    def _print_totals(self) -> None:
        """Print the counts of all sitemaps, and the rules that forbid the most of their
        URLs."""
        print_line = self._task.output.line
        total_forbidden = sum(self._total_by_rule.values())
        counts = _count_cells(self._total_urls, total_forbidden)
        sitemaps_read = counted(self._total_read, "sitemap")
        print_line(*counts, f"total in {sitemaps_read} that could be read")
        for place, url_count in self._total_by_rule.most_common(_MAX_NAMED_RULES):
            where = place.robots_url
            if place.line:
                where = f"line {place.line} of {where}"
            counts = _count_cells("", url_count)
            print_line(*counts, f"by {where}: {place.rule}")


def _sitemaps_in(robots: RobotsFile, base: str) -> list[str]:
    """Return the URLs of the sitemaps that *robots* lists, each once. An invalid URL is
    returned as it stands.

    :param base: what relative URLs are relative to
    """
    urls: dict[str, None] = {}
    if robots.outcome is Outcome.RULES:
        for value in robots.parsed.sitemaps:
            url = value.strip()
            with suppress(ValueError):
                url = resolve_sitemap(url, base).url
            urls[url] = None
    return list(urls)


def _listed_in(robots: RobotsFile, origin: Origin) -> set[str]:
    """Return the URLs, without fragments, of the sitemaps that *robots*, of *origin*,
    lists."""
    base = robots.facts.final_url or origin.robots_url
    urls = set()
    for _, resolved in listed_sitemaps(base, robots.parsed.sitemaps):
        if resolved is not None:
            urls.add(resolved.url.partition("#")[0])
    return urls


def _child_in(entry: SitemapEntry, encode: Encoder) -> str:
    """Return the URL, without its fragment, of a sitemap that an entry of a sitemap
    index names; ``ValueError`` if it names none."""
    child = resolve_sitemap(str(entry.get("loc")), encode=encode)
    return child.url.partition("#")[0]


def _count_cells(*counts: int | str) -> list[str]:
    """Return cells of a table, aligned on the right: numbers with commas, and headings
    as they are."""
    cells = []
    for count in counts:
        text = count if isinstance(count, str) else f"{count:,}"
        cells.append(text.rjust(_COUNT_WIDTH))
    return cells


def _remarks(sitemap: Sitemap) -> str:
    """Return what there is to say about a sitemap, besides the counts in front of its
    line."""
    remarks = []
    if sitemap.kind == Kind.INDEX.value:
        remarks.append(f"index of {counted(sitemap.sitemaps, 'sitemap')}")
    if sitemap.final_url != sitemap.sitemap:
        remarks.append(f"redirects to {sitemap.final_url}")
    if sitemap.unjudged:
        remarks.append(f"{sitemap.unjudged:,} not checked: robots.txt unavailable")
    if sitemap.foreign:
        remarks.append(
            f"{sitemap.foreign:,} on hosts that do not list it, which a crawl leaves out"
        )
    if sitemap.invalid:
        entries = counted(sitemap.invalid, "entry", "entries")
        remarks.append(f"{entries} without a URL")
    if sitemap.broken:
        entries = counted(sitemap.broken, "entry", "entries")
        remarks.append(f"{entries} with a damaged URL")
    if sitemap.problem:
        remarks.append(sitemap.problem)
    return "; ".join(remarks)
