"""Web sites for the tests: real sockets on loopback, each site with an IP address of its own, in one thread,
apart from the crawl under test, which may run on any reactor. What a site does with a request is a behaviour
from `tests.helpers.behaviours`.

    a = sites.add(robots="User-agent: *\\nDisallow: /x", pages={"/old": redirect("/new")})
    a.url("/x")              # http://127.20.0.1:40123/x
    a.count("/robots.txt")   # how often that was asked for
    a.requests[0].headers    # as they were sent: [("Host", "127.20.0.1:40123"), ...]
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from scrapy.utils.reactor import is_reactor_installed

from tests.helpers import names
from tests.helpers.behaviours import Behaviour, answer, as_behaviour

# Each worker of pytest-xdist has addresses of its own: 127.20.0.0/16, 127.21.0.0/16, ...
NETWORK = 20 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@functools.cache
def has_addresses() -> bool:
    """Whether all of 127.0.0.0/8 is this machine, as on Linux and Windows. On macOS, one address is."""
    with socket.socket() as probe:
        try:
            probe.bind((f"127.{NETWORK}.0.1", 0))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Hit:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    time: float = field(default_factory=time.monotonic)

    def header(self, name: str) -> str | None:
        """Of all of them, joined, if it was sent more than once."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else None

    @property
    def path(self) -> str:
        return urlsplit(self.target).path


class Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer
        self.open = True

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """End with a FIN, after everything was sent."""
        self.open = False
        self.writer.close()

    def reset(self) -> None:
        """End with a RST."""
        self.open = False
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        while await self.reader.read(65536):
            pass


class Site:
    """Paths without a behaviour answer 200 with a small page; robots.txt 404, unless it is given."""

    def __init__(self, host: str, name: str | None, scheme: str) -> None:
        self.host, self.scheme, self.port = host, scheme, 0
        self.name = name or (f"[{host}]" if ":" in host else host)
        self.pages: dict[str, Behaviour] = {"/robots.txt": as_behaviour(404)}
        self.requests: list[Hit] = []
        self.connections = 0
        self._listener: socket.socket | None = None
        self._context: ssl.SSLContext | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._transports: weakref.WeakSet[Any] = weakref.WeakSet()

    def url(self, path: str = "/", *, user: str | None = None) -> str:
        at = f"{user}@" if user else ""
        return f"{self.scheme}://{at}{self.name}:{self.port}{path}"

    def set(self, path: str, behaviour: Behaviour | str | bytes | int) -> None:
        self.pages[path] = as_behaviour(behaviour)

    def hits(self, path: str) -> list[Hit]:
        return [hit for hit in self.requests if hit.path == path]

    def count(self, path: str) -> int:
        return len(self.hits(path))

    @property
    def robots_fetches(self) -> int:
        return self.count("/robots.txt")

    @property
    def pages_asked(self) -> list[str]:
        return [hit.target for hit in list(self.requests) if hit.path != "/robots.txt"]

    def tried_once(self, path: str) -> bool:
        """Two requests if the connection was lost. Without a reactor Scrapy downloads through aiohttp,
        which then repeats each GET once by itself."""
        return 1 <= self.count(path) <= (2 if is_reactor_installed() else 4)

    async def start(self, port: int, context: ssl.SSLContext | None) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, port), family=family)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._context = context
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept, self._listener)

    async def stop(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        await asyncio.sleep(0)  # whatever was accepted last has begun now
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.sleep(0)
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)  # their sockets are closed now

    def _accept(self, listener: socket.socket) -> None:
        """A connection is known from its first moment: one that nobody closes is a warning in a later test,
        whichever that is. (`asyncio.Server` loses those that come while it is being closed.)"""
        try:
            sock, _ = listener.accept()
        except OSError:  # the client is gone again
            return
        sock.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._connected(sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 20)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._context
            )
        except (OSError, asyncio.CancelledError):  # it gave up the handshake, say
            sock.close()
            return
        self._transports.add(transport)
        try:
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            await self._serve(Connection(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client, or the test, is gone
        finally:
            transport.close()

    async def _serve(self, connection: Connection) -> None:
        self.connections += 1
        while connection.open and (hit := await self._read(connection)):
            self.requests.append(hit)
            default = self.pages.get(hit.path, answer("<p>a page", type="text/html"))
            await self.pages.get(hit.target, default)(hit, connection)

    @staticmethod
    async def _read(connection: Connection) -> Hit | None:
        reader = connection.reader
        first = await reader.read(1)
        if first and not first.isalpha():
            # As real servers do when a client starts TLS on their plain port.
            await connection.send(
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
            )
        if not first.isalpha():
            return None
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head[:-4].split("\r\n")
        headers = [
            (key, value.strip())
            for key, _, value in (li.partition(":") for li in lines)
        ]
        length = next((int(v) for k, v in headers if k.lower() == "content-length"), 0)
        method, target, _ = start.split(" ", 2)
        return Hit(method, target, headers, await reader.readexactly(length))


class Always(dict[str, Behaviour]):
    """For `Site.pages`: whatever is asked for is answered alike."""

    def __init__(self, behaviour: Behaviour | str | int) -> None:
        self.behaviour = as_behaviour(behaviour)

    def get(self, path: str, default: Any = None) -> Behaviour:  # type: ignore[override]
        return self.behaviour


class Sites:
    # One counter for the whole run: no two sites, and so no two tests, share an IP address.
    _numbers = itertools.count(256)

    def __init__(self, thread: LoopThread) -> None:
        self._thread, self._tls = thread, names.server_context
        self._all: list[Site] = []
        self._bound: list[socket.socket] = []

    @classmethod
    def new_host(cls) -> str:
        number = next(cls._numbers)
        return f"127.{NETWORK}.{number // 256}.{number % 256}"

    def add(
        self,
        robots: Behaviour | str | bytes | int | None = None,
        pages: Mapping[str, Behaviour | str | bytes | int] | None = None,
        *,
        host: str | None = None,
        port: int = 0,
        name: str | None = None,
        tls: bool = False,
    ) -> Site:
        """`host`: an IP address to share; `name`: a host name that resolves to it for the crawl."""
        site = Site(host or self.new_host(), name, "https" if tls else "http")
        if name is not None:
            names.ADDRESSES[name.lower()] = site.host
        for path, behaviour in {"/robots.txt": robots, **(pages or {})}.items():
            if behaviour is not None:
                site.set(path, behaviour)
        self._thread.run(site.start(port, self._tls() if tls else None))
        self._all.append(site)
        return site

    def refused(self) -> str:
        """The root URL of a port that nobody listens at (and that nobody else can take)."""
        sock = socket.socket()
        sock.bind((self.new_host(), 0))
        self._bound.append(sock)
        host, port = sock.getsockname()
        return f"http://{host}:{port}"

    def close(self) -> None:
        for site in self._all:
            self._thread.run(site.stop())
            names.ADDRESSES.pop(site.name.lower(), None)
        for sock in self._bound:
            sock.close()


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="sites", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
