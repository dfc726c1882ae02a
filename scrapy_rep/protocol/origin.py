"""URL to origin: whose robots.txt is it? (REP.md section 1)"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple
from unicodedata import ucd_3_2_0

DEFAULT_PORTS = {"http": 80, "https": 443, "ftp": 21}
"""The schemes that the protocol covers, and their default ports."""

ROBOTS_PATH = "/robots.txt"
"""The path of a robots.txt, which is always allowed (RFC 9309, 2.2.2)."""

MAX_HOST = 255
"""The most characters of a host. Longer names are invalid, and slow to encode."""

MAX_URL = 8_192
"""The most characters of a URL. Servers refuse longer ones, and encoding takes time."""

_MAX_PORT = 65535

# What separates the labels of a non-ASCII host: full stops of several scripts.
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
# The most characters of a label, in punycode.
_MAX_LABEL = 63
# A non-ASCII label grows by at least this many characters in punycode: by "xn--", and
# by a hyphen behind its ASCII characters or, if it has none, by the second digit of the
# number that stands for its first character.
_LABEL_GROWTH = len("xn--") + 1
# Characters that encoding drops (RFC 3454, table B.1), such as the soft hyphen, for
# str.translate().
_DROPPED = dict.fromkeys(
    [
        0xAD,
        0x34F,
        0x1806,
        0x180B,
        0x180C,
        0x180D,
        0x200B,
        0x200C,
        0x200D,
        0x2060,
        0xFEFF,
        *range(0xFE00, 0xFE10),
    ]
)
# The beginning of an absolute URL.
_URL = re.compile(r"\s*(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<authority>[^/?#\\]*)")
# Host and port. An IPv6 address may have a zone after a "%"; Python would accept any
# text as one.
_HOST_AND_PORT = re.compile(
    r"(?:\[(?P<address>[0-9a-zA-Z:.%_~-]*)\]|(?P<name>[^:]*))(?::(?P<port>[0-9]{0,5}))?"
)
# A host as nearly all are written: in lower case, with nothing to encode.
_USUAL_HOST = re.compile(rf"[a-z0-9.-]{{1,{MAX_HOST}}}")
# Characters that hosts never contain, though encoding a non-ASCII host may produce
# them.
_NEVER_IN_HOSTS = re.compile(r"[/?#@:\[\]\\\0-\x20\x7f]")


class Origin(NamedTuple):
    """What the rules of one robots.txt apply to. ``str()`` is canonical, without a
    default port."""

    scheme: str
    """``http``, ``https`` or ``ftp``."""
    host: str
    """In lower case and punycode; an IPv6 address in brackets."""
    port: int

    @classmethod
    def from_url(cls, url: str) -> Origin:
        """Return the origin of an absolute *url*. User info is not part of it.

        :raises ValueError: for other schemes, and for an invalid host or port
        """
        match = _URL.match(url)
        if match is None:
            raise ValueError(f"not an absolute URL: {_shortened(url)}")
        scheme = match["scheme"].lower()
        if scheme not in DEFAULT_PORTS:
            raise ValueError(
                f"no robots.txt for the scheme {scheme!r}: {_shortened(url)}"
            )
        without_user = match["authority"].rpartition("@")[2]
        parts = _HOST_AND_PORT.fullmatch(without_user)
        if parts is None:
            raise ValueError(f"invalid host or port: {_shortened(url)}")
        address, name, digits = parts.groups()
        port = DEFAULT_PORTS[scheme]
        if digits:  # there may be a colon without digits
            port = int(digits)
        try:
            if address is not None:
                host = f"[{IPv6Address(address).compressed}]".lower()
            elif _USUAL_HOST.fullmatch(name) is not None:
                host = name
            else:
                host = punycode(name)
        except ValueError:  # also UnicodeError, which is a kind of ValueError
            host = ""
        if not host or port > _MAX_PORT:
            raise ValueError(f"invalid host or port: {_shortened(url)}")
        return cls(scheme, host, port)

    @property
    def robots_url(self) -> str:
        """The URL of the origin's robots.txt."""
        return f"{self}{ROBOTS_PATH}"

    def __str__(self) -> str:
        scheme, host, port = self
        if port == DEFAULT_PORTS[scheme]:
            return f"{scheme}://{host}"
        return f"{scheme}://{host}:{port}"


def punycode(host: str) -> str:
    """Return a host in lower case and ASCII; ``ValueError`` if invalid. Takes under 1
    ms."""
    if len(host) > MAX_HOST:
        raise ValueError("not a valid host")
    name = host
    if not host.isascii():
        if _is_too_long(host):
            raise ValueError("not a valid host")
        # This is the codec that w3lib uses for Request.url, so a host and its punycode
        # are one origin.
        name = host.encode("idna").decode("ascii")
    # Encoding turns a full-width slash into a slash, and makes hosts longer.
    if not name or len(name) > MAX_HOST or _NEVER_IN_HOSTS.search(name):
        raise ValueError("not a valid host")
    return name.lower()


def _is_too_long(host: str) -> bool:
    """Return whether a non-ASCII *host* is certainly too long in punycode. Most hosts
    that are too long are recognised here, before encoding takes any time."""
    labels = _DOTS.split(host)
    least_length = len(labels) - 1  # the dots between the labels
    for label in labels:
        # The codec begins with the same steps, which may shorten a label: a letter and
        # its accent become one character, and full-width letters become ASCII.
        lower = label.translate(_DROPPED).lower()
        normalized = ucd_3_2_0.normalize("NFKC", lower)
        if len(normalized) > _MAX_LABEL:
            return True
        least_length += len(normalized)
        if not normalized.isascii():
            least_length += _LABEL_GROWTH
    return least_length > MAX_HOST


def _shortened(url: str) -> str:
    """Return *url* for an error message."""
    if len(url) > 200:
        url = f"{url[:200]}…"
    return repr(url)
