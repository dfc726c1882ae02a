"""What a crawl does about usage preferences: looks them up for each page, records them, and drops
requests and items; and the settings that ask for that. Not loaded unless one of them does."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from itemadapter import ItemAdapter
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from scrapy_rep.engine.access import HOP_KEY, Stage, StopAtStart
from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.exceptions import UsageDisallowed
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.preferences import Statement, Usage
from scrapy_rep.preferences.lookup import lookup_of, usage, usage_of
from scrapy_rep.preferences.statements import EXTRA, NO, PURPOSES, TRAINING
from scrapy_rep.protocol.syntax import is_name
from scrapy_rep.seeding.discovery import SITEMAP_KEY
from scrapy_rep.settings import (
    USAGE_FIELDS,
    RepSettings,
    loaded,
    setting_name,
    settings_beside,
)
from scrapy_rep.text import text_of

logger = get_logger(__name__)

# Requests of our own, for robots.txt and sitemaps.
_OURS = frozenset({HOP_KEY, SITEMAP_KEY})

_PART = "check of usage preferences (REP_USAGE)"

RECORD, DROP_ITEMS, DROP_REQUESTS = ACTIONS = ("record", "drop-items", "drop-requests")
"""What is done about pages that disallow a use; each does what those before it do."""


def actions(value: Any) -> dict[str, str] | None:
    """Return what to do about each purpose (``REP_USAGE``); None for nothing. A ``ValueError`` says
    what *value* must be."""
    try:
        chosen = dict(loaded(value) or {})
        if chosen.keys() <= {*PURPOSES} and {*chosen.values()} <= {*ACTIONS}:
            return chosen or None
    except (ValueError, TypeError):  # broken JSON; no dict
        pass
    raise ValueError(
        f"a dict such as {{'train-ai': 'record'}}, with keys among {', '.join(PURPOSES)} and values "
        f"among {', '.join(ACTIONS)}"
    )


def tokens(value: Any) -> dict[str, tuple[str, ...]] | None:
    """Return the purposes that each token stands for (``REP_USAGE_TOKENS``); None for no tokens. A
    ``ValueError`` says what *value* must be."""
    found = {}
    try:
        named = loaded(value) or {}
        if isinstance(named, str):
            named = [part.strip() for part in named.split(",")]
        pairs = named if isinstance(named, Mapping) else dict.fromkeys(named, TRAINING)
        for token, purposes in pairs.items():
            found[token] = (purposes,) if isinstance(purposes, str) else tuple(purposes)
            if (
                not is_name(token)
                or not found[token]
                or not {*found[token]} <= {*PURPOSES}
            ):
                raise ValueError
    except (
        ValueError,
        TypeError,
    ):  # broken JSON; no dict, list or text where one must be
        raise ValueError(
            "a list of product tokens, such as ['Google-Extended', 'CCBot'], or a dict from these to "
            f"purposes ({', '.join(PURPOSES)})"
        ) from None
    return found or None


class UsageMiddleware:
    """Looks up how pages may be used, records it, and drops requests if robots.txt disallows a use
    named in ``REP_USAGE``.

    A downloader middleware, behind :class:`~scrapy_rep.RepMiddleware`. Disabled without a setting.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        self._crawler = crawler
        self._actions = dict(settings.usage or {})
        self._dry_run = settings.dry_run
        self._isolated = Isolation(crawler)
        self._limiter = Limiter(logger, "origins that disallow a use")
        self._rep: RepMiddleware | None = None
        crawler.signals.connect(self._opened, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageMiddleware | StopAtStart:
        """:raises NotConfigured: if no setting asks for it"""
        settings = settings_beside(crawler)
        asking = [
            setting_name(name) for name in USAGE_FIELDS if getattr(settings, name)
        ]
        if not asking:
            raise NotConfigured
        if find_spec("http_sf") is None:
            return StopAtStart(crawler, f"{asking[0]} needs http-sf: {EXTRA}.")
        return cls(crawler, settings)

    def _opened(self) -> None:
        self._rep = rep = self._crawler.get_downloader_middleware(RepMiddleware)
        if rep is not None:
            rep.context.engine.before_closing(Stage.HOLDING, lookup_of(rep).end)

    async def process_request(self, request: Request) -> None:
        """Return None: *request* passes.

        :raises UsageDisallowed: if robots.txt disallows a use that has ``"drop-requests"``
        """
        rep, meta = self._rep, request.meta
        if rep is None or DROP_REQUESTS not in self._actions.values():
            return
        if not _OURS.isdisjoint(meta) or meta.get("dont_obey_robotstxt"):
            return
        refused, lookup = None, lookup_of(rep)
        with self._isolated(_PART):
            chain = rep.agents.chain_of(request)
            await lookup.read(request, chain)
            refused = self._refusal(lookup.robots(request, chain), DROP_REQUESTS)
            if refused is not None:
                rep.context.stats.inc_value("rep/usage/requests")
                self._tell(rep, request, "request to", *refused)
        origin, _ = lookup.known_of(request)
        if refused is not None and origin is not None and not self._dry_run:
            raise UsageDisallowed(origin, *refused)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return *response*. What :func:`scrapy_rep.usage` returns for it is known from now on."""
        if (rep := self._rep) is not None and _OURS.isdisjoint(request.meta):
            with self._isolated(_PART):
                lookup, chain = lookup_of(rep), rep.agents.chain_sent(request)
                await lookup.read(request, chain)
                await lookup.fetch(request, chain)
                found = usage_of(response, request, lookup, chain)
                if self._actions:
                    self._record(rep, request, found)
        return response

    def _record(self, rep: RepMiddleware, request: Request, usage: Usage) -> None:
        count = rep.context.stats.inc_value
        count("rep/usage/pages")
        for purpose, verdict in usage.verdicts.items():
            if verdict is not None:
                count(f"rep/usage/{verdict}/{purpose}")
        found = [(purpose, usage.decisive(purpose)) for purpose in self._actions]
        reason = "; ".join(
            f"{purpose}: {one}" for purpose, one in found if one is not None
        )
        more: dict[str, Any] = {"reason": reason or None, "usage": usage.as_dict()}
        origin, _ = lookup_of(rep).known_of(request)
        rep.decisions.record(request, origin, "usage", dry_run=False, **more)

    def _refusal(self, usage: Usage, *actions: str) -> tuple[str, Statement] | None:
        """Return a purpose with one of *actions* that *usage* disallows, and the statement."""
        for purpose, action in self._actions.items():
            statement = usage.decisive(purpose)
            if (
                action in actions
                and statement is not None
                and statement.says[purpose] == NO
            ):
                return purpose, statement
        return None

    def unwanted(self, request: Request, usage: Usage) -> bool:
        """Whether items of a page are to be dropped. Records it."""
        rep, refused = self._rep, self._refusal(usage, DROP_ITEMS, DROP_REQUESTS)
        if refused is None or rep is None:
            return False
        rep.context.stats.inc_value("rep/usage/items")
        self._tell(rep, request, "item from", *refused)
        return not self._dry_run

    def _tell(
        self,
        rep: RepMiddleware,
        request: Request,
        what: str,
        purpose: str,
        statement: Statement,
    ) -> None:
        kind = what.partition(" ")[0]
        origin, _ = lookup_of(rep).known_of(request)
        reason, dry_run = f"{purpose}: {statement}", self._dry_run
        rep.decisions.record(
            request, origin, f"usage_{kind}", reason=reason, dry_run=dry_run
        )
        drop = "Would drop" if dry_run else "Dropping"
        message = f"{drop} {what} %(url)s: use for %(purpose)s is not permitted (%(statement)s)"
        values = {"url": request.url, "purpose": purpose, "statement": statement}
        self._limiter.log(message, values, self._crawler.spider, (origin, kind))


class UsageItemMiddleware(BaseSpiderMiddleware):
    """Drops items that must not be used, and records in the others how they may be used.

    A spider middleware. Disabled without a setting that asks for it.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        super().__init__(crawler)
        self._field = settings.usage_field
        self._isolated = Isolation(crawler)
        self._warned = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageItemMiddleware:
        """:raises NotConfigured: if no setting asks for it"""
        settings = settings_beside(crawler)
        if not settings.usage and not settings.usage_field:
            raise NotConfigured
        return cls(crawler, settings)

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        unwanted = False
        if response and (request := response.request):
            with self._isolated("check of items (REP_USAGE)"):
                if (
                    middleware := self.crawler.get_downloader_middleware(
                        UsageMiddleware
                    )
                ) is None:
                    return item
                found = usage(response)
                if not request.meta.get("dont_obey_robotstxt"):
                    unwanted = middleware.unwanted(request, found)
                if self._field is not None and not unwanted:
                    self._fill(item, self._field, found)
        return None if unwanted else item

    def _fill(self, item: Any, field: str, found: Usage) -> None:
        try:
            ItemAdapter(item)[field] = found.as_dict()
        except Exception as error:  # noqa: BLE001 (of any class of items)
            if not self._warned:
                self._warned = True
                logger.warning(
                    "REP_USAGE_FIELD: items of the class %(kind)s can't take %(field)r (%(error)s). "
                    "Add the field to the class.",
                    {
                        "kind": type(item).__name__,
                        "field": field,
                        "error": text_of(error),
                    },
                    extra={"spider": self.crawler.spider},
                )
