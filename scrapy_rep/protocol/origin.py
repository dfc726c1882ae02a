"""URL to origin: whose robots.txt is it? (REP.md section 1)"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple

DEFAULT_PORTS = {"http": 80, "https": 443, "ftp": 21}
"""The schemes that the protocol covers, and their default ports."""

ROBOTS_PATH = "/robots.txt"
"""Always allowed (RFC 9309, 2.2.2)."""

MAX_HOST = 255
"""Characters: longer names are invalid, and slow to encode."""

MAX_URL = 8_192
"""Characters. Servers refuse longer ones, and encoding takes time."""

# What separates the labels of a non-ASCII host; what a label grows by in punycode.
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
_MAX_LABEL, _GROWTH = 63, len("xn--") + 1
_URL = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?#\\]*)")
# Python accepts any text as the zone after an address's "%".
_AUTHORITY = re.compile(r"(?:\[([0-9a-zA-Z:.%_~-]*)\]|([^:]*))(?::([0-9]{0,5}))?")
# Never in hosts, though encoding a non-ASCII host may produce them.
_NEVER = re.compile(r"[/?#@:\[\]\\\0-\x20\x7f]")


class Origin(NamedTuple):
    """What the rules of one robots.txt apply to. ``str()`` is canonical, without a default port."""

    scheme: str
    """``http``, ``https`` or ``ftp``."""
    host: str
    """Lower case; punycode; an IPv6 address in brackets."""
    port: int

    @classmethod
    def from_url(cls, url: str) -> Origin:
        """Return the origin of an absolute *url*. User info is not part of it.

        :raises ValueError: for other schemes, and for an invalid host or port
        """
        match = _URL.match(url)
        if match is None:
            raise ValueError(f"not an absolute URL: {_shortened(url)}")
        scheme = match[1].lower()
        if scheme not in DEFAULT_PORTS:
            raise ValueError(
                f"no robots.txt for the scheme {scheme!r}: {_shortened(url)}"
            )
        authority = _AUTHORITY.fullmatch(match[2].rpartition("@")[2])
        try:
            if authority is None:
                raise ValueError
            address, name, port = authority.groups()
            host = (
                punycode(name)
                if address is None
                else f"[{IPv6Address(address).compressed}]"
            )
            if (number := int(port or DEFAULT_PORTS[scheme])) > 65535:
                raise ValueError
        except ValueError:  # UnicodeError is one
            raise ValueError(f"invalid host or port: {_shortened(url)}") from None
        return cls(scheme, host.lower(), number)

    @property
    def robots_url(self) -> str:
        """The URL of the origin's robots.txt."""
        return f"{self}{ROBOTS_PATH}"

    def __str__(self) -> str:
        scheme, host, port = self
        usual = port == DEFAULT_PORTS[scheme]
        return f"{scheme}://{host}" if usual else f"{scheme}://{host}:{port}"


def punycode(host: str) -> str:
    """Return a host in lower case and ASCII; ``ValueError`` if invalid. Takes under 1 ms."""
    name = host if len(host) <= MAX_HOST else ""
    if not name.isascii():
        # Most hosts that are too long are recognised before encoding takes any time.
        labels = _DOTS.split(host)
        least = sum(
            len(label) + (0 if label.isascii() else _GROWTH) + 1 for label in labels
        )
        fits = least <= MAX_HOST and max(map(len, labels)) <= _MAX_LABEL
        # The codec that w3lib uses for Request.url, so that both spellings are one origin.
        name = host.encode("idna").decode("ascii") if fits else ""
    # A full-width slash becomes a slash, and punycode is longer.
    if not name or len(name) > MAX_HOST or _NEVER.search(name):
        raise ValueError("not a valid host")
    return name.lower()


def _shortened(url: str) -> str:
    return repr(url if len(url) <= 200 else url[:200] + "…")
