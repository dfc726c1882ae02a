"""The robots.txt files and URLs that the benchmarks work on: real ones where they are at hand, else ones
that are made, like real ones in size, rules, agents and wildcards."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from math import exp
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

MAX_BYTES = 512_000
"""All parsers get no more than this of a file, as a crawler would hand it to them."""

# Sizes are log-normal, with the median and the mean of real files; cut where hardly any is longer.
_MEDIAN = 570
_SIGMA = 2.07
_LONGEST = 200_000

# Words that a blank separates.
_AGENTS = "Googlebot bingbot AhrefsBot SemrushBot MJ12bot GPTBot Yandex *"
_USUAL = """/wp-admin/ /wp-content/ /wp-includes/ /search /cgi-bin/ /admin/ /login /cart
    /checkout/ /account/ /api/ /private/ /feed/ /trackback/ /misc/ /modules/ /profiles/"""
_WILD = "/*?sort= /*?page= /*.pdf$ /*/print/ /*?s= /*/feed/ /*&sid= */amp"
_PARTS = [first + second for first in "bcdfgklmnprstv" for second in "aeio"]
_RULES = re.compile(r"^(?:Dis)?[Aa]llow: (\S+)", re.MULTILINE)


class Site(NamedTuple):
    body: bytes
    agent: str
    urls: list[str]
    size: int
    """Bytes, before the cut."""


def site(body: bytes, agent: str, urls: Iterable[str]) -> Site:
    return Site(body[:MAX_BYTES], agent, list(urls), len(body))


def sites() -> tuple[str, list[Site]]:
    """Return what the files are, and the files: those of ``corpus.jsonl.gz`` in the folder that the
    environment variable REP_GOLDEN names, or made ones.

    A line of the file is an object with ``robots`` (the bytes as latin-1 text), ``agent`` and
    ``cases`` (lists that begin with a URL).
    """
    folder = os.environ.get("REP_GOLDEN")
    if not folder:
        what = "files made for the benchmark, NOT real ones (REP_GOLDEN is not set)"
        return what, list(_made_sites())
    with gzip.open(Path(folder) / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    found = []
    for record in records:
        urls = [case[0] for case in record["cases"]]
        found.append(site(record["robots"].encode("latin-1"), record["agent"], urls))
    return "real files", found


def _made_sites(files: int = 1000) -> Iterator[Site]:
    """Make files, and URLs of which half are such as their rules are about: the same each time."""
    chance = random.Random(2024)
    for number, body in enumerate(made(files)):
        host = f"https://www.site{number}.example"
        rules = [match[1] for match in _RULES.finditer(body.decode())] or ["/"]
        yield site(body, "FooBot", [host + _url(chance, rules) for _ in range(16)])


def _url(chance: random.Random, rules: list[str]) -> str:
    path = chance.choice(rules).replace("*", "some").removesuffix("$")
    begin = chance.choice(("", "/shop"))
    return begin + path + chance.choice(("", "page.html", ".html", "?page=2"))


def made(count: int, seed: int = 1) -> list[bytes]:
    """Make so many files, from nearly empty to hundreds of kilobytes."""
    chance = random.Random(seed)
    files = [_file(chance, _size((number + 0.5) / count)) for number in range(count)]
    chance.shuffle(files)
    return files


def _size(share: float) -> int:
    """Return how long a file is than which that share of all is shorter."""
    size = int(_MEDIAN * exp(_SIGMA * NormalDist().inv_cdf(share)))
    return min(_LONGEST, max(24, size))


def _file(chance: random.Random, size: int) -> bytes:
    # A site has words of its own, and uses them again and again.
    words = ["".join(chance.choices(_PARTS, k=3)) for _ in range(12 + size // 200)]
    # Most files name one agent, some name dozens; more than half know no wildcards.
    agents = chance.choice((0, 0.01, 0.01, 0.2))
    wild = chance.choice((0, 0, 0, 0.35, 0.7))
    lines = ["User-agent: *"]
    length = len(lines[0])
    while length < size:
        line = _line(chance, words, agents, wild)
        lines.append(line)
        length += len(line) + 1
    return ("\n".join(lines) + "\n").encode()


def _line(chance: random.Random, words: list[str], agents: float, wild: float) -> str:
    kind = chance.random()
    if kind > 1 - agents:
        return f"\nUser-agent: {chance.choice(_AGENTS.split())}"
    if kind < 0.02:
        return f"Sitemap: https://www.{words[0]}.com/sitemap-{chance.choice(words)}.xml"
    if kind < 0.06:
        return f"# {' '.join(chance.choices(words, k=4))}"
    path = chance.choice(_USUAL.split())
    if chance.random() > 0.35:
        path = "/" + "/".join(chance.choices(words, k=chance.randint(1, 4)))
        path += chance.choice(["/", "/", "", ".html", f"?{words[-1]}="])
    if chance.random() < wild:
        path = chance.choice((chance.choice(_WILD.split()), f"{path}*{words[1]}"))
    return f"{'Allow' if chance.random() < 0.12 else 'Disallow'}: {path}"
