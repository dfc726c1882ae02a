"""Handles text from outside and text for people. It percent-encodes URLs as Scrapy's
requests do, and refuses those beyond limits; it cleans text for output; it puts counts,
times and errors into words. It needs w3lib, not Scrapy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from w3lib.url import safe_url_string

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.origin import MAX_URL, punycode
from scrapy_rep.protocol.syntax import GLOBAL, leading_token

MAX_SITEMAP_URL = 2048
"""How many characters sitemaps.org allows the URL of a sitemap or of a page."""

MAX_IDN = 2_500
"""How many characters the different non-ASCII hosts in a page's URLs may have together.
Encoding this many takes up to 20 ms."""

MAX_LISTED_IDN = 50_000
"""The same limit for the URLs of a sitemap. It is higher than that of a page, since
sitemaps are read in slices, with pauses in between."""

# The beginning of a URL, as lenient parsers read it: they accept backslashes for
# slashes, and any number of either. Group 1: the authority, which is user, host and
# port.
_HOST = re.compile(
    r"[\0-\x20]*(?:[a-z][a-z0-9+.-]*:[/\\]*|[/\\]{2,})([^/\\?#]*)", re.IGNORECASE
)
# The beginning of a URL in which all parsers see the same host. Groups: the scheme with
# "://"; the host.
_CLEAR_START = re.compile(
    r"((?:https?|ftp)://)([^\0-\x20/\\?#@:\[\]%]+)(?=[/?#:]|\Z)", re.IGNORECASE
)
# A host that needs no encoding.
_PLAIN_HOST = re.compile(r"[a-z0-9._-]+")
# URLs of pages that need no encoding: a fast path. Group 1 is the origin. Longer hosts
# and ports are left to Origin.from_url().
_USUAL_PAGE = re.compile(
    r"(https?://[a-z0-9.-]{1,255}(?::[1-5]?[0-9]{1,4})?)(?:/[!$-~]*)?", re.ASCII
)
# Characters that parsers drop from URLs, for str.translate().
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))


class Encoder:
    """Encodes the URLs of one document, in little time whatever they are: the length of
    each URL is limited, and so is that of all non-ASCII hosts together, since encoding
    such a host takes up to a millisecond."""

    def __init__(self, limit: int = MAX_IDN) -> None:
        """*limit*: characters of all non-ASCII hosts, each counted once."""
        self._characters_left = limit
        # Punycode by host; empty for an invalid host.
        self._punycode: dict[str, str] = {}

    def __call__(self, url: str | bytes, encoding: str = "utf-8") -> str:
        """Return *url* as in a request: percent-encoded, its host in punycode.
        *encoding* is the document's: queries are encoded in it, and bytes decoded. A
        ``ValueError`` says why *url* is invalid, or which limit it exceeds."""
        if len(url) > MAX_URL:
            raise ValueError(f"longer than {MAX_URL:,} characters")
        if not url.isascii():
            # The host is encoded here, before w3lib does it: only once, and within the
            # limit. An invalid host raises ValueError, and w3lib doesn't get the URL.
            text = url if isinstance(url, str) else url.decode("utf-8", "replace")
            host = _host_of(text)
            ascii_host = host if host.isascii() else self._encoded_host(host)
            clear_start = _CLEAR_START.match(text)
            if clear_start is not None and isinstance(url, str):
                is_same_host = clear_start[2].lower() == host
                if is_same_host and _PLAIN_HOST.fullmatch(ascii_host):
                    # With the host in punycode, w3lib need not encode it again.
                    scheme = clear_start[1]
                    after_host = text[clear_start.end() :]
                    url = f"{scheme}{ascii_host}{after_host}"
        return safe_url_string(url, encoding)

    def _encoded_host(self, host: str) -> str:
        """Return a non-ASCII *host* in punycode; ``ValueError`` if it is invalid, or
        beyond the limit."""
        if host not in self._punycode:
            self._characters_left -= len(host)
            if self._characters_left < 0:
                raise ValueError("too many hosts that aren't ASCII")
            try:
                self._punycode[host] = punycode(host)
            except ValueError:
                self._punycode[host] = ""
        if not self._punycode[host]:
            raise ValueError("not a valid host")
        return self._punycode[host]

    def page_and_prefix(self, value: Any) -> tuple[str, str]:
        """Return the URL of a page, and its prefix: its beginning with scheme, host and
        port. *value* is the ``loc`` of a sitemap's entry; ``ValueError`` if that isn't
        an absolute http(s) URL."""
        if not isinstance(value, str):
            raise ValueError
        if not value or len(value) > MAX_URL:
            raise ValueError
        usual = _USUAL_PAGE.fullmatch(value)
        if usual is not None:
            return value, usual[1]
        encoded_url = self(value.strip())
        without_fragment = encoded_url.partition("#")[0]
        url = without_user(without_fragment)
        origin = Origin.from_url(url)
        if origin.scheme not in ("http", "https"):
            raise ValueError
        return url, str(origin)


def _host_of(url: str) -> str:
    """Return the host, in lower case, that a parser may find in *url*; empty if there
    is none."""
    match = _HOST.match(url.translate(_DROPPED))
    if match is None:
        return ""
    authority = match[1]  # user@host:port
    host_and_port = authority.rpartition("@")[2]
    return host_and_port.partition(":")[0].lower()


def encoded(url: str | bytes) -> str:
    """Return *url* as in a request, encoded by an :class:`Encoder` of its own;
    ``ValueError`` if it is invalid, or beyond the limits."""
    return Encoder()(url)


class SitemapURL(NamedTuple):
    """The address of a sitemap that a file lists."""

    url: str
    """Absolute and percent-encoded."""
    origin: Origin
    relative: bool
    """Whether it was listed as a relative URL, which the protocol doesn't allow."""


def resolve_sitemap(
    value: str, base: str | None = None, encode: Callable[[str], str] = encoded
) -> SitemapURL:
    """Return the address of a sitemap that a file lists as *value* (REP.md section 9).
    A ``ValueError`` says why no sitemap can have such a URL.

    A scheme without a host (``http:map.xml``, ``http:/a.example/map.xml``) is refused,
    although RFC 3986 lets a lenient parser take it for a relative URL.

    :param base: the URL of the robots.txt; None if *value* must not be relative
    :param encode: the document's :class:`Encoder`, which limits the work if it lists
        many sitemaps
    """
    try:
        if len(value) > MAX_SITEMAP_URL:
            raise ValueError
        relative = base is not None and not _has_scheme(value)
        absolute = urljoin(base or "", value) if relative else value
        encoded_url = encode(absolute)
        url = without_user(encoded_url)
        origin = Origin.from_url(url)
    except ValueError:
        raise ValueError("not a URL that a sitemap can have") from None
    if origin.scheme not in ("http", "https"):
        raise ValueError("only http and https URLs can be sitemaps")
    return SitemapURL(url, origin, relative)


def _has_scheme(url: str) -> bool:
    try:
        return urlsplit(url).scheme != ""
    except ValueError:
        # Python refuses the brackets in the host. Scrapy, which turns backslashes into
        # slashes, may still find a valid host there, so the URL doesn't count as
        # relative.
        return True


def warning_of_digits(tokens: Sequence[str]) -> str:
    """Return a warning that says what the digits in the first of *tokens* with digits
    mean; empty if none has any."""
    for token in tokens:
        name = leading_token(token)
        # After the leading letters, - and _, a token can go on only with a digit.
        has_digits = token not in (GLOBAL, name)
        if has_digits:
            break
    else:
        return ""
    if name:
        effect = f"it is read as {name}, and so obeys every group for {name}, whatever digits follow that name"
    else:
        effect = "no group can name it, and the rules for all agents (*) apply"
    return (
        f"The product token {token[:100]} has digits. As in Google's matcher, a name is read only up to its "
        f"first digit: {effect}. Use only letters, - and _ to avoid this."
    )


_encode_json = json.JSONEncoder(ensure_ascii=False).encode

# Matches the password in the part of a text before its last "@" (the URL's). Group 1:
# what comes before the password.
_PASSWORD = re.compile(r"(//[^:/?#]*):.*", re.DOTALL)
# Finds the passwords of URLs in a text. The part of a URL that may have one ends at a
# slash, or at a blank, where a message goes on. In JSON, quotes end the text.
_PASSWORDS = re.compile(r"""((?:\A|//|\s)[^\s/?#:@"']{0,1000}):[^\s/?#"']{0,1000}@""")
# The beginning of a URL with user name, and perhaps a password. Group 1: the scheme
# with "://".
_USER = re.compile(r"([a-z][a-z0-9+.-]{0,30}://)[^/?#]*@", re.IGNORECASE)
# A character that isn't a printable one of ASCII.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``. Without
    *plural*, the noun's plural is made by an "s"."""
    if count != 1:
        noun = plural or f"{noun}s"
    return f"{count:,} {noun}"


def duration(seconds: float) -> str:
    """Return *seconds* as text: ``40 s``, ``8 min``, ``3 h``. Up to 99 of a unit, the
    next larger unit isn't used."""
    if seconds < 100:
        seconds = max(0.0, seconds)
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        minutes = seconds / 60
        return f"{minutes:.0f} min"
    hours = seconds / 3600
    return f"{hours:.0f} h"


def without_password(text: str) -> str:
    """Return *text* with ``***`` for the password of the URL in it. The password is
    taken to extend to the last ``@``, since people leave ``:``, ``/``, ``@`` and spaces
    in a password as they are."""
    before, at, after = text.rpartition("@")
    before = _PASSWORD.sub(r"\1:***", before)
    return f"{before}{at}{after}"


def without_passwords(text: str) -> str:
    """Return *text* with ``***`` for the passwords of all URLs in it. The URLs are
    encoded as in requests, so no character of a password can end the part of the URL
    that has the password."""
    if "@" not in text:
        return text
    return _PASSWORDS.sub(r"\1:***@", text)


def without_secrets(value: Any) -> Any:
    """Return a *value* that JSON can hold, with all texts in it, except keys, as
    :func:`without_passwords` returns them."""
    if isinstance(value, str):
        return without_passwords(value)
    if isinstance(value, dict):
        return {key: without_secrets(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return list(map(without_secrets, value))
    return value


def without_user(url: str) -> str:
    """Return an absolute *url* without user name and password. Those in the URLs of a
    site's file are nobody's credentials, and Scrapy can't send them."""
    match = _USER.match(url)
    if match is None:
        return url
    scheme = match[1]
    return scheme + url[match.end() :]


def text_of(error: Exception) -> str:
    """Return type and message of *error* for use within a sentence: no full stop, no
    passwords."""
    message = without_password(str(error))
    text = message.strip().rstrip(".")
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def clean(text: str) -> str:
    """Return *text* with unprintable characters escaped: ``\\x1b``, ``\\u202e``. All
    text from outside goes through here before people see it, since control characters
    steer terminals, newlines forge log lines, direction marks disguise text, and half
    of a surrogate pair can't be encoded."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def moment_of(seconds: float | None) -> datetime | None:
    """Return seconds since the epoch as a datetime, UTC; None for None, or if out of
    range."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock may be set to anything
        return None


def date(seconds: float, form: str) -> str:
    """Return what :func:`moment_of` returns for *seconds*, in a *form* of ``strftime``;
    ``?`` if *seconds* are out of range."""
    moment = moment_of(seconds)
    return "?" if moment is None else moment.strftime(form)


def iso(seconds: float | None, timespec: str = "seconds") -> str | None:
    """Return what :func:`moment_of` returns for *seconds*, as ISO 8601; None if it
    returns None."""
    moment = moment_of(seconds)
    if moment is None:
        return None
    text = moment.isoformat(timespec=timespec)
    return text.replace("+00:00", "Z")


def json_line(record: dict[str, Any]) -> str:
    """Return *record* as one line of JSON without unprintable characters. Those in
    *record* are escaped as JSON allows, so values stay as they are; but half of a
    surrogate pair, which many readers of JSON refuse, becomes ``?``."""
    utf8 = _encode_json(record).encode("utf-8", "replace")
    text = utf8.decode()
    if text.isprintable():
        return text
    return _NOT_PLAIN.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    """Return the matched character as JSON escapes it, without the quotes around it."""
    with_quotes = json.dumps(match[0])
    return with_quotes[1:-1]
