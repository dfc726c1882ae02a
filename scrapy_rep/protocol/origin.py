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
"""Characters. Names have 253 bytes at most, and long ones take time to encode."""

_AUTHORITY = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?#\\]*)")
# In no host. Punycode of a non-ASCII host may contain them.
_NEVER = re.compile(r"[/?#@:\[\]\\\0-\x20\x7f]")
# Python accepts any text as the zone after a "%".
_ADDRESS = re.compile(r"[0-9a-zA-Z:.%_~-]*")
_PORT = re.compile(r"[0-9]{0,5}\Z")


class Origin(NamedTuple):
    """Scheme, host and port: what the rules of one robots.txt apply to, and nothing else.

    ``str()`` of it is canonical: the default port is left out.
    """

    scheme: str
    """``http``, ``https`` or ``ftp``."""
    host: str
    """Lower case; punycode; an IPv6 address in brackets."""
    port: int

    @classmethod
    def from_url(cls, url: str) -> Origin:
        """Return the origin of an absolute *url*. User info is no part of it.

        :raises ValueError: for what has no origin with a robots.txt: other schemes, no host,
            a port that is none, a host that no name or address can be
        """
        match = _AUTHORITY.match(url)
        if match is None:
            raise ValueError(f"no absolute URL: {_shortened(url)}")
        scheme = match.group(1).lower()
        if scheme not in DEFAULT_PORTS:
            raise ValueError(f"no robots.txt for the scheme {scheme!r}: {_shortened(url)}")
        authority = match.group(2).rpartition("@")[2]
        if authority.startswith("["):
            address, bracket, rest = authority.partition("]")
            host = _ipv6(address[1:], url) if bracket else ""
            colon, port = rest[:1], rest[1:]
            valid = bool(bracket) and colon in ("", ":")
        else:
            name, _, port = authority.partition(":")
            host, valid = _punycode(name, url), True
        if not valid or not _PORT.match(port):
            raise ValueError(f"no valid host and port: {_shortened(url)}")
        number = int(port) if port else DEFAULT_PORTS[scheme]
        if number > 65535:
            raise ValueError(f"no valid port: {_shortened(url)}")
        return cls(scheme, host, number)

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """Return the origin that *text* is ``str()`` of."""
        scheme, _, authority = text.partition("://")
        host, colon, port = authority.rpartition(":")
        if colon and port.isdigit():  # else that colon is part of an IPv6 address
            return cls(scheme, host, int(port))
        return cls(scheme, authority, DEFAULT_PORTS[scheme])

    @property
    def robots_url(self) -> str:
        """Where the origin's robots.txt is."""
        return f"{self}{ROBOTS_PATH}"

    @property
    def authority(self) -> str:
        """Host and port, as they stand in URLs."""
        default = self.port == DEFAULT_PORTS[self.scheme]
        return self.host if default else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def _punycode(host: str, url: str) -> str:
    if len(host) > MAX_HOST:
        raise ValueError(f"no valid host: {_shortened(url)}")
    try:
        # The codec that w3lib encodes the host of Request.url with: both spellings are one origin.
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"no valid host ({error}): {_shortened(url)}") from None
    # A full-width slash becomes a slash, and punycode is longer.
    if not name or len(name) > MAX_HOST or _NEVER.search(name):
        raise ValueError(f"no valid host: {_shortened(url)}")
    return name.lower()


def _ipv6(address: str, url: str) -> str:
    try:
        if _ADDRESS.fullmatch(address):
            return f"[{IPv6Address(address).compressed}]".lower()
    except ValueError:
        pass
    raise ValueError(f"no valid IPv6 address: {_shortened(url)}")


def _shortened(url: str) -> str:
    return repr(url if len(url) <= 200 else url[:200] + "…")
