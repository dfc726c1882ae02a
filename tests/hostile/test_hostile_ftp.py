"""FTP servers that say nothing, or never end: the fetch ends. (The connection may stay: Scrapy's
handler is not ours to mend, docs/limits.md.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import Record, as_soon_as
from tests.helpers.rows import every_row
from tests.helpers.servers import LoopThread, Sites
from tests.holding.closing import SECONDS, closing_took

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_reactor(reason="Scrapy's FTP download handler needs a reactor"),
]


@dataclass(frozen=True)
class EndlessReply:
    """`start`, then `more` of it for as long as somebody reads."""

    more: bytes
    start: bytes = b""
    pause: float = 0.0


Says = bytes | EndlessReply | None
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
    """What it says to which command ("": on connecting; "end": with the file sent); the file."""

    def __init__(
        self, says: Mapping[str, Says], file: Says, host_it_names: str | None
    ) -> None:
        self.host = Sites.new_host()
        self.commands: list[str] = []
        self._connections: set[asyncio.Task[None]] = set()
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
        self._servers = [
            await asyncio.start_server(serve, self.host, 0) for serve in serves
        ]
        self.port, self.data_port = (
            one.sockets[0].getsockname()[1] for one in self._servers
        )
        numbers = f"{self._names},{self.data_port >> 8},{self.data_port & 255}"
        self._says.setdefault("PASV", f"227 There ({numbers})\r\n".encode())

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _control(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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

    async def _data(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        gone = asyncio.ensure_future(reader.read())
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            with self._connection(writer):
                await asyncio.wait((gone, asked), return_when=asyncio.FIRST_COMPLETED)
                await self._say(writer, self._file)
                if self._file is None:
                    await gone
        finally:
            gone.cancel()
            asked.cancel()
            self._ended.set()

    @contextmanager
    def _connection(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError):  # what it is for
                yield
        finally:
            writer.close()

    async def _say(self, writer: asyncio.StreamWriter, what: Says) -> None:
        if isinstance(what, bytes):
            writer.write(what)
            return
        self.stuck = True
        writer.write(what.start if what else b"")
        while what:
            writer.write(what.more)
            await writer.drain()
            await asyncio.sleep(what.pause)


@pytest.fixture
def ftp(sites_thread: LoopThread) -> Iterator[Callable[..., BadFtp]]:
    """Starts a server: what it says, the file, the host that its answer to PASV names."""
    with ExitStack() as stack:

        def start(
            says: Mapping[str, Says] | None = None,
            file: Says = b"",
            names: str | None = None,
        ) -> BadFtp:
            site = BadFtp(says or {}, file, names)
            sites_thread.run(site.start())
            stack.callback(lambda: sites_thread.run(site.stop()))
            return site

        yield start


COMMANDS = ("", "USER", "PASS", "TYPE", "PASV")


async def test_what_is_no_file(ftp: Any) -> None:
    """A refusal is no answer, but of the file that isn't there."""
    sites = [
        *(
            ftp({command: b"421 Too many of you\r\n"})
            for command in (*COMMANDS, "RETR")
        ),
        *(ftp({command: b"550 No such file\r\n"}) for command in COMMANDS),
        *(
            ftp({"PASV": b"227 (127,0,0,1,%s)\r\n" % port})
            for port in (b"256,0", b"0,0")
        ),
        ftp({"PASV": b"227 Somewhere\r\n"}),
        ftp({"": b"\0\xff\r\n"}),
    ]
    result = await crawl(
        [site.url("/private") for site in sites], {"REP_DOWNLOAD_TIMEOUT": 0.5}
    )
    with every_row() as row:
        for site in sites:
            with row(site._says):
                assert isinstance(
                    result.failure(site.url("/private")), RobotsUnreachable
                )
    assert "scrapy_rep" not in "".join(one.exc_text or "" for one in result.records)
    assert result.reason == "finished"


# Greeting, login, port, start, a slow greeting, and a file that is silent, or has no end.
STUCK: list[tuple[dict[str, Says], Says]] = [
    *(({command: None}, None) for command in ("", "USER", "PASV", "RETR")),
    ({"": EndlessReply(b"2", pause=0.01)}, None),
    *(
        ({}, file)
        for file in (None, EndlessReply(b"#", start=RULES.encode(), pause=0.01))
    ),
]


@pytest.mark.parametrize("timeout", [0.3, 30.0])
async def test_who_is_silent_keeps_no_slot(ftp: Any, timeout: float) -> None:
    sites, record = [ftp(*one) for one in STUCK], Record()

    def is_enough() -> bool:
        if timeout > 1:
            return all(site.stuck for site in sites)
        return len(record.resolved) >= 3 * len(sites)

    def held(_: Any, number: int) -> None:
        if number == len(sites):
            as_soon_as(is_enough, record.close)

    record.on_held = held
    urls = [site.url("/private") for site in sites]
    result = await record.crawl(urls, REP_DOWNLOAD_TIMEOUT=timeout, _REP_HOLD_GRACE=0)
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    assert await record.concurrency() == [16, 16]
    assert "Traceback" not in result.log


class OwnFtpHandler:
    lazy = True
    requests: list[Request] = []

    async def download_request(self, request: Request) -> Response:
        self.requests.append(request)
        if "silent" in request.url:
            await maybe_deferred_to_future(Deferred())
        return Response(request.url, body=RULES.encode())

    async def close(self) -> None:
        pass


async def test_a_handler_of_the_project_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OwnFtpHandler, "requests", [])
    hosts = {
        "ftp://ftp.example": RobotsDisallowed,
        "ftp://silent.example": RobotsUnreachable,
    }
    settings = {
        "REP_DOWNLOAD_TIMEOUT": 0.5,
        "DOWNLOAD_HANDLERS": {"ftp": OwnFtpHandler},
    }
    result = await crawl([f"{host}/private" for host in hosts], settings)
    for host, expected in hosts.items():
        assert isinstance(result.failure(f"{host}/private"), expected)
    assert {one.url for one in OwnFtpHandler.requests} == {
        f"{host}/robots.txt" for host in hosts
    }
    assert {one.meta["ftp_user"] for one in OwnFtpHandler.requests} == {"anonymous"}
    result.assert_clean()
