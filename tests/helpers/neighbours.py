"""Servers that few tests need: one that speaks HTTP/2, a proxy that tunnels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.helpers.behaviours import RULES, Behaviour
from tests.helpers.servers import Connection, Hit, LoopThread, Site, Sites
from tests.helpers.tls import server_context


class TunnelTo(dict[str, Behaviour]):
    """For `Site.pages`: whatever is asked for by CONNECT, it is the way to one site."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def get(self, path: str, default: Any = None) -> Behaviour:  # type: ignore[override]
        return self._tunnel

    async def _tunnel(self, hit: Hit, connection: Connection) -> None:
        reader, writer = await asyncio.open_connection(self._site.host, self._site.port)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))
        connection.open = False


class Http2Site:
    """Forbids /private, and answers everything else with a page."""

    def __init__(self, thread: LoopThread, folder: Path) -> None:
        self._thread = thread
        self._context = server_context(folder)
        self._context.set_alpn_protocols(["h2"])
        self._host = Sites.new_host()
        self.asked: list[str] = []

        self._server = thread.run(
            asyncio.start_server(self._serve, self._host, 0, ssl=self._context)
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._thread.call(self._server.close)

    def url(self, path: str) -> str:
        return f"https://{self._host}:{self._port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.events import RequestReceived

        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        writer.write(h2.data_to_send())
        while data := await reader.read(65536):
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    path = str(dict(event.headers)[":path"])
                    self.asked.append(path)
                    body = RULES.encode() if path == "/robots.txt" else b"a page"
                    headers = [(":status", "200"), ("content-type", "text/plain")]
                    h2.send_headers(event.stream_id, headers)
                    h2.send_data(event.stream_id, body, end_stream=True)
            writer.write(h2.data_to_send())
        writer.close()
