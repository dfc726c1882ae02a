"""The files and URLs that the benchmarks work on: real ones where they are at hand."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_BYTES = 512_000
"""All parsers get no more than this of a file, as a crawler would hand it to them."""


class Site(NamedTuple):
    body: bytes
    agent: str
    urls: list[str]
    size: int
    """Bytes, before the cut."""


def site(body: bytes, agent: str, urls: Iterable[str]) -> Site:
    return Site(body[:MAX_BYTES], agent, list(urls), len(body))


def sites(path: str | None = None) -> tuple[str, list[Site]]:
    """Return what the files are, and the files: those of *path*, or of the golden corpus if it is
    found (in the folder that the environment variable REP_GOLDEN names, or beside the clone), or
    made here.
    """
    beside = Path(__file__).parents[2] / "shared" / "golden"
    corpus = Path(path or Path(os.environ.get("REP_GOLDEN") or beside) / "corpus.jsonl.gz")
    if path or corpus.is_file():
        return "real files (the golden corpus)", list(read(corpus))
    return "files made up for the benchmark, NOT real ones (REP_GOLDEN is not set)", list(make())


def read(path: Path) -> Iterator[Site]:
    """Read a ``.jsonl.gz``: a line is an object with ``robots`` (the bytes as latin-1 text),
    ``agent`` and ``cases`` (lists that begin with a URL)."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            body = record["robots"].encode("latin-1")
            yield site(body, record["agent"], (case[0] for case in record["cases"]))


WORDS = [
    "admin", "ajax", "api", "archive", "account", "basket", "blog", "cart", "category", "cgi-bin",
    "checkout", "comment", "content", "css", "download", "en", "error", "feed", "files", "forum",
    "help", "home", "image", "images", "include", "js", "json", "lang", "list", "login", "mail",
    "media", "member", "misc", "modules", "news", "node", "page", "pdf", "plugin", "print",
    "private", "product", "profile", "public", "register", "reply", "review", "rss", "scripts",
    "search", "seller", "share", "shop", "sitemap", "sort", "static", "tag", "temp", "theme", "tmp",
    "trackback", "uploads", "user", "users", "video", "wp-admin", "wp-content", "wp-includes",
]  # fmt: skip
BOTS = ["Googlebot", "bingbot", "AhrefsBot", "SemrushBot", "Yandex", "Baiduspider", "Slurp"]
# Half of the files are short, a few are very long: (rules at most, share of the files).
SIZES = {5: 30, 20: 30, 60: 25, 200: 12, 1000: 3}


def make(files: int = 400, seed: int = 2024) -> Iterator[Site]:
    """Files like those of real sites: the same each time."""
    chance = random.Random(seed)
    for number in range(files):
        longest = chance.choices(list(SIZES), list(SIZES.values()))[0]
        groups = [["*"]]
        if chance.random() < 0.4:
            groups += [[bot] for bot in chance.sample(BOTS, chance.randint(1, 6))]
        lines: list[str] = []
        rules: list[str] = []
        for agents in groups:
            if chance.random() < 0.3:
                lines.append(f"# {chance.choice(WORDS)} {chance.choice(WORDS)}")
            lines += [f"User-agent: {agent}" for agent in agents]
            for _ in range(chance.randint(1, longest if agents == ["*"] else 3)):
                rule = _rule(chance)
                kind = "Allow" if chance.random() < 0.15 else "Disallow"
                lines.append(f"{kind}: {rule}")
                rules.append(rule)
            lines.append("")
        host = f"https://www.site{number}.example"
        lines += [f"Sitemap: {host}/sitemap{n}.xml" for n in range(chance.randint(0, 3))]
        end = chance.choices(["\n", "\r\n"], [7, 3])[0]
        urls = [host + _path(chance, rules) for _ in range(16)]
        yield site(end.join(lines).encode(), "FooBot", urls)


def _rule(chance: random.Random) -> str:
    path = "".join(f"/{chance.choice(WORDS)}" for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))
    kind = chance.random()
    if kind < 0.55:
        return path + "/"
    if kind < 0.75:
        return path
    word = chance.choice(WORDS)
    wildcards = ("/*?{1}=", "/*/{1}/", "{0}/*.{1}$", "/*{1}", "{0}/*", "{0}/*{1}*{2}", "{0}.php$")
    return chance.choice(wildcards).format(path, word, chance.choice(WORDS))


def _path(chance: random.Random, rules: list[str]) -> str:
    if chance.random() < 0.5:
        rule = chance.choice(rules).replace("*", chance.choice(WORDS)).removesuffix("$")
        return rule + chance.choice(("", "page.html", "x", "?a=1"))
    tail = chance.choice(
        ("", "/", ".html", "?page=2", "?color=red&size=10", "/some-long-title-123")
    )
    return "".join(f"/{chance.choice(WORDS)}" for _ in range(chance.randint(1, 4))) + tail
