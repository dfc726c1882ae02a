"""The files and URLs that the benchmarks work on: real ones where they are at hand."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from robotsfiles import made

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
    corpus = Path(
        path or Path(os.environ.get("REP_GOLDEN") or beside) / "corpus.jsonl.gz"
    )
    if path or corpus.is_file():
        return "real files (the golden corpus)", list(read(corpus))
    return (
        "files made up for the benchmark, NOT real ones (REP_GOLDEN is not set)",
        list(make()),
    )


def read(path: Path) -> Iterator[Site]:
    """Read a ``.jsonl.gz``: a line is an object with ``robots`` (the bytes as latin-1 text),
    ``agent`` and ``cases`` (lists that begin with a URL)."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            body = record["robots"].encode("latin-1")
            yield site(body, record["agent"], (case[0] for case in record["cases"]))


def make(files: int = 1000) -> Iterator[Site]:
    """Files like those of real sites, and URLs of which half are such as their rules are about: the
    same each time."""
    chance = random.Random(2024)
    for number, body in enumerate(made(files)):
        host = f"https://www.site{number}.example"
        rules = [match[1] for match in _RULES.finditer(body.decode())] or ["/"]
        yield site(body, "FooBot", [host + _path(chance, rules) for _ in range(16)])


_RULES = re.compile(r"^(?:Dis)?[Aa]llow: (\S+)", re.MULTILINE)


def _path(chance: random.Random, rules: list[str]) -> str:
    path = chance.choice(rules).replace("*", "some").removesuffix("$")
    if chance.random() < 0.5:
        return path + chance.choice(("", "page.html", "x", "?a=1"))
    tail = ("", "/", ".html", "?page=2", "?color=red&size=10", "/some-long-title-123")
    return f"/shop{path.rstrip('/')}{chance.choice(tail)}"
