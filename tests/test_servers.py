"""The sites of the tests leave nothing behind: what they left would be a warning, and so the failure, of
whatever test runs when it is collected."""

from __future__ import annotations

import gc
import socket
import warnings

import pytest

from tests.helpers.behaviours import silence
from tests.helpers.servers import LoopThread, Sites


@pytest.mark.parametrize("tls", [False, True])
def test_connections_that_come_while_a_site_ends_are_closed(
    sites_thread: LoopThread, tls: bool
) -> None:
    """Accepted or not, greeted or not; the client stays, so that only the site can close them."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(60):
            sites = Sites(sites_thread)
            site = sites.add(robots=silence(), tls=tls)
            clients = [
                socket.create_connection((site.host, site.port)) for _ in range(3)
            ]
            clients[0].sendall(b"\x16\x03\x01" if tls else b"GET / HTTP/1.1\r\n\r\n")
            sites.close()
            for client in clients:
                client.close()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
