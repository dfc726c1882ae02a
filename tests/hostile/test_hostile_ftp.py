"""FTP servers that say nothing, or never end: the fetch ends, and leaves nothing open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import Record, a_while, as_soon_as
from tests.helpers.rows import every_row
from tests.helpers.servers import LoopThread, Sites
from tests.holding.closing import SECONDS, closing_took

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_reactor(reason="Scrapy's FTP download handler needs a reactor"),
]


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
    """What it says to which command ("": on connecting; "end": with the file sent); the file."""

    def __init__(self, says: Mapping[str, Says], file: Says, host_it_names: str | None) -> None:
        self.host = Sites.new_host()
        self.commands: list[str] = []
        self.open = 0
        """Connections that the client has not closed."""
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
                await self._say(writer, self._file)
                if self._file is None:
                    await gone
        finally:
            gone.cancel()
            asked.cancel()
            self._ended.set()

    @contextmanager
    def _connection(self, writer: asyncio.StreamWriter) -> Iterator[None]:
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
            return
        self.stuck = True
        writer.write(what.start if what else b"")
        while what:
            writer.write(what.more)
            await writer.drain()
            self.sent += len(what.more)
            await asyncio.sleep(what.pause)


class Deaf:
    """A server that never accepts: the only place that there is is taken."""

    sent = 0

    def __init__(self, stack: ExitStack) -> None:
        server, first = (stack.enter_context(socket.socket()) for _ in range(2))
        server.bind((Sites.new_host(), 0))
        server.listen(0)
        host, self._port = server.getsockname()
        first.connect((host, self._port))
        self.url = f"ftp://{host}:{self._port}{{}}".format

    @property
    def open(self) -> int:
        """How many connections are yet to be accepted."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        syn_sent = "02"
        return sum(row[2].endswith(f":{self._port:04X}") and row[3] == syn_sent for row in rows)

    stuck = open


@pytest.fixture
def ftp(sites_thread: LoopThread) -> Iterator[Callable[..., BadFtp]]:
    """Starts a server: what it says, the file, the host that its answer to PASV names."""
    with ExitStack() as stack:

        def start(
            says: Mapping[str, Says] | None = None, file: Says = b"", names: str | None = None
        ) -> BadFtp:
            site = BadFtp(says or {}, file, names)
            sites_thread.run(site.start())
            stack.callback(lambda: sites_thread.run(site.stop()))
            return site

        yield start


async def assert_all_closed(site: Any) -> None:
    """Soon; and what was sent is little more than what the kernel takes."""
    for _ in range(300):
        if site.open == 0:
            break
        await a_while(0.01)
    assert site.open == 0
    assert site.sent < 20 << 20


PORTS = [
    b"227 Somewhere\r\n",
    *(b"227 (127,0,0,1,%s)\r\n" % port for port in (b"256,0", b"-1,80")),
    b"227 (127,0,0,1," + b"9" * 5_000 + b",1)\r\n",
    b"227 (127,0,0,1," + "\u0663,\u0661".encode() + b")\r\n",
    b"229 (|||80|)\r\n",
]
SAID = (b"220-Welcome\r\n", b"2", b"\r\n", b"\n", b"220 Ready\r\n", b"150 Wait\r\n", b"\0\xff")


async def test_what_is_no_file_and_what_is_cut(ftp: Any, sites: Sites) -> None:
    unreachable = {
        ftp({"end": b"426 Broken off\r\n"}, RULES.encode()): "the FTP server answered 426",
        **{ftp({"PASV": port}): "the FTP server " for port in PORTS},
        ftp({"PASV": b"227 (127,0,0,1,0,0)\r\n"}): "",  # the system refuses it
        **{ftp({at: Endless(said * 100)}): "the FTP server " for at in ("", "USER") for said in SAID},
        **{
            ftp({command: reply}): f"the FTP server answered {reply[:3].decode()}"
            for reply in (b"421 Too many of you\r\n", b"550 No such file\r\n", b"999 \x1b[31m\r\n")
            for command in ("", "USER", "PASS", "TYPE", "PASV", "RETR")
            if (reply[:3], command) != (b"550", "RETR")
        },
    }  # fmt: skip
    endless = ftp(file=Endless(b"# and so on\n" * 5_000, start=RULES.encode()))
    # Replies have many lines, whose text may begin with a number too. And a server could have ports of
    # the user's own network tried.
    said = b"220-Hello\n550 of us\r\n220-more\r\n 220 files\r\n221 hours\r\n\r\n220 Now\r\n"
    says, other = {"": said, "USER": b"230-Already\r\n331 in\r\n230 Yes\r\n"}, sites.add()
    elsewhere = ftp(says, RULES.encode(), other.host)
    inside = sites.add(host=other.host, port=elsewhere.data_port)
    some = [*unreachable, endless, elsewhere]
    result = await crawl([site.url("/private") for site in some])
    with every_row() as row:
        for site in some:
            with row(site._says):
                error = result.failure(site.url("/private"))
                kind = RobotsUnreachable if site in unreachable else RobotsDisallowed
                assert isinstance(error, kind)
                assert unreachable.get(site, "") in str(error)
                await assert_all_closed(site)
    assert "PASS" not in elsewhere.commands
    assert inside.connections == 0
    assert "\x1b" not in result.log
    result.assert_clean()


# Greeting, login, port, start, a slow greeting, replies without end, and a slow file.
STUCK: list[tuple[dict[str, Says], Says]] = [
    *(({command: None}, None) for command in ("", "USER", "PASV", "RETR")),
    ({"": Endless(b"2", pause=0.01)}, None),
    *(({"RETR": Endless(said * 100)}, None) for said in (b"150 Wait\r\n", b"220 Ready\r\n")),
    *(({}, file) for file in (None, Endless(b"#", start=RULES.encode(), pause=0.01))),
]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("timeout", [0.3, 30.0])
async def test_who_is_silent_keeps_no_descriptor_and_no_slot(ftp: Any, timeout: float) -> None:
    with ExitStack() as stack:
        some, record = [*(ftp(*one) for one in STUCK), Deaf(stack)], Record()

        def happened() -> bool:
            if timeout > 1:
                free = record.engine.downloader.total_concurrency == 16
                return free and all(site.stuck for site in some)
            many = len(record.resolved) >= 3 * len(some)
            return many and all(site.open <= 2 for site in some)

        record.on_deferred = lambda _, held: (
            held == len(some) and as_soon_as(happened, record.close)
        )
        urls = [site.url("/private") for site in some]
        result = await record.crawl(urls, REP_DOWNLOAD_TIMEOUT=timeout, REP_DEFER_GRACE=0)
        assert result.reason == "enough"
        assert closing_took(result) < SECONDS
        assert await record.concurrency() == [16, 16]
        for site in some:
            await assert_all_closed(site)
    assert "Traceback" not in result.log


class OwnHandler:
    lazy = True
    requests: list[Request] = []

    async def download_request(self, request: Request) -> Response:
        self.requests.append(request)
        if "silent" in request.url:
            await maybe_deferred_to_future(Deferred())
        return Response(request.url, body=RULES.encode())

    async def close(self) -> None:
        pass


async def test_a_handler_of_the_project_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnHandler, "requests", [])
    hosts = {"ftp://ftp.example": RobotsDisallowed, "ftp://silent.example": RobotsUnreachable}
    settings = {"REP_DOWNLOAD_TIMEOUT": 0.5, "DOWNLOAD_HANDLERS": {"ftp": OwnHandler}}
    result = await crawl([f"{host}/private" for host in hosts], settings)
    for host, expected in hosts.items():
        assert isinstance(result.failure(f"{host}/private"), expected)
    assert {one.url for one in OwnHandler.requests} == {f"{host}/robots.txt" for host in hosts}
    assert {one.meta["ftp_user"] for one in OwnHandler.requests} == {"anonymous"}
    result.assert_clean()
