"""What a request says: its origin, the path that rules match, and its product tokens
(docs/decisions.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakSet

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.python import to_unicode

from scrapy_rep.engine.access import Chain
from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.matching import path_of
from scrapy_rep.protocol.syntax import chain, product_token
from scrapy_rep.settings import AGENT_HINT, RepSettings
from scrapy_rep.text import warning_of_digits

logger = get_logger(__name__)

USUAL_URL = re.compile(r"((?:https?|ftp)://[^/?#;\\@\s]+)(/[^#]*)")
"""Matches most URLs. Group 1: scheme, host and port; group 2: path and query. URLs that
don't match (with user info, or without a path, say) need :func:`origin_of` and
:func:`path_in`, which are slower."""

SCHEME_LENGTH = len("https://")
"""From which index to look for the slash that begins a URL's path. In ``http://`` URLs,
the first character of the host is left out so, which is no slash."""

FOREIGN_SCHEME = re.compile(r"(?!https?:|ftp:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""Matches the beginning of URLs that the protocol doesn't cover: data:, file:, s3: and
the like."""


# The next two functions read URLs as download handlers do. With the meta key
# `verbatim_url` (Scrapy 2.18) a URL is as the spider wrote it, with a leading blank,
# say, which urlparse_cached() and urlsplit() strip.


def origin_of(request: Request) -> Origin:
    """Return the origin of the request's URL; ``ValueError`` if it has none."""
    return Origin.from_url(urlparse_cached(request).geturl())


def path_in(request: Request) -> str:
    """Return the part of the request's URL that rules match
    (:func:`.matching.path_of`)."""
    # Unlike urlparse(), urlsplit() keeps a semicolon at the end of the path.
    return path_of(urlsplit(request.url).geturl())


AGENT_HEADER = b"User-Agent"
"""The key of the User-Agent in ``request.headers``, as Scrapy normalizes it. It is
looked up in ``headers.keys()``, since Scrapy's headers take several microseconds to
normalize a key."""

AGENT_KEY = "rep_user_agent"
"""The meta key by which a request names its agent."""

SPIDER_ATTRIBUTE = "robotstxt_user_agent"
"""The attribute by which a spider names its agent."""

_MAX_REMEMBERED_VALUES = 1000
"""For how many values :func:`_read` remembers the tokens. Some projects send a
different header each time, so there has to be a limit."""

_MAX_QUOTED = 200
"""How many characters of a value a warning quotes."""

_HEADER_NAME = re.compile(r"[\s\"']*user[-_ ]?agent[\s\"']*[:=][\s\"']*", re.IGNORECASE)
"""Matches a header's name at the beginning of its value: some users copy the name
along."""


class _Reading(NamedTuple):
    """What a value that names an agent says."""

    tokens: Chain
    """The chain: product tokens, most specific first; empty without a token."""
    warning: str
    """The text of a warning for the user; empty if there is nothing to warn of."""


@lru_cache(_MAX_REMEMBERED_VALUES)
def _read(value: str | Chain) -> _Reading:
    """Read *value*: a token, a chain of tokens, or a full User-Agent header."""
    if isinstance(value, str):
        header_name = _HEADER_NAME.match(value)
        if header_name is not None:
            return _read_after_name(value, header_name)
    try:
        tokens = chain(value)
    except ValueError:
        # *value* is no token or list of tokens, so perhaps a header.
        tokens = _token_in_header(value)
    if tokens and isinstance(value, str):
        # Tokens have no digits. Of a name with digits in a header, product_token()
        # returns what precedes the digits. The warning is about the whole name.
        with_digit = rf"(?<![\w-]){tokens[0]}[0-9][\w-]*"
        name = re.search(with_digit, value, re.ASCII)
        if name is not None:
            return _Reading(tokens, warning_of_digits([name[0]]))
    return _Reading(tokens, warning_of_digits(tokens))


def _token_in_header(value: str | Chain) -> Chain:
    """Return the product token in *value* as a chain, if *value* is a header that has
    one; otherwise an empty chain."""
    token = None
    if isinstance(value, str):
        token = product_token(value)
    return () if token is None else (token,)


def _read_after_name(value: str, header_name: re.Match[str]) -> _Reading:
    """Read what follows the *header_name* that *value* begins with, and warn of the
    header's name."""
    rest_of_value = value[header_name.end() :]
    tokens, warning = _read(rest_of_value)
    if tokens:
        warning = f"Rules for {', '.join(tokens)} apply."
    quoted = value[:_MAX_QUOTED]
    name = header_name[0].strip()
    advice = (
        f"The user agent {quoted!r} begins with the name of its header, and sites get that "
        f"too. Leave {name!r} out. {warning}"
    )
    return _Reading(tokens, advice.strip())


class Agents:
    """Determines the chain of each request: the product tokens that it obeys rules for,
    most specific first."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        usual: Chain | None = None,
    ) -> None:
        """*usual*: the chain of requests that don't name an agent (``scrapy robots
        --agent``); None for what the project says."""
        self.crawler = crawler
        self._has_warned = False
        """Whether a warning was logged: there is one at most."""
        self.usual = settings.user_agent
        """The chain of requests that don't name an agent. None until the first of them
        comes, since only then is USER_AGENT read (:attr:`default`)."""
        configured = crawler.settings.get("ROBOTSTXT_USER_AGENT")
        if self.usual is None and configured:
            self.usual = self._chain_in(configured, "the setting ROBOTSTXT_USER_AGENT")
        self.fixed = self.usual is not None
        """Whether the project has named its agent. Then the User-Agent headers of
        requests don't count."""
        if usual is not None:  # then USER_AGENT isn't read, and there is no warning
            self.usual = usual
        OF_ALL_CRAWLS.add(self)

    def check_spider(self) -> None:
        """Apply the spider's attribute ``robotstxt_user_agent``, if it has one;
        ``SettingsError`` if that is no token or list of tokens."""
        crawler = self.crawler
        spider = crawler.spidercls if crawler.spider is None else crawler.spider
        value = getattr(spider, SPIDER_ATTRIBUTE, None)
        if value is not None:
            try:
                self.usual = chain(value)
            except ValueError:
                raise SettingsError(
                    f"The spider's attribute {SPIDER_ATTRIBUTE} is {value!r}, but must be {AGENT_HINT}."
                ) from None
            self.fixed = True
        self._warn(warning_of_digits(self.usual or ()))

    @property
    def default(self) -> Chain:
        """The chain of requests that don't name an agent; empty without a token."""
        if self.usual is None:
            header, where = self._default_header()
            self.usual = self._chain_in(header, where)
        return self.usual

    def _default_header(self) -> tuple[str, str]:
        """Return the User-Agent header that Scrapy sends by default, and what sets it,
        in words."""
        settings = self.crawler.settings
        default_headers = settings.getdict("DEFAULT_REQUEST_HEADERS")
        for name, header in default_headers.items():
            is_user_agent = to_unicode(name).lower() == "user-agent"
            if is_user_agent and header:
                where = "the setting DEFAULT_REQUEST_HEADERS"
                return to_unicode(header, "latin-1"), where
        # The spider's attribute user_agent is Scrapy's old way to set USER_AGENT.
        header = getattr(self.crawler.spider, "user_agent", None)
        if not header:
            header = settings.get("USER_AGENT")
        return str(header or ""), "the setting USER_AGENT"

    def is_usual(self, request: Request) -> bool:
        """Return whether :attr:`usual` is the chain of *request*; False if only
        :meth:`chain_of` can tell."""
        if AGENT_KEY in request.meta:
            return False
        if self.fixed:
            return True
        headers = request.headers
        return not headers or AGENT_HEADER not in headers.keys()  # noqa: SIM118

    def chain_of(self, request: Request) -> Chain:
        """Return the chain of *request*; empty if it has no token (then ``*``
        applies)."""
        value = request.meta.get(AGENT_KEY)
        if value is not None:
            return self._chain_in(value, f"a request's meta[{AGENT_KEY!r}]")
        # Nearly all requests have no headers here, and to look one up costs more than
        # the rest of this method.
        if not self.fixed and request.headers:
            header = request.headers.get("User-Agent")
            if header:
                where = "a request's User-Agent header"
                return self._chain_in(header.decode("latin-1"), where)
        return self.default if self.usual is None else self.usual

    def chain_sent(self, request: Request) -> Chain:
        """Return the chain of a request that was sent: by then it has a User-Agent
        header, which may be Scrapy's or a browser's."""
        if request.meta.get(AGENT_KEY) is not None or self.fixed:
            return self.chain_of(request)
        return chain_in_header(request) or self.default

    def _chain_in(self, value: Any, where: str) -> Chain:
        """Return the chain that *value* names, which may be a full User-Agent header,
        or of any type; warn if it names none. *where*: what sets *value*, in words."""
        tokens, warning = _read(_text_or_texts(value))
        if not tokens and not self._has_warned:
            quoted = str(value)[:_MAX_QUOTED]
            warning = (
                f"There is no product token in {where} ({quoted!r}), so the rules for "
                "all agents (*) apply. Set REP_USER_AGENT to yours."
            )
        self._warn(warning)
        return tokens

    def _warn(self, warning: str) -> None:
        """Log *warning*, unless it is empty, or there has been another."""
        if warning and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%(what)s", {"what": warning}, extra={"spider": self.crawler.spider}
            )


def _text_or_texts(value: Any) -> str | Chain:
    """Return *value* as :func:`_read` takes it: as it is if it is a text, otherwise as
    a tuple of texts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Iterable):
        return ()
    return tuple(token if isinstance(token, str) else "" for token in value)


OF_ALL_CRAWLS: WeakSet[Agents] = WeakSet()
"""The agents of all crawls in this process."""


def chain_in_header(request: Request) -> Chain:
    """Return the chain that the request's User-Agent header names; empty without a
    token."""
    header = request.headers.get("User-Agent") or b""
    return _read(header.decode("latin-1")).tokens
