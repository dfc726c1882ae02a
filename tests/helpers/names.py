"""The names that the crawls of the tests can resolve, and certificates.

Every other name fails as an unknown one does, without a question to any name server; the tests
cause no traffic outside loopback.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

ADDRESSES: dict[str, str] = {}
"""Host names of the running test, in lower case, and their IP addresses."""

_getaddrinfo = socket.getaddrinfo


def resolve(name: str) -> str | None:
    """The loopback address behind a name or literal, None if there is none."""
    if name.lower() == "localhost":
        return "127.0.0.1"
    try:
        literal = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return ADDRESSES.get(name.lower())
    return str(literal) if literal.is_loopback else None


def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for `socket.getaddrinfo` (asyncio asks that)."""
    name = host.decode() if isinstance(host, bytes) else host
    address = None if name is None else resolve(name)
    if name is not None and address is None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known (by the tests)")
    return _getaddrinfo(address, port, *args, **kwargs)


def resolvers() -> list[Any]:
    """What resolves names in this process: without `scrapy_rep.engine.resolution`, if nothing watches."""
    found: list[Any] = []
    if is_reactor_installed():
        from twisted.internet import reactor

        found.append(reactor.nameResolver)
    if not is_reactor_installed() or is_asyncio_reactor_installed():
        found.append(asyncio.get_running_loop().getaddrinfo)
    return found


def install_reactor_resolver() -> None:
    """Let the running Twisted reactor resolve by `resolve` too."""
    from twisted.internet import reactor
    from twisted.internet._resolver import GAIResolver

    reactor.installNameResolver(GAIResolver(reactor, getaddrinfo=getaddrinfo))


def server_context(folder: Path) -> ssl.SSLContext:
    """A context with a fresh self-signed certificate, written to `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback.test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = folder / "loopback.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
