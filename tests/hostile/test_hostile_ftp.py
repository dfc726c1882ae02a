"""FTP servers that say nothing, or never end: the fetch ends, and leaves nothing open."""

from __future__ import annotations

import socket
from collections.abc import Iterator
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
from tests.helpers.ftp import BadFtp, BadFtps, Endless, Says
from tests.helpers.held import DEFER, Record, a_while
from tests.helpers.servers import LoopThread, Sites
from tests.helpers.timing import SECONDS, SLOW, closing_took

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_reactor(reason="Scrapy's FTP download handler needs a reactor"),
]

MEBIBYTE = 1 << 20
SHORT = {"REP_DOWNLOAD_TIMEOUT": 0.3}
RULES_FIRST = Endless(b"# and so on\n" * 5_000, start=RULES.encode())


@pytest.fixture
def ftps(sites_thread: LoopThread) -> Iterator[BadFtps]:
    some = BadFtps(sites_thread)
    yield some
    some.close()


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


async def test_silent_servers_keep_no_descriptor_and_no_slot(ftps: BadFtps) -> None:
    site = ftps.add({"": None})
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


async def test_an_endless_file_is_cut_and_hung_up_on(ftps: BadFtps) -> None:
    site = ftps.add(file=RULES_FIRST)
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


@pytest.mark.parametrize("file", [None, Endless(b"#", start=RULES.encode(), pause=0.01)])
async def test_a_slow_file_ends_with_the_timeout(ftps: BadFtps, file: Says) -> None:
    for settings in (SHORT, {"REP_DOWNLOAD_TIMEOUT": 20.0}):
        site = ftps.add(file=file)
        await all_refused([site], settings)
        if site.stuck:
            break  # else the machine was so slow that the file had not begun
    assert site.connections == 2


async def test_answers_that_are_no_use(ftps: BadFtps) -> None:
    """Files without their end, ports that are none, and refusals, whose codes are told."""
    ports = [
        b"227 Somewhere\r\n",
        *(b"227 (127,0,0,1,%s)\r\n" % port for port in (b"256,0", b"-1,80", b"0,0")),
        b"227 (127,0,0,1," + b"9" * 5_000 + b",1)\r\n",
        b"227 (127,0,0,1," + "\u0663,\u0661".encode() + b")\r\n",
        b"229 (|||80|)\r\n",
    ]
    cut = ftps.add({"end": b"426 Broken off\r\n"}, RULES.encode())
    refusals = {
        ftps.add({command: reply}): reply
        for reply in (b"421 Too many of you\r\n", b"550 No such file\r\n", b"999 \x1b[31m\r\n")
        for command in ("", "USER", "PASS", "TYPE", "PASV", "RETR")
        if (reply[:3], command) != (b"550", "RETR")
    }
    result = await all_refused([cut, *refusals, *(ftps.add({"PASV": port}) for port in ports)])
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


async def test_nothing_stays_open_when_the_crawl_ends(ftps: BadFtps) -> None:
    some, record = [ftps.add(says, file=None) for says in STUCK], Record()

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


async def test_endless_replies_are_hung_up_on(ftps: BadFtps) -> None:
    says = [(command, said) for command in ("", "USER", "RETR") for said in SAID]
    some = [ftps.add({command: Endless(said * 100)}, file=None) for command, said in says]
    result = await all_refused(some, {"REP_DOWNLOAD_TIMEOUT": 2.0})
    assert max(site.sent for site in some) < 20 * MEBIBYTE
    assert result.stat("rep/outcome/unreachable") == len(some)


async def test_no_other_host_is_connected_to(ftps: BadFtps, sites: Sites) -> None:
    """A server could have ports of the user's own network tried."""
    other = sites.add()
    site = ftps.add(file=RULES.encode(), names=other.host)
    inside = sites.add(host=other.host, port=site.data_port)
    result = await crawl(site.url("/private"))
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    assert inside.connections == 0
    assert await all_closed(site)
    result.assert_clean()


async def test_replies_of_many_lines(ftps: BadFtps) -> None:
    """Their text may begin with a number too."""
    said = b"220-Hello\n550 of us\r\n220-more\r\n 220 files\r\n221 hours\r\n\r\n220 Now\r\n"
    site = ftps.add({"": said, "USER": b"230-Already\r\n331 in\r\n230 Yes\r\n"}, RULES.encode())
    result = await crawl(site.url("/private"))
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    assert "PASS" not in site.commands
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
