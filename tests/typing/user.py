"""What a user's project may say, with every public name. `tests/typing/check.py` has type checkers read
it; nothing of it is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.link import Link

from scrapy_rep import (
    Addon,
    BroadPriorityQueue,
    PageMiddleware,
    RepMiddleware,
    RobotParser,
    UsageItemMiddleware,
    UsageMiddleware,
    follow_links,
    may_fetch,
    page_rules,
    usage,
)
from scrapy_rep.exceptions import (
    NotFetched,
    RobotsDisallowed,
    RobotsUnreachable,
    SettingsError,
    UsageDisallowed,
)
from scrapy_rep.preferences import PURPOSES, RobotsUsage, Statement, Usage, read_robots
from scrapy_rep.protocol import (
    AgentLine,
    CleanParam,
    Decision,
    Group,
    Origin,
    RobotsTxt,
    Rule,
    RuleLine,
    comparable,
    product_token,
)
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.page import PageRule, PageRules
from scrapy_rep.protocol.sitemaps import Kind, SitemapReader
from scrapy_rep.signals import (
    request_given_up,
    request_held,
    request_released,
    robots_resolved,
    sitemap_discovered,
)
from scrapy_rep.storages import (
    Entry,
    MemoryStorage,
    RedisStorage,
    SqliteStorage,
    Storage,
    Turn,
    UnreadableEntry,
)

SETTINGS: dict[str, Any] = {
    "ADDONS": {Addon: 300},
    "DOWNLOADER_MIDDLEWARES": {RepMiddleware: 100, UsageMiddleware: 101},
    "SPIDER_MIDDLEWARES": {PageMiddleware: 950, UsageItemMiddleware: 951},
    "SCHEDULER_PRIORITY_QUEUE": BroadPriorityQueue,
    "ROBOTSTXT_PARSER": RobotParser,
}


class Lenient(RepMiddleware):
    def overrules(self, request: Request, decision: Decision) -> bool:
        rule: Rule | None = decision.rule
        return (
            rule is not None
            and rule.line > 1
            and not rule.allow
            and "?" in rule.pattern
        )


class PageSpider(Spider):
    name = "user"

    def watch(self, crawler: Crawler) -> None:
        for signal in (robots_resolved, sitemap_discovered):
            crawler.signals.connect(self.resolved, signal=signal)
        for signal in (request_held, request_released, request_given_up):
            crawler.signals.connect(self.moved, signal=signal)

    def resolved(
        self, origin: Origin, outcome: Outcome, robots: RobotsTxt | None
    ) -> None:
        if outcome is not Outcome.UNREACHABLE and robots is not None:
            self.logger.info(
                "%s: %s, %s", origin.host, robots.sitemaps, robots.crawl_delay("*")
            )

    def moved(self, request: Request, origin: Origin) -> None:
        self.logger.info("%s %s", origin.robots_url, request.url)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        rules: PageRules = page_rules(response, "FooBot")
        first: PageRule | None = rules.saying("noindex")
        about: Usage = usage(response)
        decided: Statement | None = about.decisive("train-ai")
        if (
            not rules.noindex
            and first is None
            and decided is None
            and about["search"] != "n"
        ):
            yield {"url": response.url, "snippet": rules.max_snippet}
        if (request := follow_links(Request(response.url), response)) is not None:
            yield request

    def failed(self, error: BaseException) -> str:
        if isinstance(error, RobotsDisallowed):
            return error.origin.host + str(error.decision.rule)
        if isinstance(error, RobotsUnreachable):
            return error.reason + str(error.attempts)
        return str(isinstance(error, (UsageDisallowed, NotFetched, SettingsError)))


class DictStorage(Storage):
    def __init__(self) -> None:
        self.known: dict[str, Entry] = {}

    def load(self, origin: str) -> Entry | None:
        return self.known.get(origin)

    def save(self, entry: Entry) -> None:
        self.known[entry.origin] = entry

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        yield from self.known.values()

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        return [turn.wait + turn.seconds for turn in turns if turn.origin]

    def load_value(self, name: str) -> str | None:
        return super().load_value(name)

    def save_value(self, name: str, value: str) -> None:
        super().save_value(name, value)


STORAGES: list[type[Storage]] = [
    MemoryStorage,
    SqliteStorage,
    RedisStorage,
    DictStorage,
]


def links(found: list[Link]) -> list[Link]:
    return follow_links(found)


async def asked(crawler: Crawler, url: str) -> bool:
    return await may_fetch(crawler, url)


def read(body: bytes) -> Iterator[object]:
    robots = RobotsTxt.parse(body)
    decision: Decision = robots.decide(
        comparable("https://example.com/é"), ["FooBot", "*"]
    )
    yield decision.allowed and robots.allowed("/", product_token("FooBot/1.0") or "*")
    said: RobotsUsage = read_robots(body, "*")
    for statement in said.about("/", allowed=decision.allowed):
        yield [statement.says.get(purpose) for purpose in PURPOSES]
    reader = SitemapReader(max_bytes=1000)
    for entries in reader.read([body]):
        yield [entry["loc"] for entry in entries]
    kind: Kind | None = reader.kind
    yield kind


def rules_of(robots: RobotsTxt, token: str) -> list[str]:
    patterns: list[str] = []
    groups: tuple[Group, ...] = robots.groups
    for group in groups:
        first: AgentLine = group.agents[0]
        if group.names(token) and first.line > 0:
            lines: list[RuleLine] = group.rules
            patterns += [f"{line.rule.line}: {line.pattern}" for line in lines]
    cleaned: tuple[CleanParam, ...] = robots.clean_params
    return patterns + [param for one in cleaned for param in one.params]
