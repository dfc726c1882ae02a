"""README.md shows what `scrapy robots` prints: each of its examples is run, and compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helpers.behaviours import Behaviour, answer
from tests.helpers.readme import section
from tests.helpers.robots_command import FIELDS, make_project, robots
from tests.helpers.servers import Connection, Hit, Sites
from tests.helpers.sitemaps import index, urlset

TITLE = "Which line blocks this URL?"

# The sites of the examples, behind a proxy: no name is looked up, and the proxy of the
# environment is used as a crawl would use it.
ROBOTS = """\
User-agent: *
Disallow: /private/
Disallow: /*?session=

User-agent: ShopBot
Disallow: /private/
Allow: /private/*.html$
Sitemap: http://shop.example/sitemaps.xml
"""
LINTED = """\
Disallow: /tmp
User-agent: FooBot/2.0
Dissallow: /cgi
Disallow: images/
Crawl-delay: 10
Allow: /cgi
Sitemap: /cgi/sitemap.xml
"""
TEA = '<title>Tea</title>\n<meta name="ShopBot" content="noindex, max-snippet:20">\n'
PAGES: dict[str, dict[str, Behaviour]] = {
    "shop.example": {
        "/robots.txt": answer(ROBOTS),
        "/tea": answer(TEA, headers=[("X-Robots-Tag", "noarchive")], type="text/html"),
        "/sitemaps.xml": answer(
            index(f"http://shop.example/{name}" for name in ("pages.xml", "tea.txt"))
        ),
        "/pages.xml": answer(
            urlset(f"http://shop.example/{n % 4 and 'page' or 'private'}/{n}" for n in range(1200))
        ),
        "/tea.txt": answer("\n".join(f"http://shop.example/tea/{n}" for n in range(80))),
    },
    "old.example": {"/robots.txt": answer("", 404)},
    "down.example": {"/robots.txt": answer("", 503)},
}


async def proxy(hit: Hit, connection: Connection) -> None:
    parts = urlsplit(hit.target)
    await PAGES[parts.netloc][parts.path](hit, connection)


def fill(folder: Path) -> Path:
    """The project of the examples."""
    make_project(
        folder,
        [
            'USER_AGENT = "ShopBot/1.0 (+http://shop.example/bot)"',
            'REP_CACHE_STORAGE = "scrapy_rep.storages.SqliteStorage"',
        ],
    )
    (folder / "robots.txt").write_text(LINTED)
    (folder / "tea.html").write_text("<p>Tea")
    (folder / "urls.txt").write_text(
        "http://shop.example/\nhttp://shop.example/private/tea\nhttp://old.example/private/tea\n"
        "http://down.example/\n"
    )
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


def examples() -> list[tuple[str, str]]:
    return re.findall(r"^```\n\$ (scrapy robots .*)\n([^`]*)```$", section(TITLE), re.MULTILINE)


def timeless(text: str) -> str:
    return re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "20YY-MM-DDThh:mm:ssZ", text)


def printed(folder: Path, sites: Sites, line: str) -> str:
    words = shlex.split(line)[2:]
    given = b""
    if "<" in words:
        given = (folder / words.pop()).read_bytes()
        words.remove("<")
    site = sites.add()
    site.pages = {path: proxy for pages in PAGES.values() for path in pages}
    variables = {"http_proxy": site.url("")}
    if "--cache" in words:  # what an earlier example has left there
        robots(folder, stdin=(folder / "urls.txt").read_bytes(), variables=variables)
    done = robots(folder, *words, stdin=given, variables=variables)
    assert done.err == ""
    return done.out


def test_the_fields_are_documented() -> None:
    rows = section(TITLE).partition("| field | type |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in rows.splitlines() if row.startswith("| `")]
    assert sorted(re.findall("`([a-z0-9_]+)`", " ".join(cells))) == sorted(FIELDS)


def test_there_are_examples_of_everything() -> None:
    lines = "\n".join(line for line, _ in examples())
    for option in (
        "--agent",
        "--explain",
        "--json",
        "--file",
        "--lint",
        "--sitemaps",
        "--cache",
        "--page",
        "--header",
        "<",
    ):
        assert option in lines


@pytest.mark.process
@pytest.mark.parametrize(("line", "expected"), examples(), ids=[line for line, _ in examples()])
def test_an_example_prints_what_the_readme_shows(
    folder: Path, sites: Sites, line: str, expected: str
) -> None:
    assert timeless(printed(folder, sites, line)) == timeless(expected)
