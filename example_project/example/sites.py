"""Fifteen small web sites on this machine, each with one robots.txt behaviour worth seeing.

SITES is the whole cast. run.py starts them; to keep them up, look at them in a browser or point
`scrapy` at them yourself: python3 example_project/run.py serve

Only the standard library is used, so that nothing needs to be installed to serve them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Thread

PORT = 8765

FORGETFUL = 10.0
"""Seconds without a fetch of robots.txt after which a site starts over with its answers."""


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. `{name}` in its texts becomes the address of the site of that name."""

    body: str = ""
    status: int = 200
    type: str = "text/plain"
    location: str | None = None
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    about: str
    links: list[str]  # on each of its pages; a page of any name exists
    robots: list[
        Answer
    ]  # one for each time that /robots.txt is asked for; the last one stays
    files: dict[str, Answer] = field(default_factory=dict)


def redirects(count: int, body: str) -> tuple[list[Answer], dict[str, Answer]]:
    """/robots.txt that leads to `body` after `count` redirects."""
    hops = {
        f"/hop{n}": Answer(status=301, location=f"/hop{n + 1}") for n in range(1, count)
    }
    return [Answer(status=301, location="/hop1")], {
        **hops,
        f"/hop{count}": Answer(body),
    }


PLAIN = "# Everybody is welcome\nUser-agent: *\nDisallow: /private\n"

GROUPS = """\
User-agent: *
Disallow: /

User-agent: ExampleBot
Disallow: /drafts
Crawl-delay: 1
Content-Usage: /photos train-ai=n
Content-Signal: search=yes

User-agent: ExampleBot-Images
Disallow: /photos
"""

NOT_FOUND = (
    "<html><head><title>404 Not Found</title></head><h1>Page not found</h1></html>"
)

SITEMAPS = """\
User-agent: *
Disallow: /old
Sitemap: {sitemaps}/sitemap.xml
Sitemap: {sitemaps}/old/sitemap.xml
"""

SITEMAP_INDEX = """\
<?xml version="1.0" encoding="UTF-8"?>
<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<sitemap><loc>{sitemaps}/news.xml</loc></sitemap>
<sitemap><loc>{sitemaps}/shop.txt</loc></sitemap>
</sitemapindex>
"""

NEWS = """\
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>{sitemaps}/news/1</loc><lastmod>2026-01-31</lastmod></url>
<url><loc>{sitemaps}/news/2</loc></url>
<url><loc>{plain}/public</loc></url>
</urlset>
"""

SHOP = "{sitemaps}/shop/tea\n{sitemaps}/old/coffee\n"

TEA = '<title>Tea</title>\n<meta name="ExampleBot" content="noindex, max-snippet:20">\n'

# Pages that say what may be done with them.
CLUB = {
    "/club": Answer(
        '<a href="/news">News</a> <a href="/members">Members</a>'
        '<a href="/visitors" rel="ugc">A visitor\'s page</a>',
        type="text/html",
    ),
    "/news": Answer(
        '<meta name="robots" content="nofollow"><a href="/old">Old news</a>',
        type="text/html",
    ),
    "/members": Answer(
        '<meta name="ExampleBot" content="noindex">Our members', type="text/html"
    ),
    "/tea": Answer(TEA, type="text/html", headers={"X-Robots-Tag": "noarchive"}),
}

SITES = {
    "plain": Site(
        "One rule for everybody.",
        ["/public", "/private"],
        [Answer(PLAIN)],
        CLUB,
    ),
    "groups": Site(
        "A group that names the crawler replaces the * group instead of adding to it.",
        ["/photos", "/drafts"],
        [Answer(GROUPS)],
    ),
    "longest": Site(
        "The longest rule wins, whichever comes first.",
        ["/shop/staff", "/shop/open/tea"],
        [Answer("User-agent: *\nDisallow: /shop/\nAllow: /shop/open/\n")],
    ),
    "wildcards": Site(
        "* is any text, $ at the end is the end of the URL.",
        ["/a.pdf", "/a.pdf.html", "/b?page=1", "/b?session=1"],
        [Answer("User-agent: *\nDisallow: /*.pdf$\nDisallow: /*?session=\n")],
    ),
    "typos": Site(
        "Misspelt rules and a missing colon still count.",
        ["/secret", "/hidden", "/open"],
        [Answer("useragent: *\nDissalow: /secret\ndisallow /hidden\n")],
    ),
    "missing": Site(
        "404, no robots.txt: no restrictions.",
        ["/anything"],
        [Answer("not found", 404)],
    ),
    "forbidden": Site(
        "403 is a 4xx like any other: no restrictions.",
        ["/anything"],
        [Answer("go away", 403)],
    ),
    "soft404": Site(
        "A server error whose page says 'not found' is a missing file.",
        ["/anything"],
        [Answer(NOT_FOUND, 500, "text/html")],
    ),
    "redirects": Site(
        "Five redirects are followed.",
        ["/private"],
        *redirects(5, PLAIN),
    ),
    "too-many": Site(
        "A sixth is not: the file counts as missing.",
        ["/private"],
        *redirects(6, PLAIN),
    ),
    "moved": Site(
        "Rules found on another host apply to the host that was asked.",
        ["/private"],
        [Answer(status=302, location="{plain}/robots.txt")],
    ),
    "sitemaps": Site(
        "Sitemaps are announced in robots.txt, and obey it too.",
        ["/news/1"],
        [Answer(SITEMAPS)],
        {
            "/sitemap.xml": Answer(SITEMAP_INDEX, type="application/xml"),
            "/news.xml": Answer(NEWS, type="application/xml"),
            "/shop.txt": Answer(SHOP),
        },
    ),
    "slow": Site(
        "Its pages wait until robots.txt arrives; those of other sites do not.",
        ["/private"],
        [Answer(PLAIN, delay=1.0)],
    ),
    "recovers": Site(
        "503 three times: its pages are held until robots.txt arrives.",
        ["/private"],
        [Answer("busy", 503)] * 3 + [Answer(PLAIN)],
    ),
    "down": Site(
        "503 for ever: its pages are held until the crawler gives up.",
        ["/anything"],
        [Answer("broken", 503)],
    ),
}


def address(name: str) -> str:
    """Where a site is, without a slash at the end: where run.py says, else at the usual place."""
    usual = {site: f"http://127.0.0.{n}:{PORT}" for n, site in enumerate(SITES, 1)}
    return {**usual, **json.loads(os.environ.get("EXAMPLE_SITES", "{}"))}[name]


def fill(text: str, addresses: dict[str, str]) -> str:
    """Put addresses where a text has the names of sites in braces."""
    for name, where in addresses.items():
        text = text.replace(f"{{{name}}}", where)
    return text


class Script:
    """What a site answers, one time after the other."""

    def __init__(self, name: str) -> None:
        self.name, self.site = name, SITES[name]
        self.asked = 0
        self._step = 0
        self._last = float("-inf")

    def answer(self, path: str) -> Answer:
        if path == "/robots.txt":
            self.asked += 1
            now = time.monotonic()
            self._step = 0 if now - self._last > FORGETFUL else self._step + 1
            self._last = now
            return self.site.robots[min(self._step, len(self.site.robots) - 1)]
        links = "".join(f'<li><a href="{link}">{link}</a>' for link in self.site.links)
        page = f"<title>{self.name}</title><h1>{path}</h1>{self.site.about}<ul>{links}</ul>"
        return self.site.files.get(path, Answer(page, type="text/html"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        answer = self.server.answer(self.path)
        time.sleep(answer.delay)
        body = self.server.fill(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(body)))
        for header, value in answer.headers.items():
            self.send_header(header, value)
        if answer.location:
            self.send_header("Location", self.server.fill(answer.location))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the crawler's log says it already


class Server(ThreadingTCPServer):
    """One site. Not http.server's own class, which looks every address up in the DNS."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, where: tuple[str, int], name: str, addresses: dict[str, str]
    ) -> None:
        super().__init__(where, Handler)
        self.name, self.script = name, Script(name)
        self.addresses = addresses

    def answer(self, path: str) -> Answer:
        return self.script.answer(path)

    def fill(self, text: str) -> str:
        return fill(text, self.addresses)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a crawler that hangs up is no news


def listen(name: str, number: int, port: int, addresses: dict[str, str]) -> Server:
    """Serve a site on its own address, else (macOS has 127.0.0.1 only) on a port of its own."""
    try:
        server = Server((f"127.0.0.{number}", port), name, addresses)
    except OSError:
        server = Server(("127.0.0.1", 0), name, addresses)
    addresses[name] = "http://{}:{}".format(*server.server_address)
    # Asked 20 times a second whether to stop: 15 sites stop one after the other.
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


@contextmanager
def serving(
    port: int = PORT, asked: dict[str, int] | None = None
) -> Iterator[dict[str, str]]:
    """Run all sites; gives their addresses by name.

    :param asked: gets, at the end, how often each was asked for robots.txt
    """
    addresses: dict[str, str] = {}
    servers: list[Server] = []
    try:
        for number, name in enumerate(SITES, 1):
            servers.append(listen(name, number, port, addresses))
            port = servers[0].server_address[
                1
            ]  # the first one had to take another? follow it
        yield addresses
    finally:
        if asked is not None:
            asked.update((server.name, server.script.asked) for server in servers)
        for server in servers:
            server.shutdown()
            server.server_close()


def directory(places: dict[str, str]) -> str:
    """What the sites are and where, and what to type if that is not where the manual has them."""
    lines = [
        f"{place:24} {name:10} {SITES[name].about}" for name, place in places.items()
    ]
    moved = [name for name, place in places.items() if place != address(name)]
    if moved:
        lines += [
            "",
            "The manual has other addresses: something else listens there, or this machine has no more",
            "than 127.0.0.1. What to type instead:",
            "",
            *(f"    {address(name):24} is {places[name]}" for name in moved),
            "",
            "and before `scrapy crawl`:",
            "",
            f"    export EXAMPLE_SITES='{json.dumps(places)}'",
            "",
            "On macOS, this makes the manual's addresses work until the next start of the machine:",
            "",
            f"    for n in $(seq 2 {len(SITES)}); do sudo ifconfig lo0 alias 127.0.0.$n; done",
        ]
    return "\n".join(lines)


def serve() -> None:
    """Run all sites until Ctrl-C."""
    with serving() as places:
        print(directory(places), flush=True)
        print("Ctrl-C stops them.", flush=True)
        try:
            time.sleep(1e9)
        except KeyboardInterrupt:
            print()
