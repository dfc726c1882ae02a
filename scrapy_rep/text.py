"""Text from outside and text for people: URLs percent-encoded as in Scrapy's requests, within their
limits; text for output, cleaned; counts, times and errors in words. Needs w3lib, not Scrapy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from w3lib.url import safe_url_string

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.origin import MAX_URL, punycode
from scrapy_rep.protocol.syntax import GLOBAL, leading_token

MAX_SITEMAP_URL = 2048
"""Characters: what sitemaps.org allows."""

MAX_IDN, MAX_LISTED_IDN = 2_500, 50_000
"""Characters of different non-ASCII hosts, over all URLs of a page; and of a sitemap, which is read
in slices. Each 2,500 take up to 20 ms."""

# What any parser may take for the host: some allow backslashes, or any number of slashes.
_HOST = re.compile(
    r"[\0-\x20]*(?:[a-z][a-z0-9+.-]*:[/\\]*|[/\\]{2,})([^/\\?#]*)", re.IGNORECASE
)
# Where all parsers see the same host.
_CLEAR = re.compile(
    r"((?:https?|ftp)://)([^\0-\x20/\\?#@:\[\]%]+)(?=[/?#:]|\Z)", re.IGNORECASE
)
_ASCII = re.compile(r"[a-z0-9._-]+")
# A fast path for pages. Longer hosts and ports are left to Origin.
_USUAL = re.compile(
    r"(https?://[a-z0-9.-]{1,255}(?::[1-5]?[0-9]{1,4})?)(?:/[!$-~]*)?", re.ASCII
)
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))


class Encoder:
    """Encodes the URLs of one document, in little time whatever it holds: URLs have a limit, and so
    have hosts that must be encoded, each of which takes up to a millisecond."""

    def __init__(self, limit: int = MAX_IDN) -> None:
        """*limit*: characters of all non-ASCII hosts, each counted once."""
        self._left = limit
        self._hosts: dict[str, str] = {}

    def __call__(self, url: str | bytes, encoding: str = "utf-8") -> str:
        """Return *url* as in a request: percent-encoded, its host in punycode. *encoding* is the
        document's, for queries and bytes. A ``ValueError`` says why *url* is not one, or beyond the
        limits."""
        if len(url) > MAX_URL:
            raise ValueError(f"longer than {MAX_URL:,} characters")
        if not url.isascii():
            text = url if isinstance(url, str) else url.decode("utf-8", "replace")
            found = _HOST.match(text.translate(_DROPPED))
            host = (
                found[1].rpartition("@")[2].partition(":")[0].lower() if found else ""
            )
            name = host
            if not host.isascii():
                if host not in self._hosts:
                    self._left -= len(host)
                    if self._left < 0:
                        raise ValueError("too many hosts that aren't ASCII")
                    self._hosts[host] = ""
                    with suppress(ValueError):
                        self._hosts[host] = punycode(host)
                if not (name := self._hosts[host]):
                    raise ValueError("not a valid host")
            # Once it is known, w3lib need not encode it again.
            if (
                (clear := _CLEAR.match(text))
                and clear[2].lower() == host
                and url is text
            ):
                url = (
                    f"{clear[1]}{name}{text[clear.end() :]}"
                    if _ASCII.fullmatch(name)
                    else url
                )
        return safe_url_string(url, encoding)

    def page(self, value: Any) -> tuple[str, str]:
        """Return URL and prefix of a `loc`; ``ValueError`` if it isn't an absolute http(s) URL."""
        if not isinstance(value, str) or not 0 < len(value) <= MAX_URL:
            raise ValueError
        if usual := _USUAL.fullmatch(value):
            return value, usual[1]
        url = without_user(self(value.strip()).partition("#")[0])
        origin = Origin.from_url(url)
        if origin.scheme not in ("http", "https"):
            raise ValueError
        return url, str(origin)


def encoded(url: str | bytes) -> str:
    """Return *url*, the only one of its document, as in a request, see :class:`Encoder`;
    ``ValueError`` if it is not one, or beyond the limits."""
    return Encoder()(url)


class SitemapURL(NamedTuple):
    url: str  # absolute and percent-encoded
    origin: Origin
    relative: bool  # whether it was listed as a relative URL, which the protocol doesn't allow


def resolve_sitemap(
    value: str, base: str | None = None, encode: Callable[[str], str] = encoded
) -> SitemapURL:
    """Return the address of a sitemap that a file lists as *value* (REP.md section 9). A
    ``ValueError`` says why no sitemap can have such a URL.

    A scheme without a host (``http:map.xml``, ``http:/a.example/map.xml``) is refused, although RFC
    3986 lets a lenient parser take it for a relative URL.

    :param base: the URL of the robots.txt; None if *value* must not be relative
    :param encode: the :class:`Encoder` of the document, if it lists more than a few
    """
    try:
        if len(value) > MAX_SITEMAP_URL:
            raise ValueError
        relative = False
        with suppress(
            ValueError
        ):  # a bracket after a backslash, which Scrapy turns into a slash
            relative = base is not None and not urlsplit(value).scheme
        url = without_user(encode(urljoin(base or "", value) if relative else value))
        origin = Origin.from_url(url)
    except ValueError:
        raise ValueError("not a URL that a sitemap can have") from None
    if origin.scheme not in ("http", "https"):
        raise ValueError("only http and https URLs can be sitemaps")
    return SitemapURL(url, origin, relative)


def warning_of_digits(tokens: Sequence[str]) -> str:
    """Return what a digit in a product token means; empty if there is none."""
    token = next(
        (token for token in tokens if token not in (GLOBAL, leading_token(token))), None
    )
    if token is None:
        return ""
    means = "no group can name it, and the rules for all agents (*) apply"
    if cut := leading_token(token):
        means = f"it is read as {cut}, and so obeys every group for {cut}, whatever digits follow that name"
    return (
        f"The product token {token[:100]} has digits. As in Google's matcher, a name is read only up to its "
        f"first digit: {means}. Use only letters, - and _ to avoid this."
    )


_encode = json.JSONEncoder(ensure_ascii=False).encode

_PASSWORD = re.compile(r"(//[^:/?#]*):.*", re.DOTALL)
# Authorities end at a slash, or where a message goes on. In JSON, quotes end the text.
_PASSWORDS = re.compile(r"""((?:\A|//|\s)[^\s/?#:@"']{0,1000}):[^\s/?#"']{0,1000}@""")
_USER = re.compile(r"([a-z][a-z0-9+.-]{0,30}://)[^/?#]*@", re.IGNORECASE)
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Return *seconds* as text: ``40 s``, ``8 min``, ``3 h``."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def without_password(text: str) -> str:
    """Return *text* with ``***`` for the password of the URL in it. It extends to the last ``@``:
    people leave ``:``, ``/``, ``@`` and spaces in it as they are."""
    before, at, after = text.rpartition("@")
    return _PASSWORD.sub(r"\1:***", before) + at + after


def without_passwords(text: str) -> str:
    """Return *text* with ``***`` for the passwords of all URLs in it, which are as in requests: nothing
    of the password ends a URL's authority."""
    if "@" not in text:
        return text
    return _PASSWORDS.sub(r"\1:***@", text)


def without_secrets(value: Any) -> Any:
    """Return what JSON has as *value*, see :func:`without_passwords`."""
    if isinstance(value, str):
        return without_passwords(value)
    if isinstance(value, dict):
        return {key: without_secrets(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    return value


def without_user(url: str) -> str:
    """Return an absolute *url* without user name and password. Those that a site's file names are
    nobody's credentials, and Scrapy can't send them."""
    found = _USER.match(url)
    return url if found is None else found[1] + url[found.end() :]


def text_of(error: Exception) -> str:
    """Return type and message of *error* for use within a sentence: no full stop, no passwords."""
    text = without_password(str(error)).strip().rstrip(".")
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def clean(text: str) -> str:
    """Return *text* with unprintable characters escaped: ``\\x1b``, ``\\u202e``. All text from
    outside goes through here before people see it: control characters steer terminals, newlines
    forge log lines, direction marks disguise text, and half of a surrogate pair can't be
    encoded."""
    if text.isprintable():
        return text
    shown = (
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )
    return "".join(shown)


def moment_of(seconds: float | None) -> datetime | None:
    """Return seconds since the epoch as a datetime, UTC; None for None, or if out of range."""
    with suppress(ValueError, OverflowError, OSError):  # a clock may be set to anything
        return (
            None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
        )
    return None


def date(seconds: float, form: str) -> str:
    """Return :func:`moment_of` *seconds* in a *form* of ``strftime``; ``?`` out of range."""
    return "?" if (moment := moment_of(seconds)) is None else moment.strftime(form)


def iso(seconds: float | None, timespec: str = "seconds") -> str | None:
    """Return :func:`moment_of` *seconds* as ISO 8601."""
    if (moment := moment_of(seconds)) is None:
        return None
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def json_line(record: dict[str, Any]) -> str:
    """Return *record* as one line of JSON without unprintable characters. JSON's own escapes keep
    values as they are, except half of a surrogate pair, which many readers refuse: ``?``."""
    text = _encode(record).encode("utf-8", "replace").decode()
    if text.isprintable():
        return text
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
