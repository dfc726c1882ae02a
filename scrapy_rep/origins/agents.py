"""What a request says: its origin, the path that rules match, and its product tokens (docs/decisions.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.python import to_unicode

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.matching import path_of
from scrapy_rep.protocol.syntax import chain, product_token
from scrapy_rep.settings import AGENT_HINT, RepSettings
from scrapy_rep.text import warning_of_digits

logger = get_logger(__name__)

USUAL_URL = re.compile(r"((?:https?|ftp)://[^/?#;\\@\s]+)(/[^#]*)")
"""Most URLs: scheme, host and port; path and query. Others (user info, no path, ...) take
:func:`origin_of` and :func:`path_in`."""

SCHEME_LENGTH = len("https://")
"""Where to start looking for the slash that begins the path."""

FOREIGN_SCHEME = re.compile(r"(?!https?:|ftp:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""A scheme that the protocol doesn't cover: data:, file:, s3: and the like."""


# As download handlers see it: with the meta key `verbatim_url` (Scrapy 2.18), URLs are as the
# spider wrote them, with a leading blank, say, which urlparse_cached() strips.


def origin_of(request: Request) -> Origin:
    """Return the origin of the request's URL; ``ValueError`` if it has none."""
    return Origin.from_url(urlparse_cached(request).geturl())


def path_in(request: Request) -> str:
    """Return the part of the request's URL that rules match, see :func:`path_of`."""
    # Unlike urlparse(), this keeps a semicolon at the end of the path.
    return path_of(urlsplit(request.url).geturl())


AGENT_KEY = "rep_user_agent"
SPIDER_ATTRIBUTE = "robotstxt_user_agent"

# Values whose tokens are remembered: some projects send a different header each time.
_REMEMBERED = 1000


# The header's name, copied along with its value.
_HEADER_NAME = re.compile(r"[\s\"']*user[-_ ]?agent[\s\"']*[:=][\s\"']*", re.IGNORECASE)


@lru_cache(_REMEMBERED)
def _read(value: str | tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the chain for *value*, which may be a full User-Agent header, and what to warn of."""
    if isinstance(value, str) and (prefix := _HEADER_NAME.match(value)):
        tokens, warning = _read(value[prefix.end() :])
        known = f"Rules for {', '.join(tokens)} apply." if tokens else ""
        return tokens, (
            f"The user agent {value[:200]!r} begins with the name of its header, and sites get that "
            f"too. Leave {prefix[0].strip()!r} out. {known or warning}"
        ).strip()
    try:
        tokens = chain(value)
    except ValueError:
        token = product_token(value) if isinstance(value, str) else None
        tokens = (token,) if token else ()
    name = None
    if tokens and isinstance(value, str):
        # Of a header, only what precedes the digit was taken for the token.
        name = re.search(rf"(?<![\w-]){tokens[0]}[0-9][\w-]*", value, re.ASCII)
    return tokens, warning_of_digits([name[0]] if name else tokens)


class Agents:
    """Determines the product tokens that a request obeys rules for, most specific first."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        usual: tuple[str, ...] | None = None,
    ) -> None:
        """*usual*: the chain of requests that don't name an agent (``scrapy robots --agent``); None for
        what the project says."""
        self.crawler = crawler
        self._warned = False
        self.usual = settings.user_agent
        """The chain of requests that don't name an agent; None until the first of them."""
        configured = crawler.settings.get("ROBOTSTXT_USER_AGENT")
        if self.usual is None and configured:
            self.usual = self._lenient(configured, "the setting ROBOTSTXT_USER_AGENT")
        self.fixed = self.usual is not None
        """Whether User-Agent headers don't count."""
        if usual is not None:  # then USER_AGENT isn't read, nor warned of
            self.usual = usual
        OF_ALL_CRAWLS.add(self)

    def check_spider(self) -> None:
        """Apply the spider's attribute; ``SettingsError`` if it is no token or list of tokens."""
        crawler = self.crawler
        spider = crawler.spidercls if crawler.spider is None else crawler.spider
        value = getattr(spider, SPIDER_ATTRIBUTE, None)
        try:
            if value is not None:
                self.usual, self.fixed = chain(value), True
        except ValueError:
            raise SettingsError(
                f"The spider's attribute {SPIDER_ATTRIBUTE} is {value!r}, but must be {AGENT_HINT}."
            ) from None
        self._warn(warning_of_digits(self.usual or ()))

    @property
    def default(self) -> tuple[str, ...]:
        """The chain of requests that don't name an agent; empty without a token."""
        if self.usual is not None:
            return self.usual
        settings, where = self.crawler.settings, "the setting USER_AGENT"
        # The spider's attribute user_agent is Scrapy's old way to set USER_AGENT.
        value = getattr(self.crawler.spider, "user_agent", None) or settings.get(
            "USER_AGENT"
        )
        for name, header in settings.getdict("DEFAULT_REQUEST_HEADERS").items():
            if to_unicode(name).lower() == "user-agent" and header:
                value, where = (
                    to_unicode(header, "latin-1"),
                    "the setting DEFAULT_REQUEST_HEADERS",
                )
                break
        self.usual = self._lenient(str(value or ""), where)
        return self.usual

    def is_usual(self, request: Request) -> bool:
        """Whether *request* goes by :attr:`usual`. False if only a closer look can tell."""
        if AGENT_KEY in request.meta:
            return False
        return self.fixed or "User-Agent" not in (request.headers or ())

    def chain_of(self, request: Request) -> tuple[str, ...]:
        """Return the chain for *request*; empty if it has no token (then ``*`` applies)."""
        value = request.meta.get(AGENT_KEY)
        if value is not None:
            return self._lenient(value, f"a request's meta[{AGENT_KEY!r}]")
        # Nearly all are empty, and the look-up costs more than the rest.
        if (
            not self.fixed
            and request.headers
            and (header := request.headers.get("User-Agent"))
        ):
            return self._lenient(
                header.decode("latin-1"), "a request's User-Agent header"
            )
        return self.default if self.usual is None else self.usual

    def chain_sent(self, request: Request) -> tuple[str, ...]:
        """Return the chain of a sent request: its header may be Scrapy's or a browser's."""
        if request.meta.get(AGENT_KEY) is not None or self.fixed:
            return self.chain_of(request)
        return chain_in_header(request) or self.default

    def _lenient(self, value: Any, where: str) -> tuple[str, ...]:
        """Return the chain for a value that may be a full User-Agent header; warn if it has none."""
        known = value
        if not isinstance(value, str):
            some = value if isinstance(value, Iterable) else ()
            known = tuple(one if isinstance(one, str) else "" for one in some)
        tokens, warning = _read(known)
        if not tokens and not self._warned:
            warning = (
                f"There is no product token in {where} ({str(value)[:200]!r}), so the rules for all "
                "agents (*) apply. Set REP_USER_AGENT to yours."
            )
        self._warn(warning)
        return tokens

    def _warn(self, warning: str) -> None:
        if warning and not self._warned:
            self._warned = True
            logger.warning(
                "%(what)s", {"what": warning}, extra={"spider": self.crawler.spider}
            )


OF_ALL_CRAWLS: WeakSet[Agents] = WeakSet()
"""Those of all crawls in this process."""


def chain_in_header(request: Request) -> tuple[str, ...]:
    """Return the chain for the request's User-Agent header; empty without a token."""
    return _read((request.headers.get("User-Agent") or b"").decode("latin-1"))[0]
