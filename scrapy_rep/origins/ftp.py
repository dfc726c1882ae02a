"""robots.txt by FTP: an anonymous RETR (REP.md section 2).

Scrapy's handler reads files of any size, and can't be stopped. Here everything has a limit, and both
connections end with the fetch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy.exceptions import DownloadFailedError
from scrapy.http import Response
from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.protocol import ClientCreator, Protocol

from scrapy_rep.origins.body import READ_BYTES

if TYPE_CHECKING:
    from twisted.python.failure import Failure

_MAX_REPLIES = 65_536
"""Bytes of all replies together: some servers greet with pages of text."""

# Without the host: the server could name any, even in the user's network.
_PORT = re.compile(rb"\d{1,3},\d{1,3},\d{1,3},\d{1,3},(\d{1,3}),(\d{1,3})")


def retrieve(url: str) -> Deferred[Response]:
    """Fetch *url*; a missing file is a 404. Cancelling closes the connections.

    :raises Exception: (through the Deferred) if the file is incomplete
    """
    return Deferred.fromCoroutine(_retrieve(url))


async def _retrieve(url: str) -> Response:
    parts = urlsplit(url)
    control, data = _Control(), _Data()
    try:
        await control.open(parts.hostname, parts.port or 21)
        await control.ask("", b"2")
        if (await control.ask("USER anonymous", b"2", b"3")).startswith(b"3"):
            await control.ask("PASS guest", b"2")
        await control.ask("TYPE I", b"2")
        numbers = _PORT.search(await control.ask("PASV", b"227"))
        high, low = map(int, numbers.groups()) if numbers else (256, 0)
        if max(high, low) > 255:
            raise DownloadFailedError("the FTP server named no port")
        await data.open(control.transport.getPeer().host, high << 8 | low)
        reply = await control.ask(f"RETR {parts.path}", b"1", b"2", b"550")
        if reply.startswith(b"550"):
            return Response(url, status=404)
        await data.ended
        if reply.startswith(b"1") and len(data.body) < READ_BYTES:
            await control.ask("", b"2")  # else the connection was lost
        return Response(url, body=bytes(data.body[:READ_BYTES]))
    finally:
        control.close()
        data.close()


class _Connection(Protocol):
    transport: Any = None

    def open(self, host: str | None, port: int) -> Deferred[Any]:
        from twisted.internet import reactor  # importing it installs one

        creator = ClientCreator(reactor, lambda: self)  # type: ignore[no-untyped-call]
        return creator.connectTCP(host, port)  # type: ignore[no-untyped-call,no-any-return]

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abortConnection()


class _Control(_Connection):
    """The connection for commands."""

    def __init__(self) -> None:
        self._left = _MAX_REPLIES
        self._line = b""
        self._code = b""
        """Of an unfinished reply of several lines."""
        self._replies: DeferredQueue[bytes] = DeferredQueue()

    async def ask(self, command: str, *codes: bytes) -> bytes:
        """Send *command*, if any, and return the last line of the reply.

        :param codes: what it may begin with
        :raises DownloadFailedError: for any other reply, or none
        """
        if command:
            self.transport.write(f"{command}\r\n".encode())
        reply = await self._replies.get()
        if not reply:
            raise DownloadFailedError("the FTP server hung up")
        if not reply.startswith(codes):
            raise DownloadFailedError(f"the FTP server answered {reply[:3].decode()}")
        return reply

    def dataReceived(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.close()
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            code = line[:3]
            if code.isdigit() and self._code in (b"", code):
                self._code = code if line[3:4] == b"-" else b""
                if not self._code:
                    self._replies.put(line)

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._replies.put(b"")


class _Data(_Connection):
    """The connection for the file: as much of it as counts."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.ended: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.body += data
        if len(self.body) >= READ_BYTES:
            self.close()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.ended.callback(None)
