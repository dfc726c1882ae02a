"""The fixture `ftp_site`: a real FTP server in a thread. tests/hostile has some that break the protocol."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

from tests.helpers.servers import Sites

with warnings.catch_warnings():
    # pyftpdlib stands on asyncore and asynchat, deprecated in Python 3.10 and 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.ioloop import IOLoop
    from pyftpdlib.servers import FTPServer


class FtpSite:
    """`commands` records what was asked, as (command, argument): ("RETR", "/robots.txt")."""

    def __init__(self) -> None:
        commands: list[tuple[str, str]] = []

        class Handler(FTPHandler):
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

    def serve(self, folder: Path, user: tuple[str, str] | None = None) -> FtpSite:
        """Serve *folder* to *user* (name and password), or to anonymous. Nothing was asked yet."""
        authorizer = DummyAuthorizer()
        if user is None:
            authorizer.add_anonymous(str(folder))
        else:
            authorizer.add_user(*user, str(folder), perm="elradfmw")
        self._handler.authorizer = authorizer
        self.commands.clear()
        return self

    def url(self, path: str, user: str = "") -> str:
        return f"ftp://{user}{self.host}:{self.port}{path}"

    def count(self, path: str) -> int:
        return self.commands.count(("RETR", path))

    def close(self) -> None:
        self._running = False
        self._thread.join(10)
