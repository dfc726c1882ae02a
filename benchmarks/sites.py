"""Thousands of sites on loopback, behind one socket: 127.40.0.1 and up. That takes Linux.

A benchmark says what they answer by a function of the site's number and the path.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
ROBOTS = b"User-agent: *\nDisallow: /private\n\nUser-agent: OtherBot\nDisallow: /\n"


class Answer(NamedTuple):
    """What a site answers."""

    body: bytes = PAGE
    kind: str = "text/html"
    seconds: float = 0.0
    """After so many."""
    status: str = "200 OK"
    max_age: int | None = None
    closes: bool = False
    """Whether the connection ends with it: else thousands would be open."""

    def packed(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status}", f"Content-Type: {self.kind}"]
        lines.append(f"Content-Length: {len(self.body)}")
        if self.max_age is not None:
            lines.append(f"Cache-Control: max-age={self.max_age}")
        if self.closes:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


def url_of(number: int, port: int) -> str:
    """Return the URL of a site, without a slash at its end."""
    host = f"127.{40 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
    return f"http://{host}:{port}"


def number_of(host: str) -> int:
    _, first, second, third = map(int, host.split("."))
    return (first - 40) * 62500 + second * 250 + third - 1


class _Talk(asyncio.Protocol):
    """One connection to a site."""

    def __init__(
        self, answers: Callable[[int, str, str], Answer | None], asked: list[int]
    ) -> None:
        self._answers = answers
        self._asked = asked

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        host, port = transport.get_extra_info("sockname")
        self._number, self._site = number_of(host), f"http://{host}:{port}"

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1].decode()
        answer = self._answers(self._number, path, self._site)
        if answer is not None:  # else the site is silent
            self._asked[0] += path == "/robots.txt"
            loop = asyncio.get_running_loop()
            loop.call_later(answer.seconds, self._write, answer)

    def _write(self, answer: Answer) -> None:
        self._transport.write(answer.packed())
        if answer.closes:
            self._transport.close()


def serve(answers: Callable[[int, str, str], Answer | None], pipe: Connection) -> None:
    """Serve all sites in this process. *answers* gets a site's number, the path and the site's URL.
    Sends the port, and one that nobody listens on; then, whenever it receives anything, how many
    robots.txt were answered."""
    asyncio.run(_serve(answers, pipe))


async def _serve(
    answers: Callable[[int, str, str], Answer | None], pipe: Connection
) -> None:
    asked = [0]
    everywhere = socket.create_server(("0.0.0.0", 0), backlog=4096)  # noqa: S104 (loopback, below)
    everywhere.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    loop = asyncio.get_running_loop()
    await loop.create_server(
        lambda: _Talk(answers, asked), sock=everywhere, backlog=4096
    )
    dead = socket.socket()
    dead.bind(("0.0.0.0", 0))  # noqa: S104 (it never listens)
    pipe.send((everywhere.getsockname()[1], dead.getsockname()[1]))
    while True:
        await asyncio.to_thread(pipe.recv)
        pipe.send(asked[0])
