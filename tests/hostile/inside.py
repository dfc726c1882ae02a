"""A network of its own for crawls: `unshare --net --mount python -m tests.hostile.inside FILE`.

Its loopback has public addresses, behind which there is a web server, and a name server whose answers
change between a check and a connection. FILE holds the arguments of `scrapy` as JSON; all are run at once. The outcome
is JSON on standard output: what was requested of private addresses, and the commands' output.

A site's name begins with what its name server does, and ends with the name of its crawl:
`fails-1.none.test`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.helpers.scrapy_process import ScrapyProcess

PUBLIC = ("93.184.215.14", "93.184.215.15")
PRIVATE = ("10.0.0.1",)

LOOPBACK = ("127.0.0.1",)

# What the first look-up of a name says, and what all later ones do; None is "no such name".
ADDRESSES: dict[str, tuple[tuple[str, ...] | None, tuple[str, ...]]] = {
    "public": (PUBLIC, PUBLIC),
    "fails": (None, LOOPBACK),
    "changes": (PUBLIC[:1], LOOPBACK),
    "dual": ((PUBLIC[1], *PRIVATE), (PUBLIC[1], *PRIVATE)),
}

asked: Counter[str] = Counter()
inside: list[str] = []


def serve_names() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        query, client = server.recvfrom(512)
        server.sendto(reply_to(query), client)


def reply_to(query: bytes) -> bytes:
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    question = query[12 : at + 5]
    name, (kind,) = ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])
    # Nothing has an IPv6 address, which is not to say that there is no such name.
    found = addresses_of(name) if kind == 1 else ()
    answers = [
        b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(one)
        for one in found or ()
    ]
    flags = 0x8183 if found is None else 0x8180
    header = query[:2] + struct.pack("!HHHHH", flags, 1, len(answers), 0, 0)
    return header + question + b"".join(answers)


def addresses_of(name: str) -> tuple[str, ...] | None:
    answers = ADDRESSES.get(name.split("-")[0], (None, None))
    asked[name] += 1
    return answers[asked[name] > 1]


class Web(BaseHTTPRequestHandler):
    """Each site's answers. Whatever is asked of a private address is noted."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.headers["Host"]
        address = self.connection.getsockname()[0]
        if address not in PUBLIC:
            inside.append(f"{host}{self.path}")
        name, _, crawl = host.split(":")[0].partition(".")
        answer = SITES.get((name, self.path), b"a page").replace(b"CRAWL", crawl.encode())
        location = answer.removeprefix(b"-> ") if answer.startswith(b"-> ") else b""
        self.send_response(301 if location else 200)
        self.send_header("Location", location.decode())
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


SITES = {
    ("public-1", "/robots.txt"): b"-> http://fails-1.CRAWL/latest/meta",
    ("public-2", "/robots.txt"): b"-> http://changes-1.CRAWL/latest/meta",
    ("public-3", "/robots.txt"): (
        b"Sitemap: http://fails-2.CRAWL/sm\nSitemap: http://changes-2.CRAWL/sm\n"
        b"Sitemap: http://public-3.CRAWL/map.txt"
    ),
    ("public-3", "/map.txt"): b"http://fails-3.CRAWL/page\nhttp://changes-3.CRAWL/page",
    ("public-4", "/page"): b"-> http://127.0.0.1/CRAWL/page",
    ("public-5", "/page"): b"-> http://fails-5.CRAWL/page",
    ("dual-1", "/robots.txt"): b"-> http://127.0.0.1/CRAWL/latest/meta",
    ("changes-4", "/robots.txt"): b"-> http://changes-4.CRAWL:8080/latest/meta",
}


def run(commands: list[list[str]]) -> list[str]:
    """All at once."""
    running = []
    for number, arguments in enumerate(commands):
        output = Path(f"{number}.output")
        process = ScrapyProcess(arguments, cwd=Path(), variables=os.environ, output=output)
        running.append((process, output))
    for process, _ in running:
        process.wait(100)
    return [output.read_text() for _, output in running]


def main() -> None:
    for address in (*PUBLIC, *PRIVATE):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    resolv = Path(tempfile.mkdtemp()) / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    subprocess.run(["mount", "--bind", resolv, "/etc/resolv.conf"], check=True)
    threading.Thread(target=serve_names, daemon=True).start()
    for port in (80, 8080):
        server = ThreadingHTTPServer(("0.0.0.0", port), Web)  # noqa: S104 (in this network)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    output = run(json.loads(Path(sys.argv[1]).read_text()))
    print(json.dumps({"inside": sorted(set(inside)), "output": output}))


if __name__ == "__main__":
    main()
