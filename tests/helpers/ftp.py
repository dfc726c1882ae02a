"""Real FTP servers on loopback, in a thread of their own: a proper one, and some that keep to no rules. The
fixture `ftp_site` is the one of this worker of the test run."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.servers import LoopThread, Sites

with warnings.catch_warnings():
    # pyftpdlib stands on asyncore and asynchat, deprecated in Python 3.10 and 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.ioloop import IOLoop
    from pyftpdlib.servers import FTPServer


class FtpSite:
    """One server, of one folder at a time: see :meth:`serve`.

    `commands` records what was asked, as (command, argument): ("RETR", "/robots.txt").
    """

    def __init__(self) -> None:
        commands: list[tuple[str, str]] = []

        class Handler(FTPHandler):
            auth_failed_timeout = 0  # a refused login is answered at once, not after 3 s
            use_sendfile = False

            def pre_process_command(self, line: str, cmd: str, arg: str) -> None:
                commands.append((cmd, arg))
                super().pre_process_command(line, cmd, arg)

        self.commands = commands
        self._handler = Handler
        self.host = Sites.new_host()
        self._loop = IOLoop()
        self._server = FTPServer((self.host, 0), Handler, ioloop=self._loop)
        self.port = self._server.address[1]
        self._running = True
        self._thread = threading.Thread(target=self._serve, name="ftp", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._running:
            self._loop.loop(timeout=0.02, blocking=False)
        self._server.close_all()

    def serve(self, folder: Path, user: tuple[str, str] | None = ("anonymous", "")) -> FtpSite:
        """Serve *folder* to *user* (name and password; None: to nobody). Nothing was asked yet."""
        authorizer = DummyAuthorizer()
        if user is not None and user[0] == "anonymous":
            authorizer.add_anonymous(str(folder))
        elif user is not None:
            authorizer.add_user(*user, str(folder), perm="elradfmw")
        self._handler.authorizer = authorizer
        self.commands.clear()
        return self

    def url(self, path: str, user: str = "") -> str:
        return f"ftp://{user}{self.host}:{self.port}{path}"

    def count(self, path: str) -> int:
        """How often a file was asked for."""
        return self.commands.count(("RETR", path))

    def close(self) -> None:
        self._running = False
        self._thread.join(10)


@dataclass(frozen=True)
class Endless:
    """`start`, then `more` of it for as long as somebody reads."""

    more: bytes
    start: bytes = b""
    pause: float = 0.0


Says = bytes | Endless | None
"""None: nothing at all."""

USUAL: dict[str, Says] = {
    "": b"220 Ready\r\n",
    "USER": b"331 Who?\r\n",
    "PASS": b"230 Hello\r\n",
    "TYPE": b"200 Yes\r\n",
    "RETR": b"150 Here it comes\r\n",
    "end": b"226 That was it\r\n",
}


class BadFtp:
    """One server. What it says to which command ("": when somebody connects; "end": when the
    file is sent), where that is not the usual, and what it sends as a file."""

    def __init__(self, says: Mapping[str, Says], file: Says, host_it_names: str | None) -> None:
        self.host = Sites.new_host()
        self.port = self.data_port = 0
        self.commands: list[str] = []
        self.open = 0
        """Connections that the client has not closed."""
        self.connections = 0
        self.sent = 0
        """Bytes, of everything endless."""
        self.stuck = False
        """Whether the client was ever left without a word."""
        self._says = {**USUAL, **says}
        self._file = file
        self._names = (host_it_names or self.host).replace(".", ",")
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()

    def url(self, path: str) -> str:
        return f"ftp://{self.host}:{self.port}{path}"

    async def start(self) -> None:
        serves = (self._control, self._data)
        self._servers = [await asyncio.start_server(serve, self.host, 0) for serve in serves]
        self.port, self.data_port = (one.sockets[0].getsockname()[1] for one in self._servers)
        numbers = f"{self._names},{self.data_port >> 8},{self.data_port & 255}"
        self._says.setdefault("PASV", f"227 There ({numbers})\r\n".encode())

    async def stop(self) -> None:
        for server in self._servers:
            server.close()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._connection(writer):
            await self._say(writer, self._says[""])
            while line := await reader.readline():
                command = line.decode().split()[0]
                self.commands.append(command)
                await self._say(writer, self._says[command])
                if command == "RETR":
                    self._asked.set()
                    await self._ended.wait()
                    await self._say(writer, self._says["end"])

    async def _data(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = asyncio.ensure_future(reader.read())
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            with self._connection(writer):
                await asyncio.wait((gone, asked), return_when=asyncio.FIRST_COMPLETED)
                if self._says["RETR"] is not None:
                    await self._say(writer, self._file)
                if self._file is None:
                    await gone
        finally:
            gone.cancel()
            asked.cancel()
            self._ended.set()

    @contextmanager
    def _connection(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self.connections += 1
        self.open += 1
        try:
            with suppress(ConnectionError):  # what it is for
                yield
        finally:
            self.open -= 1
            writer.close()

    async def _say(self, writer: asyncio.StreamWriter, what: Says) -> None:
        if isinstance(what, bytes):
            writer.write(what)
            await writer.drain()
        elif what is None:
            self.stuck = True
        else:
            writer.write(what.start)
            while True:
                writer.write(what.more)
                await writer.drain()
                self.sent += len(what.more)
                self.stuck = True
                await asyncio.sleep(what.pause)


class BadFtps:
    """Those of one test."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._all: list[BadFtp] = []

    def add(
        self, says: Mapping[str, Says] | None = None, file: Says = b"", names: str | None = None
    ) -> BadFtp:
        """:param names: the host that its answer to PASV names"""
        site = BadFtp(says or {}, file, names)
        self._thread.run(site.start())
        self._all.append(site)
        return site

    def close(self) -> None:
        for site in self._all:
            self._thread.run(site.stop())
