"""Every ``REP_*`` setting with its default and its check (:class:`RepSettings`).
docs/settings.md says what each is for.

``RepSettings.from_settings`` reads them from Scrapy's settings; nothing else does. The
rest of the package uses ``context.settings`` (origins/context.py). To add a setting,
add a field to :class:`RepSettings` and a heading to docs/settings.md.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.protocol.freshness import moment
from scrapy_rep.protocol.origin import Origin, punycode
from scrapy_rep.protocol.syntax import chain
from scrapy_rep.text import without_password

logger = get_logger(__name__)

_PREFIX = "REP_"

# A known name is suggested if it is at least so similar to the unknown one: from 0 to 1
# (identical), as difflib counts.
_SIMILARITY = 0.75

# Interactive commands such as scrapy shell wait at most this many seconds for a
# robots.txt. No fetch takes as long.
_INTERACTIVE_SECONDS = 86400.0

# The longest delay in seconds with REP_CRAWL_DELAY = True. Whoever wants longer ones
# says so.
_LONGEST_DELAY = 60.0

# At most this many characters of a value are shown in the log and the report, since a
# file can be pasted into a setting.
_SHOWN_CHARACTERS = 300

SPIDER_SITEMAPS = "rep_sitemaps"
"""The attribute by which a spider chooses what ``REP_SITEMAPS`` chooses for all."""

USAGE_FIELDS = ("usage", "usage_tokens", "usage_field", "tdmrep")
"""Settings that ask for usage preferences."""

GOOGLE_2026 = "google-2026"
"""The value of ``REP_UNREACHABLE_RULES`` for Google's newer rules."""

LAST = "last"
"""The value of ``REP_SITEMAP_SINCE`` for the start of the spider's last crawl that
ended in order."""

# How values are read: each function returns a setting's value as the package uses it,
# and raises ValueError, TypeError or OverflowError if the value is wrong.


def _number(number_type: type, least: float) -> Callable[[Any], Any]:
    """Return a function that reads a finite number (*number_type*: int or float) that
    is *least* or more."""

    def check(value: Any) -> Any:
        number = number_type(value)
        is_in_range = least <= number < math.inf
        is_exact = number == float(value)
        if isinstance(value, bool) or not is_in_range or not is_exact:
            raise ValueError
        return number

    return check


_seconds = _number(float, 0.0)
_least_positive = math.nextafter(0.0, 1.0)  # the smallest float that is more than 0
_positive_seconds = _number(float, _least_positive)


def _flag(value: Any) -> bool:
    """Return True or False, as Scrapy's ``getbool`` reads *value*. From a command line,
    *value* is a text."""
    text = str(value).lower()
    if text in ("true", "1"):
        return True
    if text in ("false", "0", "none", ""):
        return False
    raise ValueError


def _text(value: Any) -> str:
    """Return *value*, a text that isn't empty."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes None of None and of the empty text, and leaves other
    values to *check*."""

    def read_optional(value: Any) -> Any:
        if value is None or value == "":
            return None
        return check(value)

    return read_optional


def _since(value: Any) -> datetime | str:
    """Return a datetime, or :data:`LAST`."""
    if value == LAST:
        return LAST
    return moment(value)


def _path(value: Any) -> str:
    """Return a path as text."""
    if isinstance(value, os.PathLike):
        value = str(value)
    return _text(value)


def _class(value: Any) -> str | type:
    """Return *value*: a class, or the path to one."""
    if isinstance(value, type):
        return value
    return _text(value)


class DelayLimit(NamedTuple):
    """``REP_CRAWL_DELAY``: which crawl delays are kept. In a condition, a DelayLimit
    counts as False if none are."""

    most: float = 0.0
    """Seconds: the longest delay that is kept."""
    skips: bool = False
    """Whether origins that ask for a longer delay are not crawled. Otherwise their
    delay is cut."""

    def __bool__(self) -> bool:
        return self.most > 0


def _crawl_delay(value: Any) -> DelayLimit | bool:
    """Return which crawl delays are kept; False if none are."""
    value = read_if_json(value)
    if isinstance(value, Mapping):
        # What happens to origins that ask for a longer delay than "most".
        beyond = value.get("beyond", "limit")
        if not value.keys() <= {"most", "beyond"} or beyond not in ("limit", "skip"):
            raise ValueError
        most = _positive_seconds(value.get("most", _LONGEST_DELAY))
        return DelayLimit(most, skips=beyond == "skip")
    text = str(value).lower()
    if text == "true":
        return DelayLimit(_LONGEST_DELAY)
    if text == "false":
        return False
    return DelayLimit(_seconds(value))


class Override(NamedTuple):
    """``REP_OVERRIDES`` for one host or ``*.domain``."""

    file: str | None
    """The path of a robots.txt that takes the place of the site's; None: there are no
    rules."""
    until: datetime | None = None
    """The time from which on the site's own robots.txt counts again; None: never."""


def _override(value: Any) -> Override:
    """Return what counts for a host. *value*: the path of a file, or None for no rules;
    or a dict with one of these as "file", and with the date when it ends as "until"."""
    file = value
    until = None
    if isinstance(value, Mapping):
        # A missing "file" must not mean to ignore the site's rules.
        if value.keys() != {"file", "until"}:
            raise ValueError
        file = value["file"]
        until = moment(value["until"])
    if file is not None:
        file = _path(file)
    return Override(file, until)


def _overrides(value: Any) -> dict[str, Override] | None:
    """Return what counts for each host or ``*.domain``; None without hosts."""
    value = read_if_json(value)
    if not value:
        return None
    if not isinstance(value, Mapping):
        raise ValueError
    overrides = {}
    for name, override in value.items():
        overrides[_host_pattern(name)] = _override(override)
    return overrides


def _host_pattern(name: Any) -> str:
    """Return *name*, a host or ``*.domain``, in the form that the hosts of origins
    have: in Punycode."""
    if not isinstance(name, str):
        raise ValueError
    host = name.removeprefix("*.")
    if "*" in host:
        raise ValueError
    wildcard = "*." if host != name else ""
    is_ip6 = host.startswith("[") and host.endswith("]")
    if is_ip6:  # punycode() refuses the brackets
        origin = Origin.from_url(f"http://{host}/")
        return wildcard + origin.host
    return wildcard + punycode(host)


def sitemaps(value: Any) -> str | bool:
    """Return which origins may seed a crawl: "start", "all", or False for none."""
    if value in ("start", "all"):
        return str(value)
    if _flag(value):
        return "all"
    return False


def read_if_json(value: Any) -> Any:
    """Return *value* or, if it is a text that begins as JSON of a dict or a list (as on
    a command line), what the JSON says. Raises ``ValueError`` if the JSON is broken."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith(("{", "[")):
        return json.loads(value)
    return value


SITEMAPS_HINT = "True, False, 'start' or 'all'"
AGENT_HINT = "a product token (letters, - and _ only, such as FooBot) or a list of them"
_DATE_HINT = "a date or a datetime, or its text as in '2026-01-31'"


class _Check(NamedTuple):
    """What the value of a setting may be."""

    read: Callable[[Any], Any]
    """Returns the value as the package uses it, or raises."""
    hint: str
    """What would be right, for the error about a wrong value. Empty: the exception that
    :attr:`read` raises says it."""


# chain() (protocol/syntax.py) reads product tokens; moment() (protocol/freshness.py)
# reads dates.
_AGENT = _Check(_optional(chain), AGENT_HINT)
_FLAG = _Check(_flag, "True or False")
_INTEGER = _Check(_number(int, -math.inf), "a whole number")
_COUNT = _Check(_number(int, 1), "a whole number, 1 or more")
_SECONDS = _Check(_seconds, "a number of seconds, 0 or more")
_POSITIVE_SECONDS = _Check(_positive_seconds, "a number of seconds, more than 0")
_TEXT = _Check(_text, "a text")
_FILE = _Check(_path, "the path of a file")
_URI = _Check(_optional(_path), "a path, or a URI that a feed storage can write to")
_DATE = _Check(_optional(moment), _DATE_HINT)
_DATE_OR_LAST = _Check(_optional(_since), f"{_DATE_HINT}, or {LAST!r}")
_STORAGE = _Check(_class, "a storage class, or the path to one")
_REDIS_URL = _Check(
    _optional(_text),
    "the URL of a Redis server, such as redis://localhost:6379/0",
)
_ITEM_FIELD = _Check(_optional(_text), "the name of a field of items")
_SITEMAPS = _Check(sitemaps, SITEMAPS_HINT)
_CRAWL_DELAY = _Check(
    _crawl_delay,
    "True, False, a number of seconds, or a dict such as {'most': 30, 'beyond': 'skip'}, with 'skip' "
    "or 'limit'",
)
_OVERRIDES = _Check(
    _overrides,
    "a dict from hosts ('example.com', '*.example.com') to the paths of robots.txt files, to None, or, if "
    "that ends at a date, to dicts such as {'file': 'own.txt', 'until': '2026-12-31'}",
)

# Fields of RepSettings.


def _setting(default: Any, check: _Check) -> Any:
    """A setting with its *default*."""
    metadata = {"check": check, "prefix": _PREFIX}
    return field(default=default, metadata=metadata)


def _constant(value: Any, check: _Check) -> Any:
    """A *value* that no user has had a reason to change. Only our own tests change it,
    by a setting whose name begins with ``_REP_``."""
    metadata = {"check": check, "prefix": f"_{_PREFIX}"}
    return field(default=value, metadata=metadata)


def _checked_in(path: str) -> Any:
    """A setting that is None by default. The function at *path* in this package reads
    it, imported only if the setting has a value."""

    def read(value: Any) -> Any:
        if not value:
            return None
        return load_object(f"scrapy_rep.{path}")(value)

    return _setting(None, _Check(read, ""))


def _choice(*choices: str | bool) -> Any:
    """A setting that is one of *choices*; the first is the default."""

    def read(value: Any) -> str | bool:
        if isinstance(value, str) and value in choices:
            return value
        # True and False may be among the choices, too.
        flag = _flag(value)
        if flag not in choices:
            raise ValueError
        return flag

    default = choices[0]
    hint = "one of " + ", ".join(map(repr, choices))
    return _setting(default, _Check(read, hint))


def setting_name(field_name: str) -> str:
    """Return the setting's name for a field of :class:`RepSettings`."""
    item = RepSettings.__dataclass_fields__[field_name]
    prefix: str = item.metadata["prefix"]
    return prefix + field_name.upper()


@dataclass(frozen=True, slots=True)
class RepSettings:
    """All settings, checked. The field ``cache_ttl`` is the setting
    ``REP_CACHE_TTL``."""

    # What counts, and for whom

    user_agent: tuple[str, ...] | None = _setting(None, _AGENT)
    obey_global_group: bool = _setting(True, _FLAG)
    unreachable: str = _choice("hold", "drop", "allow")
    unreachable_rules: str = _choice("google", GOOGLE_2026)
    forbidden: str = _choice("allow", "disallow", "hold")
    challenge: str = _choice("allow", "hold")
    overrides: dict[str, Override] | None = _setting(None, _OVERRIDES)

    # While a robots.txt is unreachable

    hold_max_wait: float = _setting(600.0, _SECONDS)
    hold_max_requests: int = _setting(100_000, _COUNT)
    retry_delay: float = _setting(5.0, _POSITIVE_SECONDS)
    retry_max_delay: float = _setting(600.0, _POSITIVE_SECONDS)

    # How a robots.txt is fetched and kept

    download_timeout: float = _setting(30.0, _POSITIVE_SECONDS)
    cache_storage: str | type = _setting("scrapy_rep.storages.MemoryStorage", _STORAGE)
    cache_path: str = _setting("robots.sqlite", _FILE)
    cache_redis_url: str | None = _setting(None, _REDIS_URL)
    cache_ttl: float = _setting(86400.0, _SECONDS)
    cache_min_ttl: float = _setting(300.0, _SECONDS)
    cache_max_origins: int = _setting(10000, _COUNT)
    unreachable_limit: float = _setting(2592000.0, _SECONDS)
    private_hosts: bool = _setting(False, _FLAG)
    soft_404: bool = _setting(True, _FLAG)

    # What a robots.txt says beside its rules

    crawl_delay: DelayLimit | bool = _setting(False, _CRAWL_DELAY)
    sitemaps: str | bool = _setting(False, _SITEMAPS)
    sitemap_guess: bool = _setting(False, _FLAG)
    sitemap_since: datetime | str | None = _setting(None, _DATE_OR_LAST)
    sitemap_until: datetime | None = _setting(None, _DATE)
    sitemap_cross_host: str = _choice("strict", "any", "site")

    # What pages, headers and tdmrep.json say

    nofollow: str | bool = _choice(False, "page", "links", "count", True)
    noindex: str | bool = _choice(False, "drop", "count")
    usage: dict[str, str] | None = _checked_in("preferences.middlewares.actions")
    usage_tokens: dict[str, tuple[str, ...]] | None = _checked_in(
        "preferences.middlewares.tokens"
    )
    usage_field: str | None = _setting(None, _ITEM_FIELD)
    tdmrep: bool = _setting(False, _FLAG)

    # What the crawl tells

    decisions: str | None = _setting(None, _URI)
    dry_run: bool = _setting(False, _FLAG)
    report: str | None = _setting(None, _URI)

    # Constants

    hold_grace: float = _constant(0.5, _SECONDS)
    """A request that waits for the first fetch of a robots.txt counts as held this many
    seconds after the fetch was needed."""
    hold_idle: float = _constant(60.0, _SECONDS)
    """Seconds of nothing but waiting after which ``spider_idle`` is sent."""
    hold_dead_host_tries: int = _constant(3, _COUNT)
    """After this many failures in a row to resolve or connect, held requests are given
    up early."""
    cache_expiry: float = _constant(7_776_000.0, _POSITIVE_SECONDS)
    """Seconds after which a storage forgets an origin that nobody asks about: 90
    days."""
    cache_redis_prefix: str = _constant("{scrapy-rep}", _TEXT)
    """What the keys in Redis begin with. Braces keep all keys in one slot of a cluster,
    so that one call can name many of them."""
    cache_max_ttl: float = _constant(604_800.0, _SECONDS)
    """Seconds for which an answer is fresh at most, whatever ``Cache-Control`` says: 7
    days."""
    cache_max_bytes: int = _constant(67_108_864, _COUNT)
    """At most this many bytes of rules are kept in memory, those of all origins
    together: 64 MiB."""
    sitemap_priority: int = _constant(10, _INTEGER)
    """The priority of requests for sitemaps: before pages, since sitemaps lead to more
    pages."""
    sitemap_page_priority: int = _constant(0, _INTEGER)
    """The priority of requests for pages of sitemaps."""
    sitemap_max_depth: int = _constant(5, _COUNT)
    """How deep indexes of sitemaps may be nested."""
    sitemap_max_files: int = _constant(50_000, _COUNT)
    """At most this many sitemaps of one origin are read."""
    sitemap_max_urls: int = _constant(50_000, _COUNT)
    """At most this many entries of one sitemap are read, as sitemaps.org says."""
    sitemap_max_origin_urls: int = _constant(25_000_000, _COUNT)
    """At most this many pages of one origin are requested."""
    sitemap_max_bytes: int = _constant(52_428_800, _COUNT)
    """At most this many bytes of one sitemap, decompressed, are read, as sitemaps.org
    says."""

    @property
    def max_delay(self) -> float | None:
        """The crawl delay in seconds beyond which origins are not crawled; None if
        there is no such limit."""
        limit = self.crawl_delay
        if isinstance(limit, DelayLimit) and limit.skips:
            return limit.most
        return None

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> RepSettings:
        """Read and check all settings. If one is wrong, ``SettingsError`` names the
        setting, its value and what would be right."""
        values = {}
        for item in fields(cls):
            name = setting_name(item.name)
            value = settings.get(name, item.default)
            check: _Check = item.metadata["check"]
            try:
                values[item.name] = check.read(value)
            except (ValueError, TypeError, OverflowError) as error:
                shown = without_password(repr(value))
                hint = check.hint or str(error)
                raise SettingsError(f"{name} is {shown}, but must be {hint}.") from None
        return cls(**values)


def one_attempt(settings: RepSettings) -> RepSettings:
    """Return *settings* as interactive commands need them: each robots.txt is tried
    once, and requests wait for the answer."""
    unreachable = settings.unreachable
    if unreachable == "hold":
        unreachable = "drop"
    return replace(
        settings,
        unreachable=unreachable,
        hold_grace=_INTERACTIVE_SECONDS,
    )


def _defaults() -> dict[str, Any]:
    """Return the defaults of the settings that users may change, by the settings'
    names."""
    defaults = {}
    for item in fields(RepSettings):
        if item.metadata["prefix"] == _PREFIX:
            defaults[setting_name(item.name)] = item.default
    return defaults


DEFAULTS = _defaults()
"""The defaults of the settings that users may change, by the settings' names."""


def changed(settings: BaseSettings) -> list[str]:
    """Return the names of the settings whose values differ from their defaults."""
    names = []
    for name, default in DEFAULTS.items():
        if settings.get(name, default) != default:
            names.append(name)
    return names


def changed_values(settings: BaseSettings) -> dict[str, str]:
    """Return the values of the settings that differ from their defaults, as text,
    without passwords."""
    values = {}
    for name in changed(settings):
        value = str(settings.get(name))
        shown = without_password(value)
        values[name] = shown[:_SHOWN_CHARACTERS]
    return values


def settings_beside(crawler: Crawler) -> RepSettings:
    """Return the settings for a part that works beside :class:`RepMiddleware`.

    :raises NotConfigured: if robots.txt isn't obeyed; or if a setting is wrong, for
        which RepMiddleware ends the crawl
    """
    if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
        raise NotConfigured
    try:
        return RepSettings.from_settings(crawler.settings)
    except SettingsError:
        raise NotConfigured from None


def _suggestion(unknown_name: str) -> str:
    """Return which setting was most likely meant, for the end of a log line; empty if
    no name is similar."""
    similar = get_close_matches(
        unknown_name,
        DEFAULTS,
        n=1,
        cutoff=_SIMILARITY,
    )
    if not similar:
        return ""
    return f" (did you mean {similar[0]}?)"


def warn_of_unknown(settings: BaseSettings, spider: Spider | None = None) -> None:
    """Log unknown names that begin with ``REP_``, which are most likely misspelt."""
    names = {str(name) for name in settings}
    unknown = []
    for name in sorted(names - DEFAULTS.keys()):
        if name.startswith(_PREFIX):
            unknown.append(name + _suggestion(name))
    if unknown:
        logger.warning(
            "Unknown settings, which have no effect: %(names)s",
            {"names": ", ".join(unknown)},
            extra={"spider": spider},
        )
