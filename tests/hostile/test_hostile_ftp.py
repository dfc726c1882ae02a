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
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.signals import robots_resolved
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import DEFER, Record, a_while
from tests.helpers.servers import LoopThread, Sites
from tests.holding.closing import SECONDS, SLOW, closing_took

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_reactor(reason="Scrapy's FTP download handler needs a reactor"),
]

MEBIBYTE = 1 << 20
SHORT = {"REP_DOWNLOAD_TIMEOUT": 0.3}


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


async def all_closed(site: BadFtp) -> bool:
    """Whether the client closes its connections soon."""
    for _ in range(300):
        if site.open == 0:
            return True
        await a_while(0.01)
    return False


async def all_refused(some: list[BadFtp], settings: dict[str, Any] | None = None) -> CrawlResult:
    """Crawl pages that may only be fetched if robots.txt can't be read as it should."""
    result = await crawl([site.url("/private") for site in some], settings)
    for site in some:
        assert isinstance(result.failure(site.url("/private")), RobotsUnreachable)
        assert await all_closed(site)
    result.assert_clean()
    return result


async def test_silent_servers_keep_no_descriptor_and_no_slot(ftp: Any) -> None:
    site = ftp({"": None})
    record = Record()
    active: list[int] = []
    still_open: list[int] = []

    async def resolved(**_: Any) -> None:
        assert await all_closed(site)
        active.append(len(record.engine.downloader.active))
        still_open.append(site.open)
        if len(active) == 3:
            record.close()

    result = await crawl(
        site.url("/private"),
        {**DEFER, **SHORT, "REP_DEFER_GRACE": 0},
        signal_handlers={**record.handlers, robots_resolved: resolved},
    )
    assert result.reason == "enough"
    assert (active, still_open) == ([0, 0, 0], [0, 0, 0])
    assert site.connections == 3
    assert await record.concurrency() == [16, 16]


async def test_an_endless_file_is_cut_and_hung_up_on(ftp: Any) -> None:
    site = ftp(file=Endless(b"# and so on\n" * 5_000, start=RULES.encode()))
    result = await crawl(site.url("/private"))
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    assert await all_closed(site)
    assert site.sent < 20 * MEBIBYTE  # what the kernel takes apart, it is half a one
    result.assert_clean()


def connecting_to(port: int) -> int:
    """How many connections to *port* are yet to be accepted."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)  # SYN_SENT


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("closed_early", [False, True])
async def test_a_server_that_never_accepts(closed_early: bool) -> None:
    host = Sites.new_host()
    record = Record()

    async def close() -> None:
        while not connecting_to(port):
            await a_while(0.01)
        record.close()

    if closed_early:
        record.on_deferred = lambda *_: deferred_from_coro(close())
    with socket.socket() as server, socket.socket() as first:
        server.bind((host, 0))
        server.listen(0)
        port = server.getsockname()[1]
        first.connect((host, port))  # takes the only place there is
        result = await crawl(
            f"ftp://{host}:{port}/private",
            {**SLOW, "REP_DEFER_GRACE": 0} if closed_early else SHORT,
            signal_handlers=record.handlers,
        )
        await a_while(0)
        assert connecting_to(port) == 0
    assert result.reason == ("enough" if closed_early else "finished")
    assert "Traceback" not in result.log


async def test_slow_files_end_with_the_timeout(ftp: Any) -> None:
    for seconds in (0.3, 20.0):
        some = [ftp(file=file) for file in (None, Endless(b"#", start=RULES.encode(), pause=0.01))]
        await all_refused(some, {"REP_DOWNLOAD_TIMEOUT": seconds})
        if all(site.stuck for site in some):
            break  # else the machine was so slow that a file had not begun
    assert [site.connections for site in some] == [2, 2]


async def test_answers_that_are_no_use(ftp: Any) -> None:
    """Files without their end, ports that are none, and refusals, whose codes are told."""
    ports = [
        b"227 Somewhere\r\n",
        *(b"227 (127,0,0,1,%s)\r\n" % port for port in (b"256,0", b"-1,80", b"0,0")),
        b"227 (127,0,0,1," + b"9" * 5_000 + b",1)\r\n",
        b"227 (127,0,0,1," + "\u0663,\u0661".encode() + b")\r\n",
        b"229 (|||80|)\r\n",
    ]
    cut = ftp({"end": b"426 Broken off\r\n"}, RULES.encode())
    refusals = {
        ftp({command: reply}): reply
        for reply in (b"421 Too many of you\r\n", b"550 No such file\r\n", b"999 \x1b[31m\r\n")
        for command in ("", "USER", "PASS", "TYPE", "PASV", "RETR")
        if (reply[:3], command) != (b"550", "RETR")
    }
    result = await all_refused([cut, *refusals, *(ftp({"PASV": port}) for port in ports)])
    assert "\x1b" not in result.log
    for site, reply in {cut: b"426", **refusals}.items():
        words = f"the FTP server answered {reply[:3].decode()}"
        assert words in str(result.failure(site.url("/private")))


# Greeting, login, port, start, a slow greeting, the file.
STUCK: list[dict[str, Says]] = [
    *({command: None} for command in ("", "USER", "PASV", "RETR")),
    {"": Endless(b"2", pause=0.01)},
    {},
]


async def test_nothing_stays_open_when_the_crawl_ends(ftp: Any) -> None:
    some, record = [ftp(says, file=None) for says in STUCK], Record()

    async def close() -> None:
        while not all(site.stuck for site in some):
            await a_while(0.01)
        record.close()

    record.on_deferred = lambda _, held: held == len(some) and deferred_from_coro(close())
    result = await crawl(
        [site.url("/private") for site in some],
        {**SLOW, "REP_DEFER_GRACE": 0},
        signal_handlers=record.handlers,
    )
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    for site in some:
        assert site.connections > 0
        assert await all_closed(site)


SAID = (b"220-Welcome\r\n", b"2", b"\r\n", b"\n", b"220 Ready\r\n", b"150 Wait\r\n", b"\0\xff")


async def test_endless_replies_are_hung_up_on(ftp: Any) -> None:
    says = [(command, said) for command in ("", "USER", "RETR") for said in SAID]
    some = [ftp({command: Endless(said * 100)}, file=None) for command, said in says]
    result = await all_refused(some, {"REP_DOWNLOAD_TIMEOUT": 2.0})
    assert max(site.sent for site in some) < 20 * MEBIBYTE
    assert result.stat("rep/outcome/unreachable") == len(some)


async def test_no_other_host_is_connected_to(ftp: Any, sites: Sites) -> None:
    """A server could have ports of the user's own network tried. Its replies have many lines, whose text may
    begin with a number too."""
    said = b"220-Hello\n550 of us\r\n220-more\r\n 220 files\r\n221 hours\r\n\r\n220 Now\r\n"
    other = sites.add()
    says = {"": said, "USER": b"230-Already\r\n331 in\r\n230 Yes\r\n"}
    site = ftp(says, RULES.encode(), other.host)
    inside = sites.add(host=other.host, port=site.data_port)
    result = await crawl(site.url("/private"))
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    assert "PASS" not in site.commands
    assert inside.connections == 0
    assert await all_closed(site)
    result.assert_clean()


# Handlers of the project's own


class OwnHandler:
    lazy = True
    requests: list[Request] = []
    answers = True

    async def download_request(self, request: Request) -> Response:
        self.requests.append(request)
        if not self.answers:
            await maybe_deferred_to_future(Deferred())
        return Response(request.url, body=RULES.encode())

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("answers", [True, False])
async def test_a_handler_of_the_project_is_used(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(OwnHandler, "requests", [])
    monkeypatch.setattr(OwnHandler, "answers", answers)
    url = "ftp://ftp.example/private"
    settings: dict[str, Any] = {} if answers else SHORT
    result = await crawl(url, {**settings, "DOWNLOAD_HANDLERS": {"ftp": OwnHandler}})
    expected = RobotsDisallowed if answers else RobotsUnreachable
    assert isinstance(result.failure(url), expected)
    [request] = OwnHandler.requests
    assert request.url == "ftp://ftp.example/robots.txt"
    assert request.meta["ftp_user"] == "anonymous"
    result.assert_clean()
