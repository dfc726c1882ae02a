"""Has two middlewares, which look up the usage preferences of each page, record them,
and drop requests and items; and reads the settings for that. This module is not loaded
unless one of these settings asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

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
    read_if_json,
    setting_name,
    settings_beside,
)
from scrapy_rep.text import text_of

logger = get_logger(__name__)

# Meta keys of our own requests, for robots.txt and sitemaps. Nobody asks how these
# files may be used.
_OUR_KEYS = frozenset({HOP_KEY, SITEMAP_KEY})

# The log line about a bug of ours says that one of these has failed.
_PAGE_PART = "check of usage preferences (REP_USAGE)"
_ITEM_PART = "check of items (REP_USAGE)"

RECORD = "record"
DROP_ITEMS = "drop-items"
DROP_REQUESTS = "drop-requests"

ACTIONS = (RECORD, DROP_ITEMS, DROP_REQUESTS)
"""What is done about pages that disallow a use. Each action includes those before
it."""


def actions(value: Any) -> dict[str, str] | None:
    """Return what to do about each purpose (``REP_USAGE``); None for nothing. A
    ``ValueError`` says what *value* must be."""
    try:
        action_by_purpose = dict(read_if_json(value) or {})
        has_known_purposes = action_by_purpose.keys() <= set(PURPOSES)
        has_known_actions = set(action_by_purpose.values()) <= set(ACTIONS)
        if has_known_purposes and has_known_actions:
            return action_by_purpose or None
    except (ValueError, TypeError):  # broken JSON; no dict
        pass
    raise ValueError(
        f"a dict such as {{'train-ai': 'record'}}, with keys among {', '.join(PURPOSES)} and values "
        f"among {', '.join(ACTIONS)}"
    )


def tokens(value: Any) -> dict[str, tuple[str, ...]] | None:
    """Return the purposes that each token stands for (``REP_USAGE_TOKENS``); None for
    no tokens. A ``ValueError`` says what *value* must be."""
    try:
        return _purposes_by_token(read_if_json(value) or {}) or None
    except (ValueError, TypeError):  # broken JSON; no dict, list or text
        raise ValueError(
            "a list of product tokens, such as ['Google-Extended', 'CCBot'], or a dict from these to "
            f"purposes ({', '.join(PURPOSES)})"
        ) from None


def _purposes_by_token(value: Any) -> dict[str, tuple[str, ...]]:
    """Return the purposes of each token, given tokens separated by commas, a list of
    them, or a dict from tokens to one purpose or several. ``ValueError`` or
    ``TypeError`` if it is anything else."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, Mapping):
        value = dict.fromkeys(value, TRAINING)
    purposes_by_token: dict[str, tuple[str, ...]] = {}
    for token, given in value.items():
        # A single purpose may be given as a text.
        purposes = (given,) if isinstance(given, str) else tuple(given)
        unknown = set(purposes) - set(PURPOSES)
        if not purposes or unknown or not is_name(token):
            raise ValueError
        purposes_by_token[token] = purposes
    return purposes_by_token


class Refused(NamedTuple):
    """A use that is not permitted."""

    purpose: str
    statement: Statement
    """The statement that says no."""


class UsageMiddleware:
    """Looks up how pages may be used, records it, and drops requests if robots.txt
    disallows a use named in ``REP_USAGE``.

    A downloader middleware, behind :class:`~scrapy_rep.RepMiddleware`. Disabled without
    a setting.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        self._crawler = crawler
        # What to do about each purpose (REP_USAGE): one of ACTIONS.
        self._actions = dict(settings.usage or {})
        self._dry_run = settings.dry_run
        # Logs bugs of ours in a block of code, and goes on after it, since they must
        # not fail a page.
        self._isolated = Isolation(crawler)
        self._limiter = Limiter(logger, "origins that disallow a use")
        # The crawl's main middleware, which knows the origins. None before the spider
        # opens, or without it.
        self._rep: RepMiddleware | None = None
        crawler.signals.connect(self._find_main_middleware, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageMiddleware | StopAtStart:
        """:raises NotConfigured: if no setting asks for it"""
        settings = settings_beside(crawler)
        fields = [name for name in USAGE_FIELDS if getattr(settings, name)]
        if not fields:
            raise NotConfigured
        if find_spec("http_sf") is None:
            setting = setting_name(fields[0])
            return StopAtStart(crawler, f"{setting} needs http-sf: {EXTRA}.")
        return cls(crawler, settings)

    def _find_main_middleware(self) -> None:
        """Handle the signal ``spider_opened``: now Scrapy has made all middlewares."""
        rep = self._crawler.get_downloader_middleware(RepMiddleware)
        self._rep = rep
        if rep is not None:
            # Nobody waits for a tdmrep.json any more when the spider closes.
            rep.context.engine.before_closing(Stage.HOLDING, lookup_of(rep).end)

    async def process_request(self, request: Request) -> None:
        """Let *request* pass, by returning None, or drop it.

        :raises UsageDisallowed: if robots.txt disallows a use that has
            ``"drop-requests"``
        """
        rep = self._rep
        if rep is None or DROP_REQUESTS not in self._actions.values():
            return
        if self._is_ours(request) or request.meta.get("dont_obey_robotstxt"):
            return
        lookup = lookup_of(rep)
        refused = None
        with self._isolated(_PAGE_PART):  # logs a bug, and goes on
            # The product tokens that the request obeys rules for.
            chain = rep.agents.chain_of(request)
            await lookup.read_if_large(request, chain)
            robots_usage = lookup.robots(request, chain)
            refused = self._refused_use(robots_usage, DROP_REQUESTS)
            if refused is not None:
                rep.context.stats.inc_value("rep/usage/requests")
                self._report(rep, request, "request", refused)
        origin = lookup.known_of(request).origin
        if refused is not None and origin is not None and not self._dry_run:
            raise UsageDisallowed(origin, refused.purpose, refused.statement)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return *response* once everything is known that :func:`scrapy_rep.usage`
        needs for it: a tdmrep.json that is missing is fetched. Record how the page may
        be used, if ``REP_USAGE`` asks for that."""
        rep = self._rep
        if rep is None or self._is_ours(request):
            return response
        with self._isolated(_PAGE_PART):  # logs a bug, and goes on
            lookup = lookup_of(rep)
            # The product tokens that the request obeyed rules for when it was sent.
            chain = rep.agents.chain_sent(request)
            await lookup.read_if_large(request, chain)
            await lookup.fetch_tdmrep(request, chain)
            page_usage = usage_of(response, request, lookup, chain)
            if self._actions:
                self._record(rep, request, page_usage)
        return response

    def _is_ours(self, request: Request) -> bool:
        """Whether *request* is for a robots.txt or a sitemap, not for a page."""
        return not _OUR_KEYS.isdisjoint(request.meta)  # its meta has one of our keys

    def _record(self, rep: RepMiddleware, request: Request, page_usage: Usage) -> None:
        """Count a page, and put on record how it may be used."""
        inc_value = rep.context.stats.inc_value
        inc_value("rep/usage/pages")
        for purpose, verdict in page_usage.verdicts.items():
            if verdict is not None:
                inc_value(f"rep/usage/{verdict}/{purpose}")
        # The statements that decide about purposes in REP_USAGE.
        reasons = []
        for purpose in self._actions:
            statement = page_usage.decisive(purpose)
            if statement is not None:
                reasons.append(f"{purpose}: {statement}")
        rep.decisions.record(
            request,
            lookup_of(rep).known_of(request).origin,
            "usage",
            dry_run=False,
            reason="; ".join(reasons) or None,
            usage=page_usage.as_dict(),
        )

    def _refused_use(self, page_usage: Usage, *actions: str) -> Refused | None:
        """Return the first use that *page_usage* disallows and for which ``REP_USAGE``
        has one of *actions*; None if there is none."""
        for purpose, action in self._actions.items():
            if action not in actions:
                continue
            statement = page_usage.decisive(purpose)
            if statement is not None and statement.says[purpose] == NO:
                return Refused(purpose, statement)
        return None

    def drop_item_if_refused(self, request: Request, page_usage: Usage) -> bool:
        """If *page_usage* refuses a purpose for which ``REP_USAGE`` drops items, count,
        record and log that an item is dropped. Return whether to drop it. In a dry run,
        it is kept."""
        rep = self._rep
        refused = self._refused_use(page_usage, DROP_ITEMS, DROP_REQUESTS)
        if refused is None or rep is None:
            return False
        rep.context.stats.inc_value("rep/usage/items")
        self._report(rep, request, "item", refused)
        return not self._dry_run

    def _report(
        self, rep: RepMiddleware, request: Request, dropped: str, refused: Refused
    ) -> None:
        """Record and log that a request or an item is dropped, since a use is
        *refused*. *dropped*: ``"request"`` or ``"item"``."""
        purpose, statement = refused
        origin = lookup_of(rep).known_of(request).origin
        rep.decisions.record(
            request,
            origin,
            f"usage_{dropped}",
            reason=f"{purpose}: {statement}",
            dry_run=self._dry_run,
        )
        action = "Would drop" if self._dry_run else "Dropping"
        preposition = "to" if dropped == "request" else "from"
        message = (
            f"{action} {dropped} {preposition} %(url)s: "
            "use for %(purpose)s is not permitted (%(statement)s)"
        )
        values = {"url": request.url, "purpose": purpose, "statement": statement}
        # One line at INFO level for an origin's requests, and one for its items.
        self._limiter.log(message, values, self._crawler.spider, (origin, dropped))


class UsageItemMiddleware(BaseSpiderMiddleware):
    """Drops items that must not be used, and records in the others how they may be
    used.

    A spider middleware. Disabled without a setting that asks for it.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        super().__init__(crawler)
        # The field of items that gets how they may be used; None if no field does.
        self._field = settings.usage_field
        # Logs bugs of ours in a block of code, and goes on after it, since they must
        # not lose an item.
        self._isolated = Isolation(crawler)
        # Whether a warning about items that can't take the field was logged.
        self._warned = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageItemMiddleware:
        """:raises NotConfigured: if no setting asks for it"""
        settings = settings_beside(crawler)
        if not settings.usage and not settings.usage_field:
            raise NotConfigured
        return cls(crawler, settings)

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        """Return *item*, or None to drop it. *response* is that of its page."""
        if response is None or response.request is None:
            return item
        is_dropped = False
        with self._isolated(_ITEM_PART):  # logs a bug, and goes on
            is_dropped = self._check_item(item, response, response.request)
        return None if is_dropped else item

    def _check_item(self, item: Any, response: Response, request: Request) -> bool:
        """Return whether *item* is to be dropped. If it isn't, record in *item* how it
        may be used, if ``REP_USAGE_FIELD`` asks for that."""
        middleware = self.crawler.get_downloader_middleware(UsageMiddleware)
        if middleware is None:
            return False
        page_usage = usage(response)
        is_exempt = bool(request.meta.get("dont_obey_robotstxt"))
        if not is_exempt and middleware.drop_item_if_refused(request, page_usage):
            return True
        if self._field is not None:
            self._fill(item, self._field, page_usage)
        return False

    def _fill(self, item: Any, field: str, page_usage: Usage) -> None:
        """Set *field* of *item*. Warn if the item can't take it, for the first such
        item only."""
        try:
            ItemAdapter(item)[field] = page_usage.as_dict()
        except Exception as error:  # noqa: BLE001 (of any class of items)
            if self._warned:
                return
            self._warned = True
            values = {
                "kind": type(item).__name__,
                "field": field,
                "error": text_of(error),
            }
            logger.warning(
                "REP_USAGE_FIELD: items of the class %(kind)s can't take %(field)r (%(error)s). "
                "Add the field to the class.",
                values,
                extra={"spider": self.crawler.spider},
            )
