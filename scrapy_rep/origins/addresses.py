"""Which addresses are public. A table of our own: what ``ipaddress.is_global`` says differs between
Python's patch releases, and it takes some addresses for public that lead inside."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# IANA's special-purpose addresses (RFC 6890), and one more.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host, this network: RFC 791
            "10.0.0.0/8",  # private: RFC 1918
            "100.64.0.0/10",  # a provider's own: RFC 6598
            "127.0.0.0/8",  # loopback: RFC 1122
            "168.63.129.16/32",  # Azure's agent, which its machines alone can reach
            "169.254.0.0/16",  # link-local: RFC 3927. The metadata services of most clouds
            "172.16.0.0/12",  # private: RFC 1918
            "192.0.0.0/24",  # protocol assignments: RFC 6890. Oracle's metadata service is among them
            "192.0.2.0/24",  # documentation: RFC 5737
            "192.88.99.0/24",  # relays of 6to4: RFC 7526
            "192.168.0.0/16",  # private: RFC 1918
            "198.18.0.0/15",  # benchmarks: RFC 2544
            "198.51.100.0/24",  # documentation: RFC 5737
            "203.0.113.0/24",  # documentation: RFC 5737
            "224.0.0.0/4",  # multicast: RFC 5771
            "240.0.0.0/4",  # reserved, and broadcast: RFC 1112, RFC 919
        ),
    )
)

# Of IPv6, what is not global unicast (RFC 4291) is not public: loopback, link-local fe80::/10, unique
# local fc00::/7 (RFC 4193), site-local fec0::/10 (RFC 3879), multicast, ::/96, SIIT's ::ffff:0:0:0/96
# (RFC 2765), local translation 64:ff9b:1::/48 (RFC 8215), discard-only 100::/64 (RFC 6666), SRv6
# 5f00::/16 (RFC 9602), and what nobody has.
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: RFC 2928
            "2001:db8::/32",  # documentation: RFC 3849
            "3fff::/20",  # documentation: RFC 9637
        ),
    )
)

# Networks whose addresses lead to an IPv4 address in them, and the bits to its right.
_EMBEDDED = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped: RFC 4291
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64: RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4: RFC 3056
)
_TEREDO = IPv6Network("2001::/32")  # RFC 4380: a server, and the inverse of a client

# RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal for private use.
_PRIVATE_NAMES = (".localhost", ".local", ".home.arpa", ".internal")


def is_private_address(text: str) -> bool | None:
    """Whether an address is loopback, link-local, private or otherwise not public; None for a name."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        try:
            # Operating systems accept 127.1, 0x7f000001 and 2130706433.
            address = IPv4Address(socket.inet_aton(text))
        except (OSError, ValueError):
            return None
    if isinstance(address, IPv4Address):
        return _is_special(address)
    inner = _embedded(address)
    if inner:
        return any(map(_is_special, inner))
    return address not in _GLOBAL_6 or any(address in network for network in _SPECIAL_6)


def _is_special(address: IPv4Address) -> bool:
    return any(address in network for network in _SPECIAL_4)


def _embedded(address: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that packets to *address* are sent to."""
    number = int(address)
    if address in _TEREDO:
        return [_low(number >> 64), _low(~number)]
    return [_low(number >> bits) for network, bits in _EMBEDDED if address in network]


def _low(number: int) -> IPv4Address:
    return IPv4Address(number & 0xFFFFFFFF)


def is_private_host(host: str) -> bool | None:
    """Whether an :class:`Origin`'s *host* is private; None if only a look-up can tell."""
    name = host.rstrip(".")
    local = "." not in name or f".{name}".endswith(_PRIVATE_NAMES)
    private = is_private_address(name)
    return True if private is None and local else private
