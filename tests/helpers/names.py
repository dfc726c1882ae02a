"""The names that the crawls of the tests can resolve, and the certificate of those with TLS. Every other
name is unknown, without a question to any name server: there is no traffic outside loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Any

import twisted
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

ADDRESSES: dict[str, str] = {}
_getaddrinfo = socket.getaddrinfo


def resolve(name: str) -> str | None:
    if name.lower() == "localhost":
        return "127.0.0.1"
    try:
        literal = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return ADDRESSES.get(name.lower())
    return str(literal) if literal.is_loopback else None


def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    address = None if name is None else resolve(name)
    if name is not None and address is None:
        raise socket.gaierror(
            socket.EAI_NONAME, "Name or service not known (by the tests)"
        )
    return _getaddrinfo(address, port, *args, **kwargs)


def resolvers() -> list[Any]:
    """What resolves names in this process: without `scrapy_rep.origins.targets`, if nothing watches."""
    found: list[Any] = []
    if is_reactor_installed():
        from twisted.internet import reactor

        found.append(reactor.nameResolver)
    if not is_reactor_installed() or is_asyncio_reactor_installed():
        found.append(asyncio.get_running_loop().getaddrinfo)
    return found


def server_context() -> ssl.SSLContext:
    """With the certificate of Twisted's own tests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(twisted.__file__).parent / "test" / "server.pem")
    return context
