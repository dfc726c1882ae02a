"""What a site of the tests can do with a request, proper or not. Every answer closes its connection, so that
the count of requests is what the crawl asked for: Twisted repeats a GET if a kept-alive one drops."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.helpers.servers import Connection, Hit

    Behaviour = Callable[[Hit, Connection], Awaitable[None]]
else:
    Behaviour = Callable
RULES = "User-agent: *\nDisallow: /private\n"
"""The robots.txt of most sites here: line 2 forbids /private."""
RULES_BYTES = RULES.encode()
Pairs = Iterable[tuple[str, str]]


def as_behaviour(value: Behaviour | str | bytes | int) -> Behaviour:
    """Text is an answer of 200 with that body; a number is a status with a short page."""
    if isinstance(value, int):
        return answer(f"status {value}", value)
    if isinstance(value, str | bytes):
        return answer(value)
    return value


def head(status: int, headers: Pairs = ()) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Some Reason",
        *(f"{key}: {value}" for key, value in headers),
    ]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1")


def answer(
    body: str | bytes = b"",
    status: int = 200,
    headers: Pairs = (),
    *,
    type: str = "text/plain",
) -> Behaviour:
    content = body.encode() if isinstance(body, str) else body
    length = [("Content-Length", str(len(content)))] if status != 204 else []
    lines = [("Content-Type", type), *headers, *length]
    return raw(head(status, lines) + content)


def page(html: str, *tags: str, type: str = "text/html") -> Behaviour:
    return answer(html, headers=[("X-Robots-Tag", tag) for tag in tags], type=type)


def redirect(to: str | None, status: int = 301) -> Behaviour:
    return answer("moved", status, [] if to is None else [("Location", to)])


def encoded(body: bytes, *encodings: str, status: int = 200) -> Behaviour:
    return answer(body, status, [("Content-Encoding", one) for one in encodings])


def layers(body: bytes, count: int) -> bytes:
    for _ in range(count):
        body = gzip.compress(body, mtime=0)
    return body


def gzipped(body: bytes) -> Behaviour:
    return encoded(layers(body, 1), "gzip")


def gzip_bomb(start: bytes, mebibytes: int) -> Behaviour:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(start)
    zeros = bytes(1 << 20)
    for _ in range(mebibytes):
        packed += packer.compress(zeros)
    return encoded(packed + packer.flush(), "gzip")


def raw(data: bytes, *, reset: bool = False) -> Behaviour:
    async def behave(hit: Hit, connection: Connection) -> None:
        await connection.send(data)
        if reset:
            if (
                data
            ):  # a RST overtakes what was sent: give the client time to read that first
                # (nothing on this side tells when it has)
                await asyncio.sleep(0.1)
            connection.reset()
        else:
            connection.close()

    return behave


def hang_up() -> Behaviour:
    return raw(b"")


def reset() -> Behaviour:
    return raw(b"", reset=True)


def silence(first: bytes = b"") -> Behaviour:
    async def behave(hit: Hit, connection: Connection) -> None:
        await connection.send(first)
        await connection.gone()

    return behave


def lying_length(body: bytes, length: int) -> Behaviour:
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(length))]
    return raw(head(200, headers) + body)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> Behaviour:
    """A chunked answer; with `end` anything but the last chunk it is a broken one."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    headers = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")]
    return raw(head(200, headers) + body + end)


def after(seconds: float, behaviour: Behaviour | str | bytes | int) -> Behaviour:
    """A slow site. Where something has to happen meanwhile, and can be seen, use :func:`once`."""
    then = as_behaviour(behaviour)

    async def behave(hit: Hit, connection: Connection) -> None:
        await asyncio.sleep(seconds)
        await then(hit, connection)

    return behave


def once(
    happened: Callable[[], object], then: Behaviour | str | bytes | int = "page"
) -> Behaviour:
    """Answer when *happened* returns what is true, however long that takes. It is called in the thread of the
    sites."""
    behaviour = as_behaviour(then)

    async def behave(hit: Hit, connection: Connection) -> None:
        while not happened():
            await asyncio.sleep(0.01)
        await behaviour(hit, connection)

    return behave


def in_turn(*behaviours: Behaviour | str | bytes | int) -> Behaviour:
    turns = [as_behaviour(one) for one in behaviours]

    async def behave(hit: Hit, connection: Connection) -> None:
        await (turns.pop(0) if len(turns) > 1 else turns[0])(hit, connection)

    return behave


class LongBody:
    """A long body that counts how much of it could be sent before the client hung up."""

    def __init__(self, start: bytes, length: int, *, announce: bool = True) -> None:
        self.start, self.length = start, length
        self.headers = [("Content-Length", str(length))] if announce else []
        self.sent = 0

    async def __call__(self, hit: Hit, connection: Connection) -> None:
        await connection.send(head(200, self.headers) + self.start)
        self.sent = len(self.start)
        filler = (b"# nothing to see here" + b"." * 42 + b"\n") * 1024
        with contextlib.suppress(ConnectionError):
            while self.sent < self.length:
                chunk = filler[: self.length - self.sent]
                await connection.send(chunk)
                self.sent += len(chunk)
        connection.close()
